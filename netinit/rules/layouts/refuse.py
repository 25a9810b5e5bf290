"""Reject IPv6: answer TCP that `--ipv6 on` would capture with a reset, in both directions. Reject QUIC, as other meshes do.

IPv6: rejects only the first packet of a connection (SYN without ACK), whatever its conntrack state, because an old entry must
not let a new connection pass. A fragment, whose flags cannot be read, counts as a first packet.
"""

from __future__ import annotations

from netinit.base.net import IPV6, Family, lists_port
from netinit.options import DNS_PORT, NONE, TPROXY, Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts import inbound, outbound
from netinit.rules.layouts.builder import Builder, Exclusion, hosts_of, owners, proxy_owners
from netinit.rules.layouts.inbound import TCP
from netinit.rules.matches import Match
from netinit.rules.matches.context import BARE_SYN
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Protocol
from netinit.rules.model import FILTER, FORWARD, INPUT, ISTIO_QUIC, ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT, OUTPUT
from netinit.rules.targets import Jump, Reject, Return

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


ORIGIN = "ipv6"
RESET = Reject(message="tcp-reset")  # clients fail at once, and try IPv4


def refuse_ipv6(
    builder: Builder, options: Interception, *, capture_dns: bool = False,
    excluded: tuple[list[Exclusion], list[Exclusion]] | None = None,
) -> None:
    """Add the rejecting chains; `excluded`: what a layout with rules of its own does not capture, inbound and outbound."""
    ipv6 = builder.within((IPV6,))
    excluded_inbound, excluded_outbound = excluded or (_inbound_exclusions(options), outbound_exclusions(options))
    captured_outbound, captured_inbound = _to_networks(options), _inbound_captured(options)
    if options.outbound_ports:
        captured_outbound.insert(0, (Port(protocol="tcp", ports=options.outbound_ports),))
    from_vms = InInterface(names=options.virtual_interfaces)
    captured_from_vms = [(*networks, from_vms, tcp) for *networks, tcp in _to_networks(options)] if options.virtual_interfaces else []
    queries = _queries(options) if capture_dns else []
    if options.virtual_interfaces and options.redirect_forwarded_dns:
        captured_from_vms[:0] = [(*servers, from_vms, port) for *servers, port in queries]
    if captured_inbound or captured_from_vms:
        _enter(ipv6, ISTIO_REFUSE_IN, INPUT, FORWARD)
        ipv6.exclude(FILTER, ISTIO_REFUSE_IN, _ITSELF_IN)
        _refuse(ipv6, options, ISTIO_REFUSE_IN, captured_from_vms)
        handled = options.inbound_mode == TPROXY and not options.traits.tproxy_by_socket
        if options.virtual_interfaces and not handled:
            why = "what a VM behind the pod sends is not inbound traffic"
            ipv6.exclude(FILTER, ISTIO_REFUSE_IN, Exclusion(matches=(from_vms,), origin="virtual_interfaces", why=why))
        if captured_inbound:
            ipv6.exclude(FILTER, ISTIO_REFUSE_IN, *excluded_inbound)
            _refuse(ipv6, options, ISTIO_REFUSE_IN, captured_inbound)
    if captured_outbound or queries:
        _enter(ipv6, ISTIO_REFUSE_OUT, OUTPUT)
        ipv6.exclude(FILTER, ISTIO_REFUSE_OUT, _ITSELF_OUT)
        of_networks = [one for one in excluded_outbound if any(isinstance(match, Destination) for match in one.matches)]
        ipv6.exclude(FILTER, ISTIO_REFUSE_OUT, *[one for one in excluded_outbound if one not in of_networks])
        _refuse(ipv6, options, ISTIO_REFUSE_OUT, queries)  # captured for every destination
        ipv6.exclude(FILTER, ISTIO_REFUSE_OUT, *of_networks)
        _refuse(ipv6, options, ISTIO_REFUSE_OUT, captured_outbound)


_ITSELF_IN = Exclusion(matches=(InInterface(names=("lo",)),), origin="", why="what the pod sends to itself is not captured")
_ITSELF_OUT = _ITSELF_IN.replace(matches=(OutInterface(names=("lo",)),))


def _enter(builder: Builder, chain: str, *hooks: str) -> None:
    for hook in hooks:
        builder.append(FILTER, hook, TCP, to=Jump(chain=chain), why="TCP over IPv6 is checked", origin=ORIGIN)
    why = "only what begins a connection is refused"
    builder.append(FILTER, chain, BARE_SYN.replace(negated=True), to=Return(), why=why, origin=ORIGIN)


def _refuse(builder: Builder, options: Interception, chain: str, chosen: list[tuple[Match, ...]]) -> None:
    why = "IPv6 is refused: clients take IPv4, which is captured"
    for matches in chosen:
        if options.log_rules:
            from netinit.rules.layouts.log_rules import add_report

            add_report(builder, options, FILTER, chain, *matches, fate="refused", inserted=False)
        builder.append(FILTER, chain, *matches, to=RESET, why=why, origin=ORIGIN)


