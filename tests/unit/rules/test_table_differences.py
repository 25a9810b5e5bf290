"""Our nft tables in the kernel beside the planned ones."""

from __future__ import annotations

from struct import pack

import pytest

from core import plan, write_nft
from goldens import BEHAVIOURS, THIRDS, options_of
from netinit.base.net import FAMILIES, IPV4, Network
from netinit.base.snapshot import (
    DORMANT,
    INET,
    IP,
    SET_MAP,
    NftChain,
    NftElement,
    NftObject,
    NftRule,
    NftSet,
    NftTable,
    Snapshot,
)
from netinit.options import Options
from netinit.rules.expressions.table_differences import compare_tables, decode_tables, format_chain_hook, format_live
from netinit.rules.marking_targets import SetMark
from netinit.rules.matches.context import Limit
from netinit.rules.matches.packet import Destination, InInterface, Port, Protocol
from netinit.rules.model import (
    EMPTY_PLAN,
    FILTER,
    FORWARD,
    INPUT,
    MANGLE,
    NAT,
    OUTPUT,
    PREROUTING,
    RAW,
    Chain,
    Plan,
    Rule,
    Table,
)
from netinit.rules.nft import TABLE_NAMES, plan_steps, render_tables
from netinit.rules.rule_builder import expression
from netinit.rules.targets import Accept, Drop, Redirect, Return
from plan_snapshot import snapshot_of, table_of
from rule_encodings import encode_rule
from sweeps import together

TABLE = "istio-proxy-nat"
HOOKS = {
    (NAT, PREROUTING): "type nat hook prerouting priority dstnat; policy accept;",
    (NAT, OUTPUT): "type nat hook output priority -100; policy accept;",
    (MANGLE, PREROUTING): "type filter hook prerouting priority mangle; policy accept;",
    # "route": a packet whose mark was changed is routed again, as in iptables' mangle table
    (MANGLE, OUTPUT): "type route hook output priority mangle; policy accept;",
    (RAW, PREROUTING): "type filter hook prerouting priority raw; policy accept;",
    (RAW, OUTPUT): "type filter hook output priority raw; policy accept;",
    (FILTER, INPUT): "type filter hook input priority filter; policy accept;",
    (FILTER, FORWARD): "type filter hook forward priority filter; policy accept;",
    (FILTER, OUTPUT): "type filter hook output priority filter; policy accept;",
}


def rule(*matches, target, families=FAMILIES):
    return Rule(matches=matches, target=target, comment="", origin=None, families=families)


def compare(made, snapshot):
    return compare_tables(made, snapshot)


def lines(made, snapshot):
    return [one.describe() for one in compare(made, snapshot)]


def plan_of(**chains):
    """A plan of one table whose chains of no hook hold these rules."""
    tables = (Table(name=NAT, chains=tuple(Chain(name=name, rules=tuple(rules)) for name, rules in chains.items())),)
    return Plan(layout="current", families=FAMILIES, tables=tables)


@together("behaviour", THIRDS[1])
def test_a_golden_that_is_programmed_differs_in_nothing(behaviour):
    made = plan(options_of(behaviour))
    assert compare(made, snapshot_of(made)) == ()


@together("behaviour", THIRDS[2])
def test_the_rules_of_a_golden_are_written_as_nft_lists_them(behaviour):
    made = plan(options_of(behaviour))
    written = render_tables(write_nft(made))
    for name, chains in decode_tables(snapshot_of(made)).items():
        for chain, held in chains.items():
            texts = write_nft(made)[name][chain][1]
            for text, live in zip(texts, held.rules, strict=True):
                if "socket" not in text:  # which has another name in expressions
                    assert sorted(format_live(live).split()) == sorted(text.split()), written


def test_tables_of_others_are_not_looked_at():
    made = plan(Options())
    snapshot = snapshot_of(made)
    others = (NftTable(family=INET, name="firewalld"), NftTable(family=IP, name=TABLE))
    rules = (NftRule(family=IP, table=TABLE, chain="output", handle=1, expressions=b""),)
    beside = snapshot.replace(tables=(*snapshot.tables, *others), rules=(*snapshot.rules, *rules))
    assert compare(made, beside) == ()


