"""The ambient layout: the rules of Istio's node agent in a pod without a sidecar, in Istio's order.

The node's proxy (ztunnel) opens its sockets in the pod's namespace and marks its packets. Its connections to the
application have the peer's address; their mark routes the answers back to its sockets.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4
from netinit.options import DNS_LISTENER, DNS_PORT, REJECT, Interception, SettledOptions
from netinit.options.interception import AMBIENT_MARK, AMBIENT_MASK, AMBIENT_TABLE, NODE_PROXY_MARK
from netinit.rules import model
from netinit.rules.layouts import refuse, untranslated
from netinit.rules.layouts.builder import Builder, Exclusion, hosts_of
from netinit.rules.layouts.inbound import TCP, excluded_tunnel, not_to_loopback
from netinit.rules.layouts.outbound import ON_LOOPBACK
from netinit.rules.marking_targets import RestoreMark, SetMark, TrackZone
from netinit.rules.matches.context import Mark
from netinit.rules.matches.packet import Destination, InInterface, Port, Source
from netinit.rules.model import ISTIO_OUTPUT, ISTIO_PRERT, MANGLE, NAT, OUTPUT, PREROUTING, RAW, IpRule, Plan, Route
from netinit.rules.targets import Accept, Jump, Redirect, Return

OF_PROXY = Mark(value=NODE_PROXY_MARK, mask=AMBIENT_MASK)
OF_OTHERS = OF_PROXY.replace(negated=True)
PROXY_ZONE = 1
PRIORITY = 32764  # of the policy rule


def plan(options: SettledOptions) -> Plan:
    """Return the plan of the ambient layout."""
    families = FAMILIES if options.captures_ipv6 else (IPV4,)
    builder = Builder(families)
    for table in (MANGLE, NAT, RAW) if options.redirect_dns else (MANGLE, NAT):
        if table != RAW or options.istio_exact:
            builder.append(table, PREROUTING, to=Jump(chain=ISTIO_PRERT), why="inbound traffic is checked")
        builder.append(table, OUTPUT, to=Jump(chain=ISTIO_OUTPUT), why="outbound traffic is checked")
    _mark_connections(builder)
    _capture_virtual_interfaces(builder, options)
    _capture_inbound(builder, options)
    if options.redirect_dns:
        _capture_dns(builder, options)
    _capture_outbound(builder, options)
    untranslated.close_nat_gaps(builder, options)
    if options.ipv6 == REJECT:
        refuse.refuse_ipv6(builder, options, excluded=_exclusions(options))
    return Plan(
        layout=options.layout,
        families=FAMILIES if options.ipv6 == REJECT else families,
        tables=builder.tables(),
        ip_rules=tuple([
            IpRule(family=family, mark=AMBIENT_MARK, mask=AMBIENT_MASK, table=AMBIENT_TABLE, priority=PRIORITY) for family in families
        ]),
        routes=tuple([Route(family=family, table=AMBIENT_TABLE) for family in families]),
        nft_prefix=model.NFT_NODE_AGENT,
    )


def _mark_connections(builder: Builder) -> None:
    mark = SetMark(value=AMBIENT_MARK, mask=AMBIENT_MASK, connection=True)
    builder.append(MANGLE, ISTIO_PRERT, OF_PROXY, to=mark, why="the node's proxy made this connection to the application")
    known, why = Mark(value=mark.value, mask=mark.mask, connection=True), "the application's answers go back to the node's proxy"
    builder.append(MANGLE, ISTIO_OUTPUT, known, to=RestoreMark(), why=why)


def _capture_virtual_interfaces(builder: Builder, options: Interception) -> None:
    origin, to_proxy = "virtual_interfaces", Redirect(port=options.outbound_port)
    for name in options.virtual_interfaces:
        coming = InInterface(names=(name,))
        for protocol in ("tcp", "udp") if options.redirect_dns and options.redirect_forwarded_dns else ():
            query, resolver = Port(protocol=protocol, ports=(DNS_PORT,)), Redirect(port=DNS_LISTENER)
            why, asked = "DNS queries from behind the pod go to the node's proxy", "redirect_forwarded_dns"
            builder.append(NAT, ISTIO_PRERT, coming, query, to=resolver, why=why, origin=asked)
        why = "what a VM behind the pod sends is outbound traffic"
        builder.append(NAT, ISTIO_PRERT, coming, TCP, to=to_proxy, why=why, origin=origin)
        why = "what a VM behind the pod sends is not inbound traffic"
        builder.append(NAT, ISTIO_PRERT, coming, TCP, to=Return(), why=why, origin=origin)


def _capture_inbound(builder: Builder, options: Interception) -> None:
    why, origin = "the kubelet's probes are not captured", "host_probe_addresses"
    loaded, probes = TCP.replace(module=True), hosts_of(options.host_probe_addresses, *FAMILIES)
    for probe in () if options.ingress else probes:
        builder.append(NAT, ISTIO_PRERT, loaded, Source(networks=(probe,)), to=Accept(), why=why, origin=origin)
    for probe in probes:
        builder.append(NAT, ISTIO_OUTPUT, loaded, Destination(networks=(probe,)), to=Accept(), why=why, origin=origin)
    if not options.ingress:
        captured = (not_to_loopback(options), Port(protocol="tcp", ports=(options.tunnel_port,), negated=True), OF_OTHERS)
        to_proxy, why = Redirect(port=options.inbound_port), "inbound connections go to the node's proxy, tunnelled ones as they are"
        builder.append(NAT, ISTIO_PRERT, *captured, to=to_proxy, why=why, origin="inbound_port")


def _capture_dns(builder: Builder, options: Interception) -> None:
    why, origin = "DNS queries go to the node's proxy", "redirect_dns"
    queries, over_tcp = Port(protocol="udp", ports=(DNS_PORT,)), Port(protocol="tcp", ports=(DNS_PORT,))
    to_proxy, out = Redirect(port=DNS_LISTENER), ON_LOOPBACK.replace(negated=True)
    builder.append(NAT, ISTIO_OUTPUT, out, OF_OTHERS, queries, to=to_proxy, why=why, origin=origin)
    builder.append(NAT, ISTIO_OUTPUT, not_to_loopback(options), over_tcp, OF_OTHERS, to=to_proxy, why=why, origin=origin)
    zone = TrackZone(zone=PROXY_ZONE, side="" if options.istio_exact else "orig")  # see netinit.rules.layouts.dns
    builder.append(RAW, ISTIO_OUTPUT, OF_PROXY, queries, to=zone, why="the proxy's own queries", origin=origin)
    if options.istio_exact:
        answers = Port(protocol="udp", ports=(DNS_PORT,), source=True)
        builder.append(RAW, ISTIO_PRERT, OF_OTHERS, answers, to=zone, why="the servers' answers to the proxy", origin=origin)


def _capture_outbound(builder: Builder, options: Interception) -> None:
    why = "answers to the node's proxy are no connections of the application"
    builder.append(NAT, ISTIO_OUTPUT, TCP, Mark(value=AMBIENT_MARK, mask=AMBIENT_MASK), to=Accept(), why=why)
    why = "what the pod sends to itself is not captured"
    builder.append(NAT, ISTIO_OUTPUT, ON_LOOPBACK, not_to_loopback(options), to=Accept(), why=why)
    to_proxy, why = Redirect(port=options.outbound_port), "outbound connections go to the node's proxy"
    builder.append(NAT, ISTIO_OUTPUT, TCP, not_to_loopback(options), OF_OTHERS, to=to_proxy, why=why, origin="outbound_port")


def _exclusions(options: Interception) -> tuple[list[Exclusion], list[Exclusion]]:
    """Return the IPv6 traffic that is not captured, inbound and outbound."""
    proxy = Exclusion(matches=(OF_PROXY,), origin="", why="the node's proxy's own traffic")
    inbound, outbound = [
        [proxy, *[
            Exclusion(matches=(side(networks=(probe,)),), origin="host_probe_addresses", why="the kubelet's probes are not captured")
            for probe in hosts_of(options.host_probe_addresses, *FAMILIES)
        ]]
        for side in (Source, Destination)
    ]  # fmt: skip
    return [*inbound, excluded_tunnel(options)], outbound
