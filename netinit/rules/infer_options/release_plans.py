"""The rules that earlier releases of Istio made, 1.0 to 1.24, as plans: those of today's layouts with later changes undone.

They are never programmed: rules of a pod that istio-init made are compared with them. `settle_as` gives the options with which
today's layouts treat packets as a release did, and `plan` that release's own rules for such options. What each release changed:

- 1.25: the jump to ISTIO_OUTPUT is for all protocols, excluded outbound ports are of UDP too, and DNS has a chain of its own
- 1.24: packets in the state INVALID are dropped in a chain of their own
- 1.23: DNS over UDP is in ISTIO_OUTPUT; no rule returns what is left there
- 1.20: answers of name servers are known by their source
- 1.18: what the proxy sends to the tunnel's port of its own pod is not redirected
- 1.13: port 22 is not excluded; 1.12: IPv6 is as IPv4, with TPROXY and DNS
- 1.11: in TPROXY mode, rules for the loopback interface; 1.10: conntrack zones for DNS
- 1.9: DNS goes to the proxy by its name servers; marks of connections in TPROXY mode
- 1.8: DNS over TCP goes to the proxy too; 1.7: by DNAT, with groups and users of the proxy; 1.6: all DNS over UDP goes to the agent
- 1.7: the tunnel's port is excluded inbound
- 1.6: listed inbound ports go to the inbound port, too
- 1.5: the proxy alone reaches its own pod through itself; inbound IPv6 is captured on all ports, and not refused where it is off
- 1.3: the chains are those of the current layout, not of the classic one
- 1.1: IPv6 is captured where it is on, and the loopback device is not refused where it is off
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network
from netinit.options import CURRENT, DNS_LISTENER, OFF, REDIRECT, TPROXY, Interception, SettledOptions
from netinit.options.interception import CLASSIC
from netinit.options.kinds import ALL
from netinit.rules.foreign_targets import DestinationNat, SourceNat
from netinit.rules.layouts import classic, current, dns
from netinit.rules.layouts.builder import Builder, proxy_owners
from netinit.rules.layouts.inbound import TCP
from netinit.rules.layouts.outbound import ON_LOOPBACK
from netinit.rules.layouts.tproxy import BACK
from netinit.rules.marking_targets import SetMark, TrackZone
from netinit.rules.matches import Match
from netinit.rules.matches.context import ConnectionState, Mark, Socket
from netinit.rules.matches.packet import Destination, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.model import (
    ALWAYS,
    BUILTIN_CHAINS,
    FILTER,
    INPUT,
    ISTIO_DROP,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    ISTIO_OUTPUT_DNS,
    ISTIO_REDIRECT,
    ISTIO_TPROXY,
    MANGLE,
    NAT,
    OUTPUT,
    PREROUTING,
    RAW,
    TABLES,
    Chain,
    Origin,
    Plan,
    Rule,
    Table,
)
from netinit.rules.targets import Drop, Jump, Redirect, Return, Target, Tproxy

GENERATIONS = (0, 1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 18, 20, 23, 24)  # the minor releases of Istio 1 in which rules changed
FIRST_OF_CURRENT = 3  # before it, the rules are those of the classic layout
AFTER = 25  # since then, the rules are those of the current layout
WITH_OWNER_RULES = 5  # since then, the proxy alone reaches its own pod through itself
WITH_TUNNEL_IN = 7  # since then, the tunnel's port is excluded inbound
WITH_DNS = 6  # since then, DNS goes to the proxy, if that is asked for
WITH_DNS_SERVERS = 9  # since then, by the addresses of name servers; before, all queries do
WITH_TUNNEL = 18  # since then, what the proxy sends to the tunnel's port of its own pod is left alone
WITH_DNS_IN_OUTPUT = 23  # since then, DNS over UDP is in ISTIO_OUTPUT
AGENT_LISTENER = 15013  # for DNS, in 1.6 and 1.7
SSH, TUNNEL = 22, Interception.flag("tunnel_port").default
WITHOUT_OURS = {"istio_exact": True} | {
    field: Interception.flag(field).default
    for field in (
        "redirect_forwarded_dns", "exclude_outbound_for_uids", "exclude_outbound_for_gids", "exclude_inbound_cidrs",
        "exclude_cloud_metadata", "reject_quic", "redirect_outbound_udp", "log_rules",
    )
}  # fmt: skip
"""Values of the options that no release of Istio had."""
POSTROUTING = BUILTIN_CHAINS[-1]
Rules = dict[tuple[str, str], list[Rule]]  # by table and chain, without those that are inserted


def settle_as(options: SettledOptions, minor: int) -> SettledOptions:
    """Return the options with which the current layout treats packets as the release did with `options`, as far as there are any."""
    changed: dict[str, object] = {"istio_exact": True}
    if minor < FIRST_OF_CURRENT:
        return options.replace(**changed)
    everything = options.inbound_ports == ALL
    if minor < WITH_TUNNEL:
        tunnel = options.tunnel_port if minor >= WITH_TUNNEL_IN and options.inbound_mode == REDIRECT else 0
        left_out = tuple([port for port, known in ((tunnel, tunnel), (SSH, minor < 13)) if known])
        excluded = tuple([port for port in options.exclude_inbound_ports if port not in left_out])
        changed |= {"tunnel_port": 0, "exclude_inbound_ports": (*left_out, *excluded) if everything else ()}
        if not everything:
            changed["inbound_ports"] = tuple([port for port in options.inbound_ports if port != tunnel or not tunnel])
    if minor < 6 and not everything:
        changed["inbound_port"] = options.outbound_port
    return options.replace(**changed)


def plan(options: SettledOptions, minor: int, resolver: int = DNS_LISTENER) -> Plan:
    """Return the rules of the release 1.`minor`, an earlier one or of today, for options that `settle_as` gives.

    `resolver`: the port for DNS of releases before 1.9, where a variable chose it.
    """
    options = options.replace(**WITHOUT_OURS)
    if not FIRST_OF_CURRENT <= minor < AFTER:
        return _as_classic(options, minor) if minor < AFTER else current.plan(options).replace(made_from=options)
    options = _without_later(options, minor)
    made = current.plan(options.replace(redirect_dns=False) if minor < WITH_DNS_SERVERS else options)
    if minor < 12 and options.captures_ipv6:
        made = _merge(made, current.plan(options.replace(redirect_dns=False, inbound_mode=REDIRECT)))
    rules: Rules = {(table.name, chain.name): list(chain.rules) for table in made.tables for chain in table.chains}
    _undo_protocols(rules)
    if (NAT, ISTIO_OUTPUT_DNS) in rules:
        _undo_dns(rules, options, minor)
    elif options.redirect_dns:
        _add_early_dns(rules, options, minor, resolver)
    if minor < 24:
        _undo_drop_chain(rules)
    if minor < 23:
        _undo_fall_through(rules)
    if minor < WITH_TUNNEL:
        _undo_tunnel(rules, options, minor)
    if options.inbound_mode == TPROXY:
        _close(rules)
    if minor < 11 and options.inbound_mode == TPROXY:
        _undo_loopback_marks(rules)
        if minor < 9:
            _undo_connection_marks(rules, options, minor)
    families = made.families
    if minor < 5:
        families = _as_script(rules, options) or families
    inserted = {(table.name, chain.name): chain.inserted for table in made.tables for chain in table.chains}
    inserted.pop((NAT, OUTPUT), None)  # jumps before the rules of Docker's resolver
    virtual = inserted.get((NAT, PREROUTING), ())  # of IPv6 alone since two plans were merged
    inserted[NAT, PREROUTING] = tuple([one for one in virtual if one.families != (IPV6,) or not _is_of_all(one)])
    return made.replace(tables=_tables(rules, inserted), families=families, made_from=options)


def _without_later(options: SettledOptions, minor: int) -> SettledOptions:
    if minor < WITH_DNS:
        options = options.replace(redirect_dns=False, capture_all_dns=False)
    elif minor < WITH_DNS_SERVERS and options.redirect_dns:
        options = options.replace(capture_all_dns=True)
    return options.replace(tunnel_port=0) if minor < WITH_TUNNEL else options


def layout_of(minor: int) -> str:
    """Return the layout that the release's rules follow."""
    return CLASSIC if minor < FIRST_OF_CURRENT else CURRENT


