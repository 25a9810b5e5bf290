"""Verifying on a machine in memory: what is compared, with whose rules, and that nothing changes."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from memory_machine import MemoryMachine
from netinit.base.errors import BackendUnavailableError
from netinit.base.net import IPV4
from netinit.kernel.tcp_sockets import TcpSocket
from netinit.options import Options
from netinit.pods import reset_connections
from netinit.pods.apply import apply
from netinit.pods.older_connections import OlderConnection
from netinit.pods.verify import BYPASSING, verify

NFT, LEGACY, NFTABLES, LIBIPTC = "iptables-nft", "iptables-legacy", "nftables", "libiptc"


@pytest.fixture
def machine():
    return MemoryMachine()


def asked(backend, *more):
    return Options.from_argv(["-i", "*", "-b", "*", "-m", "TPROXY", "--ipv6", "on", "--backend", backend, *more])


def found(machine, options):
    return [difference.describe() for difference in verify(options, machine).differences]


@pytest.mark.parametrize("backend", [NFT, LEGACY, NFTABLES])
def test_without_a_backend_named_the_one_that_holds_rules_is_compared(machine, backend):
    apply(asked(backend), machine=machine)
    before = machine.snapshot()
    report = verify(asked("auto"), machine)
    assert (report.backend, report.differences) == (backend, ())
    assert machine.snapshot() == before


def test_an_empty_namespace_misses_all_of_the_preferred_backend(machine):
    report = verify(asked("auto"), machine)
    assert report.backend == NFT
    assert {difference.kind for difference in report.differences} == {"missing"}


def test_rules_of_another_backend_a_route_and_a_foreign_rule_are_each_a_difference(machine):
    apply(asked(NFT), machine=machine)
    machine.tables[NFT].execute(IPV4, "*nat\n-I OUTPUT 1 -p tcp -j RETURN\nCOMMIT\n")
    other = MemoryMachine()
    apply(asked(LEGACY), machine=other)
    machine.tables[LEGACY] = other.tables[LEGACY]
    machine.link.routes = machine.link.routes[1:]
    texts = found(machine, asked(NFT))
    assert [text.split(":")[0] for text in texts] == ["leftover", "missing", "shadowing"]
    assert "route local default dev lo table 133" in texts[1]


@pytest.mark.parametrize(("layout", "option"), [((), "--istio-inbound-interception-mode"), (("--layout", "ambient"), "--layout")])
def test_a_missing_route_is_due_to_the_mode_or_to_a_layout_with_a_table_of_its_own(machine, layout, option):
    options = Options.from_argv(["--backend", NFT, *(layout or ["-m", "TPROXY", "-b", "*"])])
    apply(options, machine=machine)
    machine.link.routes = machine.link.routes[1:]
    assert [(one.origin, one.where) for one in verify(options, machine).differences] == [(option, "IPv4")]


@pytest.mark.parametrize(("gone", "expected"), [
    ("routes", [("IPv4", "-4 route local default dev lo table 133"), ("IPv6", "-6 route local default dev lo table 133")]),
    ("addresses", [("IPv6", "address ::6/128 dev lo")]),
])  # fmt: skip
def test_a_missing_route_or_address_is_a_difference_of_its_family(machine, gone, expected):
    options = Options.from_argv(["--backend", NFT, "-m", "TPROXY", "-b", "*", "--ipv6", "on"])
    apply(options, machine=machine)
    setattr(machine.link, gone, [])
    purposes = {"routes": "marked packets are delivered to this pod", "addresses": "the proxy passes inbound connections on from it"}
    found = [one for one in verify(options, machine).differences if one.table == "routing"]
    assert [(one.where, one.rule) for one in found] == expected
    assert {(one.kind, one.purpose) for one in found} == {("missing", purposes[gone])}


def test_rules_that_cannot_be_read_are_an_error(machine):
    machine.missing = {NFT, LEGACY, NFTABLES, LIBIPTC}
    with pytest.raises(BackendUnavailableError, match="the rules cannot be read:\n"):
        verify(Options(), machine)


def test_rules_that_may_be_where_nobody_can_look_are_not_missing(machine):
    """A backend that can be read and is empty says nothing of the one that cannot."""
    apply(asked(NFT), machine=machine)
    machine.missing = {NFT}
    with pytest.raises(BackendUnavailableError, match="the rules cannot be read:\n  iptables-nft"):
        verify(asked("auto"), machine)


def test_without_net_admin_that_is_the_reason(machine):
    apply(asked(NFT), machine=machine)
    machine.missing = {NFT}
    machine.capabilities = set()
    with pytest.raises(BackendUnavailableError, match="the rules cannot be read: NET_ADMIN is missing: "):
        verify(asked("auto"), machine)


def test_who_has_no_rules_of_ours_is_said(machine):
    assert not verify(asked("auto"), machine).ours
    apply(asked(NFT), machine=machine)
    assert verify(asked("auto"), machine).ours


@pytest.mark.parametrize(("local", "remote", "family"), [("10.0.0.2", "203.0.113.7", "IPv4"), ("fd00::2", "2001:db8::7", "IPv6")])
def test_a_connection_past_the_proxy_is_a_difference_of_its_family(machine, monkeypatch, local, remote, family):
    ends = [(ip_address(end).packed, port) for end, port in ((local, 40000), (remote, 443))]
    found = TcpSocket(state=1, local=ends[0], remote=ends[1], uid=1000, inode=1, mark=0, transparent=False, identity=b"")
    passing = OlderConnection(found, inbound=False, entry=None, passes=True)
    monkeypatch.setattr(reset_connections, "find_bypassing", lambda *_: ((passing,), 0))
    apply(asked(NFT), machine=machine)
    (difference,) = verify(asked(NFT), machine, connections=True).differences
    assert (difference.kind, difference.where) == (BYPASSING, family)
