"""The rules of a snapshot, loaded for a simulation."""

from __future__ import annotations

import pytest

from core import Options, plan
from netinit.base.net import IPV4, IPV6
from netinit.base.snapshot import DORMANT, FAMILY_NAMES, INET, IP, NETDEV, LegacyTable, NftChain, NftTable, Snapshot
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import IPTABLES_NFT, NFTABLES
from netinit.rules.matches.context import Socket, UnknownMatch
from netinit.rules.matches.packet import InInterface
from netinit.rules.model import NFT_PREFIXES
from netinit.rules.nft import model_name, model_table, plan_tables
from netinit.rules.targets import Jump
from plan_snapshot import live_chains, snapshot_of


@pytest.mark.parametrize(("hook", "foreign"), [(0, []), (1, ["INPUT"])])
def test_a_chain_at_a_hook_where_iptables_has_no_such_table_is_foreign(hook, foreign):
    """The walk through iptables' tables would not meet it."""
    name = ("PREROUTING", "INPUT")[hook]
    chain = NftChain(family=IP, table="raw", name=name, kind="filter", hook=hook, priority=-300)
    loaded = load_snapshot(Snapshot(tables=(NftTable(family=IP, name="raw"),), chains=(chain,)))
    assert [one.hook for one in loaded.foreign[IPV4]] == foreign
    assert (name in loaded.rulesets[IPTABLES_NFT][IPV4].tables["raw"]) is not bool(foreign)


@pytest.mark.parametrize(("devices", "others", "begins"), [
    (("eth0",), False, InInterface(names=("eth0",), negated=True)), ((), True, UnknownMatch(text="not one of these devices")),
    (("lo",), True, UnknownMatch(text="not one of these devices")), ((), False, None),
])  # fmt: skip
def test_whether_packets_meet_a_chain_of_devices_by_prefix_is_unknown(devices, others, begins):
    chain = NftChain(family=NETDEV, table="t", name="c", kind="filter", hook=0, devices=devices, has_other_devices=others)
    loaded = load_snapshot(Snapshot(tables=(NftTable(family=NETDEV, name="t"),), chains=(chain,)))
    (hooked,) = loaded.foreign[IPV4]
    assert [(one.text, one.rule.matches) for one in hooked.chain.rules] == [("a hook of devices by prefix" if others else "", (begins,))] * (begins is not None)
    assert hooked.hook == "PREROUTING"


def test_the_chain_in_which_nft_looks_for_a_socket_is_a_match_of_the_rule_that_jumps_there():
    chains = live_chains(plan(Options.from_argv(["--layout", "classic", "-m", "TPROXY", "-b", "80", "--ipv6", "off"])))[IPV4]
    divert, *_ = chains["mangle", "ISTIO_INBOUND"]
    assert (divert.matches[-1], divert.target) == (Socket(), Jump(chain="ISTIO_DIVERT"))
    assert not [name for _, name in chains if "SOCKET" in name]


PLAN = plan(Options.from_argv(["-b", "*", "-i", "*", "-d", "80,81", "-u", "1337", "--ipv6", "on"]))


def test_our_tables_of_nft_are_loaded_as_nft_lists_them_with_what_the_plan_knows_of_each_rule():
    loaded = load_snapshot(snapshot_of(PLAN), (PLAN,)).rulesets[NFTABLES]
    told = 0
    for name, chains in plan_tables(PLAN).items():
        for chain, (_, steps) in chains.items():
            for number, step in enumerate(steps, 1):
                for family in step.rule.families:
                    (own,) = [one for one in loaded[family].tables[model_table(name)][model_name(chain)].rules if one.number == number]
                    assert (own.text, own.purpose, own.origin, own.comment) == (step.text(), step.rule.comment, step.rule.origin, "")
                    assert (own.handle, own.packets) == (number - 1, 0)
                    told += 1
    assert told == sum(len(chain.rules) for ruleset in loaded.values() for chain in ruleset.chains) > 40


def test_without_a_plan_nothing_is_known_of_the_purpose_of_a_rule():
    for ruleset in load_snapshot(snapshot_of(PLAN)).rulesets[NFTABLES].values():
        assert {(one.purpose, one.origin) for chain in ruleset.chains for one in chain.rules} == {("", None)}


def test_two_layouts_at_once_are_unreadable_and_the_first_is_loaded():
    held = snapshot_of(PLAN)
    (other,) = {prefix for prefix in NFT_PREFIXES if f"{prefix}nat" not in {one.name for one in held.tables}}
    loaded = load_snapshot(held.replace(tables=(*held.tables, NftTable(family=INET, name=f"{other}nat"))))
    assert loaded.unreadable == (f"table {other}nat: rules of another layout are here too; netinit remove deletes both",) * 2  # of both families
    assert loaded.rulesets[NFTABLES][IPV4].tables["nat"]["OUTPUT"].rules


