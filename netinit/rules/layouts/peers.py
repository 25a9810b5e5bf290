"""Reject QUIC, as other meshes do."""

from __future__ import annotations

from netinit.base.net import Family, lists_port
from netinit.options import Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, Exclusion, by_family
from netinit.rules.layouts.outbound import HTTPS, QUIC
from netinit.rules.layouts.refuse import outbound_exclusions
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, OutInterface
from netinit.rules.model import FILTER, ISTIO_QUIC, OUTPUT
from netinit.rules.targets import Jump, Reject


def reject_quic(builder: Builder, options: Interception, families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Reject HTTP over UDP where HTTP over TCP is captured, so that clients fall back; return the families with a rule."""
    chosen: list[tuple[Family, tuple[Match, ...]]] = [(family, ()) for family in families]
    if options.outbound_cidrs != ALL and not lists_port(options.outbound_ports, HTTPS):
        captured = by_family(options.outbound_cidrs)
        chosen = [(family, (Destination(networks=found),)) for family, found in captured if family in families]
    if lists_port(options.exclude_outbound_ports, HTTPS) or not chosen:
        return ()
    both = tuple([family for family, _ in chosen])
    origin = "reject_quic"
    builder.append(
        FILTER, OUTPUT, QUIC, to=Jump(chain=ISTIO_QUIC),
        why="QUIC is looked at", origin=origin, families=both,
    )  # fmt: skip
    why = "their TCP is not captured either"
    own = Exclusion(matches=(OutInterface(names=("lo", *options.exclude_interfaces)),), origin=origin, why=why)
    for one in (own, *outbound_exclusions(options, HTTPS)):
        families = tuple([family for family in both if family in one.families])
        builder.exclude(FILTER, ISTIO_QUIC, [one.replace(origin=origin, why=why, families=families)])
    if options.log_rules:
        from netinit.rules.layouts.log_rules import add_report

        for family, matches in chosen:
            add_report(builder, options, FILTER, ISTIO_QUIC, *matches, fate="refused", families=(family,), inserted=False)
    for family, matches in chosen:  # the message of each family is another
        why = "clients that are refused QUIC use TCP, which is captured"
        builder.append(FILTER, ISTIO_QUIC, *matches, to=Reject(), why=why, origin=origin, families=(family,))
    return both