def name_releases(first: int, after: int) -> str:
    """Return releases as text: from this minor release to the one before `after`; 0 is all that follow."""
    if not after:
        return f"Istio 1.{first} and later"
    return f"Istio 1.{first}" if first + 1 == after else f"Istio 1.{first} to 1.{after - 1}"


def _merge(made: Plan, other: Plan) -> Plan:
    """Return the rules of IPv4 of one plan, and those of IPv6 of another."""
    both: dict[tuple[str, str, bool], list[Rule]] = {}
    for one, family in ((made, IPV4), (other, IPV6)):
        for table in one.tables:
            for chain in table.chains:
                for early, listed in ((True, chain.inserted), (False, chain.rules)):
                    own = [rule.replace(families=(family,)) for rule in listed if family in rule.families]
                    both.setdefault((table.name, chain.name, early), []).extend(own)
    appended = {(table, chain): its for (table, chain, early), its in both.items() if not early}
    inserted = {(table, chain): tuple(its) for (table, chain, early), its in both.items() if early}
    ip_rules, routes = (tuple([one for one in its if one.family is IPV4]) for its in (made.ip_rules, made.routes))
    return made.replace(tables=_tables(appended, inserted), ip_rules=ip_rules, routes=routes)


def _tables(rules: Rules, inserted: dict[tuple[str, str], tuple[Rule, ...]]) -> tuple[Table, ...]:
    """Return the tables; a chain exists if it has a rule, or a rule jumps to it."""
    called = {(table, rule.target.calls) for (table, _), its in rules.items() for rule in its}
    places = [place for place in dict.fromkeys([*rules, *inserted]) if rules.get(place) or inserted.get(place) or place in called]
    return tuple([
        Table(
            name=name,
            chains=tuple([
                Chain(name=chain, rules=tuple(rules.get((table, chain), ())), inserted=inserted.get((table, chain), ()))
                for table, chain in places if table == name
            ]),
        )
        for name in TABLES if any(table == name for table, _ in places)
    ])  # fmt: skip


