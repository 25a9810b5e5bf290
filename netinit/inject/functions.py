"""The functions that templates may call: Go's, sprig's and Istio's, the last ones knowing our mesh and ProxyConfig."""

from __future__ import annotations

from netinit.inject.gotemplate import istio

__all__ = ["CLASSIC_FUNCTIONS", "FUNCTIONS"]

FUNCTIONS = istio.functions()
CLASSIC_FUNCTIONS = istio.functions(include_udp=True)
"""includeInboundPorts of 1.1 names UDP ports too."""
