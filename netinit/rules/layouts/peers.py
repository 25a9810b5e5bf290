"""Features of other meshes that Istio lacks: exclusions by user and port, and rejecting QUIC. Loaded only if an option needs it."""

from __future__ import annotations

from netinit.base.net import FAMILIES, Family, lists_port
from netinit.options import Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, by_family
from netinit.rules.layouts.outbound import HTTPS, QUIC
from netinit.rules.layouts.refuse import outbound_exclusions, owner_of
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, OutInterface, Port, Protocol
from netinit.rules.model import FILTER, ISTIO_OUTPUT, ISTIO_QUIC, NAT, OUTPUT
from netinit.rules.targets import Jump, Reject, Return


def exclude_ports_of_users(builder: Builder, options: Interception) -> None:
    """Let traffic of some users and groups to some ports bypass the proxy.

    The proxy's own rules come first, so a range that includes its user does not affect traffic to its own pod.
    """
    for kind, listed, origin in (
        ("uid", options.exclude_outbound_for_uids, "exclude_outbound_for_uids"),
        ("gid", options.exclude_outbound_for_gids, "exclude_outbound_for_gids"),
    ):
        for one in listed:
            what: Match = Port(protocol=one.protocol, ports=one.ports) if one.ports else Protocol(name=one.protocol)
            builder.append(
                NAT, ISTIO_OUTPUT, what, owner_of(kind, one), to=Return(),
                why=f"what these {'users' if kind == 'uid' else 'groups'} send there is not captured", origin=origin,
            )  # fmt: skip


def reject_quic(builder: Builder, options: Interception, families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Reject HTTP over UDP wherever HTTP over TCP would be captured, so that clients fall back to TCP.

    Returns the families with such a rule.
    """
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
    interfaces = OutInterface(names=("lo", *options.exclude_interfaces))
    excluded = [((interfaces,), FAMILIES)] + [(one.matches, one.families) for one in outbound_exclusions(options, HTTPS)]
    for matches, of_these in excluded:
        builder.append(
            FILTER, ISTIO_QUIC, *matches, to=Return(),
            why="their TCP is not captured either", origin=origin,
            families=tuple([one for one in both if one in of_these]),
        )  # fmt: skip
    if options.log_rules:
        from netinit.rules.layouts.logs import add_report

        for family, matches in chosen:
            add_report(builder.append, options, FILTER, ISTIO_QUIC, *matches, fate="refused", families=(family,))
    for family, matches in chosen:  # the message of each family is another
        builder.append(
            FILTER, ISTIO_QUIC, *matches, to=Reject(),
            why="clients that are refused QUIC use TCP, which is captured", origin=origin, families=(family,),
        )  # fmt: skip
    return both