def test_differences_are_told_in_order_with_purpose_and_option():
    made = plan(Options.from_argv(["-b", ""]).replace(ipv6="off"))
    tcp = (Protocol(name="tcp"),)
    live = table_of(TABLE, {"istio-redirect": [rule(*tcp, target=Drop()), rule(*tcp, target=Redirect(port=15001))]})
    mine = NftSet(family=INET, table=TABLE, name="mine", flags=0, key_type=7, key_length=4)
    found = [one for one in compare(made, live.replace(sets=(mine,))) if one.chain in ("istio-redirect", "istio-inbound", "")]
    assert [one.describe() for one in found if TABLE in one.describe()] == [
        f"missing: nft {TABLE} istio-inbound: the chain itself",
        f"missing: nft {TABLE} istio-inbound rule 1: tcp dport 15008 counter return  (tunnelled connections reach the proxy as they are; --inbound-tunnel-port)",
        f"extra: nft {TABLE} istio-redirect rule 1: meta l4proto tcp counter drop",
        f"extra: nft {TABLE}: set mine",
    ]


def test_named_maps_objects_and_flow_tables_are_too_much():
    made = plan(Options())
    snapshot = snapshot_of(made)
    named = NftSet(family=INET, table=TABLE, name="m", flags=SET_MAP, key_type=7, key_length=4)
    objects = (NftObject(family=INET, table=TABLE, name="c", kind="1"), NftObject(family=INET, table=TABLE, name="f", kind="flowtable"))
    assert lines(made, snapshot.replace(sets=(*snapshot.sets, named), objects=objects)) == [
        f"extra: nft {TABLE}: map m", f"extra: nft {TABLE}: object c", f"extra: nft {TABLE}: flowtable f",
    ]  # fmt: skip


def test_a_rule_at_another_place_has_moved():
    made = plan_of(ISTIO_X=[rule(target=SetMark(value=5)), rule(target=Accept())])
    live = table_of(TABLE, {"istio-x": [rule(target=Accept()), rule(target=SetMark(value=5))]})
    (found,) = compare(made, live)
    assert (found.kind, found.rule) in (("moved", "counter accept"), ("moved", "counter meta mark set 0x00000005"))


def networks(*texts):
    return Destination(networks=tuple(map(Network.parse, texts)))


def test_of_long_lists_only_what_differs_is_shown():
    texts = [f"10.{number}.0.0/17" for number in range(200)]
    made = plan_of(ISTIO_X=[rule(networks(*texts), target=Return(), families=(IPV4,))])
    live = table_of(TABLE, {"istio-x": [rule(networks(*texts[1:], "172.16.0.0/17"), target=Return(), families=(IPV4,))]})
    assert [(one.kind, one.rule) for one in compare(made, live)] == [
        ("missing", "ip daddr { 10.0.0.0/17 and 199 more } counter return"),
        ("extra", "ip daddr { 172.16.0.0/17 and 199 more } counter return"),
    ]


@pytest.mark.parametrize("length", [10, 11])
def test_a_list_is_shown_whole_up_to_ten_elements(length):
    ports = Port(protocol="tcp", ports=tuple(range(1, 2 * length, 2)))
    (found,) = lines(plan_of(ISTIO_X=[]), table_of(TABLE, {"istio-x": [rule(ports, target=Drop())]}))
    whole = ", ".join(map(str, range(1, 21, 2)))
    assert found == f"extra: nft {TABLE} istio-x rule 1: tcp dport {{ {whole}{' and 1 more' if length > 10 else ''} }} counter drop"


