"""What sock_diag answers, read with bounds."""

from __future__ import annotations

import socket
import struct

import pytest

from netinit.kernel import tcp_sockets
from netinit.kernel.netlink import attribute
from netinit.kernel.tcp_sockets import AF_INET, AF_INET6, ESTABLISHED, INET_DIAG_MARK, INET_DIAG_SOCKOPT


def answer(family, local, remote, *, uid=1000, inode=77, more=b""):
    kind = socket.AF_INET if family == AF_INET else socket.AF_INET6
    ends = b"".join(socket.inet_pton(kind, host).ljust(16, b"\0") for host, _ in (local, remote))
    identity = struct.pack(">HH", local[1], remote[1]) + ends + struct.pack("=III", 3, 7, 8)
    return bytes((family, ESTABLISHED, 0, 0)) + identity + struct.pack("=IIIII", 0, 0, 0, uid, inode) + more


def read(monkeypatch, *bodies):
    monkeypatch.setattr(tcp_sockets.Netlink, "dump", lambda _self, _kind, body, _most: [one for one in bodies if one[:1] == body[:1]])
    return tcp_sockets.list_tcp()


def test_a_socket_has_its_ends_and_its_owner(monkeypatch):
    (found,) = read(monkeypatch, answer(AF_INET, ("10.77.0.2", 40000), ("198.51.100.7", 443)))
    assert (found.local, found.remote) == ((bytes((10, 77, 0, 2)), 40000), (bytes((198, 51, 100, 7)), 443))
    assert (found.state, found.uid, found.inode, found.mark, found.transparent) == (ESTABLISHED, 1000, 77, 0, False)
    assert found.identity[:1] + found.identity[-12:] == bytes((AF_INET,)) + struct.pack("=III", 3, 7, 8), "with its cookie"


def test_an_address_of_ipv4_in_a_socket_of_ipv6_is_one_of_ipv4(monkeypatch):
    mapped, plain = read(
        monkeypatch,
        answer(AF_INET6, ("::ffff:10.77.0.2", 1), ("::ffff:198.51.100.7", 2)), answer(AF_INET6, ("fd77::2", 1), ("2001:db8::7", 2)),
    )  # fmt: skip
    assert (mapped.local[0], len(plain.local[0])) == (bytes((10, 77, 0, 2)), 16)
    assert mapped.identity[0] == AF_INET6, "the kernel knows it as one of IPv6"


@pytest.mark.parametrize(("options", "transparent"), [(b"\x20\0", True), (b"\xdf\0", False), (b"", False)])
def test_marks_and_transparency_are_read_where_the_kernel_shows_them(monkeypatch, options, transparent):
    more = attribute(INET_DIAG_MARK, struct.pack("=I", 0x539)) + attribute(INET_DIAG_SOCKOPT, options)
    (found,) = read(monkeypatch, answer(AF_INET, ("10.77.0.2", 1), ("10.77.0.1", 2), more=more))
    assert (found.mark, found.transparent) == (0x539, transparent)


@pytest.mark.parametrize("length", [1, 8, 71])
def test_an_answer_that_is_too_short_is_an_error(monkeypatch, length):
    with pytest.raises(OSError, match="Bad message"):
        read(monkeypatch, answer(AF_INET, ("10.77.0.2", 1), ("10.77.0.1", 2))[:length])


@pytest.mark.parametrize("garbage", [b"\xff" * 3, b"\x02\0\x16\0", b"\xff\xff\x16\0\x20", b"\0" * 8])
def test_attributes_that_lie_about_their_length_do_no_harm(monkeypatch, garbage):
    (found,) = read(monkeypatch, answer(AF_INET, ("10.77.0.2", 1), ("10.77.0.1", 2), more=garbage))
    assert found.mark == 0


def test_a_kernel_without_ipv6_has_no_such_sockets(monkeypatch):
    def dump(_self, _kind, body, _most):
        if body[0] == AF_INET6:
            raise OSError(tcp_sockets.ENOENT, "No such file or directory")
        return [answer(AF_INET, ("10.77.0.2", 1), ("10.77.0.1", 2))]

    monkeypatch.setattr(tcp_sockets.Netlink, "dump", dump)
    assert len(tcp_sockets.list_tcp()) == 1


@pytest.mark.parametrize(("code", "raises"), [(2, False), (95, True), (1, True)])
def test_a_socket_that_is_gone_already_has_ended(code, raises):
    class Refusing(tcp_sockets.Netlink):
        def __init__(self):
            self._socket, self._sequence = self, 0  # opens none

        def send(self, data):
            assert (struct.unpack_from("=H", data, 4)[0], len(data)) == (tcp_sockets.SOCK_DESTROY, 16 + 56)

        def _receive(self):
            raise OSError(code, "no")

    (found,) = [tcp_sockets._read(answer(AF_INET, ("10.77.0.2", 1), ("10.77.0.1", 2)))]
    if raises:
        with pytest.raises(OSError, match="no"):
            tcp_sockets.destroy(Refusing(), found)
    else:
        tcp_sockets.destroy(Refusing(), found)


@pytest.mark.parametrize(
    ("state", "inode", "is_open"),
    [(1, 0, True), (2, 0, True), (3, 0, True), (4, 0, False), (4, 7, True), (5, 0, False), (5, 7, True), (6, 7, False), (7, 7, False), (8, 0, True), (9, 7, False), (10, 7, False), (11, 7, False), (12, 0, True)],
)
def test_a_connection_is_open_while_its_remote_end_or_a_program_here_would_notice_its_end(state, inode, is_open):
    found = tcp_sockets._read(answer(AF_INET, ("10.77.0.2", 1), ("10.77.0.1", 2), inode=inode))
    assert found.replace(state=state).is_open is is_open


def test_the_kernel_is_asked_for_connections_and_listeners_of_each_family(monkeypatch):
    asked = []
    monkeypatch.setattr(tcp_sockets.Netlink, "dump", lambda _self, *words: asked.append(words) or [])
    assert tcp_sockets.list_tcp() == ()
    states = sum(1 << state for state in (1, 2, 3, 4, 5, 8, 10, 12))
    assert asked == [(20, bytes((family, 6, 0, 0)) + struct.pack("=I48x", states), 1 << 26) for family in (2, 10)]


def test_a_socket_is_closed_by_its_family_state_and_identity():
    sent = []

    class Recorded(tcp_sockets.Netlink):
        def __init__(self):
            pass

        def request(self, *words, **options):
            sent.append((words, options))

    body = answer(AF_INET, ("10.77.0.2", 1), ("10.77.0.1", 2))
    tcp_sockets.destroy(Recorded(), tcp_sockets._read(body))
    assert sent == [((21, 0, bytes((AF_INET, 6, 0, 0)) + struct.pack("=I", 1 << ESTABLISHED) + body[4:52]), {"may_lack": True})]
