"""Which packets of a set match, under each condition that they may be in."""

from __future__ import annotations

from itertools import product

import pytest

from core import IPV4, Network, Surroundings, number_of, parse_listing, parse_rule
from netinit.simulate.condition import KEPT, OWN, PRIMARY, Condition, MarkBits
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.symbolic.match_sets import Choice, choose, doubtful, make_spaces, martians, through_devices, view
from netinit.simulate.symbolic.regions import everything, having_bits, in_states, nothing, valued, within
from netinit.simulate.symbolic.space import ALL_STATES, INBOUND, OUTBOUND, CtState, Dim, make_space

FIRST, SECOND = number_of("10.0.0.2"), number_of("10.1.0.2")
HOST = Surroundings(family=IPV4, addresses=(("lo", number_of("127.0.0.1")), ("eth0", FIRST), ("net1", SECOND)), local_networks=(Network.parse("198.51.100.0/24"),))
OUT, IN = (make_space(direction, HOST, {"icmp"}, {"br0"}, free=False) for direction in (OUTBOUND, INBOUND))
ALL, NONE = everything(IN), nothing(IN)
TEN, WIDE, OTHER = Network.parse("10.0.0.0/24"), Network.parse("10.0.0.0/8"), Network.parse("203.0.113.0/24")


def device(*names):
    return valued(IN, Dim.INTERFACE, *names)


NAMELESS = device("br0", IN.dimension(Dim.INTERFACE).values[-1])  # whose address is not known


def seen(space=IN, **changes):
    return view(space, Condition(**{"hook": "PREROUTING" if space is IN else "OUTPUT", "in_interface": KEPT if space is IN else "", **changes}))


def told(choice):
    return choice.certain, choice.possible


@pytest.mark.parametrize("source", [True, False])
@pytest.mark.parametrize(("address", "network", "certain", "possible"), [
    (FIRST, TEN, ALL, ALL), (TEN.first, TEN, ALL, ALL), (TEN.last, TEN, ALL, ALL), (TEN.last + 1, TEN, NONE, NONE), (TEN.first - 1, TEN, NONE, NONE), (None, TEN, NONE, ALL),
    (PRIMARY, TEN, device("eth0"), device("eth0") | NAMELESS), (PRIMARY, WIDE, device("eth0", "net1"), device("eth0", "net1") | NAMELESS), (PRIMARY, OTHER, NONE, NAMELESS),
    (OWN, TEN, NONE, ALL), (OWN, WIDE, ALL, ALL), (OWN, OTHER, NONE, NONE),
])  # fmt: skip
def test_an_address_that_was_written_is_in_a_network_for_all_packets_or_for_those_of_a_device(source, address, network, certain, possible):
    packets = seen(**{"source" if source else "destination": address})
    assert told(packets.in_networks((OTHER, network), source=source)) == (certain, possible)
    kept = within(IN, Dim.DESTINATION if source else Dim.SOURCE, [(network.first, network.last)])
    assert told(packets.in_networks((network,), source=not source)) == (kept, kept), "the other end is as it began"


@pytest.mark.parametrize("source", [True, False])
@pytest.mark.parametrize(("address", "certain", "possible"), [
    (FIRST, ALL, ALL), (number_of("198.51.100.9"), ALL, ALL), (number_of("203.0.113.9"), NONE, NONE), (None, NONE, ALL), (PRIMARY, device("eth0", "net1"), ALL), (OWN, ALL, ALL),
])  # fmt: skip
def test_a_written_address_is_local_if_it_is_the_host_s_or_routed_to_it(source, address, certain, possible):
    assert told(seen(**{"source" if source else "destination": address}).local(source=source)) == (certain, possible)
    name = Dim.DESTINATION if source else Dim.SOURCE
    networks = [Network.parse("127.0.0.0/8"), Network.parse("198.51.100.0/24")]
    kept = within(IN, name, [*[(one.first, one.last) for one in networks], (FIRST, FIRST), (SECOND, SECOND)])
    assert told(seen(**{"source" if source else "destination": address}).local(source=not source)) == (kept, kept)


