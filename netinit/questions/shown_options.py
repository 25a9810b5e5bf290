"""What the options that rules show leave out although most pods have it: perhaps a rule was deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import lists_port
from netinit.options import Interception, SettledOptions
from netinit.options.interception import PROXY_PORTS
from netinit.options.kinds import ALL
from netinit.rules.infer_options import InferredOptions

HBONE = 15008  # the port of tunnels, which Istio excludes since 1.7
ELSE = "if the pod's options say otherwise, a rule is missing, which the rules alone do not show: give the options (--pod FILE)"


def describe_gaps(shown: InferredOptions) -> Iterator[str]:
    """Yield what is not captured, or not excluded, by the options that rules show."""
    options = shown.options
    if options is None or not Interception.flag("inbound_ports").applies_to(options.layout):
        return
    if not (options.outbound_cidrs or options.outbound_ports):
        yield f"by these options, no outbound connection is captured; {ELSE}"
    if not options.inbound_ports:
        yield f"by these options, no inbound connection is captured; {ELSE}"
    if left := _list_not_excluded(options):
        yield f"by these options, inbound port {', '.join(map(str, left))} is captured, which Istio excludes today; {ELSE}"


def _list_not_excluded(options: SettledOptions) -> list[int]:
    if options.inbound_ports != ALL:
        return []
    excluded = options.exclude_inbound_ports
    has_tunnel = Interception.flag("tunnel_port").applies_to(options.layout)
    tunnel = [HBONE] if has_tunnel and not (options.tunnel_port or lists_port(excluded, HBONE)) else []
    return [*tunnel, *[port for port in PROXY_PORTS if not lists_port(excluded, port)]]