@pytest.mark.parametrize("place", HOOKS, ids=" ".join)
def test_a_hook_is_written_as_nft_lists_it(place):
    table, name = place
    live = table_of(f"istio-proxy-{table}", {name.lower(): []})
    assert hook_of(live) == plan_steps(Table(name=table, chains=(Chain(name=name),)))[name.lower()][0] == HOOKS[place]
    changed = live.replace(chains=(live.chains[0].replace(priority=7, policy=0),))
    assert hook_of(changed) == HOOKS[place].replace(HOOKS[place].split()[5], "7;").replace("accept", "drop")


def hook_of(snapshot):
    ((table,), (chain,)) = decode_tables(snapshot).values(), snapshot.chains
    return format_chain_hook(table[chain.name])


def test_a_chain_at_another_hook_is_missing_there_and_too_much_here():
    made = Plan(layout="current", families=FAMILIES, tables=(Table(name=NAT, chains=(Chain(name=OUTPUT, rules=()),)),))
    hook = HOOKS[NAT, OUTPUT]
    live = table_of(TABLE, {"output": []})
    assert lines(made, live) == []
    loose = live.replace(chains=(NftChain(family=INET, table=TABLE, name="output"),))
    assert lines(made, loose) == [f"missing: nft {TABLE} output: {hook}", f"extra: nft {TABLE} output: no hook"]
    moved = live.replace(chains=(live.chains[0].replace(priority=7, policy=0),))
    assert lines(made, moved)[1] == f"extra: nft {TABLE} output: type nat hook output priority 7; policy drop;"
    hooked = live.replace(chains=(live.chains[0].replace(name="istio-x"),))
    assert lines(plan_of(ISTIO_X=[]), hooked) == [f"missing: nft {TABLE} istio-x: no hook", f"extra: nft {TABLE} istio-x: {hook}"]


def test_whole_tables_are_missing_or_too_much():
    made = plan(Options.from_argv(["-b", "80", "--istio-exact"]))
    assert lines(made, Snapshot()) == [f"missing: nft {TABLE}: the whole table"]
    assert lines(EMPTY_PLAN, table_of(TABLE, {})) == [f"extra: nft {TABLE}: the whole table"]


def test_a_dormant_table_has_its_rules_all_the_same():
    made = plan(Options())
    snapshot = snapshot_of(made)
    assert lines(made, snapshot.replace(tables=tuple(one.replace(flags=DORMANT) for one in snapshot.tables))) == []


def test_a_chain_that_no_plan_wants_is_too_much_and_each_of_its_rules():
    live = table_of(TABLE, {"istio-x": [], "y": [rule(target=Accept()), rule(target=Drop())]})
    assert lines(plan_of(ISTIO_X=[]), live) == [
        f"extra: nft {TABLE} y: the chain itself",
        f"extra: nft {TABLE} y rule 1: counter accept",
        f"extra: nft {TABLE} y rule 2: counter drop",
    ]


def test_rules_are_numbered_as_they_stand_and_each_twin_counts_once():
    drop, accept, back, mark = (rule(target=target) for target in (Drop(), Accept(), Return(), SetMark(value=1)))
    limit = rule(Limit(rate=1, burst=5), target=Accept())
    where = f"nft {TABLE} istio-x rule"
    live = table_of(TABLE, {"istio-x": [drop, accept, back]})

    def against(*planned):
        return lines(plan_of(ISTIO_X=planned), live)

    assert against(drop, accept, back) == []
    assert against(accept, drop, back) in ([f"moved: {where} 1: counter drop"], [f"moved: {where} 2: counter accept"])
    assert against(drop, mark, back) == [f"missing: {where} 2: counter meta mark set 0x00000001", f"extra: {where} 2: counter accept"]
    assert against(drop, accept, back, back) == [f"missing: {where} 4: counter return"]
    assert against(drop, accept) == [f"extra: {where} 3: counter return"]
    assert against(mark, drop, accept, back, limit) == [
        f"missing: {where} 1: counter meta mark set 0x00000001",
        f"missing: {where} 5: limit rate 1/second burst 5 packets counter accept",
    ]
    assert against(accept) == [f"extra: {where} 1: counter drop", f"extra: {where} 3: counter return"]


