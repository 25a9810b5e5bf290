"""How a probe's events of connection tracking are judged beside what the rules should do, and what is said of it."""

from __future__ import annotations

import socket
import struct

import pytest

from netinit.base.net import IPV4, IPV6, parse_address
from netinit.kernel.conntrack import Event
from netinit.options import Options, offline
from netinit.pods.probe.matrix import INBOUND, OUTBOUND, Ask
from netinit.pods.probe.rows import Sent, _judge, _predict, make_datagram, make_syn
from netinit.rules.layouts import plan
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.ruleset import load_plan

SIDECAR = ["-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-i", "*", "-b", "*", "-d", "15021", "-o", "22"]
OWN, OUTSIDE, PEER = "10.1.1.1", "192.0.2.1", "10.9.9.9"
AROUND = Surroundings(family=IPV4, addresses=(("eth0", int.from_bytes(socket.inet_aton(OWN), "big")),))


class FixedProbe(Sent):
    source, source_port = OWN, 40000

    def send(self):
        raise AssertionError


def outbound(port=80, host=OUTSIDE, protocol="tcp", uid=1000):
    return Ask(OUTBOUND, IPV4, protocol, "app", "an address", host, port, uid, uid)


def inbound(port=8080):
    return Ask(INBOUND, IPV4, "tcp", "a peer", "a port of the pod", OWN, port, interface="eth0")


def event(ask, to=None, *, answered=False, destroyed=False):
    """An event about a probe whose destination is now another, if `to` says so."""
    number = socket.IPPROTO_TCP if ask.protocol == "tcp" else socket.IPPROTO_UDP
    host, port = to or (ask.destination, ask.port)
    return Event(destroyed=destroyed, answered=answered, original=(number, OWN, 40000, ask.destination, ask.port), reply=(number, host, port, OWN, 40000), handle=b"")


def judge(ask, *events, mode="REDIRECT", transparent=False, busy=()):
    sent = FixedProbe(ask)
    sent.source = PEER if ask.direction == INBOUND else OWN
    sent.events += events
    settled = Options.from_argv([*SIDECAR, "-m", mode]).settle(offline())
    found = _judge(sent, _predict(sent, load_plan(plan(settled), IPV4), AROUND), transparent=transparent, busy=busy)
    assert found.ask is ask
    return found.expected, found.observed, found.right


TO_PROXY, TO_INBOUND = ("127.0.0.1", 15001), (OWN, 15006)
KEPT, NOBODY, SILENT = "kept its destination, accepted", "kept its destination, no process listens", "kept its destination, no answer"


@pytest.mark.parametrize(
    ("events", "observed", "right"),
    [
        ([], "dropped (connection tracking never saw it)", False),
        ([{"to": TO_PROXY}], "sent to 127.0.0.1:15001, no answer", False),
        ([{"to": TO_PROXY, "answered": True}], "sent to 127.0.0.1:15001", True),
        ([{"to": TO_PROXY}, {"to": TO_PROXY, "destroyed": True}], "sent to 127.0.0.1:15001, no process listens", True),
        ([{"to": ("127.0.0.1", 15002), "answered": True}], "sent to 127.0.0.1:15002", False),
        ([{"answered": True}], KEPT, False), ([{}], SILENT, False),
    ],
    ids=str,
)  # fmt: skip
def test_a_captured_connection_arrives_at_the_proxy_s_port(events, observed, right):
    ask = outbound()
    assert judge(ask, *[event(ask, **one) for one in events]) == ("captured on 15001", observed, right)


@pytest.mark.parametrize(
    ("events", "observed", "right"),
    [
        ([], "dropped (connection tracking never saw it)", False), ([{}], SILENT, True), ([{"answered": True}], KEPT, True),
        ([{"to": TO_PROXY, "answered": True}], "sent to 127.0.0.1:15001", False),
    ],
    ids=str,
)  # fmt: skip
def test_a_connection_past_the_proxy_keeps_its_destination_and_may_get_no_answer_outside(events, observed, right):
    ask = outbound(22)
    assert judge(ask, *[event(ask, **one) for one in events]) == ("direct, out of the pod", observed, right)


@pytest.mark.parametrize(
    ("events", "observed", "right"),
    [([{}], SILENT, False), ([{"answered": True}], KEPT, True), ([{}, {"destroyed": True}], NOBODY, True), ([{"to": TO_INBOUND, "answered": True}], "sent to 10.1.1.1:15006", False)],
    ids=str,
)  # fmt: skip
def test_a_connection_that_is_delivered_has_to_get_an_answer_at_its_own_port(events, observed, right):
    ask = inbound(15021)
    assert judge(ask, *[event(ask, **one) for one in events]) == ("direct", observed, right)


