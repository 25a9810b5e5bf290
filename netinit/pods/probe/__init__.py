"""Probing: real packets through the live rules of a pod, against what the plan says must become of them.

Every probe is the first packet of a connection, sent by a user of the matrix or by a peer that exists for a moment.
Where it went is read from connection tracking, so no port is taken, no program in the pod sees a connection, and the
proxy may be running. What would leave the pod ends at the first router.
"""

from __future__ import annotations

from netinit.pods.probe.matrix import Ask, plan_inbound, plan_outbound
from netinit.pods.probe.rows import ProbeResult, Probes, probe

__all__ = ["Ask", "ProbeResult", "Probes", "plan_inbound", "plan_outbound", "probe"]