def test_a_list_in_one_rule_is_a_rule_an_element_where_these_do_the_same_one_after_the_other():
    ports = [Port(protocol="tcp", ports=(port,)) for port in (80, 443, 9000)]
    made = plan_of(ISTIO_X=[rule(Port(protocol="tcp", ports=(80, 443, 9000)), target=Return()), rule(target=Drop())])
    single = [rule(port, target=Return()) for port in ports]
    assert lines(made, table_of(TABLE, {"istio-x": [single[2], single[0], single[1], rule(target=Drop())]})) == []
    assert lines(made, table_of(TABLE, {"istio-x": [single[2], single[0], rule(target=Drop())]}))
    assert lines(made, table_of(TABLE, {"istio-x": [single[2], single[0], rule(target=Drop()), single[1]]}))
    other = rule(InInterface(names=("eth0",)), target=Return())
    assert lines(made, table_of(TABLE, {"istio-x": [single[0], other, single[1], single[2], rule(target=Drop())]}))


@pytest.mark.parametrize(("layout", "differs"), [("ambient", False), ("current", True)])
def test_the_family_may_be_missing_in_tables_of_an_ambient_mesh_alone(layout, differs):
    made = plan(Options(layout=layout, ipv6="off"))
    wider = []
    for table in made.tables:
        chains = [chain.replace(rules=tuple(_of_both(one) for one in chain.rules)) for chain in table.chains]
        wider.append(table.replace(chains=tuple(chains)))
    assert bool(compare(made, snapshot_of(made.replace(tables=tuple(wider), families=FAMILIES)))) is differs


def _of_both(one):
    about_addresses = any(isinstance(match, Destination) for match in one.matches)
    return one if about_addresses else one.replace(families=FAMILIES)


def test_conditions_in_another_order_make_no_difference_but_another_condition_does():
    conditions = (Port(protocol="tcp", ports=(80,)), Destination(networks=(Network.parse("10.0.0.0/8"),)))
    made = plan_of(ISTIO_X=[rule(*conditions, target=Drop(), families=(IPV4,))])
    assert lines(made, table_of(TABLE, {"istio-x": [rule(*reversed(conditions), target=Drop(), families=(IPV4,))]})) == []
    found = compare(made, table_of(TABLE, {"istio-x": [rule(conditions[0], target=Drop(), families=(IPV4,))]}))
    assert [one.kind for one in found] == ["missing", "extra"]


def test_what_no_decoder_knows_is_no_planned_rule():
    made = plan_of(ISTIO_X=[rule(target=Drop())])
    kept = expression(b"quota") + encode_rule(rule(target=Drop()), INET, [])
    live = table_of(TABLE, {"istio-x": [rule(target=Drop())]})
    changed = live.replace(rules=(live.rules[0].replace(expressions=kept),))
    assert [one.kind for one in compare(made, changed)] == ["missing", "extra"]
    malformed = live.replace(rules=(live.rules[0].replace(expressions=b"\xff" * 7),))
    assert [one.kind for one in compare(made, malformed)] == ["missing", "extra"]


def test_every_hook_of_a_plan_belongs_to_a_table_of_ours():
    planned = {(table.name, chain.name) for one in BEHAVIOURS for table in plan(options_of(one)).tables for chain in table.chains if chain.builtin}
    assert planned == set(HOOKS)
    assert {f"istio-proxy-{table}" for table, _ in HOOKS} <= set(TABLE_NAMES)


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (NftSet(family=INET, table=TABLE, name="s"), ["set s"]), (NftSet(family=INET, table=TABLE, name="m", flags=SET_MAP), ["map m"]), (NftSet(family=INET, table=TABLE, name="a", flags=1), []), (NftSet(family=INET, table=TABLE, name="b", flags=SET_MAP | 1), []), (NftSet(family=IP, table=TABLE, name="s"), []), (NftSet(family=INET, table="t", name="s"), []),
        (NftObject(family=INET, table=TABLE, name="o", kind="3"), ["object o"]), (NftObject(family=INET, table=TABLE, name="f", kind="flowtable"), ["flowtable f"]), (NftObject(family=IP, table=TABLE, name="o", kind="3"), []), (NftObject(family=INET, table="t", name="o", kind="3"), []),
    ],
    ids=str,
)  # fmt: skip
def test_of_what_else_is_in_a_table_of_ours_all_is_told_but_the_sets_of_rules(held, told):
    live = table_of(TABLE, {"istio-x": []})
    beside = live.replace(sets=(held,)) if isinstance(held, NftSet) else live.replace(objects=(held,))
    assert lines(plan_of(ISTIO_X=[]), beside) == [f"extra: nft {TABLE}: {one}" for one in told]


