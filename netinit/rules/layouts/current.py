"""The current layout: the rules of today's istio-iptables, in its order."""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, IPV6, Family
from netinit.options import INET, NONE, OFF, REJECT, TPROXY, Interception, SettledOptions
from netinit.rules import model
from netinit.rules.layouts import inbound, outbound, untranslated
from netinit.rules.layouts.builder import Builder
from netinit.rules.model import ISTIO_INBOUND, ISTIO_OUTPUT, MANGLE, NAT, Address, IpRule, Plan, Route
from netinit.rules.targets import Drop, Jump

NO_SERVERS = "no name server in /etc/resolv.conf or --dns-servers, so DNS is not captured"


def plan(options: SettledOptions) -> Plan:
    """Return the plan of the current layout."""
    families = FAMILIES if options.captures_ipv6 else (IPV4,)
    captured = FAMILIES if options.ipv6 == INET else families
    builder = Builder(captured, names_ipv6=options.ipv6 != INET)
    capture_dns = options.redirect_dns and (options.capture_all_dns or bool(options.dns_servers))
    transparent = options.inbound_mode == TPROXY
    if transparent:
        from netinit.rules.layouts import tproxy  # imported only when needed
    routed = families if transparent and options.inbound_ports else ()
    outbound.exclude_interfaces(builder, options, transparent)
    if capture_dns:
        from netinit.rules.layouts import dns  # imported only when needed, to keep a pod's start fast

        if options.redirect_forwarded_dns:
            dns.capture_forwarded(builder, options)
    outbound.capture_virtual_interfaces(builder, options)
    _drop_invalid(builder, options)
    builder.exclude(NAT, ISTIO_INBOUND, inbound.excluded_tunnel(options))
    inbound.define_redirects(builder, options)
    if options.inbound_mode != NONE and options.inbound_ports:
        (tproxy if transparent else inbound).capture(builder, options)
    outbound.enter(builder, options)
    outbound.exclude_proxy(builder, options, capture_dns)
    if options.exclude_outbound_for_uids or options.exclude_outbound_for_gids:
        from netinit.rules.layouts.refuse import excluded_users  # imported only when needed

        builder.exclude(NAT, ISTIO_OUTPUT, *excluded_users(options, ("tcp", "udp")))
    builder.exclude(NAT, ISTIO_OUTPUT, *outbound.excluded_groups(options))
    if capture_dns:
        dns.capture(builder, options)
    outbound.exclude_networks(builder, options)
    _redirect_datagrams(builder, options)
    outbound.capture(builder, options)
    if transparent:
        tproxy.mark_connections(builder, options)
    untranslated.close_nat_gaps(builder, options)
    if options.reject_quic or options.log_rules or options.ipv6 == REJECT:
        _refuse_and_report(builder, options, captured, capture_dns)
    return Plan(
        layout=options.layout,
        families=(IPV4,) if options.ipv6 == OFF else FAMILIES,
        tables=builder.tables(),
        ip_rules=tuple([IpRule(family=f, mark=options.tproxy_mark, table=options.tproxy_table) for f in routed]),
        routes=tuple([Route(family=f, table=options.tproxy_table) for f in routed]),
        addresses=(Address(family=IPV6, cidr=model.IPV6_ADDRESS),) if IPV6 in families else (),
        warnings=(f"{options.flag('redirect_dns').label}: {NO_SERVERS}",) if options.redirect_dns and not capture_dns else (),
    )


def _refuse_and_report(
    builder: Builder, options: Interception, families: tuple[Family, ...], capture_dns: bool
) -> None:
    from netinit.rules.layouts import log_rules, refuse

    if options.ipv6 == REJECT:  # otherwise QUIC could reach what TCP cannot
        families = FAMILIES
    refusing = refuse.reject_quic(builder, options, families) if options.reject_quic else ()
    if options.log_rules:
        log_rules.report(builder, options, capture_dns, refusing)
    if options.ipv6 == REJECT:
        refuse.refuse_ipv6(builder, options, capture_dns=capture_dns)


def _redirect_datagrams(builder: Builder, options: Interception) -> None:
    if options.redirect_outbound_udp:
        from netinit.rules.layouts import datagrams  # imported only when needed

        datagrams.redirect(builder, options)


def _drop_invalid(builder: Builder, options: Interception) -> None:
    if options.drop_invalid:
        from netinit.rules.matches.context import ConnectionState

        why, origin = "packets that belong to no connection would reset it", "drop_invalid"
        invalid = ConnectionState(states=("INVALID",))
        builder.append(MANGLE, model.PREROUTING, invalid, to=Jump(chain=model.ISTIO_DROP), why=why, origin=origin)
        builder.append(MANGLE, model.ISTIO_DROP, to=Drop(), why=why, origin=origin)
