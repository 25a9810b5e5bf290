"""A plan's rules and a listing as text and as differences: what is there of each chain, in order."""

from __future__ import annotations

import pytest

from core import plan
from netinit.base.net import FAMILIES, IPV4, IPV6, Network
from netinit.options import Options
from netinit.rules.expressions import compat
from netinit.rules.foreign_targets import Observe
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.write import (
    encode_each,
    miss_all,
    render_listing,
    render_restore,
    split_modules,
    unfold_rule,
    write_plan,
    write_rule,
)
from netinit.rules.matches.context import Mark, TcpFlags
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Protocol, Source
from netinit.rules.model import BUILTIN_CHAINS, Chain, Rule, Table
from netinit.rules.targets import Jump, Return
from netinit.rules.xtables import building

PLAN = plan(Options(inbound_ports="80", outbound_cidrs="*", ipv6="on"))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_of_a_namespace_without_rules_every_rule_and_chain_of_the_plan_is_missing(family):
    written = write_plan(PLAN, family)
    found = list(miss_all(written, family))
    assert {(one.kind, one.where) for one in found} == {("missing", family.name)}
    for table, chains in written.items():
        for name, chain in chains.items():
            here = [one for one in found if (one.table, one.chain) == (table, name)]
            assert [one.rule for one in here if not one.number] == [""] * (name not in BUILTIN_CHAINS)
            assert [(one.number, one.rule, one.purpose, one.origin) for one in here if one.number] == [
                (number, each.text, each.rule.comment, each.rule.origin_label) for number, each in enumerate(chain.rules, 1)
            ]  # fmt: skip
    assert len(found) == sum(len(chain.rules) + (name not in BUILTIN_CHAINS) for chains in written.values() for name, chain in chains.items())


@pytest.mark.parametrize("comments", [False, True])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_rule_has_its_comment_as_text_and_as_bytes_where_comments_are_asked_for_alone(family, comments):
    written = write_plan(PLAN, family, comments=comments)
    rules = [one for chains in written.values() for chain in chains.values() for one in chain.rules]
    assert all(one.rule.comment for one in rules)
    assert [one.comment for one in rules] == [one.rule.comment if comments else "" for one in rules]
    assert {"-m comment --comment " in one.text for one in rules} == {comments}
    for encode in (compat.encode_plan, building.encode_plan):
        encoded = [one for chain in encode(written, family).values() for one in chain]
        assert len(encoded) == len(rules)
        assert {b"comment\0" in getattr(one, "data", one) for one in encoded} == {comments}


@pytest.mark.parametrize("ports", [(81,), (81, 82), (81, 82, 83)])
def test_rules_take_turns_that_are_as_many_as_those_of_their_pair_and_none_is_left_out(ports):
    pair = [Rule(matches=(Port(protocol=protocol, ports=its),), target=Return(), paired=protocol == "tcp") for protocol, its in (("tcp", (80, 90)), ("udp", ports))]
    paired = PLAN.replace(tables=(Table(name="nat", chains=(Chain(name="X", rules=tuple(pair)),)),))
    if len(ports) != len(pair[0].matches[0].ports):
        with pytest.raises(ValueError, match="zip"):
            write_plan(paired, IPV4)
        return
    texts = [one.text for one in write_plan(paired, IPV4)["nat"]["X"].rules]
    assert texts == [f"-p {protocol} -m {protocol} --dport {port} -j RETURN" for protocol, port in (("tcp", 80), ("udp", 81), ("tcp", 90), ("udp", 82))]


# --- one rule as text -------------------------------------------------------------------------------------------------


def network(text):
    return Network.parse(text)


ONE, TWO = (network("10.0.0.0/8"), network("192.0.2.1/32")), (80, 90)


