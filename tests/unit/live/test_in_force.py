"""What keeps planned rules from being in force, judged by recorded snapshots that are changed here."""

from __future__ import annotations

from sys import byteorder
from types import SimpleNamespace

import pytest

from core import plan
from netinit.base.errors import DORMANT_BYPASS
from netinit.base.net import IPV4, IPV6, HostAddress, number_of
from netinit.base.netlink_attributes import write_attribute
from netinit.base.snapshot import (
    DORMANT,
    AttachedProgram,
    Device,
    LegacyTable,
    NftChain,
    NftRule,
    NftTable,
    RoutingRule,
    TableRoute,
    TrafficControl,
    Unknown,
)
from netinit.live import in_force
from netinit.live.host import LOCAL, MAIN, is_simple, surroundings_of
from netinit.live.in_force import find_deviations, find_dormant_bypasses
from netinit.options import Options
from netinit.rules.model import ESCAPING, INACTIVE, SHADOWING, Difference
from netinit.rules.rule_builder import RuleBuilder
from plan_snapshot import snapshot_of
from recorded import read

PLAN = plan(Options.from_argv(["-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off"]))
LINKS = (Device(index=1, name="lo", flags=9), Device(index=2, name="eth0", flags=1))
ADDRESSES = (
    HostAddress(family=IPV4.number, address="127.0.0.1", length=8, index=1),
    HostAddress(family=IPV4.number, address="10.7.0.2", length=24, index=2),
)
DEFAULT_ROUTE = TableRoute(family=IPV4.number, table=MAIN, kind=1, destination=(0, 0), hops=(2,))
USUAL = tuple(RoutingRule(family=IPV4.number, priority=at, action=1, table=table) for at, table in ((0, LOCAL), (32766, MAIN), (32767, 253)))


def snapshot(name="nft"):
    return read(name).replace(links=LINKS, addresses=ADDRESSES, routes=(DEFAULT_ROUTE,), routing_rules=USUAL)


@pytest.mark.parametrize("words", ["", "-m TPROXY", "-m TPROXY --redirect-dns --dns-servers 9.9.9.9", "--layout ambient", "--drop-invalid -x 10.1.0.0/16"])
def test_where_packets_meet_the_planned_rules_alone_nothing_is_proved(monkeypatch, words):
    """The proof takes ten times as long as the rest, for each verify and each pod of a node."""
    everything = [] if "ambient" in words else ["-b", "*", "-i", "*", "-u", "1337"]
    made = plan(Options.from_argv([*everything, "--ipv6", "off", *words.split()]))
    marks = tuple(RoutingRule(family=IPV4.number, priority=9, action=1, table=one.table, mark=one.mark, mask=one.mask) for one in made.ip_rules)
    local = tuple(TableRoute(family=IPV4.number, table=one.table, kind=2, destination=(0, 0), hops=(1,)) for one in made.ip_rules)
    held = snapshot_of(made).replace(links=LINKS, addresses=ADDRESSES, routes=(DEFAULT_ROUTE, *local), routing_rules=(*marks, *USUAL))
    monkeypatch.setattr("netinit.live.foreign_proof.divide", None)
    assert find_deviations(held, made, "nftables", ()) == ((), ())


NO_RULES_OF_OURS = (Difference(kind="missing", where="IPv4", table="nat", chain="PREROUTING", rule="…"),)


def departures(held, listed=NO_RULES_OF_OURS, backend="iptables-nft"):
    """What is found where our own rules are known to be missing, so that foreign ones alone are named."""
    differences, warnings = find_deviations(held, PLAN, backend, listed)
    return SimpleNamespace(differences=differences, warnings=warnings)


def find(found, kind, *words):
    """The differences of a kind whose line has all of the words."""
    return [one for one in found.differences if one.kind == kind and all(word in one.describe() for word in words)]


def test_nat_of_somebody_else_before_ours_is_named_by_table_chain_rule_and_handle():
    held = snapshot().replace(settings=(("ipv4/ip_forward", "1"),))
    early = held.replace(chains=tuple(one.replace(priority=-150) if one.name == "dstnat" else one for one in held.chains))
    found = departures(early)
    for number in (1, 2):
        assert find(found, ESCAPING, "nft table ip nat", f"chain dstnat, rule {number} (handle ", "for example TCP from "), found.differences
    assert not find(found, ESCAPING, "chain dstnat, rule 4 ("), "a rule that only counts takes nothing away"


