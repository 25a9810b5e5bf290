"""Reject IPv6: TCP that `--ipv6 on` would capture is answered with a reset, in both directions.

Loaded only if requested. Only the first packet of a connection is rejected (SYN without ACK), whatever its conntrack
state: an entry of an earlier connection must not let a new one pass. All other TCP passes, so that accepted and older
connections continue. A fragment, whose flags cannot be read, counts as a first packet.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV6, Family, Network, lists_port
from netinit.base.records import Record
from netinit.options import AMBIENT, CLASSIC, DNS_PORT, NONE, REDIRECT, TPROXY, Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, by_family
from netinit.rules.layouts.inbound import TCP
from netinit.rules.layouts.outbound import excluded_groups, excluded_networks
from netinit.rules.matches import Match
from netinit.rules.matches.context import BARE_SYN
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.model import FILTER, FORWARD, INPUT, ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT, OUTPUT
from netinit.rules.targets import Jump, Reject, Return, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from netinit.options.user_ports import PortsOfUsers

ORIGIN = "ipv6"
RESET = Reject(message="tcp-reset")  # clients fail at once, and try IPv4
SSH_PORT = 22  # never captured in the classic layout


class Exclusion(Record):
    """Packets of some families that are not captured, with the option (empty: none) and the reason."""

    matches: tuple[Match, ...]
    origin: str
    why: str
    families: tuple[Family, ...] = FAMILIES


def refuse_ipv6(
    builder: Builder, options: Interception, *, capture_dns: bool = False,
    excluded: tuple[list[Exclusion], list[Exclusion]] | None = None,
) -> None:
    """Add the chains for both directions in which something is captured.

    `excluded`: what the ambient layout does not capture, inbound and outbound; it captures everything else.
    """
    own = builder.within((IPV6,))
    inbound, outbound = excluded or (_inbound_exclusions(options), outbound_exclusions(options))
    outwards, inwards = _outbound_captured(options), _inbound_captured(options)
    vms = InInterface(names=options.virtual_interfaces)
    behind = [(vms, *matches) for matches in _to_networks(options)] if options.virtual_interfaces else []
    if inwards or behind:
        _enter(own, ISTIO_REFUSE_IN, INPUT, FORWARD)
        _exclude(own, ISTIO_REFUSE_IN, [_ITSELF_IN])
        _refuse(own, options, ISTIO_REFUSE_IN, behind)
        if options.virtual_interfaces and not (options.inbound_mode == TPROXY and options.layout != CLASSIC):  # already handled
            why = "what a VM behind the pod sends is not inbound traffic"
            _exclude(own, ISTIO_REFUSE_IN, [Exclusion(matches=(vms,), origin="virtual_interfaces", why=why)])
        if inwards:
            _exclude(own, ISTIO_REFUSE_IN, inbound)
            _refuse(own, options, ISTIO_REFUSE_IN, inwards)
    queries = _queries(options) if capture_dns else []
    if outwards or queries:
        _enter(own, ISTIO_REFUSE_OUT, OUTPUT)
        _exclude(own, ISTIO_REFUSE_OUT, [_ITSELF_OUT])
        of_networks = [one for one in outbound if any(isinstance(match, Destination) for match in one.matches)]
        _exclude(own, ISTIO_REFUSE_OUT, [one for one in outbound if one not in of_networks])
        _refuse(own, options, ISTIO_REFUSE_OUT, queries)  # captured for every destination
        _exclude(own, ISTIO_REFUSE_OUT, of_networks)
        _refuse(own, options, ISTIO_REFUSE_OUT, outwards)


_ITSELF_IN = Exclusion(matches=(InInterface(names=("lo",)),), origin="", why="what the pod sends to itself is not captured")
_ITSELF_OUT = _ITSELF_IN.replace(matches=(OutInterface(names=("lo",)),))


def _enter(builder: Builder, chain: str, *hooks: str) -> None:
    for hook in hooks:
        builder.append(FILTER, hook, TCP, to=Jump(chain=chain), why="TCP over IPv6 is looked at", origin=ORIGIN)
    builder.append(
        FILTER, chain, BARE_SYN.replace(negated=True), to=Return(),
        why="only what begins a connection is refused", origin=ORIGIN,
    )  # fmt: skip


def _exclude(builder: Builder, chain: str, excluded: list[Exclusion]) -> None:
    for one in excluded:
        builder.append(FILTER, chain, *one.matches, to=Return(), why=one.why, origin=one.origin, families=one.families)


def _refuse(builder: Builder, options: Interception, chain: str, chosen: list[tuple[Match, ...]]) -> None:
    for matches in chosen:
        if options.log_rules:
            from netinit.rules.layouts.logs import add_report

            add_report(builder.append, options, FILTER, chain, *matches, fate="refused")
        _append(builder, chain, matches, RESET, "IPv6 is refused: clients take IPv4, which is captured")


def _append(builder: Builder, chain: str, matches: tuple[Match, ...], to: Target, why: str) -> None:
    builder.append(FILTER, chain, *matches, to=to, why=why, origin=ORIGIN)


def outbound_exclusions(options: Interception, port: int = 0) -> list[Exclusion]:
    """Return the outbound TCP that is not captured; with `port`, only exclusions other than by port, limited to this port."""
    found: list[Exclusion] = []
    why = "traffic of these interfaces is not captured"
    if not port and options.exclude_interfaces:
        interfaces = OutInterface(names=options.exclude_interfaces)
        found.append(Exclusion(matches=(interfaces,), origin="exclude_interfaces", why=why))
    if not port and options.exclude_outbound_ports:
        ports = Port(protocol="tcp", ports=options.exclude_outbound_ports)
        found.append(Exclusion(matches=(ports,), origin="exclude_outbound_ports", why="these outbound ports are not captured"))
    found += _of_users(options, port)
    for kind, numbers, origin in (("uid", options.proxy_uids, "proxy_uids"), ("gid", options.proxy_gids, "proxy_gids")):
        why = "the proxy's own traffic goes out: no loops"
        found += [Exclusion(matches=(Owner(kind=kind, number=one),), origin=origin, why=why) for one in numbers]
    found += [Exclusion(matches=owners, origin=origin, why=why) for owners, origin, why in excluded_groups(options)]
    for networks, origin, why in excluded_networks(options):
        for family, of_family in by_family(networks):
            to = Destination(networks=of_family)
            found.append(Exclusion(matches=(to,), origin=origin, why=why, families=(family,)))
    return found


def _of_users(options: Interception, port: int) -> Iterator[Exclusion]:
    for kind, listed, origin in (
        ("uid", options.exclude_outbound_for_uids, "exclude_outbound_for_uids"),
        ("gid", options.exclude_outbound_for_gids, "exclude_outbound_for_gids"),
    ):
        for one in listed:
            if one.protocol != "tcp" or (port and one.ports and not lists_port(one.ports, port)):
                continue
            what: tuple[Match, ...] = ()
            if not port:
                what = (Port(protocol="tcp", ports=one.ports) if one.ports else Protocol(name="tcp"),)
            why = f"what these {'users' if kind == 'uid' else 'groups'} send there is not captured"
            yield Exclusion(matches=(*what, owner_of(kind, one)), origin=origin, why=why)


def owner_of(kind: str, one: PortsOfUsers) -> Owner:
    """Return the match for the users or groups of an exception."""
    return Owner(kind=kind, number=one.first, last=None if one.first == one.last else one.last)


def _outbound_captured(options: Interception) -> list[tuple[Match, ...]]:
    """Return the captured outbound TCP, as one tuple of matches for each part."""
    ports: list[tuple[Match, ...]] = []
    if options.outbound_ports:
        ports.append((Port(protocol="tcp", ports=options.outbound_ports),))
    return ports + _to_networks(options)


def _to_networks(options: Interception) -> list[tuple[Match, ...]]:
    """Return matches for TCP to the captured networks."""
    if options.outbound_cidrs == ALL or options.layout == AMBIENT:
        return [(TCP,)]
    return [(Destination(networks=found), TCP) for family, found in by_family(options.outbound_cidrs) if family is IPV6]


def _queries(options: Interception) -> list[tuple[Match, ...]]:
    """Return matches for DNS over TCP, to all servers or to the named ones."""
    port = Port(protocol="tcp", ports=(DNS_PORT,))
    if options.capture_all_dns:
        return [(port,)]
    servers = tuple([Network.parse(f"{server}/{IPV6.bits}") for server in options.dns_servers if ":" in server])
    return [(port, Destination(networks=servers))] if servers else []


def _inbound_exclusions(options: Interception) -> list[Exclusion]:
    found: list[Exclusion] = []
    why = "traffic of these interfaces is not captured"
    if options.exclude_interfaces:
        interfaces = InInterface(names=options.exclude_interfaces)
        found.append(Exclusion(matches=(interfaces,), origin="exclude_interfaces", why=why))
    if options.tunnel_port and options.inbound_mode == REDIRECT and options.layout != CLASSIC:
        tunnel = Port(protocol="tcp", ports=(options.tunnel_port,))
        found.append(Exclusion(matches=(tunnel,), origin="tunnel_port", why="tunnelled connections reach the proxy as they are"))
    for family, networks in by_family(options.exclude_inbound_cidrs):
        why = "connections from these networks are not captured"
        source = Source(networks=networks)
        found.append(Exclusion(matches=(source,), origin="exclude_inbound_cidrs", why=why, families=(family,)))
    for ports, origin in (
        ((SSH_PORT,) if options.layout == CLASSIC else (), ""),
        (options.exclude_inbound_ports, "exclude_inbound_ports"),
    ):
        if ports and options.inbound_ports == ALL:
            port = Port(protocol="tcp", ports=ports)
            found.append(Exclusion(matches=(port,), origin=origin, why="these inbound ports are not captured"))
    return found


def _inbound_captured(options: Interception) -> list[tuple[Match, ...]]:
    if options.layout == AMBIENT:
        return [] if options.ingress else [(TCP,)]
    if options.inbound_mode == NONE or not options.inbound_ports:
        return []
    if options.inbound_ports == ALL:
        return [(TCP,)]
    ports = tuple([port for port in options.inbound_ports if not isinstance(port, str)])
    return [(Port(protocol="tcp", ports=ports),)]
