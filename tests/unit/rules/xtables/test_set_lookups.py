"""What lookups in foreign address sets match, by the contents that were read; what is not understood stays unknown."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import IPV4, IPV6, number_of
from netinit.base.snapshot import AddressSet, AddressSetElement
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.model import Rule
from netinit.rules.packet_inputs import Packet
from netinit.rules.targets import Accept
from netinit.rules.xtables.set_lookups import read_lookups
from netinit.simulate.one_packet import OnePacket
from netinit.simulate.stand_ins import stand_in


def address(text):
    return number_of(text).to_bytes(4, "big")


TEN = AddressSetElement(address=address("10.0.0.0"), length=8)
WEB = AddressSetElement(address=address("192.0.2.1"), protocol=6, port=80)
NETS = AddressSet(number=1, name="nets", kind="hash:net", family=2, elements=(TEN,))
WEBS = AddressSet(number=2, name="webs", kind="hash:ip,port", family=2, elements=(WEB,))
EMPTY = AddressSet(number=3, name="empty", kind="hash:ip", family=2)
LIST = AddressSet(number=4, name="list", kind="list:set", elements=tuple(AddressSetElement(member=name) for name in ("nets", "empty")))
VIA = AddressSet(number=5, name="via", kind="hash:net,iface", family=2, elements=(TEN.replace(device="eth1"),))
SETS = {one.number: one for one in (NETS, WEBS, EMPTY, LIST, VIA)}


def looked_up(number, sides, *, negated=False, sets=SETS, family=IPV4):
    """The match of a lookup, from the struct that the kernel holds."""
    flags = sum(1 << at for at, side in enumerate(sides, 1) if side == "src") | negated
    return read("set", 1, pack("=HBB", number, len(sides), flags), sets=sets, family=family)


def read(*kept, sets=SETS, family=IPV4):
    (match,) = read_lookups(Rule(matches=(UnknownMatch(text="-m set", kept=kept),), target=Accept()), sets, family).matches
    return match


def holds(match, source="1.1.1.1", destination="2.2.2.2", port=80, device="", protocol="tcp"):
    packet = Packet(
        family=IPV4, protocol=protocol, source=number_of(source), destination=number_of(destination), source_port=4, destination_port=port, in_interface=device
    )
    return match.choose(OnePacket(packet, stand_in(IPV4), "PREROUTING" if device else "OUTPUT")).holds


@pytest.mark.parametrize(
    ("number", "sides", "packet", "expected"),
    [
        (1, ["dst"], {"destination": "10.1.2.3"}, True), (1, ["dst"], {"source": "10.1.2.3"}, False), (1, ["src"], {"source": "10.1.2.3"}, True),
        (1, ["dst", "dst"], {"destination": "10.1.2.3"}, True), (2, ["dst", "dst"], {"destination": "192.0.2.1"}, True),
        (2, ["dst", "dst"], {"destination": "192.0.2.1", "port": 81}, False), (2, ["dst", "src"], {"destination": "192.0.2.1"}, False),
        (2, ["dst", "dst"], {"destination": "192.0.2.1", "protocol": "udp"}, False), (2, ["dst"], {"destination": "192.0.2.1"}, False),
        (3, ["dst"], {}, False), (4, ["dst"], {"destination": "10.1.2.3"}, True), (4, ["dst"], {}, False),
        (5, ["src", "src"], {"source": "10.1.2.3", "device": "eth1"}, True), (5, ["src", "src"], {"source": "10.1.2.3", "device": "eth0"}, False),
    ],
)  # fmt: skip
def test_a_lookup_matches_what_the_set_holds_and_negated_all_else(number, sides, packet, expected):
    assert holds(looked_up(number, sides), **packet) is expected
    assert holds(looked_up(number, sides, negated=True), **packet) is not expected


def test_a_set_of_one_family_matches_no_packet_of_the_other():
    assert looked_up(1, ["dst"], family=IPV6).alternatives == ()


@pytest.mark.parametrize("changed", [
    {"is_complete": False}, {"kind": "hash:mac"}, {"kind": "bitmap:port"}, {"kind": "hash:ip,port", "elements": (WEB.replace(protocol=132),)},
    {"kind": "list:set", "elements": (AddressSetElement(member="gone"),)}, {"kind": "list:set", "elements": (AddressSetElement(member="list"),)},
])  # fmt: skip
def test_what_was_not_read_or_is_not_understood_is_unknown(changed):
    sets = {**SETS, 1: NETS.replace(**changed)}
    assert isinstance(looked_up(1, ["dst", "dst"], sets=sets), UnknownMatch)
    assert isinstance(looked_up(9, ["dst"]), UnknownMatch)


@pytest.mark.parametrize(
    ("kept", "is_read"),
    [
        (("set", 1, bytes((1, 0, 1, 2))), True), (("set", 4, bytes((1, 0, 1, 3))), True), (("set", 1, bytes((1, 0, 6, 127))), True), (("set", 1, bytes((1, 0, 1, 2, 0, 0))), True),
        (("set", 1, bytes((1, 0, 0, 0))), False), (("set", 1, bytes((1, 0, 7, 0))), False), (("set", 1, bytes((1, 0, 1, 4))), False), (("set", 1, bytes((1, 0, 6, 128))), False),
        (("set", 1, bytes((1, 0, 1, 2, 0, 1))), False), (("set", 1, bytes((1, 0, 1))), False), (("set", 0, bytes((1, 0, 1, 2))), False), (("SET", 1, bytes((1, 0, 1, 2))), False),
    ],
)  # fmt: skip
def test_a_struct_with_other_dimensions_or_flags_than_a_lookup_has_is_unknown(kept, is_read):
    assert isinstance(read(*kept), InSet) is is_read
