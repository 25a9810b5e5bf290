"""Targets that only foreign rules have: as structs and expressions, what they change, and what several of them are together."""

from __future__ import annotations

from struct import pack

import pytest

from applied_targets import apply_target
from core import IPV4, IPV6, Network, number_of, parse_rule
from netinit.rules.foreign_targets import (
    DestinationNat,
    MapNetwork,
    Observe,
    OfferedToSocket,
    Queue,
    Several,
    SourceNat,
    UnknownTarget,
    WriteDestination,
    is_of_other_family,
    socket_target,
)
from netinit.rules.marking_targets import SetMark
from netinit.rules.targets import ACCEPTED, ENDED, GO_ON, Accept, Drop, Jump, Redirect, Reject, Return, Tproxy
from netinit.simulate.condition import OWN, MarkBits
from shown_expressions import show_target
from sweeps import together

FAMILIES = {4: IPV4, 6: IPV6}
V4, V6 = bytes((10, 0, 0, 9)), b"\xfd" + bytes(14) + b"\x09"


def listed(text, family=IPV4):
    """The target of a rule as iptables lists it."""
    return parse_rule(f"-p tcp -j {text}", family).target


@together(("version", "target", "name", "info"), [
    (4, SourceNat(text="", address="10.0.0.9"), ("SNAT", 0, 24), pack("=2I", 1, 1) + V4 + V4), (6, SourceNat(text="", address="fd00::9"), ("SNAT", 1, 40), pack("=I", 1) + V6 + V6),
    (4, DestinationNat(address="10.0.0.9", port=60001), ("DNAT", 2, 48), pack("=I16s16s", 3, V4, V4) + pack(">2H", 60001, 60001)),
    (6, DestinationNat(address="fd00::9", port=0), ("DNAT", 2, 48), pack("=I", 1) + V6 + V6), (4, DestinationNat(address="", port=80), ("DNAT", 2, 48), pack("=I32x", 2) + pack(">2H", 80, 80)),
    (4, DestinationNat(address="", port=0), ("DNAT", 2, 48), b""), (6, DestinationNat(address="fd00::9", port=80), ("DNAT", 2, 48), pack("=I", 3) + V6 + V6 + pack(">2H", 80, 80)),
    (4, listed("CT --notrack"), ("CT", 2, 72), pack("=2H", 1, 0)), (6, listed("CT --notrack"), ("CT", 2, 72), pack("=2H", 1, 0)),
    (4, listed("NETMAP --to 10.0.0.0/9"), ("NETMAP", 0, 24), pack("=2I", 1, 1) + bytes((10, 0, 0, 0, 10, 127, 255, 255))),
    (6, listed("NETMAP --to fd00::/15", IPV6), ("NETMAP", 0, 40), pack("=I", 1) + b"\xfd" + bytes(15) + b"\xfd\1" + b"\xff" * 14),
])  # fmt: skip
def test_the_struct_of_a_target_has_its_values_in_the_fields_of_the_kernel_s_and_nothing_else(version, target, name, info):
    *expected, size = name
    assert target.struct(FAMILIES[version]) == (*expected, info.ljust(size, b"\0"))


def test_a_source_is_written_as_nft_writes_it():
    assert show_target(SourceNat(text="", address="10.0.0.9")) == ["immediate 1=1 2.1=0a000009", "nat 1=0 2=2 3=1"]
    assert show_target(SourceNat(text="", address="fd00::9"), "ip6") == [f"immediate 1=1 2.1={V6.hex()}", "nat 1=0 2=10 3=1"]


@together("target", [SourceNat(text="SNAT --to-source 10.0.0.1-10.0.0.9"), Observe(text="TRACE"), Queue(text="NFQUEUE"), UnknownTarget(text="ODD 1"), WriteDestination(text="ip daddr set 10.0.0.9", address="10.0.0.9")])
def test_what_is_shown_as_it_was_listed_is_written_by_nothing(target):
    with pytest.raises(ValueError, match=f"^{target.text}: not understood$"):
        target.struct(IPV4)
    assert (target.xt(IPV4), target.nft(IPV6)) == (target.text, target.text)
    assert target == target.replace(**{name: True for name in ("copies", "own") if name in type(target)._names})
    assert target != target.replace(text="other")


def test_a_source_is_another_only_by_its_address_if_that_is_known():
    known = SourceNat(text="SNAT --to-source 10.0.0.9", address="10.0.0.9")
    assert known == known.replace(text="snat to 10.0.0.9") != known.replace(address="10.0.0.8")
    assert known.describe() == "replace its source address (`SNAT --to-source 10.0.0.9`)"


