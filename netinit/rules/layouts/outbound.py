"""Outbound traffic: connections of the application go to the proxy, those of the proxy do not."""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, Family, Network
from netinit.options import DNS_PORT, Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, by_family
from netinit.rules.layouts.inbound import TCP, loopback, not_to_loopback
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Source
from netinit.rules.model import (
    ISTIO_IN_REDIRECT,
    ISTIO_OUTPUT,
    ISTIO_REDIRECT,
    MANGLE,
    NAT,
    OUTPUT,
    PREROUTING,
)
from netinit.rules.targets import Jump, Return

HTTPS = 443
QUIC = Port(protocol="udp", ports=(HTTPS,))
ON_LOOPBACK = OutInterface(names=("lo",))


def exclude_interfaces(builder: Builder, options: Interception, transparent: bool) -> None:
    """Exclude these interfaces from capture, in every table that captures."""
    if not options.exclude_interfaces:
        return
    for table in (NAT, MANGLE) if transparent else (NAT,):
        for chain, match in (
            (PREROUTING, InInterface(names=options.exclude_interfaces)),
            (OUTPUT, OutInterface(names=options.exclude_interfaces)),
        ):
            builder.append(
                table, chain, match, to=Return(),
                why="traffic of these interfaces is not captured", origin="exclude_interfaces",
            )  # fmt: skip


def exclude_virtual_interfaces(builder: Builder, options: Interception) -> None:
    """Treat traffic of a VM behind the pod as outbound, or exclude it; it is never inbound traffic of the pod.

    Istio inserts each rule at the top, so the last one emitted comes first.
    """
    names = tuple(reversed(options.virtual_interfaces))
    if not names:
        return
    origin = "virtual_interfaces"
    scopes: list[tuple[tuple[Family, ...], tuple[Match, ...]]] = []
    if options.outbound_cidrs == ALL:
        scopes = [(FAMILIES, (InInterface(names=names),))]
    else:
        for family, networks in by_family(options.outbound_cidrs):
            last_first = Destination(networks=tuple(reversed(networks)))
            scopes.append(((family,), (last_first, InInterface(names=names))))
    for families, matches in scopes:
        builder.insert(
            NAT, PREROUTING, *matches, to=Jump(chain=ISTIO_REDIRECT),
            why="what a VM behind the pod sends is outbound traffic", origin=origin, families=families,
        )  # fmt: skip
    builder.insert(
        NAT, PREROUTING, InInterface(names=names), to=Return(),
        why="what a VM behind the pod sends is not inbound traffic", origin=origin,
    )  # fmt: skip


def enter(builder: Builder) -> None:
    """Add the jump to the outbound chain for everything that sockets of the pod send."""
    builder.append(NAT, OUTPUT, to=Jump(chain=ISTIO_OUTPUT), why="outbound traffic is looked at")


def exclude_ports(builder: Builder, options: Interception) -> None:
    """Let connections and datagrams to these ports bypass the proxy."""
    for protocol in ("tcp", "udp"):
        if options.exclude_outbound_ports:
            builder.append(
                NAT, ISTIO_OUTPUT, Port(protocol=protocol, ports=options.exclude_outbound_ports), to=Return(),
                why="these outbound ports are not captured", origin="exclude_outbound_ports",
                paired=protocol == "tcp",
            )  # fmt: skip


def exclude_proxy(builder: Builder, options: Interception, capture_dns: bool) -> None:
    """Let the proxy's own traffic leave; only what it sends to its own pod counts as inbound again."""
    for family in FAMILIES:
        source = Source(networks=(Network.parse(family.passthrough),))
        builder.append(
            NAT, ISTIO_OUTPUT, source, ON_LOOPBACK, to=Return(),
            why="the proxy passes an inbound connection on to the application", families=(family,),
        )  # fmt: skip
    captures_loopback = options.outbound_cidrs != ALL and any(
        isinstance(network, Network) and _is_loopback(network) for network in options.outbound_cidrs
    )
    for kind, numbers, flag in (("uid", options.proxy_uids, "proxy_uids"), ("gid", options.proxy_gids, "proxy_gids")):
        for number in numbers:
            _exclude_owner(builder, options, Owner(kind=kind, number=number), flag, capture_dns, captures_loopback)


def _is_loopback(network: Network) -> bool:
    """Whether Go's net.IP.IsLoopback is true for the network's address: 127.0.0.0/8 and ::1."""
    return network.first >> 24 == 127 if network.family is IPV4 else network.first == 1  # noqa: PLR2004


