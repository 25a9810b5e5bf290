"""Send real packets through the live rules of a pod and compare their path with the plan.

Each probe is the first packet of a connection, sent by a user of the matrix or by a temporary peer. Its path is read from
connection tracking, so no port is occupied, no program in the pod receives a connection, and the proxy may be running.
Packets that would leave the pod stop at the first router.
"""

from __future__ import annotations

from netinit.pods.probe.matrix import Ask, plan_inbound, plan_outbound
from netinit.pods.probe.rows import ProbeResult, Probes, probe

__all__ = ["Ask", "ProbeResult", "Probes", "plan_inbound", "plan_outbound", "probe"]
