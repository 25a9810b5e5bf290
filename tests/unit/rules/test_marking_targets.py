"""Targets that mark, track or log packets: as nft's expressions, as iptables' structs, and what they change."""

from __future__ import annotations

from struct import pack

import pytest

from applied_targets import apply_target
from core import IPV4, IPV6, parse_rule
from netinit.base.net import FULL_MASK
from netinit.rules.marking_targets import LogTarget, RestoreMark, SaveMark, SetMark, TrackZone
from netinit.rules.targets import GO_ON
from netinit.simulate.condition import MarkBits
from shown_expressions import show_target
from sweeps import together


def listed(text):
    """The target of a rule as iptables lists it."""
    return parse_rule(f"-p tcp -j {text}", IPV4).target


@together(("text", "expressions"), [
    ("MARK --set-xmark 0xf0000001/0xffffffff", "immediate 1=1 2.1=010000f0 | meta 2=3 3=1"),
    ("MARK --set-xmark 0xf0000011/0xf", "meta 2=3 1=1 | bitwise 1=1 2=1 3=4 6=0 4.1=f0ffffff 5.1=110000f0 | meta 2=3 3=1"),
    ("CONNMARK --set-xmark 0x5/0xffffffff", "immediate 1=1 2.1=05000000 | ct 4=1 2=3"),
    ("CONNMARK --set-xmark 0x1/0xf0000003", "ct 1=1 2=3 | bitwise 1=1 2=1 3=4 6=0 4.1=fcffff0f 5.1=01000000 | ct 4=1 2=3"),
    ("CONNMARK --save-mark", "meta 2=3 1=1 | ct 4=1 2=3"), ("CONNMARK --restore-mark", "ct 1=1 2=3 | meta 2=3 3=1"),
    ("CT --zone 60001", "immediate 1=1 2.1=61ea | ct 4=1 2=17"), ("CT --zone-orig 2", "immediate 1=1 2.1=0200 | ct 4=1 2=17 3=00"),
    ("CT --zone-reply 2", "immediate 1=1 2.1=0200 | ct 4=1 2=17 3=01"),
    ('LOG --log-prefix "in: "', "log 2=696e3a2000 5=4"), ('NFLOG --nflog-prefix "in: " --nflog-group 60001', "log 2=696e3a2000 1=ea61"),
])  # fmt: skip
def test_the_expressions_of_a_target_are_those_that_nft_writes(text, expressions):
    assert " | ".join(show_target(listed(text))) == expressions


@together(("text", "name", "info"), [
    ("MARK --set-xmark 0xf0000001/0xf0000003", ("MARK", 2, 8), pack("=2I", 0xF0000001, 0xF0000003)),
    ("CONNMARK --set-xmark 0xf0000001/0xf0000003", ("CONNMARK", 2, 16), pack("=3I3B", 0xF0000001, 0xF0000003, FULL_MASK, 0, 0, 0)),
    ("CONNMARK --save-mark --nfmask 0xf0 --ctmask 0xf", ("CONNMARK", 2, 16), pack("=3I3B", 0, 0xF, 0xF0, 0, 0, 1)),
    ("CONNMARK --restore-mark --nfmask 0xf0 --ctmask 0xf", ("CONNMARK", 2, 16), pack("=3I3B", 0, 0xF, 0xF0, 0, 0, 2)),
    ("CT --zone 60001", ("CT", 2, 72), pack("=2H2I", 0, 60001, 0, 0)), ("CT --zone-orig 2", ("CT", 2, 72), pack("=2H2I", 4, 2, 0, 0)),
    ("CT --zone-reply 2", ("CT", 2, 72), pack("=2H2I", 8, 2, 0, 0)),
    ('LOG --log-prefix "in: "', ("LOG", 0, 32), b"\4\0in: "), ('NFLOG --nflog-prefix "in: " --nflog-group 60001', ("NFLOG", 0, 80), pack("=I4H", 0, 60001, 0, 0, 0) + b"in: "),
])  # fmt: skip
def test_the_struct_of_a_target_has_its_values_in_the_fields_of_the_kernel_s_and_nothing_else(text, name, info):
    *expected, size = name
    for family in (IPV4, IPV6):
        assert listed(text).struct(family) == (*expected, info.ljust(size, b"\0"))


@together("mask", [0xF0, 0xFFFFFFFE])
@together("kind", [SaveMark, RestoreMark])
def test_a_part_of_a_mark_is_copied_by_no_expression(kind, mask):
    verb = kind.__name__.removesuffix("Mark").lower()
    for one in (kind(nfmask=mask), kind(ctmask=mask), kind(nfmask=mask, ctmask=mask)):
        text = f"CONNMARK --{verb}-mark --nfmask {one.nfmask:#x} --ctmask {one.ctmask:#x}"
        assert one.xt(IPV4) == one.nft(IPV4) == text
        assert one.describe().endswith(f", bits {one.nfmask:#x} of the packet's and {one.ctmask:#x} of the connection's")
        with pytest.raises(ValueError, match=f"^{text}: nf_tables copies whole marks$"):
            show_target(one)