def test_where_no_rule_captures_there_is_none_to_name():
    found = departures(snapshot().replace(tables=(), chains=(), rules=(), sets=()), ())
    escaping = find(found, ESCAPING, "no rule captures these packets, for example TCP from ")
    assert {(one.where, one.rule, one.origin) for one in escaping} == {("IPv4", "", "a foreign rule")}


def test_what_drops_captured_traffic_is_a_warning_with_its_rule():
    found = departures(snapshot())
    assert any("nft table inet filter" in text and "drop" in text for text in found.warnings), found.warnings


def test_a_dormant_table_of_the_plan_is_inactive_and_a_foreign_one_is_nothing():
    held = snapshot("iptables-nft")
    asleep = held.replace(tables=tuple(one.replace(flags=DORMANT) for one in held.tables))
    assert [one.describe() for one in departures(asleep).differences] == [
        f"inactive: ip {name}: flags dormant  (the kernel skips every chain of the table; the table's flags)" for name in ("nat", "filter")
    ]
    foreign = snapshot().replace(tables=tuple(one.replace(flags=DORMANT) if one.name == "filter" else one for one in snapshot().tables))
    assert not any("inet filter" in text for text in departures(foreign).warnings)


@pytest.mark.parametrize(("hook", "priority", "kind", "found"), [(0, -150, "filter", 0), (0, -151, "filter", 1), (1, -150, "filter", 1), (0, -150, "", 1)])
def test_a_chain_of_iptables_that_is_not_where_it_belongs_is_inactive(hook, priority, kind, found):
    chains = tuple([NftChain(family=family, table="mangle", name="PREROUTING", hook=hook, priority=priority, policy=1, kind=kind) for family in (2, 10)])
    made = plan(Options.from_argv(["-b", "*", "-i", "*", "-m", "TPROXY", "--ipv6", "on"]))
    held = snapshot().replace(tables=(), chains=chains, rules=())
    inactive = [one for one in find_deviations(held, made, "iptables-nft", NO_RULES_OF_OURS)[0] if one.kind == INACTIVE]
    assert [(one.where, one.table, one.chain) for one in inactive] == [("IPv4", "mangle", "PREROUTING"), ("IPv6", "mangle", "PREROUTING")] * found
    for one in inactive:
        assert one.rule == f"type {kind or 'none'} hook {hook} priority {priority}"
        assert (one.purpose, one.origin) == ("packets do not reach the chain as type filter at priority -150", "the chain's hook")


def asleep_beside_ours(*names):
    """Our rules in nft tables, beside tables that keep all from translation as soon as they are woken."""
    held = snapshot_of(PLAN).replace(links=LINKS, addresses=ADDRESSES, routes=(DEFAULT_ROUTE,), routing_rules=USUAL)
    tables = tuple(NftTable(family=2, name=name, flags=DORMANT) for name in names)
    chains = tuple(NftChain(family=2, table=name, name="c", hook=3, priority=-300, policy=1, kind="filter") for name in names)
    notrack = write_attribute(1, write_attribute(1, b"notrack\0"))  # NFTA_LIST_ELEM, NFTA_EXPR_NAME
    rules = tuple(NftRule(family=2, table=name, chain="c", expressions=notrack) for name in names)
    return held.replace(tables=(*held.tables, *tables), chains=(*held.chains, *chains), rules=(*held.rules, *rules))


@pytest.mark.parametrize(("number", "lines"), [(0, 0), (1, 1), (in_force.MAX_DORMANT, in_force.MAX_DORMANT), (in_force.MAX_DORMANT + 3, in_force.MAX_DORMANT + 1)])
def test_a_dormant_foreign_table_is_named_if_its_rules_would_let_packets_escape(number, lines):
    held = asleep_beside_ours(*[f"x{at}" for at in range(number)])
    assert find_deviations(held, PLAN, "nftables", ()) == ((), ())
    found = find_dormant_bypasses(held, PLAN, "nftables", ())
    assert len(found) == lines
    assert all(DORMANT_BYPASS in line for line in found)
    assert not number or "nft table ip x0" in found[0]
    if number > in_force.MAX_DORMANT:
        assert found[-1].endswith(f"{number} tables are dormant, and {in_force.MAX_DORMANT} were judged")