@pytest.mark.parametrize(
    ("matches", "target", "texts"),
    [
        ((), Return(), ["-j RETURN"]), ((), Observe(text=""), [""]), ((Protocol(name="tcp"),), Observe(text=""), ["-p tcp"]), ((), Jump(chain="A", goto=True), ["-g A"]),
        ((Protocol(name="tcp"), OutInterface(names=("b",)), InInterface(names=("a",)), Destination(networks=ONE[:1]), Source(networks=ONE[1:])), Return(), ["-s 192.0.2.1/32 -d 10.0.0.0/8 -i a -o b -p tcp -j RETURN"]),
        # a protocol that a match implies is written once, and extensions stand in their order
        ((Port(protocol="tcp", ports=TWO[:1]),), Return(), ["-p tcp -m tcp --dport 80 -j RETURN"]), ((Mark(value=1), Port(protocol="udp", ports=TWO[:1])), Return(), ["-p udp -m mark --mark 0x1 -m udp --dport 80 -j RETURN"]),
        ((Protocol(name="tcp"), Port(protocol="tcp", ports=TWO[:1])), Return(), ["-p tcp -m tcp --dport 80 -j RETURN"]), ((Port(protocol="tcp", ports=TWO[:1]), Source(networks=ONE[:1])), Return(), ["-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j RETURN"]),
        ((Protocol(name="tcp", module=True),), Return(), ["-p tcp -m tcp -j RETURN"]),
        # options of tcp that follow each other share one module, and those of no other module do
        ((Port(protocol="tcp", ports=(1,), source=True), Port(protocol="tcp", ports=(2,))), Return(), ["-p tcp -m tcp --sport 1 --dport 2 -j RETURN"]),
        ((Port(protocol="tcp", ports=(1,), source=True), Mark(value=1), Port(protocol="tcp", ports=(2,))), Return(), ["-p tcp -m tcp --sport 1 -m mark --mark 0x1 -m tcp --dport 2 -j RETURN"]),
        ((Port(protocol="udp", ports=(1,), source=True), Port(protocol="udp", ports=(2,))), Return(), ["-p udp -m udp --sport 1 -m udp --dport 2 -j RETURN"]),
        ((Port(protocol="tcp", ports=(2,)), TcpFlags(mask=("SYN",), flags=("SYN",))), Return(), ["-p tcp -m tcp --dport 2 --tcp-flags SYN SYN -j RETURN"]),
        # a list is a rule for each of its elements, and two are one for each pair
        ((Destination(networks=ONE),), Return(), ["-d 10.0.0.0/8 -j RETURN", "-d 192.0.2.1/32 -j RETURN"]),
        ((Source(networks=ONE), InInterface(names=("a", "b"))), Return(), [f"-s {one} -i {name} -j RETURN" for one in ONE for name in ("a", "b")]),
        ((Destination(networks=(network("0.0.0.0/0"),)), Protocol(name="tcp")), Return(), ["-p tcp -j RETURN"]), ((Destination(networks=(network("0.0.0.0/0"),), negated=True),), Return(), ["! -d 0.0.0.0/0 -j RETURN"]),
    ],
)  # fmt: skip
def test_a_rule_is_written_as_iptables_lists_it(matches, target, texts):
    rule = Rule(matches=matches, target=target, comment="why not")
    assert write_rule(rule, IPV4) == texts
    unfolded = unfold_rule(rule, IPV4)
    assert {one.rule for one in unfolded} == {rule}
    assert {one.comment for one in unfolded} == {""}
    assert [parse_rule(one.text, IPV4).matches for one in unfolded] == [one.listed(IPV4).matches for one in unfolded]


def test_a_comment_is_quoted_and_stands_before_the_target():
    for comment, written in (("why", '"why"'), ("a b", '"a b"'), ('a"b', '"a\\"b"'), ("", '""')):
        for target, end in ((Return(), " -j RETURN"), (Jump(chain="A", goto=True), " -g A"), (Observe(text=""), "")):
            (one,) = unfold_rule(Rule(matches=(Protocol(name="tcp"),), target=target, comment=comment), IPV4, comments=True)
            assert one.text == f"-p tcp -m comment --comment {written}{end}"
            assert one.comment == comment


def test_what_a_written_rule_is_listed_as_has_its_target_its_family_and_no_protocol_that_a_match_implies():
    rule = Rule(matches=(Port(protocol="tcp", ports=(1,)),), target=Return(), comment="why", origin=PLAN.tables[0].chains[0].all_rules[0].origin)
    (one,) = unfold_rule(rule, IPV6)
    assert one.matches == (Protocol(name="tcp"), Port(protocol="tcp", ports=(1,)))
    assert one.listed(IPV6) == Rule(matches=rule.matches, target=Return(), families=(IPV6,))


P, M, S, D = Protocol(name="tcp", module=True), Mark(value=1), Port(protocol="tcp", ports=(1,), source=True), Port(protocol="tcp", ports=(2,))
MANY, UDP = Port(protocol="tcp", ports=(1, 2)), Port(protocol="udp", ports=(2,))