@pytest.mark.parametrize("source", [True, False])
def test_a_port_that_was_written_is_that_of_all_packets(source):
    name = "source_port" if source else "destination_port"
    for port, inside in ((1, False), (2, True), (4, True), (5, False), (9, True)):
        assert told(seen(**{name: port}).with_port(((2, 4), (9, 9)), source=source)) == ((ALL, ALL) if inside else (NONE, NONE))
    kept = within(IN, Dim.SOURCE_PORT if source else Dim.DESTINATION_PORT, [(2, 4), (9, 9)])
    assert told(seen().with_port(((2, 4), (9, 9)), source=source)) == (kept, kept)


@pytest.mark.parametrize(("hook", "inbound", "names", "expected"), [
    ("PREROUTING", True, ("eth0", "net+"), device("eth0", "net1")), ("PREROUTING", True, ("lo",), NONE), ("INPUT", True, ("br0",), device("br0")), ("OUTPUT", True, ("eth0",), NONE),
    ("OUTPUT", False, ("lo",), ALL), ("OUTPUT", False, ("eth0",), NONE), ("POSTROUTING", False, ("l+",), ALL), ("INPUT", False, ("lo",), NONE), ("PREROUTING", False, ("lo",), NONE),
    ("FORWARD", True, ("eth0",), device("eth0")), ("FORWARD", False, ("lo",), ALL),
])  # fmt: skip
def test_a_device_is_seen_where_the_hook_knows_it(hook, inbound, names, expected):
    assert told(seen(hook=hook, out_interface="lo").through_interfaces(names, inbound=inbound)) == (expected, expected)


def test_owners_are_those_of_packets_that_a_socket_sends():
    socket = within(OUT, Dim.SENDER, [(1, 1)])
    for kind, name in (("uid", Dim.UID), ("gid", Dim.GID)):
        expected = socket & within(OUT, name, [(5, 7)])
        assert told(seen(OUT, sender=True).owned_by(kind, 5, 7)) == (expected, expected)
        assert told(seen(OUT, sender=True).owned_by(kind, 7, 7)) == (socket & within(OUT, name, [(7, 7)]),) * 2
        assert told(seen(OUT, sender=True).owned_by(kind, 7, 5)) == (nothing(OUT),) * 2
        assert told(seen(OUT, sender=False).owned_by(kind, 5, 7)) == (nothing(OUT),) * 2


def test_marks_protocols_and_sockets_are_those_of_the_packets():
    now = {"mark": MarkBits(packet=1, flip=4), "connection_mark": MarkBits(connection=2)}
    assert told(seen(**now).with_mark(5, 7, connection=False)) == (having_bits(IN, now["mark"], 5, 7),) * 2
    assert told(seen(**now).with_mark(2, 7, connection=True)) == (having_bits(IN, now["connection_mark"], 2, 7),) * 2
    assert told(seen().of_protocol("icmp")) == (valued(IN, Dim.PROTOCOL, "icmp"),) * 2
    assert told(seen().of_protocol("gre")) == (NONE, NONE)
    assert told(seen().to_socket()) == (valued(IN, Dim.SOCKET, "yes"),) * 2
    assert told(seen().unknown()) == (NONE, ALL)


@pytest.mark.parametrize(("changes", "states", "expected"), [
    ({"state": "INVALID"}, ("INVALID",), ALL), ({"state": "INVALID"}, ("NEW", ""), NONE), ({"tracked": True}, ("NEW",), in_states(IN, ("NEW", CtState.REUSED_NEW))),
    ({"tracked": True}, ("INVALID", ""), in_states(IN, (CtState.INVALID, CtState.INVALID_CLOSING, CtState.REUSED_INVALID))), ({}, ("NEW",), in_states(IN, (CtState.REUSED_NEW,))),
    ({}, ("INVALID",), in_states(IN, (CtState.NEW, CtState.INVALID, CtState.INVALID_CLOSING, CtState.REUSED_INVALID))), ({}, ("",), in_states(IN, (CtState.NEW,))),
    ({}, ("RELATED", "UNTRACKED"), in_states(IN, (CtState.RELATED, CtState.UNTRACKED))),
])  # fmt: skip
def test_a_state_is_seen_once_it_is_tracked_and_is_invalid_before(changes, states, expected):
    assert told(seen(**changes).in_state(states)) == (expected, expected)


def test_answers_are_known_once_they_are_tracked():
    answers = in_states(IN, (CtState.ANSWER, CtState.TRANSLATED_ANSWER))
    assert told(seen(tracked=True).in_reply_direction()) == (answers, answers)
    assert told(seen().in_reply_direction()) == (answers, answers | in_states(IN, (CtState.NEW,)))