@pytest.mark.parametrize(("mark", "place", "loses"), [(1337, "IPv4: nft table ip theirs, chain c, rule 1", False), (7, "IPv4: routing", True)])
def test_what_takes_packets_with_a_mark_of_ours_alone_is_a_warning_for_few_may_send_them(mark, place, loses):
    """Without the plan's policy routes, routing does so too. What begins with another mark does not escape either: untracked, it is lost."""
    made = plan(Options.from_argv(["-b", "*", "-i", "*", "-m", "TPROXY", "-u", "1337", "--ipv6", "off"]))
    looks = RuleBuilder(IPV4.number, [])
    looks.load_mark(connection=False)
    looks.compare(mark.to_bytes(4, byteorder))
    looks.add(b"notrack")
    held = snapshot_of(made)
    held = held.replace(
        links=LINKS, addresses=ADDRESSES, routes=(DEFAULT_ROUTE,), routing_rules=USUAL, tables=(*held.tables, NftTable(family=2, name="theirs")),
        chains=(*held.chains, NftChain(family=2, table="theirs", name="c", hook=3, priority=-300, policy=1, kind="filter")),
        rules=(*held.rules, NftRule(family=2, table="theirs", chain="c", expressions=looks.block())),
    )  # fmt: skip
    differences, warnings = find_deviations(held, made, "nftables", NO_RULES_OF_OURS)
    warned = [one.partition(": packets")[0] for one in warnings if "a mark of netinit's own" in one]
    escaping = [one for one in differences if one.kind == ESCAPING and "theirs" in one.describe()]
    lost = [one for one in warnings if "leads to the loss of packets that the plan captures" in one]
    assert (warned, escaping, bool(lost)) == ([place], [], loses), (differences, warnings)


def test_a_dormant_table_without_effect_and_one_of_the_plan_are_not_named():
    held = asleep_beside_ours("x")
    harmless = held.replace(rules=tuple(one for one in held.rules if one.table != "x"))
    assert find_dormant_bypasses(harmless, PLAN, "nftables", ()) == ()
    ours = snapshot_of(PLAN).replace(links=LINKS, addresses=ADDRESSES, routes=(DEFAULT_ROUTE,), routing_rules=USUAL)
    asleep = ours.replace(tables=tuple(one.replace(flags=DORMANT) for one in ours.tables))
    assert find_dormant_bypasses(asleep, PLAN, "nftables", ()) == ()


DOWN = (
    INACTIVE, "the loopback device is down",
    "whatever is redirected to the proxy inside of the pod is dropped; bring it up: ip link set lo up", "the container runtime, or its CNI plugin loopback",
)  # fmt: skip
NO_LO = (INACTIVE, "the loopback device is called {}", "rules for traffic inside of the pod name it lo", "ip link set ... name lo")
OTHER_LO = (ESCAPING, "device 2 is called lo", "rules for traffic inside of the pod accept what leaves there", "ip link set ... name")


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ((Device(index=1, name="xlo", flags=9), Device(index=2, name="eth0")), [(NO_LO, "xlo")]),
        ((Device(index=1, name="xlo", flags=9), Device(index=2, name="lo")), [(NO_LO, "xlo"), (OTHER_LO, "")]),
        ((Device(index=1, name="lo", flags=8), Device(index=2, name="eth0", flags=1)), [(DOWN, "")]),
        ((Device(index=1, name="lo", flags=1), Device(index=2, name="eth0", flags=8)), [(NO_LO, "lo")]),  # it is another device
        (LINKS, []),
    ],
)
def test_lo_is_the_first_device_and_no_other_and_is_up(links, said):
    found = departures(snapshot().replace(links=links, tables=(), chains=(), rules=()))
    assert [(one.kind, one.where, one.rule, one.purpose, one.origin) for one in found.differences] == [
        (kind, "devices", rule.format(name), purpose, origin) for (kind, rule, purpose, origin), name in said
    ]


def test_routes_and_policy_rules_that_drop_captured_packets_are_warnings():
    drops = TableRoute(family=IPV4.number, table=LOCAL, kind=6, destination=(number_of("203.0.113.0"), 24))
    bare = snapshot().replace(tables=(), chains=(), rules=(), routes=(DEFAULT_ROUTE, drops, drops.replace(kind=8, destination=(0, 0), metric=9)))
    found = departures(bare.replace(routing_rules=(RoutingRule(family=IPV4.number, priority=5, action=7), *USUAL)))
    assert found.differences == ()
    assert found.warnings == (
        "IPv4: a policy rule of priority 5 drops packets that the plan captures",
        "IPv4: the route blackhole 203.0.113.0/24 of table 255 drops packets that the plan captures",
        "IPv4: the route prohibit 0.0.0.0/0 of table 255 drops packets that the plan captures",
    )


