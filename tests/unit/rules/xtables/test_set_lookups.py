"""What lookups in foreign address sets match, by the contents that were read; what is not understood stays unknown."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import IPV4, IPV6, Network, number_of
from netinit.base.snapshot import AddressSet, AddressSetElement
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Source
from netinit.rules.model import Rule
from netinit.rules.packet_inputs import Packet
from netinit.rules.targets import Accept
from netinit.rules.xtables.set_lookups import MAX_ALTERNATIVES, read_lookups
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
        (("set", 1, bytes((1, 0, 1, 2, 0, 1))), False), (("set", 1, bytes((1, 0, 1))), False), (("set", 1, bytes((1, 0, 1, 2)) + b"X"), False), (("set", 0, bytes((1, 0, 1, 2))), False), (("SET", 1, bytes((1, 0, 1, 2))), False),
    ],
)  # fmt: skip
def test_a_struct_with_other_dimensions_or_flags_than_a_lookup_has_is_unknown(kept, is_read):
    assert isinstance(read(*kept), InSet) is is_read


# --- each type, in every dimension -------------------------------------------------------------------------------------


def network(text):
    return Network.parse(text)


def element(one="10.0.0.0", length=8, second="192.0.2.0", second_length=24, protocol=6, port=80, device="eth1"):
    return AddressSetElement(address=address(one), length=length, second=address(second), second_length=second_length, protocol=protocol, port=port, device=device)


A, B = (network("10.0.0.0/8"),), (network("192.0.2.0/24"),)
WHOLE = (network("10.0.0.0/32"),)


@pytest.mark.parametrize(
    ("kind", "sides", "matches"),
    [
        ("hash:ip", ["src"], (Source(networks=A),)), ("hash:ip", ["dst"], (Destination(networks=A),)), ("hash:net", ["dst", "src", "src"], (Destination(networks=A),)),
        ("hash:ip,port", ["src", "dst"], (Source(networks=A), Port(protocol="tcp", ports=(80,)))), ("hash:net,port", ["dst", "src"], (Destination(networks=A), Port(protocol="tcp", ports=(80,), source=True))),
        ("hash:net,iface", ["dst", "dst"], (Destination(networks=A), OutInterface(names=("eth1",)))), ("hash:net,iface", ["dst", "src"], (Destination(networks=A), InInterface(names=("eth1",)))),
        ("hash:net,net", ["src", "dst"], (Source(networks=A), Destination(networks=B))), ("hash:net,net", ["dst", "src"], (Destination(networks=A), Source(networks=B))),
        *[(kind, ["src", "dst", "dst"], (Source(networks=A), Port(protocol="tcp", ports=(80,)), Destination(networks=B))) for kind in ("hash:ip,port,ip", "hash:ip,port,net", "hash:net,port,net")],
        ("hash:ip,port,ip", ["dst", "src", "src", "dst"], (Destination(networks=A), Port(protocol="tcp", ports=(80,), source=True), Source(networks=B))),
    ],
)  # fmt: skip
def test_each_dimension_of_a_type_is_a_match_of_the_side_that_the_rule_says(kind, sides, matches):
    held = AddressSet(number=1, name="mine", kind=kind, family=2, elements=(element(),))
    found = looked_up(1, sides, sets={1: held})
    assert found.alternatives == (matches,)
    assert (found.text, found.negated) == (f"-m set --match-set mine {','.join(sides)}", False)
    negated = looked_up(1, sides, sets={1: held}, negated=True)
    assert (negated.text, negated.negated, negated.alternatives) == (f"-m set ! --match-set mine {','.join(sides)}", True, found.alternatives)


@pytest.mark.parametrize("kind", ["hash:ip,port", "hash:net,net", "hash:net,iface", "hash:net,port,net"])
def test_a_lookup_in_fewer_dimensions_than_the_set_has_matches_nothing(kind):
    held = AddressSet(number=1, name="mine", kind=kind, family=2, elements=(element(),))
    few = ["src"] * kind.count(",")
    assert looked_up(1, few, sets={1: held}).alternatives == ()
    assert len(looked_up(1, [*few, "src"], sets={1: held}).alternatives) == 1


def test_addresses_that_share_the_rest_are_one_alternative_in_their_order_and_whole_where_no_length_is_given():
    elements = (element(port=1), element(port=2), element("11.0.0.0", -1, port=1, protocol=17), element("12.0.0.0", 6, port=1), element("9.0.0.0", 8, port=2))
    held = AddressSet(number=1, name="mine", kind="hash:net,port", family=2, elements=elements)
    assert looked_up(1, ["src", "dst"], sets={1: held}).alternatives == (
        (Source(networks=(*A, network("12.0.0.0/6"))), Port(protocol="tcp", ports=(1,))), (Source(networks=(*A, network("9.0.0.0/8"))), Port(protocol="tcp", ports=(2,))),
        (Source(networks=(network("11.0.0.0/32"),)), Port(protocol="udp", ports=(1,))),
    )  # fmt: skip
    whole = held.replace(kind="hash:net,net", elements=(element(length=-1, second_length=-1), element(length=0, second_length=0)))
    assert looked_up(1, ["src", "dst"], sets={1: whole}).alternatives == (
        (Source(networks=WHOLE), Destination(networks=(network("192.0.2.0/32"),))), (Source(networks=(Network((4, number_of("10.0.0.0"), 0)),)), Destination(networks=(Network((4, number_of("192.0.2.0"), 0)),))),
    )  # fmt: skip


def test_a_set_of_ipv6_has_networks_of_ipv6():
    held = AddressSet(number=1, name="six", kind="hash:net", family=10, elements=(AddressSetElement(address=number_of("fd00::").to_bytes(16, "big"), length=8), AddressSetElement(address=bytes(15) + b"\1")))
    assert looked_up(1, ["src"], sets={1: held}, family=IPV6).alternatives == ((Source(networks=(network("fd00::/8"), network("::1/128"))),),)
    assert looked_up(1, ["src"], sets={1: held}).alternatives == ()


@pytest.mark.parametrize(("count", "is_read"), [(MAX_ALTERNATIVES, True), (MAX_ALTERNATIVES + 1, False)])
def test_a_set_of_more_alternatives_than_are_followed_is_unknown(count, is_read):
    held = AddressSet(number=1, name="mine", kind="hash:ip,port", family=2, elements=tuple(element(port=port) for port in range(count)))
    assert isinstance(looked_up(1, ["src", "dst"], sets={1: held}), InSet if is_read else UnknownMatch)
    assert isinstance(looked_up(2, ["src", "dst"], sets={1: held, 2: LIST.replace(number=2, elements=(AddressSetElement(member="mine"),))}), InSet if is_read else UnknownMatch)


@pytest.mark.parametrize("lacking", [{"is_complete": False}, {"kind": "hash:mac"}, {"name": "other"}, {"kind": "list:set", "elements": ()}])
def test_a_list_is_unknown_if_one_of_its_sets_is_not_known(lacking):
    held = {1: NETS, 2: EMPTY.replace(number=2, **lacking), 3: LIST.replace(number=3)}
    assert isinstance(looked_up(3, ["dst"], sets=held), UnknownMatch)
    whole = looked_up(3, ["dst", "src"], sets={**held, 2: EMPTY.replace(elements=(element("172.16.0.0", 12),))})
    assert whole.alternatives == ((Destination(networks=A),), (Destination(networks=(network("172.16.0.0/12"),)),))
    assert whole.text == "-m set --match-set list dst,src"
    assert isinstance(looked_up(3, ["dst"], sets={**held, 2: EMPTY, 3: LIST.replace(is_complete=False)}), UnknownMatch)


def test_other_matches_of_a_rule_stay_as_they_are_and_in_their_places():
    lookup = UnknownMatch(text="-m set", kept=("set", 1, pack("=HBB", 1, 1, 0)))
    others = (Source(networks=A), UnknownMatch(text="-m x"), UnknownMatch(text="-m y", kept=("y", 1, pack("=HBB", 1, 1, 0))))
    rule = Rule(matches=(others[0], lookup, *others[1:]), target=Accept(), comment="why")
    found = read_lookups(rule, SETS, IPV4)
    assert (found.matches[0], *found.matches[2:]) == others
    assert isinstance(found.matches[1], InSet)
    assert (found.target, found.comment) == (rule.target, "why")
    assert read_lookups(rule, {}, IPV4) is rule