@pytest.mark.parametrize(("hook", "text"), [(0, "prerouting"), (1, "input"), (2, "forward"), (3, "output"), (4, "postrouting"), (5, "ingress"), (-1, "")])
def test_a_chain_is_at_the_hook_of_its_number(hook, text):
    live = table_of(TABLE, {"output": []})
    found = hook_of(live.replace(chains=(live.chains[0].replace(hook=hook, kind="filter", priority=7),)))
    assert found == (f"type filter hook {text} priority 7; policy accept;" if text else "")


def test_a_list_beside_another_is_shown_without_what_both_have_and_whole_beside_none():
    here, there = [Port(protocol="tcp", ports=tuple(range(first, 30, 2))) for first in (1, 3)]
    made = plan_of(ISTIO_X=[rule(here, target=Return())])
    assert [one.rule for one in compare(made, table_of(TABLE, {"istio-x": [rule(there, target=Return())]}))] == ["tcp dport { 1 and 14 more } counter return", f"tcp dport {{ {', '.join(map(str, range(3, 23, 2)))} and 4 more }} counter return"]
    few = Port(protocol="tcp", ports=(1, 3))
    assert [one.rule for one in compare(made, table_of(TABLE, {"istio-x": [rule(few, target=Return())]}))] == [f"tcp dport {{ {', '.join(map(str, range(5, 25, 2)))} and 5 more }} counter return", "tcp dport { 1, 3 } counter return"]
    others = table_of(TABLE, {"istio-x": [rule(there, target=Drop())]})
    assert [one.rule for one in compare(made, others)] == [f"tcp dport {{ {', '.join(map(str, range(first, first + 20, 2)))} and {more} more }} counter {end}" for first, more, end in ((1, 5, "return"), (3, 4, "drop"))]
    assert [one.rule for one in compare(plan_of(ISTIO_X=[]), table_of(TABLE, {"istio-x": [rule(Limit(rate=1, burst=5), target=Drop())]}))] == ["limit rate 1/second burst 5 packets counter drop"]


def test_a_rule_without_a_counter_is_shown_without_one():
    live = table_of(TABLE, {"istio-x": [rule(target=Drop())]})
    plain = expression(b"immediate", (1, 0), (2, ((2, ((1, 0),)),)))
    assert lines(plan_of(ISTIO_X=[]), live.replace(rules=(live.rules[0].replace(expressions=plain),))) == [f"extra: nft {TABLE} istio-x rule 1: drop"]