def shadowed(held, *places):
    """What is found where these foreign rules stand before ours."""
    shadows = [
        Difference(kind=SHADOWING, where="IPv4", table=table, chain=chain, number=number, rule="…", comment="theirs")
        for table, chain, number in places
    ]
    return find_deviations(held, PLAN, "iptables-nft", NO_RULES_OF_OURS, shadows)[0]


def test_a_foreign_rule_before_ours_is_named_once_with_a_packet_that_it_takes_away():
    held = snapshot("iptables-nft").replace(settings=(("ipv4/ip_forward", "1"),))
    calm = held.replace(rules=tuple(one for one in held.rules if one.table == "nat"))
    assert find(departures(calm), ESCAPING, "chain PREROUTING, rule 1")
    found = [one for one in shadowed(calm, ("nat", "PREROUTING", 1)) if (one.chain, one.number) == ("PREROUTING", 1)]
    assert [(one.kind, one.rule, one.comment) for one in found] == [(SHADOWING, "…", "theirs")]
    assert found[0].purpose.startswith("precedes netinit's rules: captured packets escape there, for example TCP from 192.0.2.1 to ")


def test_a_foreign_rule_before_ours_without_an_effect_is_not_named():
    held = snapshot("iptables-nft").replace(settings=(("ipv4/ip_forward", "1"),))
    calm = held.replace(rules=tuple(one for one in held.rules if one.table == "nat"))
    assert not [one for one in shadowed(calm, ("filter", "OUTPUT", 1), ("mangle", "PREROUTING", 7)) if one.kind == SHADOWING]


def test_a_local_route_takes_captured_connections_away_and_that_of_an_own_address_does_not():
    own = TableRoute(family=IPV4.number, table=LOCAL, kind=2, destination=(number_of("10.7.0.2"), 32), hops=(2,))
    alien = own.replace(destination=(number_of("203.0.113.0"), 24), hops=(1,))
    bare = snapshot().replace(tables=(), chains=(), rules=(), sets=())
    assert departures(bare.replace(routes=(DEFAULT_ROUTE, own))).differences == ()
    stays = "connections there stay in the pod and are not captured, for example TCP from 10.7.0.2 to 203.0.113.{}:8080, sent by uid 1000, gid 1000"
    for route, word in ((alien, "local "), (alien.replace(kind=1), "")):
        (found,) = departures(bare.replace(routes=(DEFAULT_ROUTE, own, route))).differences
        assert found.describe() == f"escaping: IPv4 routing: {word}203.0.113.0/24 dev lo table 255  ({stays.format(1)}; a foreign route)"
    foreign = HostAddress(family=IPV4.number, address="203.0.113.9", length=32, index=1)
    (found,) = departures(bare.replace(addresses=(*ADDRESSES, foreign))).differences
    assert found.describe() == f"escaping: IPv4 routing: address 203.0.113.9/32 dev lo  ({stays.format(9)}; a foreign address)"


def test_beside_what_is_not_followed_or_not_read_nobody_says_that_the_plan_is_in_force():
    bare = snapshot().replace(
        tables=(), chains=(), rules=(), sets=(), transforms=2, unknown=(Unknown(place="a route of IPv4", reason="cut off"),),
        programs=(AttachedProgram(where="sk_lookup of the network namespace", number=7), AttachedProgram(where="XDP on eth0", number=8)),
        traffic_control=(TrafficControl(what="filter", index=2, kind="bpf"),),
    )  # fmt: skip
    found = departures(bare)
    assert [(one.kind, one.where, one.rule) for one in found.differences] == [
        (ESCAPING, "BPF", "program 7 (sk_lookup of the network namespace)"), (ESCAPING, "BPF", "program 8 (XDP on eth0)"),
        (ESCAPING, "tc", "filters on eth0"), (ESCAPING, "IPsec", "2 policies (ip xfrm policy)"), (ESCAPING, "kernel", "a route of IPv4"),
    ]  # fmt: skip
    assert {one.purpose.partition(": ")[0] for one in found.differences} == {"netinit does not follow it"}
    assert found.differences[-1].describe() == "escaping: kernel: a route of IPv4  (netinit does not follow it: it is not read: cut off; a foreign rule)"