def _undo_protocols(rules: Rules) -> None:
    jump = Jump(chain=ISTIO_OUTPUT)
    outbound = rules[NAT, ISTIO_OUTPUT]
    over_udp = [rule for rule in outbound if any(isinstance(match, Port) and match.protocol == "udp" for match in rule.matches)]
    rules[NAT, ISTIO_OUTPUT] = [rule.replace(paired=False) for rule in outbound if rule not in over_udp]
    for index, rule in enumerate(rules[NAT, OUTPUT]):
        if rule.target == jump and not rule.matches:
            rules[NAT, OUTPUT][index] = rule.replace(matches=(TCP,))


def _undo_dns(rules: Rules, options: SettledOptions, minor: int) -> None:
    """Put the rules of DNS where they were: those over UDP at the end of ISTIO_OUTPUT, or of the built-in chain."""
    own = rules.pop((NAT, ISTIO_OUTPUT_DNS))
    zones = [rule for rule in rules.pop((RAW, ISTIO_OUTPUT_DNS)) if isinstance(rule.target, TrackZone)]
    answers, to_dns = rules.pop((RAW, ISTIO_INBOUND), []), Jump(chain=ISTIO_OUTPUT_DNS)
    over_udp = [rule for rule in own if dns.QUERY in rule.matches]
    chain = rules[NAT, ISTIO_OUTPUT]
    at = next((index for index, rule in enumerate(chain) if rule.target == to_dns), len(chain))
    chain[at : at + 1] = [rule for rule in own if rule not in over_udp]
    families = tuple([one for one in FAMILIES if any(one in rule.families for rule in chain)])
    if minor < 12:
        families = families[:1]
    why, origin = "the proxy's own queries", own[0].origin
    returns = [
        Rule(matches=(dns.QUERY, owner), target=Return(), comment=why, origin=origin, families=families)
        for owner, _ in proxy_owners(options)
    ]
    rules.pop((RAW, OUTPUT), None)
    rules.pop((RAW, PREROUTING), None)
    end = ISTIO_OUTPUT if minor >= WITH_DNS_IN_OUTPUT else OUTPUT
    if end == ISTIO_OUTPUT:
        why, udp = "DNS queries are checked", Protocol(name="udp")
        jump = Rule(matches=(udp,), target=Jump(chain=ISTIO_OUTPUT), comment=why, origin=origin, families=families)
        rules[NAT, OUTPUT].append(jump)
        rules[RAW, OUTPUT] = [jump]
    rules[NAT, end] += [*returns, *over_udp]
    if minor < 10:
        return
    rules[RAW, end] = zones
    rules[RAW, PREROUTING] = answers if minor >= 20 else [_by_destination(rule) for rule in answers]