def test_a_datagram_needs_no_answer():
    ask = outbound(443, protocol="udp")
    assert judge(ask, event(ask)) == ("direct, out of the pod", "kept its destination", True)
    assert judge(ask, event(ask, to=("127.0.0.1", 15053))) == ("direct, out of the pod", "sent to 127.0.0.1:15053", False)


@pytest.mark.parametrize(
    ("events", "busy", "observed", "right"),
    [
        ([], (), "dropped (connection tracking never saw it), as TPROXY does when no transparent socket listens on 15006", False),
        ([{"answered": True}], (), KEPT, True),
        ([{"answered": True}], (8080,), "accepted, by which program is unknown: another one listens there too", None),
        ([{}, {"destroyed": True}], (8080,), NOBODY, False),
        ([{}, {"destroyed": True}], (), NOBODY, False),
        ([{"to": TO_INBOUND, "answered": True}], (8080,), "sent to 10.1.1.1:15006", False),
    ],
    ids=str,
)  # fmt: skip
def test_in_tproxy_a_connection_that_is_accepted_without_a_listener_was_captured(events, busy, observed, right):
    ask = inbound()
    assert judge(ask, *[event(ask, **one) for one in events], mode="TPROXY", transparent=True, busy=busy) == ("captured on 15006", observed, right)


def test_in_tproxy_what_is_delivered_past_the_proxy_is_not_accepted_by_it():
    ask = inbound(15021)
    accepted = event(ask, answered=True)
    assert judge(ask, accepted, mode="TPROXY", transparent=True) == ("direct", KEPT, False)
    assert judge(ask, event(ask), event(ask, destroyed=True), mode="TPROXY", transparent=True) == ("direct", NOBODY, True)


def test_a_probe_names_the_purpose_of_the_rule_that_decides():
    sent = FixedProbe(inbound(15021))
    sent.source = PEER
    settled = Options.from_argv(SIDECAR).settle(offline())
    trace = _predict(sent, load_plan(plan(settled), IPV4), AROUND)
    assert _judge(sent, trace, transparent=False, busy=()).because == "these inbound ports are not captured"


@pytest.mark.parametrize("family", [IPV4, IPV6], ids=["IPv4", "IPv6"])
def test_the_first_packet_has_both_ports_and_a_checksum_that_the_receiver_takes(family):
    ends = ("10.1.1.1", "192.0.2.1") if family is IPV4 else ("fd00::1", "2001:db8::1")
    segment = make_syn(family, (ends[0], 40000), (ends[1], 80))
    source, destination, _, answer, offset, flags, window, _, urgent = struct.unpack("!HHIIBBHHH", segment)
    assert (source, destination, answer, offset >> 4, flags, window, urgent, len(segment)) == (40000, 80, 0, 5, 2, 64240, 0, 20)
    assert sum_up(family, ends, 6, segment) == 0xFFFF


@pytest.mark.parametrize("family", [IPV4, IPV6], ids=["IPv4", "IPv6"])
def test_no_datagram_is_one_that_the_kernel_delivers(family):
    """Of none the checksum is right, nor 0, which IPv4 takes for none: not even where the right one is next to it."""
    ends = ("10.1.1.1", "192.0.2.1") if family is IPV4 else ("fd00::1", "2001:db8::1")
    right = struct.unpack("!4H", make_datagram(family, (ends[0], 0), (ends[1], 53)))[3] ^ 1
    found = {}
    for port in (0, 40000, 65535, *range(right - 4, right + 4)):  # which lower the right one by as much
        datagram = make_datagram(family, (ends[0], port), (ends[1], 53))
        source, destination, length, found[port] = struct.unpack("!4H", datagram)
        assert (source, destination, length, len(datagram)) == (port, 53, 8, 8)
        assert sum_up(family, ends, 17, datagram) != 0xFFFF
    assert 0 not in found.values()
    assert found[right - 1] == 2, "where the right one is 1"


def sum_up(family, ends, protocol, segment):
    """What the receiver makes of a segment: 0xFFFF if its checksum is right."""
    addresses = b"".join([socket.inet_pton(family.number, parse_address(one)) for one in ends])
    length = len(segment)
    pseudo = addresses + (struct.pack("!BBH", 0, protocol, length) if family is IPV4 else struct.pack("!I3xB", length, protocol))
    total = sum(struct.unpack(f"!{(len(pseudo) + length) // 2}H", pseudo + segment))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