def test_a_legacy_table_that_cannot_be_decoded_may_decide_otherwise():
    broken = LegacyTable(version=4, name="nat", valid_hooks=0, hook_entries=(0,) * 5, entries=b"x")
    (found,) = departures(snapshot().replace(tables=(), chains=(), rules=(), legacy=(broken,))).differences
    assert (found.kind, found.where, found.origin) == (ESCAPING, "kernel", "a foreign rule")
    assert found.rule.startswith("IPv4: ")
    assert found.purpose == "netinit does not follow it: it cannot be read, and may decide otherwise"


def test_a_program_of_the_node_is_a_warning_and_one_of_the_pods_cgroup_a_difference_without_forged_text():
    programs = (
        AttachedProgram(where="connect4 of the cgroup /", number=7, name="cil_sock4", is_of_node=True),
        AttachedProgram(where="connect4 of the cgroup /a\x1b[2J", number=8, name='x" \n'),
    )
    found = departures(snapshot().replace(tables=(), chains=(), rules=(), sets=(), programs=programs))
    (one,) = found.differences
    assert (one.kind, one.where, one.rule) == (ESCAPING, "BPF", 'program 8 "x\\" \\n" (connect4 of the cgroup /a\\x1b[2J)')
    (warning,) = found.warnings
    assert warning.startswith('BPF program 7 "cil_sock4" (connect4 of the cgroup /) acts on every process of the node: it may redirect')


def test_programs_that_may_not_be_asked_for_are_one_warning_and_no_difference():
    forbidden = Unknown(place="BPF programs", reason="bpf(2): Operation not permitted", is_forbidden=True)
    found = departures(snapshot().replace(tables=(), chains=(), rules=(), sets=(), unknown=(forbidden,)))
    assert found.differences == ()
    (warning,) = found.warnings
    assert warning == "BPF programs may not be read here (bpf(2): Operation not permitted): whether one redirects packets is not known"



@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ((DEFAULT_ROUTE,), "the default route of IPv4 leaves through eth0"),
        ((DEFAULT_ROUTE, DEFAULT_ROUTE.replace(destination=(number_of("128.0.0.0"), 1), hops=(3,))), "a policy rule, or one of several routes, of IPv4 leaves through eth0"),
        ((DEFAULT_ROUTE.replace(hops=(3,)),), ""),
    ],
)  # fmt: skip
def test_what_leaves_through_a_device_that_the_plan_excludes_escapes(routes, said):
    made = plan(Options.from_argv(["-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off", "-c", "eth0"]))
    links = (*LINKS, Device(index=3, name="eth1", flags=1))
    held = snapshot_of(made).replace(links=links, addresses=ADDRESSES, routes=routes, routing_rules=USUAL)
    found = [one for one in find_deviations(held, made, "nftables", ())[0] if "the plan excludes" in one.purpose]
    why = "which the plan excludes: no connection that leaves the pod there is captured; the device's name"
    assert [one.describe() for one in found] == ([f"escaping: devices: {said}  ({why})"] if said else [])


def test_backends_without_a_kernel_are_not_judged():
    assert departures(snapshot(), backend="memory").differences == ()


def test_the_lowest_metric_wins_and_a_second_way_is_not_simple():
    second = DEFAULT_ROUTE.replace(hops=(1,), metric=900)
    held = snapshot().replace(routes=(second, DEFAULT_ROUTE))
    assert surroundings_of(held, IPV4).default_interface == "eth0"
    assert is_simple(held, IPV4)
    assert not is_simple(held.replace(routes=(DEFAULT_ROUTE, second.replace(metric=0))), IPV4)
    assert not is_simple(held.replace(routes=(DEFAULT_ROUTE.replace(hops=(1, 2)),)), IPV4)
    marked = RoutingRule(family=IPV4.number, priority=9, action=1, table=133, mark=1337, mask=0xFFFFFFFF)
    assert not is_simple(held.replace(routing_rules=(*USUAL, marked)), IPV4), "where packets with the mark go depends on the mark"
    to_lo = TableRoute(family=IPV4.number, table=133, kind=2, destination=(0, 0), hops=(1,))
    assert is_simple(held.replace(routing_rules=(*USUAL, marked), routes=(DEFAULT_ROUTE, to_lo)), IPV4)
    assert not is_simple(held.replace(routing_rules=(*USUAL, marked.replace(mark=0, mask=0, users=(5, 6)))), IPV4)
    assert is_simple(held, IPV6)
