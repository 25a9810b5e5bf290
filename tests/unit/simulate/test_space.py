"""The space of all packets: its dimensions, the interfaces that it distinguishes, and the packet of a point."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, Network, Packet, Surroundings, number_of
from netinit.base.net import FULL_MASK, MAX_PORT
from netinit.simulate.symbolic.space import (
    ALL_STATES,
    INBOUND,
    OUTBOUND,
    CtState,
    Dim,
    conntrack_state,
    intervals_of,
    make_space,
    packet_of,
)

POD = Surroundings(
    family=IPV4, addresses=(("lo", number_of("127.0.0.1")), ("net1", number_of("10.1.0.2"))), routes=((Network.parse("10.9.0.0/16"), "net1"),),
)  # fmt: skip
SENDERS = [(Dim.SENDER, 1, 1), (Dim.UID, FULL_MASK, 1), (Dim.GID, FULL_MASK, 1)]


@pytest.mark.parametrize(("direction", "senders"), [(OUTBOUND, SENDERS), (INBOUND, [])])
@pytest.mark.parametrize("family", [IPV4, IPV6], ids=str)
def test_each_dimension_has_its_levels_behind_those_before(direction, senders, family):
    space = make_space(direction, Surroundings(family=family), {"tcp"}, set(), free=False)
    last = (1 << family.bits) - 1
    others = 0 if direction == OUTBOUND else 1
    assert [(one.name, one.last, one.levels) for one in space.dimensions] == [
        (Dim.PROTOCOL, 2, 1), (Dim.STATE, len(ALL_STATES) - 1, 1), (Dim.INTERFACE, others, 1), (Dim.DESTINATION, last, 1), (Dim.DESTINATION_PORT, MAX_PORT, 1),
        *senders, (Dim.SOURCE, last, 1), (Dim.SOURCE_PORT, MAX_PORT, 1), (Dim.SOCKET, 1, 1), (Dim.MARK, FULL_MASK, 32), (Dim.CONNECTION_MARK, FULL_MASK, 32),
    ]  # fmt: skip
    at = 0
    for one in space.dimensions:
        assert (one.level, one.everything) == (at, ((0, one.last if one.levels == 1 else 0),))
        at += one.levels
    assert space.diagram.lasts == tuple([last for one in space.dimensions for last in ([one.last] if one.levels == 1 else [1] * 32)])
    assert (space.family, space.direction, space.free) == (family, direction, False)
    assert space.dimension(Dim.STATE).values == space.dimension(Dim.STATE).labels == ALL_STATES
    assert space.dimension(Dim.SOCKET).values == space.dimension(Dim.SOCKET).labels == ("no", "yes")


@pytest.mark.parametrize(("named", "values"), [
    (set(), ("tcp", "udp", "sctp")), ({"tcp", "icmp"}, ("icmp", "tcp", "udp", "sctp")), ({"sctp", "gre"}, ("gre", "sctp", "tcp", "udp", "esp")),
])  # fmt: skip
def test_one_protocol_stands_for_those_that_no_rule_names(named, values):
    protocols = make_space(INBOUND, POD, named, set(), free=False).dimension(Dim.PROTOCOL)
    assert (protocols.values, protocols.labels) == (values, (*values[:-1], "any other"))


@pytest.mark.parametrize(("mentioned", "labelled"), [
    (set(), [("eth0", "eth0"), ("net1", "net1"), ("z0", "any other")]),
    ({"lo", "", "br0", "eth0"}, [("br0", "br0"), ("eth0", "eth0"), ("net1", "net1"), ("z0", "any other")]),
    ({"net+"}, [("eth0", "eth0"), ("net1", "net1"), ("netz0", "any other net+"), ("z0", "any other")]),
    ({"e+", "eth+", "ethz+"}, [("eth0", "eth0"), ("net1", "net1"), ("ez0", "any other e+"), ("ethy0", "any other eth+"), ("ethzz0", "any other ethz+"), ("z0", "any other")]),
    ({"z+", "y0"}, [("eth0", "eth0"), ("net1", "net1"), ("y0", "y0"), ("zz0", "any other z+"), ("y1", "any other")]),
    ({"netz0", "net+"}, [("eth0", "eth0"), ("net1", "net1"), ("netz0", "netz0"), ("netz1", "any other net+"), ("z0", "any other")]),
])  # fmt: skip
def test_interfaces_are_those_that_are_known_one_for_each_prefix_and_one_for_all_others(mentioned, labelled):
    for direction, free in ((OUTBOUND, True), (INBOUND, False), (INBOUND, True)):
        interfaces = make_space(direction, POD, set(), mentioned, free=free).dimension(Dim.INTERFACE)
        assert [*zip(interfaces.values, interfaces.labels, strict=True)] == labelled
    routed = make_space(OUTBOUND, POD, set(), mentioned, free=False).dimension(Dim.INTERFACE)
    assert (routed.values, routed.labels) == (("",), ("any other",))


@pytest.mark.parametrize("state", ALL_STATES)
def test_rules_see_the_conntrack_state_of_what_is_split_further(state):
    assert conntrack_state(state) in ("NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED")
    assert state.startswith(conntrack_state(state))


def test_networks_are_their_first_and_last_addresses():
    assert intervals_of([Network.parse("10.0.0.0/31"), Network.parse("0.0.0.0/0")]) == [(0x0A000000, 0x0A000001), (0, FULL_MASK)]


def point_of(space, **names):
    """The point of a space with these values, by name in place of the index; 0 elsewhere."""
    given = {getattr(Dim, name.upper()): value for name, value in names.items()}
    dimensions = {one.name: one.values for one in space.dimensions}
    return {name: values.index(given[name]) if name in given and values else given.get(name, 0) for name, values in dimensions.items()}


@pytest.mark.parametrize(("state", "seen", "flag", "more"), [
    (CtState.NEW, "", "SYN", {}), (CtState.ESTABLISHED, "ESTABLISHED", "ACK", {}), (CtState.ANSWER, "ESTABLISHED", "ACK", {"is_answer": True}),
    (CtState.TRANSLATED, "ESTABLISHED", "ACK", {"destination_translated": True}), (CtState.RELATED, "RELATED", "ACK", {}),
    (CtState.TRANSLATED_ANSWER, "ESTABLISHED", "ACK", {"is_answer": True, "destination_translated": True}), (CtState.REUSED_NEW, "NEW", "SYN", {}),
    (CtState.REUSED, "ESTABLISHED", "SYN", {}), (CtState.REUSED_INVALID, "INVALID", "SYN", {}), (CtState.INVALID, "INVALID", "ACK", {}),
    (CtState.INVALID_CLOSING, "INVALID", "RST", {}), (CtState.UNTRACKED, "UNTRACKED", "ACK", {}),
])  # fmt: skip
def test_the_packet_of_a_point_has_the_flags_that_its_state_has(state, seen, flag, more):
    space = make_space(INBOUND, POD, {"icmp"}, set(), free=False)
    point = point_of(space, protocol="tcp", state=state, interface="net1", destination=1, destination_port=2, source=3, source_port=4, socket="yes", mark=5, connection_mark=6)
    expected = Packet(
        family=IPV4, protocol="tcp", source=3, source_port=4, destination=1, destination_port=2, in_interface="net1", mark=5, connection_mark=6, state=seen, socket=True,
        flags=(flag,), **{"destination_translated": False, "is_answer": False, **more},
    )  # fmt: skip
    assert packet_of(space, point) == (expected, POD)
    for name in ("udp", "icmp"):
        found, _ = packet_of(space, {**point, Dim.PROTOCOL: space.dimension(Dim.PROTOCOL).values.index(name), Dim.SOCKET: 0})
        ports = {"source_port": None, "destination_port": None} if name == "icmp" else {}
        assert found == expected.replace(protocol=name, flags=None, socket=False, **ports)


def test_a_packet_of_this_host_has_a_sender_with_user_and_group_or_none():
    space = make_space(OUTBOUND, POD, set(), set(), free=False)
    point = point_of(space, protocol="udp", sender="yes", uid=7, gid=8, destination=1)
    sent, around = packet_of(space, point)
    assert (sent.has_socket, sent.uid, sent.gid, sent.in_interface, around) == (True, 7, 8, "", POD)
    unsent, _ = packet_of(space, {**point, Dim.SENDER: 0})
    assert unsent == sent.replace(has_socket=False, uid=None, gid=None)


def test_where_routes_are_unknown_the_packet_s_host_routes_it_through_its_interface():
    space = make_space(OUTBOUND, POD, set(), set(), free=True)
    packet, around = packet_of(space, point_of(space, interface="z0", destination=number_of("10.9.9.9")))
    assert (packet.in_interface, around) == ("", POD.replace(routes=((Network.parse("10.9.9.9/32"), "z0"),)))
    assert around.leaving_interface(packet.destination, 0) == "z0"
    received = make_space(INBOUND, POD, set(), set(), free=True)
    packet, around = packet_of(received, point_of(received, interface="z0", destination=1))
    assert (packet.in_interface, around) == ("z0", POD)
