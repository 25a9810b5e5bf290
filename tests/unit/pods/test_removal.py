"""What a removal would take away, on a machine in memory."""

from __future__ import annotations

import pytest

from memory_machine import MemoryMachine
from netinit.base.errors import BackendUnavailableError
from netinit.base.net import IPV4
from netinit.options import Options
from netinit.pods.apply import apply, remove
from netinit.pods.planning import find_removal

NFT = "iptables-nft"
OPTIONS = Options.from_argv(["-i", "*", "-b", "*", "-m", "TPROXY", "--ipv6", "on", "--backend", NFT])


@pytest.fixture
def machine():
    made = MemoryMachine()
    made.tables[NFT].execute(IPV4, "*nat\n-A OUTPUT -p tcp -j RETURN\nCOMMIT\n")
    apply(OPTIONS, machine=made)
    return made


def test_all_rules_of_ours_are_listed_and_no_foreign_one(machine):
    before = machine.snapshot()
    found = find_removal(Options(), machine)
    assert "-p tcp -j REDIRECT --to-ports 15001" in found.rules[f"{NFT} IPv4 nat ISTIO_REDIRECT"]
    assert found.rules[f"{NFT} IPv4 nat OUTPUT"] == ("-j ISTIO_OUTPUT",)
    assert [text for text in found.routes if "fwmark" in text]
    assert machine.snapshot() == before


def test_after_a_removal_nothing_is_left_to_list(machine):
    remove(Options(), machine=machine)
    found = find_removal(Options(), machine)
    assert (found.rules, found.routes) == ({}, ())


def test_what_cannot_be_looked_through_is_an_error(machine):
    machine.missing = {NFT}
    with pytest.raises(BackendUnavailableError):
        find_removal(Options(), machine)