@pytest.mark.parametrize(
    ("matches", "modules"),
    [
        ((), []), ((Source(networks=ONE[:1]), InInterface(names=("a",)), Protocol(name="tcp")), []), ((P,), [[P]]), ((P, M), [[P], [M]]), ((P, D), [[D]]), ((P, S, D), [[S, D]]), ((S, M, D), [[S], [M], [D]]),
        ((Protocol(name="tcp"), S, D), [[S, D]]), ((M, S, D, M), [[M], [S, D], [M]]), ((UDP, UDP), [[UDP], [UDP]]), ((S, MANY), [[S], [MANY]]), ((MANY, S), [[MANY], [S]]), ((P, MANY), [[P], [MANY]]),
        ((Protocol(name="udp", module=True), UDP), [[Protocol(name="udp", module=True)], [UDP]]), ((M, M), [[M], [M]]),
    ],
)  # fmt: skip
def test_options_of_tcp_beside_each_other_are_of_one_module_and_a_protocol_is_one_where_it_is_loaded_alone(matches, modules):
    assert list(split_modules(matches)) == modules


# --- a plan as text ---------------------------------------------------------------------------------------------------


def made(*chains, name="nat"):
    return PLAN.replace(tables=(Table(name=name, chains=chains),))


def rule(port, target=None, **more):
    return Rule(matches=(Port(protocol="tcp", ports=(port,)),), target=target or Return(), comment=f"port {port}", **more)


def test_inserted_rules_come_first_and_have_positions_and_the_others_are_appended():
    written = write_plan(made(Chain(name="OUTPUT", rules=(rule(3), rule(4)), inserted=(rule(1), rule(2))), Chain(name="X", rules=(rule(5),))), IPV4)
    texts = [f"-p tcp -m tcp --dport {port} -j RETURN" for port in range(1, 6)]
    chain = written["nat"]["OUTPUT"]
    assert (chain.texts, chain.inserted) == (texts[:4], 2)
    assert chain.placed == [(1, texts[0]), (2, texts[1]), (0, texts[2]), (0, texts[3])]
    assert render_restore(written) == "\n".join([
        "*nat", ":X - [0:0]", f"-I OUTPUT 1 {texts[0]}", f"-I OUTPUT 2 {texts[1]}", f"-A OUTPUT {texts[2]}", f"-A OUTPUT {texts[3]}", f"-A X {texts[4]}", "COMMIT", "",
    ])  # fmt: skip
    assert render_listing(written) == "\n".join(["*nat", ":X - [0:0]", *[f"-A OUTPUT {text}" for text in texts[:4]], f"-A X {texts[4]}", "COMMIT", ""])
    assert render_restore({}) == render_listing({}) == ""


def test_a_chain_without_rules_is_written_only_if_another_leads_to_it_and_a_table_only_with_chains():
    empty, called = Chain(name="EMPTY"), Chain(name="CALLED")
    written = write_plan(made(empty, called, Chain(name="OUTPUT", rules=(rule(1, Jump(chain="CALLED")),))), IPV4)
    assert {name: len(chain.rules) for name, chain in written["nat"].items()} == {"CALLED": 0, "OUTPUT": 1}
    assert write_plan(made(empty, called), IPV4) == {}
    assert [*encode_each(written, lambda one: one.text).items()] == [(("nat", "OUTPUT"), ("-p tcp -m tcp --dport 1 -j CALLED",))]


def test_a_rule_of_one_family_is_not_written_for_the_other():
    one = made(Chain(name="OUTPUT", rules=(rule(1, families=(IPV6,)), rule(2)), inserted=(rule(3, families=(IPV6,)), rule(4, families=(IPV4,)))))
    assert [written.rule.comment for written in write_plan(one, IPV4)["nat"]["OUTPUT"].rules] == ["port 4", "port 2"]
    assert write_plan(one, IPV6)["nat"]["OUTPUT"].inserted == 1
    assert [written.rule.comment for written in write_plan(one, IPV6)["nat"]["OUTPUT"].rules] == ["port 3", "port 1", "port 2"]


def test_pairs_of_rules_take_turns_one_pair_behind_the_other():
    pairs = [Rule(matches=(Port(protocol=protocol, ports=(port, port + 1)),), target=Return(), paired=protocol == "tcp") for port in (10, 20) for protocol in ("tcp", "udp")]
    texts = [one.text for one in write_plan(made(Chain(name="X", rules=(rule(1), *pairs, rule(2)))), IPV4)["nat"]["X"].rules]
    order = [("tcp", 1), ("tcp", 10), ("udp", 10), ("tcp", 11), ("udp", 11), ("tcp", 20), ("udp", 20), ("tcp", 21), ("udp", 21), ("tcp", 2)]
    assert texts == [f"-p {protocol} -m {protocol} --dport {port} -j RETURN" for protocol, port in order]