TRANSLATED = in_states(IN, (CtState.TRANSLATED, CtState.TRANSLATED_ANSWER))


def to(address=None, port=None):
    """The packets that began with this destination."""
    found = ALL if address is None else within(IN, Dim.DESTINATION, [(address, address)])
    return found if port is None else found & within(IN, Dim.DESTINATION_PORT, [(port, port)])


@pytest.mark.parametrize(("changes", "certain", "possible"), [
    ({}, NONE, NONE), ({"destination": 7}, ALL - to(7), ALL - to(7)), ({"destination": 7, "destination_port": 9}, ALL - to(7, 9), ALL - to(7, 9)), ({"destination": None}, NONE, ALL),
    ({"destination": None, "destination_port": 9}, ALL - to(port=9), ALL), ({"destination_port": 9}, ALL - to(port=9), ALL - to(port=9)),
    ({"destination": PRIMARY}, device("eth0") - to(FIRST) | device("net1") - to(SECOND), ALL - (device("eth0") & to(FIRST)) - (device("net1") & to(SECOND))),
    ({"destination": 7, "rewritten": (7, KEPT)}, NONE, NONE), ({"destination": 7, "rewritten": (8, KEPT)}, ALL, ALL), ({"destination": 7, "rewritten": (None, KEPT)}, NONE, ALL),
    ({"destination_port": 9, "rewritten": (KEPT, 9)}, NONE, NONE), ({"destination_port": 9, "rewritten": (KEPT, 8)}, ALL, ALL),
])  # fmt: skip
def test_a_destination_is_translated_where_it_is_another_than_tracking_saw(changes, certain, possible):
    assert told(seen(state="NEW", **changes).with_translated_destination()) == (certain, possible)
    assert told(seen(**changes).with_translated_destination()) == (certain | TRANSLATED, possible | TRANSLATED)


@pytest.mark.parametrize("source", [True, False])
def test_the_ends_with_which_a_connection_began_are_known_where_nothing_translated_it(source):
    known = in_states(IN, (CtState.NEW, CtState.ESTABLISHED))
    address = within(IN, Dim.SOURCE if source else Dim.DESTINATION, [(TEN.first, TEN.last)])
    port = within(IN, Dim.SOURCE_PORT if source else Dim.DESTINATION_PORT, [(5, 6)])
    assert told(seen().began_with((TEN,), (), source=source)) == (known & address, address | ALL - known)
    assert told(seen().began_with((TEN,), ((5, 6),), source=source)) == (known & port, port | ALL - known)
    assert told(seen(rewritten=(1, 2)).began_with((TEN,), (), source=source)) == (NONE, ALL)


def test_choices_are_joined_and_negated_packet_by_packet():
    tcp, udp = valued(IN, Dim.PROTOCOL, "tcp"), valued(IN, Dim.PROTOCOL, "udp")
    choices = [Choice(NONE, NONE), Choice(ALL, ALL), Choice(tcp, tcp), Choice(tcp, tcp | udp), Choice(NONE, udp), Choice(NONE, ALL)]
    for one, other in product(choices, repeat=2):
        assert told(one & other) == (one.certain & other.certain, one.possible & other.possible)
        assert told(one | other) == (one.certain | other.certain, one.possible | other.possible)
    for one in choices:
        assert told(one.negated_if(negated=True)) == (ALL - one.possible, ALL - one.certain)
        assert told(one.negated_if(negated=False)) == told(one)
        assert one.is_exact is (one.certain == one.possible)


def test_a_rule_takes_the_packets_that_all_its_matches_take_and_names_those_in_doubt():
    rule = parse_rule("-p tcp -m set --match-set x src -m recent --name y --rcheck -d 10.0.0.0/24 -j DROP", IPV4)
    found = valued(IN, Dim.PROTOCOL, "tcp") & within(IN, Dim.DESTINATION, [(TEN.first, TEN.last)])
    now = Condition(hook="PREROUTING", in_interface=KEPT)
    assert told(choose(IN, now, rule)) == (NONE, found)
    assert told(choose(IN, now, parse_rule("-p tcp -j DROP", IPV4))) == (valued(IN, Dim.PROTOCOL, "tcp"),) * 2
    assert told(choose(IN, now, parse_rule("-j DROP", IPV4))) == (ALL, ALL)
    assert [str(match.describe()) for match in doubtful(IN, now, rule, found)] == [str(match.describe()) for match in rule.matches if match.choose(view(IN, now)).possible == ALL]
    assert len(doubtful(IN, now, rule, found)) == 2
    assert doubtful(IN, now, rule, NONE) == []