BITS = {"mark": MarkBits(flip=0b0110), "connection_mark": MarkBits(flip=0b1010)}


@together(("text", "table", "changed"), [
    ("MARK --set-xmark 0x9/0x3", "mangle", {"mark": MarkBits(flip=0b1101)}), ("MARK --set-xmark 0x1/0xffffffff", "mangle", {"mark": MarkBits(flip=1)}),
    ("CONNMARK --set-xmark 0x9/0x3", "mangle", {"connection_mark": MarkBits(flip=0b0001)}), ("CONNMARK --set-xmark 0x7/0xffffffff", "mangle", {"connection_mark": MarkBits(flip=7)}),
    ("CONNMARK --save-mark", "mangle", {"connection_mark": MarkBits(flip=0b0110)}), ("CONNMARK --restore-mark", "mangle", {"mark": MarkBits(flip=0b1010)}),
    ("CONNMARK --save-mark --nfmask 0x4 --ctmask 0x3", "mangle", {"connection_mark": MarkBits(flip=0b1100)}),
    ("CONNMARK --restore-mark --nfmask 0x2 --ctmask 0x9", "mangle", {"mark": MarkBits(flip=0b1100)}), ('LOG --log-prefix "in: "', "filter", {}),
])  # fmt: skip
def test_a_target_changes_a_mark_and_goes_on(text, table, changed):
    assert apply_target(listed(text), table, **BITS) == (GO_ON, changed, "")


@together(("text", "changed"), [
    ("CT --zone 7", {"zone": 7, "reply_zone": 7}), ("CT --zone-orig 7", {"zone": 7}), ("CT --zone-reply 7", {"reply_zone": 7}), ("CT --notrack", {"state": "UNTRACKED"}),
])  # fmt: skip
def test_a_zone_is_that_of_both_directions_or_of_one(text, changed):
    assert apply_target(listed(text), "raw", connection=False) == (GO_ON, {"zone_decided": True, **changed}, "")


@together(("target", "xt", "nft", "words"), [
    (SetMark(value=0x53A), "MARK --set-xmark 0x53a/0xffffffff", "meta mark set 0x0000053a", "mark it 1338"),
    (SetMark(value=0x53A, connection=True), "CONNMARK --set-xmark 0x53a/0xffffffff", "ct mark set 0x0000053a", "change its connection's mark (0x53a under the mask 0xffffffff)"),
    (SetMark(value=1, mask=3), "MARK --set-xmark 0x1/0x3", "meta mark set meta mark & 0xfffffffd | 0x00000001", "change its mark (0x1 under the mask 0x3)"),
    (SetMark(value=0x11, mask=0xF, connection=True), "CONNMARK --set-xmark 0x11/0xf", "ct mark set ct mark & 0xfffffff0 ^ 0x00000011", "change its connection's mark (0x11 under the mask 0xf)"),
    (TrackZone(zone=2), "CT --zone 2", "ct zone set 2", "track it in zone 2"), (TrackZone(zone=2, side="reply"), "CT --zone-reply 2", "ct reply zone set 2", "track its reply direction in zone 2"),
    (LogTarget(prefix="in: "), 'LOG --log-prefix "in: "', 'log prefix "in: "', "report it to the kernel's log as 'in' and go on"),
    (LogTarget(prefix=" :a: b X:", group=3), 'NFLOG --nflog-prefix " :a: b X:" --nflog-group 3', 'log prefix " :a: b X:" group 3', "report it to group 3 as 'a: b X' and go on"),
])  # fmt: skip
def test_a_target_says_the_same_in_each_dialect_and_in_words(target, xt, nft, words):
    assert (target.xt(IPV4), target.nft(IPV4), target.describe()) == (xt, nft, words)


@together(("target", "whole", "tracks"), [
    (SetMark(value=5), 5, False), (SetMark(value=0), 0, False), (SetMark(value=5, mask=7), -1, False), (SetMark(value=5, connection=True), -1, True), (LogTarget(prefix="x"), -1, False),
])  # fmt: skip
def test_the_mark_that_a_packet_has_afterwards_is_known_if_all_its_bits_are_set(target, whole, tracks):
    assert (target.whole_mark, target.tracks) == (whole, tracks)


def test_a_log_s_prefix_is_written_as_the_bytes_that_it_was():
    assert show_target(LogTarget(prefix="\udcff")) == ["log 2=ff00 5=4"]
    assert [LogTarget(prefix="\udcff", group=group).struct(IPV4)[2].count(b"\xff") for group in (0, 9)] == [1, 1]
    assert [(one.compat, one.label()) for one in (LogTarget(prefix="x"), LogTarget(prefix="x", group=1))] == [("", "LOG"), ("has_own_group_log", "NFLOG")]
