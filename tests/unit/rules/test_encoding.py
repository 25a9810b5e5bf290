"""Rules as bytes: what is encoded decodes to the same rule, and what no program chooses does not count."""

from __future__ import annotations

from struct import unpack_from

import pytest

from core import plan
from goldens import BEHAVIOURS, options_of
from netinit.base.net import IPV4, Network
from netinit.base.netlink_attributes import split_attributes
from netinit.base.snapshot import INET
from netinit.rules.expressions import compat
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.matches.context import AddressType
from netinit.rules.matches.packet import Destination, InInterface, Port, Source
from netinit.rules.nft import EncodedTable, are_equal
from netinit.rules.rule_builder import RuleBuilder, expression, settle
from plan_snapshot import encode_plan, snapshot_of
from sweeps import together


def arranged(snapshot, name, table):
    """A table of a snapshot; its sets have the planned ones' elements, in another order."""
    rules = [one for one in snapshot.rules if one.table == name]
    chains = {chain: [one.expressions for one in rules if one.chain == chain] for chain in table.chains}
    return EncodedTable(chains=chains, sets=tuple([one.replace(elements=one.elements[::-1]) for one in table.sets]))


@together("behaviour", BEHAVIOURS)
def test_a_plan_that_was_encoded_is_equal_to_itself_and_to_no_other(behaviour):
    planned = plan(options_of(behaviour))
    held = snapshot_of(planned)
    for name, table in encode_plan(planned).items():
        assert are_equal(table, arranged(held, name, table))
    changed = held.rules[-1].replace(expressions=held.rules[-1].expressions[:-1] + b"\xfe")
    other = held.replace(rules=(*held.rules[:-1], changed))
    tables = encode_plan(planned)
    assert [name for name, table in tables.items() if not are_equal(table, arranged(other, name, table))] == [changed.table]


def test_what_one_module_asks_is_one_match_of_the_kernel():
    def encode(spec):
        rule = parse_rule(f"-p tcp -m tcp {spec} -j ACCEPT", IPV4)
        return compat.encode_rule(rule.matches, rule.target, IPV4, form=compat.FORMS[1, 8, 7])

    both, first, second = (encode(spec) for spec in ("--sport 1000 --dport 80", "--sport 1000", "--dport 80"))
    assert len({both, first, second}) == 3
    assert [one.count(b"match\0") for one in (both, first, second)] == [1, 1, 1]


def test_counters_and_the_numbers_of_sets_do_not_count():
    builder = RuleBuilder(INET, [])
    builder.count()
    builder.decide(1)
    counted = expression(b"counter", (1, b"\1" * 8), (2, b"\2" * 8)) + builder.parts[1]
    assert settle(counted) == builder.block() != counted
    builder.load("meta", 6)
    builder.compare_ranges([(b"a" * 16, b"a" * 16), (b"b" * 16, b"b" * 16)], negated=False, key_type=41)
    block = builder.block()
    renumbered = settle(block, lambda name: {b"__set0": b"__set123"}[name])
    assert renumbered != block
    assert settle(renumbered, lambda name: {b"__set123": b"__set0"}[name]) == block


@pytest.mark.parametrize(
    ("match", "key_type"),
    [
        (Destination(networks=(Network.parse("10.0.0.0/8"), Network.parse("192.0.2.1/32"))), 7), (Source(networks=(Network.parse("2001:db8::/32"), Network.parse("::1/128"))), 8),
        (Port(protocol="udp", ports=(53, 5353)), 13), (AddressType(side="source", types=("LOCAL", "BROADCAST")), 21), (InInterface(names=("lo", "eth0")), 41),
    ],
)  # fmt: skip
def test_a_set_has_the_type_in_which_nft_lists_what_it_holds(match, key_type):
    builder = RuleBuilder(INET, [])
    match.express(builder)
    assert [one.key_type for one in builder.sets] == [key_type]


@pytest.mark.parametrize(
    ("rule", "number", "flags"),
    [
        ("-p tcp -m tcp --dport 80 -j RETURN", 6, 0), ("-p udp -j RETURN", 17, 0), ("! -p tcp -j RETURN", 6, 2), ("! -p udp -j RETURN", 17, 2), ("-o lo -j RETURN", 0, 0), ("-j RETURN", 0, 0),
        ("-o lo -m mark --mark 0x1 -p udp -m udp --dport 53 -j RETURN", 17, 0),
    ],
)  # fmt: skip
def test_the_protocol_that_a_rule_asks_for_is_an_attribute_of_it(rule, number, flags):
    written = compat.write_protocol(parse_rule(rule, IPV4).matches)
    assert compat.write_protocol(parse_rule(rule, IPV4).matches) == written
    values = [{name: unpack_from(">I", value)[0] for name, value in split_attributes(payload)} for _, payload in split_attributes(written)]
    assert values == ([{1: number, 2: flags}] if number else []), "NFTA_RULE_COMPAT_PROTO, _FLAGS"
    assert not number or unpack_from("=2H", written) == (len(written), 1 << 15 | 5), "NLA_F_NESTED, NFTA_RULE_COMPAT"


@pytest.mark.parametrize(("rule", "named"), [("-m tcp --dport 80 -p tcp", ("tcp", False)), ("! -p udp", ("udp", True)), ("-o lo", ("", False)), ("-p udp -m udp --dport 53", ("udp", False))])
def test_a_protocol_is_asked_for_or_implied_by_another_match(rule, named):
    matches = parse_rule(rule, IPV4).matches
    assert compat.protocol_of(matches) == named
    implied = [one for one in matches if one.protocol and type(one).__name__ != "Protocol"]
    assert compat.protocol_of(implied) == ((implied[0].protocol, False) if implied else ("", False))