@pytest.mark.parametrize(("family", "flags", "place"), [(INET, 0, "ours"), (INET, DORMANT, ""), (IP, 0, "foreign"), (IP, DORMANT, "")])
def test_a_table_with_a_name_of_ours_is_ours_in_the_family_of_both_alone(family, flags, place):
    """And no table that sleeps is anything."""
    chain = NftChain(family=family, table="istio-proxy-nat", name="output", kind="nat", hook=3, priority=-100)
    loaded = load_snapshot(Snapshot(tables=(NftTable(family=family, name="istio-proxy-nat", flags=flags),), chains=(chain,)))
    assert bool(loaded.rulesets[NFTABLES][IPV4].tables) is (place == "ours")
    assert [one.name for one in loaded.foreign[IPV4]] == ["nft table ip istio-proxy-nat"] * (place == "foreign")
    assert loaded.foreign[IPV6] == ()


@pytest.mark.parametrize(("changes", "is_foreign"), [({}, False), ({"hook": 1}, True), ({"hook": 2}, True), ({"hook": 4}, True), ({"priority": -99}, True), ({"kind": "filter"}, True), ({"name": "other"}, True)])
def test_a_base_chain_in_our_table_that_is_not_where_ours_is_belongs_to_somebody_else(changes, is_foreign):
    chain = NftChain(family=INET, table="istio-proxy-nat", name="output", kind="nat", hook=3, priority=-100).replace(**changes)
    loaded = load_snapshot(Snapshot(tables=(NftTable(family=INET, name="istio-proxy-nat"),), chains=(chain,)))
    assert [bool(one) for one in loaded.foreign.values()] == [is_foreign, is_foreign]
    assert bool(loaded.rulesets[NFTABLES][IPV4].tables["nat"]) is not is_foreign


FIRST = -(1 << 31)


@pytest.mark.parametrize(("family", "hook", "kind", "priority", "expected"), [
    (IP, 0, "filter", -5, ("PREROUTING", -5, "raw")), (IP, 3, "route", -150, ("OUTPUT", -150, "raw")), (IP, 3, "nat", 7, ("OUTPUT", 7, "nat")),
    (INET, 4, "nat", 100, ("POSTROUTING", 100, "nat")), (INET, 5, "filter", 9, ("PREROUTING", FIRST, "raw")),
    (NETDEV, 0, "filter", 9, ("PREROUTING", FIRST, "raw")), (NETDEV, 1, "filter", 9, ("POSTROUTING", -FIRST, "raw")),
])  # fmt: skip
def test_a_foreign_chain_runs_at_its_priority_or_those_of_devices_first_and_last(family, hook, kind, priority, expected):
    chain = NftChain(family=family, table="t", name="c", kind=kind, hook=hook, priority=priority)
    called = NftChain(family=family, table="t", name="called")
    loaded = load_snapshot(Snapshot(tables=(NftTable(family=family, name="t"),), chains=(chain, called)))
    (hooked,) = loaded.foreign[IPV4]
    assert (hooked.hook, hooked.priority, hooked.effect) == expected
    assert hooked.name == f"nft table {FAMILY_NAMES[family]} t"
    assert (hooked.chain.name, sorted(hooked.chains)) == ("c", ["c", "called"])


def test_a_chain_without_its_table_or_without_a_hook_is_nothing():
    chain = NftChain(family=IP, table="t", name="c", kind="filter", hook=0)
    for held in (Snapshot(chains=(chain,)), Snapshot(chains=(chain.replace(hook=-1, kind=""),), tables=(NftTable(family=IP, name="t"),))):
        assert load_snapshot(held).foreign == {IPV4: (), IPV6: ()}


@pytest.mark.parametrize(("family", "name", "flags", "found"), [(IP, "nat", 0, True), (IP, "nat", DORMANT, False), (IP, "other", 0, False), (10, "nat", 0, False), (INET, "nat", 0, False)])
def test_the_tables_of_iptables_are_those_of_its_names_and_family_that_are_awake(family, name, flags, found):
    chain = NftChain(family=family, table=name, name="OUTPUT", kind="nat", hook=3, priority=-100)
    loaded = load_snapshot(Snapshot(tables=(NftTable(family=family, name=name, flags=flags),), chains=(chain, chain.replace(name="USER", hook=-1, kind=""))))
    tables = loaded.rulesets[IPTABLES_NFT][IPV4].tables
    assert {table: sorted(chains) for table, chains in tables.items()} == ({"nat": ["OUTPUT", "USER"]} if found else {})


def test_a_legacy_table_that_cannot_be_decoded_is_unreadable_and_the_others_are_loaded():
    broken = LegacyTable(version=4, name="nat", valid_hooks=0, hook_entries=(0,) * 5, entries=b"x")
    loaded = load_snapshot(Snapshot(legacy=(broken,)))
    assert [one.partition(": ")[0] for one in loaded.unreadable] == ["IPv4"]
    assert loaded.rulesets.keys() == {IPTABLES_NFT, NFTABLES}, "no legacy table is there, as far as is known"
