"""The connections that a host remembers: by zone, protocol and both ends, there and back."""

from __future__ import annotations

import pytest

from core import IPV4, Packet, number_of
from netinit.simulate.connections import Connection, ConnectionTable, begins, flow_of

HERE, THERE, PROXY = (number_of(text) for text in ("10.0.0.2", "1.2.3.4", "127.0.0.1"))
QUERY = Packet(family=IPV4, protocol="udp", source=HERE, source_port=40000, destination=THERE, destination_port=53)


@pytest.fixture
def table():
    """One connection in zone 1, whose destination was translated to port 15053 of this host."""
    connection = Connection(flow_of(QUERY), zone=1)
    connection.send_to(PROXY, 15053)
    made = ConnectionTable()
    made.confirm(connection)
    return made


def test_a_packet_belongs_to_the_connection_with_its_protocol_and_both_its_ends(table):
    connection, is_answer = table.find(1, QUERY)
    assert (connection.original, is_answer) == (flow_of(QUERY), False)
    for changed in ({"protocol": "tcp"}, {"source": THERE}, {"source_port": 1}, {"destination": HERE}, {"destination_port": 54}):
        assert table.find(1, QUERY.replace(**changed)) is None
    assert table.find(2, QUERY) is None


def test_an_answer_comes_from_where_the_destination_went(table):
    answer = QUERY.replace(source=PROXY, source_port=15053, destination=HERE, destination_port=40000)
    connection, is_answer = table.find(1, answer)
    assert (connection.zone, is_answer) == (1, True)
    for changed in ({"protocol": "tcp"}, {"source": THERE}, {"source_port": 53}, {"destination": PROXY}, {"destination_port": 1}):
        assert table.find(1, answer.replace(**changed)) is None


def test_what_is_remembered_first_stays(table):
    first, _ = table.find(1, QUERY)
    table.confirm(Connection(flow_of(QUERY), zone=1))
    assert table.find(1, QUERY)[0] is first


def test_a_copy_goes_its_own_way():
    first = Connection(flow_of(QUERY), zone=1, mark=5)
    first.send_to(PROXY, 15053)
    first.decided.add("source")
    other = first.copy()
    assert (other.original, other.to, other.mark, other.decided) == (first.original, first.to, 5, {"source"})
    other.decided.add("destination")
    assert first.decided == {"source"}


@pytest.mark.parametrize(
    ("flags", "picks_up", "does"),
    [(("SYN",), False, True), (("SYN",), True, True), (("ACK",), False, False), (("ACK",), True, True), (("SYN", "ACK"), True, False), ((), True, False)],
)
def test_a_connection_begins_with_a_syn_and_may_be_picked_up_at_an_ack(flags, picks_up, does):
    assert begins(flags, picks_up=picks_up) is does
