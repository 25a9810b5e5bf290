"""The classic layout: the rules of the istio-iptables script of Istio 1.0 and 1.1."""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, IPV6, Network
from netinit.options import NONE, OFF, REJECT, TPROXY, Interception, SettledOptions
from netinit.options.kinds import ALL
from netinit.rules import model
from netinit.rules.layouts import inbound, outbound, refuse, tproxy, untranslated
from netinit.rules.layouts.builder import Builder, proxy_owners
from netinit.rules.matches.context import ConnectionState, Socket
from netinit.rules.matches.packet import Destination, InInterface
from netinit.rules.model import FILTER, INPUT, ISTIO_INBOUND, ISTIO_OUTPUT, MANGLE, NAT, IpRule, Plan, Route
from netinit.rules.targets import Accept, Jump, Reject, Return

TCP = inbound.TCP


def plan(options: SettledOptions) -> Plan:
    """Return the plan of the classic layout.

    With IPv6 off, IPv6 is rejected rather than bypassing the proxy. TPROXY applies to IPv4 only, as in the script.
    """
    builder = Builder(FAMILIES if options.captures_ipv6 else (IPV4,))
    inbound.define_redirects(builder, options)
    transparent = options.inbound_mode == TPROXY and bool(options.inbound_ports)
    if options.inbound_mode != NONE and options.inbound_ports:
        _capture_inbound(builder.within((IPV4,)) if transparent else builder, options, transparent)
        if transparent and options.captures_ipv6 and not options.istio_exact:
            _capture_inbound(builder.within((IPV6,)), options, transparent=False)
    _exclude_outbound(builder, options)
    outbound.capture_virtual_interfaces(builder, options)
    outbound.capture(builder, options)
    if options.outbound_cidrs not in (ALL, ()):
        builder.append(NAT, ISTIO_OUTPUT, to=Return(), why="all other networks are not captured", origin="outbound_cidrs")
    untranslated.close_nat_gaps(builder, options)
    if options.ipv6 == OFF:
        refuse_ipv6(builder.within((IPV6,)))
    elif options.ipv6 == REJECT:
        refuse.refuse_ipv6(builder, options)
    return Plan(
        layout=options.layout,
        families=FAMILIES,
        tables=builder.tables(),
        ip_rules=(IpRule(family=IPV4, mark=options.tproxy_mark, table=options.tproxy_table),) if transparent else (),
        routes=(Route(family=IPV4, table=options.tproxy_table),) if transparent else (),
    )


def _capture_inbound(builder: Builder, options: Interception, transparent: bool) -> None:
    table = MANGLE if transparent else NAT
    if transparent:
        tproxy.define_chains(builder, options, options.outbound_port, "outbound_port")
    inbound.enter(builder, options, table)
    chosen = inbound.chosen(options)
    if transparent:
        tproxy.divert(builder, options, chosen, Socket(), paired=options.inbound_ports != ALL)
    builder.append(
        table, ISTIO_INBOUND, chosen, to=Jump(chain=model.ISTIO_TPROXY if transparent else model.ISTIO_IN_REDIRECT),
        why="these inbound connections go to the proxy", origin="inbound_ports",
    )  # fmt: skip


def _exclude_outbound(builder: Builder, options: Interception) -> None:
    builder.append(NAT, model.OUTPUT, TCP, to=Jump(chain=ISTIO_OUTPUT), why="outbound connections are checked")
    if not options.keep_local_loopback:
        builder.append(
            NAT, ISTIO_OUTPUT, inbound.not_to_loopback(options), outbound.ON_LOOPBACK, to=Jump(chain=model.ISTIO_REDIRECT),
            why="the application calls its own service", origin="keep_local_loopback",
        )  # fmt: skip
    for owner, origin in proxy_owners(options):
        builder.append(NAT, ISTIO_OUTPUT, owner, to=Return(), why="the proxy's own traffic goes out: no loops", origin=origin)
    outbound.exclude_networks(builder, options)


def refuse_ipv6(builder: Builder) -> None:
    """Add the script's rules that reject IPv6."""
    why, origin = "IPv6 is off: what is not captured is refused", "ipv6"
    own = Destination(networks=(Network.parse(IPV6.loopback),))
    known = ConnectionState(states=("ESTABLISHED",), module="state")
    builder.append(FILTER, INPUT, known, to=Accept(), why=why, origin=origin)
    builder.append(FILTER, INPUT, own, InInterface(names=("lo",)), to=Accept(), why=why, origin=origin)
    builder.append(FILTER, INPUT, to=Reject(), why=why, origin=origin)