def test_loopback_addresses_come_in_through_lo_alone():
    loopback = [(number_of("127.0.0.0"), number_of("127.255.255.255"))]
    assert martians(IN) == within(IN, Dim.SOURCE, loopback) | within(IN, Dim.DESTINATION, loopback)
    assert martians(OUT) == nothing(OUT)


def test_devices_are_told_apart_where_the_space_knows_them():
    assert through_devices(IN, frozenset({"eth0", "br0", "eth9"})) == device("eth0", "br0")
    assert through_devices(IN, frozenset({"eth9"})) == through_devices(IN, frozenset()) == ALL
    assert through_devices(OUT, frozenset({"eth0"})) == everything(OUT)


def test_spaces_tell_apart_what_any_of_the_rules_names():
    listings = [f"*mangle\n:PREROUTING ACCEPT [0:0]\n:A - [0:0]\n-A {rule} -j ACCEPT\nCOMMIT\n" for rule in ("PREROUTING -p icmp -i br0", "A -p sctp", "A -m addrtype --dst-type LOCAL ! -o veth+")]
    rulesets = [{IPV4: load_listing(parse_listing(text), IPV4)} for text in listings]
    spaces = make_spaces([*rulesets, {}], {IPV4: HOST}, free=False, interfaces=frozenset({"extra0"}))
    assert [(one.direction, one.family, one.free) for one in spaces] == [(OUTBOUND, IPV4, False), (INBOUND, IPV4, False)]
    for space in spaces:
        assert space.dimension(Dim.PROTOCOL).values == ("icmp", "sctp", "tcp", "udp", "gre")
        assert space.around is HOST
    assert spaces[1].dimension(Dim.INTERFACE).labels == ("br0", "eth0", "extra0", "net1", "any other veth+", "any other")
    assert [one.free for one in make_spaces([], {IPV4: HOST}, free=True)] == [True, True]
    assert make_spaces([], {IPV4: HOST}, free=False)[1].dimension(Dim.INTERFACE).values[:-1] == ("eth0", "net1")


@pytest.mark.parametrize("state", ALL_STATES)
def test_a_bare_syn_begins_a_connection_and_what_closes_one_is_known_of_invalid_packets_alone(state):
    packets = in_states(IN, (state,))
    syn = seen().with_flags(("FIN", "SYN", "RST", "ACK"), ("SYN",))
    begins = state in (CtState.NEW, CtState.REUSED_NEW, CtState.REUSED, CtState.REUSED_INVALID)
    assert told(syn) == (syn.certain, syn.certain)
    assert bool(packets & syn.certain) is begins
    closed = seen().with_flags(("FIN", "RST"), ("FIN",))
    assert bool(packets & closed.certain) is (state == CtState.INVALID_CLOSING)
    assert bool(packets & closed.possible) is not (begins or state == CtState.INVALID)
    unset = seen().with_flags(("FIN", "RST"), ())
    assert (bool(packets & unset.certain), bool(packets & unset.possible)) == (begins or state == CtState.INVALID, state != CtState.INVALID_CLOSING)
    for flags in (("SYN", "FIN"), ("SYN", "FIN", "ACK")):
        assert told(seen().with_flags(flags, flags)) == (NONE, NONE)
    lone = seen().with_flags(("SYN", "FIN"), ("FIN",))
    assert (bool(packets & lone.certain), bool(packets & lone.possible)) == (False, not begins)
    both = seen().with_flags(("SYN", "ACK"), ("SYN", "ACK"))
    original = (CtState.ESTABLISHED, CtState.TRANSLATED, CtState.RELATED)
    assert (bool(packets & both.certain), bool(packets & both.possible)) == (False, not begins and state not in original)
    for mask, flags in ((("SYN",), ("SYN",)), (("SYN", "RST"), ("SYN",)), (("ACK",), ()), (("ACK",), ("ACK",))):
        found = seen().with_flags(mask, flags)
        is_of_syn = {"SYN"} & set(mask) == set(flags)
        assert (bool(packets & found.certain), bool(packets & found.possible)) == ((begins, True) if is_of_syn else (False, not begins))
