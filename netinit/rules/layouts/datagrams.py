"""Send outbound UDP to some ports to listeners of the pod, see --redirect-outbound-udp."""

from __future__ import annotations

from netinit.options import Interception
from netinit.rules.layouts.builder import Builder
from netinit.rules.layouts.log_rules import add_report
from netinit.rules.layouts.outbound import ON_LOOPBACK
from netinit.rules.matches.packet import Port
from netinit.rules.model import ISTIO_OUTPUT, NAT
from netinit.rules.targets import Redirect

LEAVING = ON_LOOPBACK.replace(negated=True)


def redirect(builder: Builder, options: Interception) -> None:
    """Redirect UDP that leaves the pod; call it after the exclusions."""
    for one in options.redirect_outbound_udp:
        sent = LEAVING, Port(protocol="udp", ports=(one.port,))
        if options.log_rules:
            add_report(builder, options, NAT, ISTIO_OUTPUT, *sent, fate="outbound", inserted=False)
        why, origin = "UDP to this port goes to a listener of the pod", "redirect_outbound_udp"
        builder.append(NAT, ISTIO_OUTPUT, *sent, to=Redirect(port=one.to), why=why, origin=origin)
