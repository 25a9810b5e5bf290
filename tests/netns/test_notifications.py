"""Sockets of notifications: which changes make them readable, how little they hold, and that nothing is lost."""

from __future__ import annotations

import select
import socket

import pytest

from laboratory import NetworkNamespace
from netinit.kernel import notifications

CHANGES = [
    ["nft", "add table ip x"], ["nft", "add chain ip x y"], ["nft", "add table ip x { flags dormant; }"], ["nft", "add set ip x s { type ipv4_addr; }"],
    ["nft", "add element ip x s { 10.0.0.1 }"], ["ip", "link", "set", "lo", "up"], ["ip", "link", "set", "lo", "mtu", "1400"],
    ["ip", "address", "add", "10.1.1.1/32", "dev", "lo"], ["ip", "-6", "address", "add", "fd00::1/128", "dev", "lo"],
    ["ip", "rule", "add", "fwmark", "7", "lookup", "7"], ["ip", "-6", "rule", "add", "fwmark", "7", "lookup", "7"],
    ["ip", "route", "add", "local", "default", "dev", "lo", "table", "7"], ["ip", "-6", "route", "add", "local", "default", "dev", "lo", "table", "7"],
    ["tc", "qdisc", "add", "dev", "lo", "clsact"], ["sh", "-c", "echo 2 > /proc/sys/net/ipv4/conf/all/rp_filter"],
    ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], ["ip", "link", "set", "lo", "down"], ["ip", "link", "set", "lo", "name", "lo2"],
]  # fmt: skip
MOST_BYTES = 64 << 10  # of a namespace's sockets


@pytest.fixture
def place(require_netns):
    with NetworkNamespace("watch-notes") as made:
        yield made


@pytest.fixture
def sockets(place):
    with place.entered():
        made = notifications.subscribe()
    yield made
    notifications.close(made)


def readable(sockets):
    return bool(select.select(sockets, [], [], 0.5)[0])


def held(one):
    """The bytes in a socket's buffer (SO_MEMINFO: the first of its numbers)."""
    return int.from_bytes(one.getsockopt(socket.SOL_SOCKET, 55, 36)[:4], "little")


def test_each_change_makes_a_socket_readable_and_no_look_does(place, sockets):
    place.run(["ip", "link", "set", "lo", "down"], check=True)
    for change in CHANGES:
        notifications.drain(sockets)
        assert not select.select(sockets, [], [], 0)[0]
        place.run(change, check=True)
        assert readable(sockets), change
    notifications.drain(sockets)
    for look in (["nft", "-a", "list", "ruleset"], ["ip", "route", "show", "table", "all"], ["iptables-save"], ["ip", "rule"]):
        place.run(look, check=True)
    with place.entered():
        from netinit.kernel.snapshot.reader import read_snapshot

        read_snapshot()
    assert not select.select(sockets, [], [], 0.2)[0]


def test_what_has_no_room_is_counted_and_the_next_change_is_heard(place, sockets, tmp_path):
    """Ten thousand changes take no more room than a few, and the sockets are as good as before after them."""
    (tmp_path / "many").write_text("add table ip x\nadd chain ip x y\n" + "add rule ip x y accept\n" * 10_000)
    place.run(["nft", "-f", str(tmp_path / "many")], check=True)
    for _ in range(5):
        place.run(["nft", "add", "chain", "ip", "x", "y"], check=True)
        place.run(["nft", "flush", "chain", "ip", "x", "y"], check=True)
    assert sum(held(one) for one in sockets) < MOST_BYTES
    assert notifications.drain(sockets) == 1
    assert not select.select(sockets, [], [], 0)[0]
    place.run(["nft", "delete", "table", "ip", "x"], check=True)
    assert readable(sockets)


def test_sockets_are_handed_over(place):
    ours, theirs = socket.socketpair()
    with ours:
        with place.entered():
            notifications.send_sockets(theirs.detach(), notifications.subscribe())
        taken = notifications.receive_sockets(ours)
        assert 2 <= len(taken) <= notifications.MAX_SOCKETS
        place.run(["nft", "add", "table", "ip", "x"], check=True)
        assert readable(taken)
        assert ours.recv(1) == b"", "the other end is closed"
        notifications.close(taken)
