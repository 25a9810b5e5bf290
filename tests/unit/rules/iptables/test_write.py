"""A plan's rules and a listing as text and as differences: what is there of each chain, in order."""

from __future__ import annotations

import pytest

from core import plan
from netinit.base.net import FAMILIES, IPV4
from netinit.options import Options
from netinit.rules.expressions import compat
from netinit.rules.iptables.write import miss_all, write_plan
from netinit.rules.matches.packet import Port
from netinit.rules.model import BUILTIN_CHAINS, Chain, Rule, Table
from netinit.rules.targets import Return
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
