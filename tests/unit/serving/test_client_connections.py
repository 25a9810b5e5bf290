"""Which connection gives way to a new one: the table alone, with a clock of the test's."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time

import pytest

from netinit.serving import client_connections
from netinit.serving.client_connections import ClientConnection, ClientTable, Stage
from netinit.webhook.certificates import make_pair


class Room:
    """A table with a clock that the test sets."""

    def __init__(self, most):
        self.now = 0.0
        self.dropped = []
        self.table = ClientTable(most, self.dropped.append, lambda: self.now)

    def connect(self, peer, stage=Stage.UNFINISHED):
        """The new connection, or None where it was refused."""
        if not self.table.make_room(peer):
            return None
        made = ClientConnection(self.table, peer, lambda _: None, None)
        self.table.add(made)
        made.enter(stage)
        return made

    def has(self, connection):
        return connection in list(self.table)


@pytest.fixture
def room():
    return Room(8)


def test_one_peer_has_half_of_the_connections_and_its_own_oldest_gives_way(room):
    first, *_ = [room.connect("a") for _ in range(4)]
    room.now = 1.0
    assert room.connect("a")
    assert not room.has(first)
    assert len(room.table) == 4
    assert room.dropped == ["unfinished"]


def test_a_peer_that_opens_too_many_at_once_is_refused_further_ones(room):
    there = [room.connect("a") for _ in range(4)]
    assert room.connect("a") is None
    assert all(map(room.has, there))
    assert room.dropped == ["refused"]


def test_a_peer_with_idle_connections_alone_loses_the_one_that_is_idle_longest(room):
    there = []
    for _ in range(4):
        room.now += 1.0
        there.append(room.connect("a", Stage.IDLE))
    there[0].enter(Stage.BUSY)
    there[0].enter(Stage.IDLE)  # it was used again
    assert room.connect("a")
    assert [room.has(one) for one in there] == [True, False, True, True]


@pytest.mark.parametrize(("most", "each"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_a_peer_has_half_of_the_connections_rounded_down_and_at_least_one(most, each):
    room = Room(most)
    assert [room.connect("a", Stage.BUSY) is not None for _ in range(most + 1)] == [True] * each + [False] * (most + 1 - each)
    assert room.dropped == ["refused"] * (most + 1 - each)


@pytest.mark.parametrize(("age", "gives_way"), [(0.25, False), (0.5, True)])
def test_an_own_unfinished_connection_gives_way_after_half_a_second_before_an_idle_one(room, age, gives_way):
    room.now = 100.0
    idle, young = room.connect("a", Stage.IDLE), [room.connect("a") for _ in range(3)]
    room.now += age
    assert room.connect("a")
    assert room.dropped == ["unfinished" if gives_way else "idle"]
    assert [room.has(one) for one in (idle, *young)] == [gives_way, not gives_way, True, True]


def test_an_idle_connection_of_the_peer_with_most_idle_ones_gives_way(room):
    for _ in range(2):
        room.connect("a", Stage.IDLE)
    several = [room.connect("b", Stage.IDLE) for _ in range(3)]
    for _ in range(3):
        room.connect("c", Stage.BUSY)
    assert room.connect("d")
    assert [room.has(one) for one in several] == [False, True, True]
    assert room.dropped == ["idle"]


@pytest.mark.parametrize(("own", "accepted"), [(1, True), (2, False)])
def test_idle_connections_give_way_to_a_peer_with_fewer_connections(own, accepted):
    room = Room(6)
    for _ in range(own):
        room.connect("a", Stage.BUSY)
    idle = [room.connect("b", Stage.IDLE) for _ in range(2)]
    for peer in "cdef"[: 4 - own]:
        room.connect(peer, Stage.BUSY)
    assert (room.connect("a") is not None) is accepted
    assert room.has(idle[0]) is not accepted


def test_a_stage_begins_when_it_is_entered(room):
    connection = room.connect("a")
    assert (connection.peer, connection.stage, connection.since) == ("a", Stage.UNFINISHED, 0.0)
    room.now = 7.0
    connection.enter(Stage.IDLE)
    assert (connection.stage, connection.since) == (Stage.IDLE, 7.0)


def test_who_is_being_answered_never_gives_way(room):
    for peer in ("a", "b"):
        for _ in range(4):
            assert room.connect(peer, Stage.BUSY)
    room.now = 100.0
    assert room.connect("c") is None
    assert len(room.table) == 8


def test_the_peer_with_most_unfinished_connections_gives_way_to_others_at_once(room):
    crowd = [room.connect("a") for _ in range(4)]
    others = [room.connect(peer, Stage.IDLE) for peer in "bcde"]
    assert room.connect("f"), "though the crowd is young"
    assert [room.has(one) for one in crowd] == [False, True, True, True]
    assert all(map(room.has, others))


@pytest.mark.parametrize(("crowd", "gives_way"), [(3, False), (4, True)])
def test_a_crowd_has_more_than_twice_as_many_as_who_asks_would_have(room, crowd, gives_way):
    there = [room.connect("a") for _ in range(crowd)]
    room.connect("b")
    for peer in "cdef"[crowd - 3 :]:
        room.connect(peer, Stage.BUSY)
    assert (room.connect("b") is not None) is gives_way
    assert room.has(there[0]) is not gives_way


def test_an_unfinished_connection_of_a_small_peer_has_half_a_second(room):
    young = [room.connect(peer) for peer in "abcdefgh"]
    assert room.connect("a") is None, "everybody has one"
    assert room.connect("new") is None, "one is no crowd to somebody without any"
    room.now = 0.6
    assert room.connect("a")
    assert sum(map(room.has, young)) == 7


def test_idle_connections_of_a_smaller_peer_do_not_give_way_to_a_larger_one(room):
    for _ in range(4):
        room.connect("a")
    for _ in range(3):
        room.connect("b")
    idle = room.connect("c", Stage.IDLE)
    assert room.connect("b") is None
    assert room.has(idle)


def test_an_ended_connection_counts_no_more_and_may_be_ended_twice(room):
    made = room.connect("a")
    made.abort()
    made.connection_lost(None)
    made.enter(Stage.IDLE)
    assert len(room.table) == 0


def test_a_connection_is_old_after_its_lifetime_and_not_all_at_the_same_time(room):
    connections = [room.connect(peer) for peer in "abcd"]
    assert not any(room.now + 59.0 >= one.expires for one in connections)
    assert all(room.now + 91.0 >= one.expires for one in connections)
    assert len({one.expires for one in connections}) > 1


def test_a_server_that_stops_closes_a_connection_on_which_nothing_was_sent_yet(room):
    connection = room.connect("a")
    connection.end(room.now + 5.0)
    assert not room.has(connection)
    connection.enter(Stage.IDLE)
    assert len(room.table) == 0, "it does not come back"


@pytest.mark.parametrize(("stage", "age", "ends"), [
    (Stage.UNFINISHED, 0.25, False), (Stage.UNFINISHED, 0.5, True), (Stage.IDLE, 0.1, True), (Stage.BUSY, 0.1, True),
])  # fmt: skip
def test_a_server_that_stops_ends_each_connection_once_and_leaves_a_new_one_time_for_its_first_request(room, stage, age, ends):
    room.now = 100.0
    connection, said = room.connect("a", stage), []
    connection.shutdown = lambda: said.append("shut down")
    for _ in range(2):
        connection.end(room.now + age)
    assert said == ["shut down"] * ends


class Wire(asyncio.Transport):
    """A transport that notes what becomes of it."""

    def __init__(self):
        super().__init__()
        self.events = []

    def abort(self):
        self.events.append("abort")

    def set_protocol(self, protocol):
        self.events.append(protocol)

    def is_closing(self):
        return "abort" in self.events


class Http(asyncio.Protocol):
    """HTTP that notes its calls."""

    def __init__(self):
        self.calls = []

    def connection_made(self, transport):
        self.calls.append(transport)

    def data_received(self, data):
        self.calls.append(data)


def test_the_first_bytes_begin_http_and_end_the_limit_of_time(room, monkeypatch):
    async def serve():
        monkeypatch.setattr(client_connections, "_HANDSHAKE_SECONDS", 0.02)
        http, wire, begun = Http(), Wire(), []
        connection = ClientConnection(room.table, "a", lambda connection: begun.append(connection) or http, None)
        room.table.add(connection)
        connection.connection_made(wire)
        connection.data_received(b"GET")
        await asyncio.sleep(0.05)
        assert (begun, wire.events, http.calls, room.has(connection)) == ([connection], [http], [wire, b"GET"], True)
        connection.connection_lost(None)
        connection.shutdown()
        assert (room.has(connection), wire.events) == (False, [http])

    asyncio.run(serve())


def test_a_client_that_sends_nothing_is_aborted_and_one_that_is_aborted_early_never_begins(room, monkeypatch):
    async def serve():
        monkeypatch.setattr(client_connections, "_HANDSHAKE_SECONDS", 0.01)
        silent, early = (ClientConnection(room.table, "a", lambda _: Http(), None) for _ in range(2))
        for connection in (silent, early):
            room.table.add(connection)
        early.abort()
        wires = [Wire(), Wire()]
        silent.connection_made(wires[0])
        early.connection_made(wires[1])
        assert [wire.events for wire in wires] == [[], ["abort"]]
        await asyncio.sleep(0.05)
        assert [wire.events for wire in wires] == [["abort"], ["abort"]]
        assert len(room.table) == 0

    asyncio.run(serve())


def test_a_limit_of_time_replaces_the_one_before(room):
    async def serve():
        connection, wire = ClientConnection(room.table, "a", lambda _: Http(), None), Wire()
        room.table.add(connection)
        connection.connection_made(wire)
        connection.limit(0.01)
        connection.limit(60.0)
        await asyncio.sleep(0.03)
        assert wire.events == []
        connection.limit(0)
        await asyncio.sleep(0.01)
        assert wire.events == ["abort"]

    asyncio.run(serve())


class Leaves(asyncio.Protocol):
    """Closes the connection at the first bytes."""

    def __init__(self):
        self.gone = asyncio.Event()

    def connection_lost(self, exc):
        self.gone.set()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.close()


def test_a_client_that_does_not_end_tls_is_left_without_its_answer(room, tmp_path, monkeypatch):
    monkeypatch.setattr(client_connections, "_TLS_SHUTDOWN_SECONDS", 0.01)
    pair = make_pair(("server",), now=time.time(), seconds=60.0)
    (tmp_path / "pair").write_text(pair.certificate + pair.key)
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(tmp_path / "pair")

    async def serve():
        ours, theirs = socket.socketpair()
        http = Leaves()
        connection = ClientConnection(room.table, "a", lambda _: http, lambda: own)
        room.table.add(connection)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, ours)

        def talk():
            client = ssl.create_default_context(cadata=pair.authority).wrap_socket(theirs, server_hostname="server")
            client.sendall(b"x")
            return client

        with await asyncio.to_thread(talk):
            async with asyncio.timeout(25.0):  # asyncio's own patience is 30 s
                await http.gone.wait()
        assert not room.has(connection)

    asyncio.run(serve())