def _add_early_dns(rules: Rules, options: SettledOptions, minor: int, resolver: int) -> None:
    """Add the rules of the releases that knew no name servers: all DNS of IPv4 over UDP, and since 1.8 captured DNS over TCP."""
    origin = Origin(option=dns.ORIGIN, label=Interception.flag(dns.ORIGIN).label)

    def make(*matches: Match, to: Target, why: str) -> Rule:
        return Rule(matches=matches, target=to, comment=why, origin=origin, families=(IPV4,))

    by_users, why, own = minor >= 7, "DNS queries go to the proxy's resolver", "the proxy's own queries"
    owners = [owner for owner, _ in proxy_owners(options) if by_users or owner.kind == "gid"]
    to_proxy = DestinationNat(address="127.0.0.1", port=resolver) if by_users else Redirect(port=resolver)
    rules[NAT, OUTPUT] += [make(dns.QUERY, owner, to=Return(), why=own) for owner in owners]
    rules[NAT, OUTPUT].append(make(dns.QUERY, to=to_proxy, why=why))
    if by_users:  # else the answer would come from an address that was not asked
        asked, why_back = dns.QUERY.replace(ports=(resolver,)), "the proxy's resolver answers to the address that it listens on"
        rules[NAT, POSTROUTING] = [make(asked, to=SourceNat(text="SNAT --to-source 127.0.0.1", address="127.0.0.1"), why=why_back)]
    if minor >= 8:
        rules[NAT, ISTIO_REDIRECT].insert(0, make(dns.QUERY.replace(protocol="tcp"), to=Redirect(port=resolver), why=why))


def _by_destination(rule: Rule) -> Rule:
    matches = [Destination(networks=match.networks) if isinstance(match, Source) else match for match in rule.matches]
    return rule.replace(matches=tuple(matches))


def _undo_drop_chain(rules: Rules) -> None:
    if rules.pop((MANGLE, ISTIO_DROP), None):
        to_drop = Jump(chain=ISTIO_DROP)
        rules[MANGLE, PREROUTING] = [
            rule.replace(target=Drop()) if rule.target == to_drop else rule for rule in rules[MANGLE, PREROUTING]
        ]


def _undo_fall_through(rules: Rules) -> None:
    """Return, at the end of ISTIO_OUTPUT, what is for none of the captured networks, in the families that have any."""
    chain = rules[NAT, ISTIO_OUTPUT]
    captured = [rule for rule in chain if rule.origin and rule.origin.option == "outbound_cidrs" and rule.matches]
    families = tuple([family for family in FAMILIES if any(family in rule.families for rule in captured)])
    if families:
        why, at = "all other networks are not captured", chain.index(captured[-1]) + 1
        chain.insert(at, Rule(target=Return(), comment=why, origin=captured[0].origin, families=families))


def _undo_tunnel(rules: Rules, options: SettledOptions, minor: int) -> None:
    chain = rules[NAT, ISTIO_OUTPUT]
    rules[NAT, ISTIO_OUTPUT] = [rule.replace(matches=tuple([match for match in rule.matches if match != TCP])) for rule in chain]
    named = options.inbound_mode == REDIRECT and options.inbound_ports == ALL and TUNNEL in options.exclude_inbound_ports
    if minor >= WITH_TUNNEL_IN and not named:
        families = tuple([one for one in FAMILIES if any(one in rule.families for rule in chain)])
        port, why = Port(protocol="tcp", ports=(TUNNEL,)), "tunnelled connections reach the proxy as they are"
        origin = Origin(option="tunnel_port", label=Interception.flag("tunnel_port").label)
        excluded = Rule(matches=(port,), target=Return(), comment=why, origin=origin, families=families)
        rules[NAT, ISTIO_INBOUND] = [excluded, *rules.get((NAT, ISTIO_INBOUND), ())]


def _undo_loopback_marks(rules: Rules) -> None:
    rules[MANGLE, OUTPUT] = [rule for rule in rules[MANGLE, OUTPUT] if ON_LOOPBACK not in rule.matches]
    rules[MANGLE, ISTIO_INBOUND] = [rule for rule in rules[MANGLE, ISTIO_INBOUND] if BACK not in rule.matches]


def _close(rules: Rules) -> None:
    """Let TPROXY drop what finds no socket: in iptables, which alone had these rules, it always does."""
    for index, rule in enumerate(rules.get((MANGLE, ISTIO_TPROXY), ())):
        if isinstance(rule.target, Tproxy):
            rules[MANGLE, ISTIO_TPROXY][index] = rule.replace(target=rule.target.replace(closes=True))