def test_lists_are_taken_apart_only_among_rules_that_ask_for_the_same_and_do_the_same():
    def port(*ports, protocol="tcp", negated=False):
        return Port(protocol=protocol, ports=ports, negated=negated)

    def differ(planned, live):
        return bool(lines(plan_of(ISTIO_X=planned), table_of(TABLE, {"istio-x": live})))

    back, drop = Return(), Drop()
    assert not differ([rule(port(1, 2, 3), target=back)], [rule(port(3), target=back), rule(port(2, 1), target=back)])
    assert differ([rule(port(1, 2), target=back)], [rule(port(1), target=back), rule(port(2), target=drop)])
    assert differ([rule(port(1, 2), target=back)], [rule(port(1), target=back), rule(port(2, protocol="udp"), target=back)])
    assert differ([rule(port(1, 2, negated=True), target=back)], [rule(port(1, negated=True), target=back), rule(port(2, negated=True), target=back)])
    assert not differ([rule(port(1), target=back), rule(port(2), target=back), rule(port(1), target=drop)], [rule(port(2), target=back), rule(port(1), target=back), rule(port(1), target=drop)])
    assert differ([rule(port(1), target=back), rule(port(2), target=drop)], [rule(port(2), target=drop), rule(port(1), target=back)])
    assert differ([rule(port(1, 9), target=back), rule(port(2), target=drop), rule(port(3), target=back)], [rule(port(1, 8), target=back), rule(port(2), target=drop), rule(port(3), target=back)])
    assert differ([rule(port(1, 9), target=back), rule(port(2), target=drop), rule(port(3), target=back)], [rule(port(1), target=back), rule(port(2), target=drop), rule(port(3), target=back)])


def test_a_rule_with_a_map_of_verdicts_is_shown_as_a_rule_for_each_of_its_elements():
    verdicts = [pack("=2H", 8, 1) + pack(">i", code) for code in (0, 1)]
    held = NftSet(family=INET, table=TABLE, name="m", flags=SET_MAP | 1, key_length=4, elements=tuple([NftElement(key=pack("=I", at), verdict=one) for at, one in enumerate(verdicts)]))
    live = table_of(TABLE, {"istio-x": [rule(target=Drop())]})
    looks = expression(b"meta", (2, 3), (1, 1)) + expression(b"lookup", (1, b"m\0"), (2, 1), (3, 0))
    changed = live.replace(sets=(held,), rules=(live.rules[0].replace(expressions=looks),))
    assert lines(plan_of(ISTIO_X=[]), changed) == [f"extra: nft {TABLE} istio-x rule 1: meta mark 0x00000000 drop; meta mark 0x00000001 accept"]


def test_of_several_tables_each_is_told_in_the_order_of_the_plan_and_then_those_that_are_too_many():
    chain = Chain(name="ISTIO_X", rules=(rule(target=Drop()),))
    made = Plan(layout="current", families=FAMILIES, tables=tuple(Table(name=name, chains=(chain,)) for name in (NAT, MANGLE, RAW)))
    assert lines(made, Snapshot()) == [f"missing: nft istio-proxy-{name}: the whole table" for name in (NAT, MANGLE, RAW)]
    live = [table_of(f"istio-proxy-{name}", {"istio-x": []}) for name in (FILTER, MANGLE)]
    both = Snapshot(tables=live[0].tables + live[1].tables, chains=live[0].chains + live[1].chains)
    assert lines(made, both) == [
        "missing: nft istio-proxy-nat: the whole table", "missing: nft istio-proxy-mangle istio-x rule 1: counter drop", "missing: nft istio-proxy-raw: the whole table", "extra: nft istio-proxy-filter: the whole table",
    ]  # fmt: skip


def test_of_two_lists_in_one_rule_the_first_is_shown_without_what_both_have_if_the_second_is_the_same():
    texts = [f"10.{number}.0.0/17" for number in range(12)]

    def held(first, *ports):
        return rule(networks(*texts[first : first + 11]), Port(protocol="tcp", ports=ports), target=Return(), families=(IPV4,))

    made = plan_of(ISTIO_X=[held(0, 1, 3)])
    assert [one.rule for one in compare(made, table_of(TABLE, {"istio-x": [held(1, 1, 3)]}))] == [f"ip daddr {{ {texts[at]} and 10 more }} tcp dport {{ 1, 3 }} counter return" for at in (0, 11)]
    assert [one.rule for one in compare(made, table_of(TABLE, {"istio-x": [held(1, 1, 4)]}))] == [f"ip daddr {{ {', '.join(texts[at : at + 10])} and 1 more }} tcp dport {{ {ports} }} counter return" for at, ports in ((0, "1, 3"), (1, "1, 4"))]
