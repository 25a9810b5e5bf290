"""The rules of a snapshot, loaded for a simulation."""

from __future__ import annotations

import pytest

from core import Options, plan
from netinit.base.net import IPV4
from netinit.base.snapshot import IP, NETDEV, NftChain, NftTable, Snapshot
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import IPTABLES_NFT
from netinit.rules.matches.context import Socket, UnknownMatch
from netinit.rules.matches.packet import InInterface
from netinit.rules.targets import Jump
from plan_snapshot import live_chains


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
