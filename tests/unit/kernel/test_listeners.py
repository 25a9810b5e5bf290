"""Listening sockets as sock_diag answers: of a kernel that says less, too much, or nothing."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from netinit.base.listeners import Listener
from netinit.base.net import IPV4, IPV6
from netinit.kernel import listeners
from netinit.kernel.netlink import attribute

V4, V6 = int(socket.AF_INET), int(socket.AF_INET6)


def answer(family, host, port, *, uid=1000, waiting=0, backlog=128, device=0, more=b""):
    kind = socket.AF_INET if family == V4 else socket.AF_INET6
    ends = socket.inet_pton(kind, host).ljust(16, b"\0") + b"\0" * 16
    identity = struct.pack(">HH", port, 0) + ends + struct.pack("=III", device, 7, 8)
    return bytes((family, 10, 0, 0)) + identity + struct.pack("=IIIII", 0, waiting, backlog, uid, 77) + more


def read(monkeypatch, *bodies, refuse=None):
    def dump(_self, _kind, request, most):
        assert most == listeners.MAX_BYTES
        family, protocol = request[0], request[1]
        if refuse and (protocol, family) in refuse:
            raise OSError(refuse[protocol, family], "refused")
        return [one for one in bodies if one[0] == family] if protocol == 6 else []

    monkeypatch.setattr(listeners.Netlink, "dump", dump)
    return listeners.read_listeners()


def test_a_listener_has_its_address_queue_user_and_device(monkeypatch):
    body = answer(V4, "10.77.0.2", 8080, uid=7, waiting=3, backlog=2, device=4, more=attribute(listeners.INET_DIAG_SOCKOPT, b"\x20\0"))
    (found,) = read(monkeypatch, body).sockets
    assert found == Listener(
        protocol="tcp", family=V4, address=bytes((10, 77, 0, 2)), port=8080, uid=7, device=4, transparent=True, waiting=3, backlog=2
    )
    assert found.is_full


@pytest.mark.parametrize(("host", "more", "takes"), [
    ("::", attribute(listeners.INET_DIAG_SKV6ONLY, b"\0"), (True, True)),
    ("::", attribute(listeners.INET_DIAG_SKV6ONLY, b"\x01"), (False, True)),
    ("::", b"", (None, True)),
    ("::ffff:0.0.0.0", b"", (True, False)), ("::ffff:10.77.0.2", b"", (True, False)), ("fd77::2", b"", (False, True)),
])  # fmt: skip
def test_which_family_a_socket_takes_depends_on_its_address_and_ipv6_v6only(monkeypatch, host, more, takes):
    (found,) = read(monkeypatch, answer(V6, host, 80, more=more)).sockets
    assert (found.takes(IPV4), found.takes(IPV6), found.transparent) == (*takes, None)


def test_what_one_protocol_does_not_tell_is_unknown_of_that_protocol_alone(monkeypatch):
    found = read(monkeypatch, answer(V4, "0.0.0.0", 80), refuse={(17, V4): errno.ENOENT})
    assert [one.port for one in found.sockets] == [80]
    assert (found.why_unread("tcp"), found.why_unread("udp")) == ("", "the kernel does not list sockets (sock_diag: refused)")


def test_more_sockets_than_are_read_are_unknown_and_not_a_part_of_them(monkeypatch):
    found = read(monkeypatch, answer(V4, "0.0.0.0", 80), refuse={(6, V6): errno.EFBIG})
    assert (found.sockets, found.why_unread("tcp")) == ((), "more sockets listen than netinit reads")


def test_a_kernel_without_ipv6_has_the_listeners_of_ipv4(monkeypatch):
    found = read(monkeypatch, answer(V4, "0.0.0.0", 80), refuse={(6, V6): errno.ENOENT, (17, V6): errno.ENOENT})
    assert (len(found.sockets), found.unread) == (1, ())


@pytest.mark.parametrize("length", [1, 8, 71])
def test_an_answer_that_is_too_short_makes_its_protocol_unknown(monkeypatch, length):
    assert read(monkeypatch, answer(V4, "0.0.0.0", 80)[:length].ljust(1, b"\x02")).why_unread("tcp") == (
        "the kernel does not list sockets (sock_diag: Bad message)"
    )


@pytest.mark.parametrize("garbage", [b"\xff" * 3, b"\x02\0\x16\0", b"\xff\xff\x16\0\x20", b"\0" * 8, attribute(listeners.INET_DIAG_SKV6ONLY, b"")])
def test_attributes_that_lie_about_their_length_do_no_harm(monkeypatch, garbage):
    (found,) = read(monkeypatch, answer(V6, "::", 80, more=garbage)).sockets
    assert found.v6only is None
