"""Anonymous sets of planned rules as a snapshot has them, and rules with lists as one rule for each element."""

from __future__ import annotations

import pytest

from netinit.base.net import FAMILIES, IPV4, Network
from netinit.base.snapshot import INET, IP, NftElement, NftSet
from netinit.rules.decoding.registers import with_ends
from netinit.rules.expressions.decoded_steps import decode_steps, each_element
from netinit.rules.expressions.encoded_sets import in_snapshot
from netinit.rules.matches.packet import Destination, InInterface, Owner, Port
from netinit.rules.model import Chain, Rule, Table
from netinit.rules.nft import plan_steps
from netinit.rules.rule_builder import RuleBuilder
from netinit.rules.targets import Drop, Return

PORTS = Port(protocol="tcp", ports=(80, 443))


def encoded(match):
    builder = RuleBuilder(INET, [])
    match.express(builder)
    (one,) = builder.sets
    return one


def test_a_set_of_single_values_has_them_as_keys():
    assert in_snapshot(encoded(PORTS).replace(name="mine"), IP, "t") == NftSet(
        family=IP, table="t", name="mine", flags=3, key_type=13, key_length=2, elements=(NftElement(key=b"\0\x50"), NftElement(key=b"\1\xbb")),
    )  # fmt: skip


def test_a_set_of_ranges_has_where_each_begins_and_ends():
    held = in_snapshot(encoded(PORTS.replace(ports=((80, 90), 443))), INET, "t")
    assert (held.flags, [(one.key, one.flags) for one in held.elements]) == (7, [(b"\0\0", 1), (b"\0\x50", 0), (b"\0\x5b", 1), (b"\1\xbb", 0), (b"\1\xbc", 1)])
    assert [ends for _, ends in with_ends(held)] == [(b"\0\x50", b"\0\x5a"), (b"\1\xbb", b"\1\xbb")]


@pytest.mark.parametrize(("match", "length"), [(PORTS, 2), (Destination(networks=(Network.parse("10.0.0.0/8"), Network.parse("192.0.2.0/24"))), 4), (Destination(networks=(Network.parse("fd00::/8"), Network.parse("fe80::/10"))), 16), (InInterface(names=("lo", "eth0")), 16)])
def test_a_set_has_keys_of_its_length(match, length):
    held = in_snapshot(encoded(match), INET, "t")
    assert {held.key_length, *[len(one.key) for one in held.elements]} == {length}


def test_each_planned_rule_stands_beside_what_it_is_read_as():
    rules = tuple([Rule(matches=matches, target=target, comment="", families=families) for matches, target, families in (((PORTS,), Drop(), FAMILIES), ((PORTS.replace(ports=(53, 54)), Destination(networks=(Network.parse("10.0.0.0/8"),))), Return(), (IPV4,)), ((), Drop(), FAMILIES))])
    found = decode_steps("t", plan_steps(Table(name="NAT", chains=(Chain(name="ISTIO_X", rules=rules), Chain(name="ISTIO_Y", rules=rules[:1])))))
    assert {chain: [step.rule for step, _ in steps] for chain, steps in found.items()} == {"istio-x": list(rules), "istio-y": list(rules[:1])}
    for step, live in [one for steps in found.values() for one in steps]:
        (read,) = live.rules
        assert (set(read.matches), read.target, read.families, live.packets, live.handle) == (set(step.rule.matches), step.rule.target, step.rule.families, 0, 0)


def test_a_rule_with_lists_is_one_for_each_of_their_elements_and_a_negated_list_is_one_match():
    interfaces, user = InInterface(names=("lo", "eth0")), Owner(kind="uid", first=1, last=1)
    assert list(each_element((user, PORTS, interfaces))) == [
        (user, PORTS.replace(ports=(port,)), interfaces.replace(names=(device,))) for port in (80, 443) for device in ("lo", "eth0")
    ]  # fmt: skip
    assert list(each_element((PORTS.replace(negated=True),))) == [(PORTS.replace(negated=True),)]
    assert list(each_element(())) == [()]