def outbound_exclusions(options: Interception, port: int = 0) -> list[Exclusion]:
    """Return the outbound TCP that is not captured; with `port`, to this port, without exclusions by port."""
    why = "the proxy's own traffic goes out: no loops"
    return [
        *([] if port else [outbound.excluded_interfaces(options, OutInterface), outbound.excluded_ports(options, "tcp")]),
        *excluded_users(options, ("tcp",), port),
        *[Exclusion(matches=(owner,), origin=origin, why=why) for owner, origin in proxy_owners(options)],
        *outbound.excluded_groups(options),
        *outbound.excluded_networks(options),
    ]


def excluded_users(options: Interception, protocols: tuple[str, ...], port: int = 0) -> Iterator[Exclusion]:
    """Yield the exclusions by user or group and port; with `port`, those that include it.

    The proxy's own rules come first, so a range that includes its user does not affect traffic to its own pod.
    """
    for kind, listed, origin in (
        ("uid", options.exclude_outbound_for_uids, "exclude_outbound_for_uids"),
        ("gid", options.exclude_outbound_for_gids, "exclude_outbound_for_gids"),
    ):
        why = f"what these {'users' if kind == 'uid' else 'groups'} send there is not captured"
        for one in listed:
            if one.protocol not in protocols or (port and one.ports and not lists_port(one.ports, port)):
                continue
            what: Match = Port(protocol=one.protocol, ports=one.ports) if one.ports else Protocol(name=one.protocol)
            (owner,) = owners(kind, [(one.first, one.last)])
            yield Exclusion(matches=(owner,) if port else (what, owner), origin=origin, why=why)


def _to_networks(options: Interception) -> list[tuple[Match, ...]]:
    """Return matches for TCP to the captured networks."""
    if options.outbound_cidrs == ALL or not options.has("outbound_cidrs"):
        return [(TCP,)]
    networks = tuple([network for network in outbound.captured_networks(options) if network.family is IPV6])
    return [(Destination(networks=networks), TCP)] if networks else []


def _queries(options: Interception) -> list[tuple[Match, ...]]:
    """Return matches for the captured DNS over TCP."""
    port = Port(protocol="tcp", ports=(DNS_PORT,))
    if options.capture_all_dns:
        return [(port,)]
    servers = hosts_of(options.dns_servers, IPV6)
    return [(Destination(networks=servers), port)] if servers else []


def _inbound_exclusions(options: Interception) -> list[Exclusion]:
    return [
        outbound.excluded_interfaces(options, InInterface),
        *([inbound.excluded_tunnel(options)] if options.sidecar_tunnel else []),
        inbound.excluded_sources(options),
        *inbound.excluded_ports(options),
    ]


def _inbound_captured(options: Interception) -> list[tuple[Match, ...]]:
    if not options.has("inbound_ports"):
        return [] if options.ingress else [(TCP,)]
    if options.inbound_mode == NONE or not options.inbound_ports:
        return []
    return [(inbound.chosen(options),)]


def reject_quic(builder: Builder, options: Interception, families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Reject HTTP over UDP where HTTP over TCP is captured, so that clients fall back; return the families with a rule."""
    chosen: tuple[Match, ...] = ()
    if options.outbound_cidrs != ALL and not lists_port(options.outbound_ports, outbound.HTTPS):
        networks = outbound.captured_networks(options)
        chosen = (Destination(networks=networks),)
        families = tuple([family for family in families if any(network.family is family for network in networks)])
    if lists_port(options.exclude_outbound_ports, outbound.HTTPS) or not families:
        return ()
    builder, origin, why = builder.within(families), "reject_quic", "their TCP is not captured either"
    builder.append(FILTER, OUTPUT, outbound.QUIC, to=Jump(chain=ISTIO_QUIC), why="QUIC is checked", origin=origin)
    own = Exclusion(matches=(OutInterface(names=("lo", *options.exclude_interfaces)),), origin=origin, why=why)
    excluded = [own, *outbound_exclusions(options, outbound.HTTPS)]
    builder.exclude(FILTER, ISTIO_QUIC, *[one.replace(origin=origin, why=why) for one in excluded])
    for family in families if options.log_rules else ():
        from netinit.rules.layouts.log_rules import add_report

        add_report(builder, options, FILTER, ISTIO_QUIC, *chosen, fate="refused", families=(family,), inserted=False)
    for family in families:  # the message of each family is another
        why = "clients that are refused QUIC use TCP, which is captured"
        builder.append(FILTER, ISTIO_QUIC, *chosen, to=Reject(), why=why, origin=origin, families=(family,))
    return families