NAT_CHANGES = {"translated": True, "destination": number_of("10.0.0.9")}


@together(("target", "table", "condition", "outcome"), [
    (SourceNat(text="", address="10.0.0.9"), "nat", {"hook": "POSTROUTING"}, (ACCEPTED, {"source": number_of("10.0.0.9")}, "")),
    (SourceNat(text="MASQUERADE", own=True), "nat", {"hook": "POSTROUTING"}, (ACCEPTED, {"source": OWN}, "")), (SourceNat(text=""), "nat", {"hook": "POSTROUTING"}, (ACCEPTED, {"source": None}, "")),
    (DestinationNat(address="10.0.0.9", port=80), "nat", {}, (ACCEPTED, {**NAT_CHANGES, "destination_port": 80}, "")), (DestinationNat(address="10.0.0.9", port=0), "nat", {}, (ACCEPTED, NAT_CHANGES, "")),
    (DestinationNat(address="", port=80), "nat", {}, (ACCEPTED, {"translated": True, "destination_port": 80}, "")), (DestinationNat(address="fd00::9", port=80), "nat", {}, (GO_ON, {}, "")),
    (WriteDestination(text="", address="10.0.0.9", port=0), "raw", {"connection": False, "destination_port": 7}, (GO_ON, {"destination": number_of("10.0.0.9"), "rewritten": (number_of("10.0.0.9"), 7)}, "")),
    (WriteDestination(text="", port=80), "raw", {"connection": False, "destination": 7}, (GO_ON, {"destination_port": 80, "rewritten": (7, 80)}, "")),
    (MapNetwork(network=Network.parse("10.6.0.0/16")), "nat", {"destination": number_of("10.5.1.2")}, (ACCEPTED, {"translated": True, "destination": number_of("10.6.1.2")}, "")),
    (Queue(text="NFQUEUE"), "filter", {}, (ENDED, {}, "unknown")), (UnknownTarget(text="ODD"), "filter", {}, (ENDED, {}, "unknown")),
    (Observe(text="LOG"), "filter", {}, (GO_ON, {}, "")), (Observe(text="TEE", copies=True), "raw", {"connection": False}, (GO_ON, {}, "")),
    (Observe(text="CT --helper ftp", is_of_ct=True), "raw", {"connection": False}, (GO_ON, {"zone_decided": True}, "")),
    (OfferedToSocket(port=15001, whole=Tproxy(port=15001, mark=0)), "mangle", {"mark": MarkBits(flip=9)}, (GO_ON, {"redirect_port": 15001, "transparent": True}, "")),
    (Several(targets=(SetMark(value=9), Accept())), "mangle", {}, (ACCEPTED, {"mark": MarkBits(flip=9)}, "")), (Several(targets=(SetMark(value=9), Observe(text=""))), "mangle", {}, (GO_ON, {"mark": MarkBits(flip=9)}, "")),
    (Several(targets=(Drop(), SetMark(value=9))), "mangle", {}, (ENDED, {}, "dropped")), (Several(targets=(Observe(text=""), SetMark(value=9), Reject())), "mangle", {}, (ENDED, {"mark": MarkBits(flip=9)}, "refused")),
])  # fmt: skip
def test_a_target_changes_this_of_a_packet(target, table, condition, outcome):
    assert apply_target(target, table, **condition) == outcome


@together(("address", "port", "text"), [("10.0.0.9", 80, "10.0.0.9:80"), ("10.0.0.9", 0, "10.0.0.9"), ("fd00::9", 80, "[fd00::9]:80"), ("fd00::9", 0, "fd00::9"), ("", 80, ":80")])
def test_a_destination_is_listed_with_its_port_and_in_brackets_where_both_have_colons(address, port, text):
    target = DestinationNat(address=address, port=port)
    assert (target.destination, target.xt(IPV4), target.nft(IPV4), target.describe()) == (text, f"DNAT --to-destination {text}", f"dnat to {text}", f"send it to {text} instead")


@together(("target", "words"), [
    (WriteDestination(text="", address="10.0.0.9"), "write the destination 10.0.0.9 into it"), (WriteDestination(text="", port=80), "write the destination 80 into it"),
    (Observe(text=""), "count it and go on"), (Observe(text="TRACE"), "do `TRACE` and go on"), (UnknownTarget(text="ODD 1"), "do `ODD 1` (not known to netinit)"),
    (OfferedToSocket(port=7, whole=Tproxy(port=7, mark=0)), "hand it to the transparent socket on port 7"), (Several(targets=(SetMark(value=1), Accept())), "mark it 1, then accept it"),
])  # fmt: skip
def test_a_target_is_said_in_words(target, words):
    assert target.describe() == words