def _undo_connection_marks(rules: Rules, options: SettledOptions, minor: int) -> None:
    for place in ((MANGLE, PREROUTING), (MANGLE, OUTPUT), (MANGLE, ISTIO_INBOUND)):
        rules[place] = [rule for rule in rules[place] if not any(isinstance(match, Mark) for match in rule.matches)]
    for index, rule in enumerate(rules.get((MANGLE, ISTIO_TPROXY), ())):
        if isinstance(rule.target, Tproxy):
            rules[MANGLE, ISTIO_TPROXY][index] = rule.replace(target=rule.target.replace(port=options.outbound_port))
    if minor >= 6:
        own = (Network.parse("127.0.0.1/32"),)
        matches = (Source(networks=own), Destination(networks=own, negated=True), TCP)
        mark, why = SetMark(value=options.tproxy_mark), "answers go back to the proxy"
        rules[MANGLE, OUTPUT].append(Rule(matches=matches, target=mark, comment=why, origin=ALWAYS, families=(IPV4,)))
    if minor < 5:
        inbound = rules[MANGLE, ISTIO_INBOUND]
        rules[MANGLE, ISTIO_INBOUND] = [rule.replace(matches=tuple(map(_by_socket, rule.matches))) for rule in inbound]


def _by_socket(match: Match) -> Match:
    return Socket() if isinstance(match, ConnectionState) else match


def _is_of_all(rule: Rule) -> bool:
    """Whether a rule sends everything that VMs behind the pod send to the proxy."""
    return bool(rule.target.calls) and not any(isinstance(match, Destination) for match in rule.matches)


def _as_script(rules: Rules, options: SettledOptions) -> tuple[Family, ...]:
    """Change what the shell script did otherwise; return the families if IPv6 is refused, which the options leave out."""
    left: list[Rule] = []
    for rule in rules[NAT, ISTIO_OUTPUT]:
        is_local = any(isinstance(match, OutInterface) for match in rule.matches)
        if is_local and any(isinstance(match, Owner) for match in rule.matches):
            others = tuple([match for match in rule.matches if not isinstance(match, Owner)])
            rule = rule.replace(matches=others, origin=ALWAYS)  # noqa: PLW2901 - what the script made of it
            if rule.target == Return() or any(one.matches == others and one.target == rule.target for one in left):
                continue
        left.append(rule)
    rules[NAT, ISTIO_OUTPUT] = left
    _leave_ipv6_alone_inbound(rules, options)
    if options.ipv6 != OFF:
        return ()
    refusing = Builder((IPV6,))
    classic.refuse_ipv6(refusing)
    rules[FILTER, INPUT] = [*refusing.rules_of(FILTER, INPUT)]
    return FAMILIES


def _leave_ipv6_alone_inbound(rules: Rules, options: SettledOptions) -> None:
    if options.inbound_ports == ALL:
        inbound = rules.get((NAT, ISTIO_INBOUND), [])
        rules[NAT, ISTIO_INBOUND] = [_for_ipv4(rule) if isinstance(rule.target, Jump) else rule for rule in inbound]


def _as_classic(options: SettledOptions, minor: int) -> Plan:
    made = classic.plan(options)
    if options.captures_ipv6 and options.inbound_mode == TPROXY:
        made = _merge(made, classic.plan(options.replace(inbound_mode=REDIRECT)))
    rules: Rules = {(table.name, chain.name): list(chain.rules) for table in made.tables for chain in table.chains}
    _leave_ipv6_alone_inbound(rules, options)
    _close(rules)
    rules[NAT, ISTIO_OUTPUT] = [rule for rule in rules[NAT, ISTIO_OUTPUT] if rule.matches or rule.target != Return()]
    _undo_fall_through(rules)
    if minor < 1:
        refusing = rules.get((FILTER, INPUT), [])
        rules = {place: [_for_ipv4(rule) for rule in its if IPV4 in rule.families] for place, its in rules.items()}
        rules[FILTER, INPUT] = [rule for rule in refusing if not any(isinstance(match, Destination) for match in rule.matches)]
    inserted = {(table.name, chain.name): chain.inserted for table in made.tables for chain in table.chains}
    return made.replace(tables=_tables(rules, inserted), made_from=options)


def _for_ipv4(rule: Rule) -> Rule:
    return rule.replace(families=tuple([one for one in rule.families if one is IPV4]))