def _exclude_owner(  # noqa: PLR0917 - what its caller has found out
    builder: Builder, options: Interception, owner: Owner, flag: str, capture_dns: bool, captures_loopback: bool
) -> None:
    """Add the three rules for one user or group of the proxy."""
    # Istio exempts DNS over TCP for uids only: its own resolver runs under the proxy's uid.
    excluded: tuple[int, ...] = (DNS_PORT,) if capture_dns and owner.kind == "uid" else ()
    excluded += (options.tunnel_port,) if options.tunnel_port else ()
    inbound: Match = Port(protocol="tcp", ports=excluded, negated=True) if excluded else TCP
    for family in FAMILIES:
        builder.append(
            NAT, ISTIO_OUTPUT, not_to_loopback(options, family), ON_LOOPBACK, inbound, owner, to=Jump(chain=ISTIO_IN_REDIRECT),
            why="application -> own service -> proxy -> this pod: inbound again", origin=flag, families=(family,),
        )  # fmt: skip
    if not captures_loopback:
        other = owner.replace(negated=True)
        port: tuple[Match, ...] = (Port(protocol="tcp", ports=(DNS_PORT,), negated=True),) if capture_dns else ()
        builder.append(
            NAT, ISTIO_OUTPUT, ON_LOOPBACK, *port, other, to=Return(),
            why="the application talks to itself", origin=flag,
        )  # fmt: skip
    builder.append(NAT, ISTIO_OUTPUT, owner, to=Return(), why="the proxy's own traffic goes out: no loops", origin=flag)


def exclude_groups(builder: Builder, options: Interception) -> None:
    """Let traffic of the excluded groups bypass the proxy."""
    for owners, origin, why in excluded_groups(options):
        builder.append(NAT, ISTIO_OUTPUT, *owners, to=Return(), why=why, origin=origin)


def excluded_groups(options: Interception) -> list[tuple[tuple[Owner, ...], str, str]]:
    """Return the groups whose outbound traffic is not captured: matches, option and reason of each."""
    if options.owner_groups == ALL:
        return [
            ((Owner(kind="gid", number=group),), "exclude_owner_groups", "traffic of this group is not captured")
            for group in options.exclude_owner_groups
        ]
    others = tuple([Owner(kind="gid", number=int(group), negated=True) for group in options.owner_groups])
    return [(others, "owner_groups", "only these groups' traffic is captured")] if others else []


def exclude_networks(builder: Builder, options: Interception) -> None:
    """Let traffic to the loopback and to excluded networks bypass the proxy."""
    for family in FAMILIES:
        own = Destination(networks=(loopback(options, family),))
        builder.append(
            NAT, ISTIO_OUTPUT, own, to=Return(),
            why="loopback traffic stays in the pod", families=(family,),
        )  # fmt: skip
    for networks, origin, why in excluded_networks(options):
        for family, of_family in by_family(networks):
            builder.append(
                NAT, ISTIO_OUTPUT, Destination(networks=of_family), to=Return(),
                why=why, origin=origin, families=(family,),
            )  # fmt: skip


def excluded_networks(options: Interception) -> list[tuple[tuple[Network, ...], str, str]]:
    """Return networks to which outbound traffic is not captured, each with its option and reason."""
    found = [(options.exclude_outbound_cidrs, "exclude_outbound_cidrs", "these networks are not captured")]
    if options.exclude_cloud_metadata:
        from netinit.rules.layouts.clouds import CLOUD_METADATA

        found.append((CLOUD_METADATA, "exclude_cloud_metadata", "the cloud's metadata service knows a machine by its own address"))
    return found


def capture(builder: Builder, options: Interception) -> None:
    """Redirect the remaining traffic to the proxy, by port or by network."""
    to_proxy = Jump(chain=ISTIO_REDIRECT)
    if options.outbound_ports:
        builder.append(
            NAT, ISTIO_OUTPUT, Port(protocol="tcp", ports=options.outbound_ports), to=to_proxy,
            why="these outbound ports are captured whatever the address", origin="outbound_ports",
        )  # fmt: skip
    if options.outbound_cidrs == ALL:
        builder.append(
            NAT, ISTIO_OUTPUT, to=to_proxy,
            why="every other outbound connection goes to the proxy", origin="outbound_cidrs",
        )  # fmt: skip
        return
    for family, networks in by_family(options.outbound_cidrs):
        builder.append(
            NAT, ISTIO_OUTPUT, Destination(networks=networks), to=to_proxy,
            why="these networks are captured", origin="outbound_cidrs", families=(family,),
        )  # fmt: skip