@together(("address", "family", "other"), [("10.0.0.9", IPV4, False), ("10.0.0.9", IPV6, True), ("fd00::9", IPV4, True), ("fd00::9", IPV6, False), ("", IPV4, False), ("", IPV6, False)])
def test_nat_to_an_address_of_the_other_family_leaves_a_packet(address, family, other):
    assert is_of_other_family(address, family) is other


WHOLE = Tproxy(port=7, mark=0, address="10.0.0.9")
OFFERED = OfferedToSocket(port=7, whole=WHOLE)


@together(("following", "taken"), [
    ([SetMark(value=5), Accept()], [WHOLE.replace(mark=5)]), ([SetMark(value=0), Accept()], [WHOLE]), ([], [OFFERED]), ([Accept()], [OFFERED, Accept()]), ([SetMark(value=5)], [OFFERED, SetMark(value=5)]),
    *[([first, *rest], [OFFERED, first, *rest]) for first, *rest in (
        (SetMark(value=5, mask=7), Accept()), (SetMark(value=5, connection=True), Accept()), (SetMark(value=5), Drop()), (SetMark(value=5), Accept(), Drop()), (SetMark(value=5), Drop(), Accept()),
        (Observe(text=""), SetMark(value=5), Accept()),
    )],
])  # fmt: skip
def test_a_socket_s_offer_with_a_whole_mark_and_accept_is_tproxy_and_nothing_else_is(following, taken):
    assert OFFERED.take(following) == taken
    assert SetMark(value=1).take(following) == [SetMark(value=1), *following]


def test_an_offer_to_a_socket_is_listed_as_tproxy_of_its_address():
    assert [OFFERED.xt(family) for family in (IPV4, IPV6)] == ["TPROXY --on-port 7 --on-ip 10.0.0.9 --tproxy-mark 0x0/0xffffffff"] * 2
    assert OFFERED.replace(whole=WHOLE.replace(address="")).xt(IPV6) == "TPROXY --on-port 7 --on-ip :: --tproxy-mark 0x0/0xffffffff"
    assert (OFFERED.socket_address, OFFERED.label(), OFFERED.captures_at) == ("10.0.0.9", "TPROXY 7", 7)


@together(("target", "found"), [
    (WHOLE, WHOLE), (OFFERED, OFFERED), (Redirect(port=7), None), (Accept(), None), (Several(targets=(SetMark(value=1), OFFERED, Accept())), OFFERED), (Several(targets=(Redirect(port=7), WHOLE)), WHOLE),
    (Several(targets=(SetMark(value=1), Redirect(port=7))), None),
])  # fmt: skip
def test_a_target_hands_packets_to_a_transparent_socket_also_as_one_of_several(target, found):
    assert socket_target(target) is found


def test_several_targets_are_written_each_for_the_family_and_lead_where_the_last_one_leads():
    several = Several(targets=(Observe(text="LOG"), Reject()))
    assert [several.xt(family) for family in (IPV4, IPV6)] == ["LOG REJECT --reject-with icmp-port-unreachable", "LOG REJECT --reject-with icmp6-port-unreachable"]
    assert [several.nft(family) for family in (IPV4, IPV6)] == ["LOG reject with icmp type port-unreachable", "LOG reject with icmpv6 type port-unreachable"]
    first, last = Jump(chain="A"), Jump(chain="B")
    assert (Several(targets=(first, last)).calls, Several(targets=(first, Return())).calls) == ("B", "")
    tracking, copying, observing = SetMark(value=1, connection=True), Observe(text="TEE", copies=True), Observe(text="LOG")
    facts = {(one.tracks, one.copies, one.only_observes) for targets in ((tracking, copying), (copying, tracking)) for one in [Several(targets=targets)]}
    assert facts == {(True, True, False)}
    assert [(one.tracks, one.copies, one.only_observes) for one in (Several(targets=(observing, Accept())), Several(targets=(observing, copying)), Several(targets=(observing, observing)))] == [
        (False, False, False), (False, True, True), (False, False, True),
    ]  # fmt: skip


@together(("text", "observes", "tracks", "label"), [("LOG --log-level 7", True, False, "LOG"), ("", True, False, "count")])
def test_what_is_observed_is_of_connections_if_ct_has_it(text, observes, tracks, label):
    plain = Observe(text=text)
    assert (plain.only_observes, plain.tracks, plain.label()) == (observes, tracks, label)
    assert (plain.replace(is_of_ct=True).only_observes, plain.replace(is_of_ct=True).tracks) == (not observes, not tracks)
