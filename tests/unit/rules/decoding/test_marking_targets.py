"""Targets that mark packets, track them in zones and log them: what their options, structs and expressions mean."""

from __future__ import annotations

from struct import pack

import pytest

from netinit.base.net import FAMILIES, FULL_MASK, IPV4
from netinit.rules.decoding.targets import decode_target, read_target
from netinit.rules.foreign_targets import Observe, UnknownTarget, Untrack
from netinit.rules.marking_targets import LogTarget, RestoreMark, SaveMark, SetMark, TrackZone
from nft_expressions import CT_MARK, MARK, decode, fields_of, mask, puts, read

STORES, STORES_CT = ("meta", (2, 3), (3, 1)), ("ct", (2, 3), (4, 1))
LOW, NONE, ALL = pack("=I", 0xFF), bytes(4), b"\xff" * 4
SWAP = ("byteorder", (1, 1), (2, 1), (3, 1), (4, 4), (5, 4))


@pytest.mark.parametrize(
    ("parts", "target"),
    [
        ((puts(pack("=I", 7)), STORES), "MARK --set-xmark 0x7/0xffffffff"), ((puts(pack("=I", 7)), STORES_CT), "CONNMARK --set-xmark 0x7/0xffffffff"),
        ((puts(pack("=I", 0x01020304)), STORES), "MARK --set-xmark 0x1020304/0xffffffff"), ((puts(pack("=I", 7)), SWAP, STORES), "[meta]"), ((puts(pack("=I", 7)), SWAP, STORES_CT), "[ct]"), ((STORES,), "[meta]"), ((STORES_CT,), "[ct]"),
        # bits of the mark itself that are kept, and others that change
        ((MARK, mask(LOW), STORES), "MARK --set-xmark 0x0/0xffffff00"), ((MARK, mask(LOW, pack("=I", 0x103)), STORES), "MARK --set-xmark 0x103/0xffffff00"), ((MARK, mask(ALL, pack("=I", 1)), STORES), "MARK --set-xmark 0x1/0x0"),
        ((MARK, STORES), "MARK --set-xmark 0x0/0x0"), ((CT_MARK, mask(LOW, pack("=I", 0x103)), STORES_CT), "CONNMARK --set-xmark 0x103/0xffffff00"), ((CT_MARK, STORES_CT), "CONNMARK --set-xmark 0x0/0x0"),
        # the other mark, or some bits of it
        ((MARK, STORES_CT), "CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff"), ((CT_MARK, STORES), "CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff"),
        ((MARK, mask(LOW), STORES_CT), "CONNMARK --save-mark --nfmask 0xff --ctmask 0xffffffff"), ((CT_MARK, mask(LOW), STORES), "CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xff"),
        ((MARK, mask(LOW, pack("=I", 0x100)), STORES_CT), "[ct]"), ((CT_MARK, mask(ALL, pack("=I", 1)), STORES), "[meta]"), ((MARK, SWAP, STORES), "[meta]"), ((CT_MARK, SWAP, STORES), "[meta]"),
        # what is no mark
        ((("meta", (2, 4), (1, 1)), STORES), "[meta]"), ((("meta", (2, 4), (1, 1)), STORES_CT), "[ct]"), ((("ct", (1, 1), (2, 0)), STORES), "[meta]"), ((("ct", (1, 1), (2, 0)), STORES_CT), "[ct]"), ((("meta", (2, 1), (1, 1)), STORES_CT), "[ct]"), ((("ct", (1, 1), (2, 1)), STORES), "[meta]"),
        ((puts(NONE), ("meta", (2, 2), (3, 1))), "meta priority set"), ((puts(NONE), ("meta", (2, 12), (3, 1))), "meta nftrace set"), ((puts(NONE), ("meta", (2, 13), (3, 1))), "meta rtclassid set"), ((puts(NONE), ("meta", (2, 5), (3, 1))), "[meta]"),
        ((puts(NONE), ("ct", (2, 12), (4, 1))), "ct helper set"), ((puts(NONE), ("ct", (2, 14), (4, 1))), "ct labels set"), ((puts(NONE), ("ct", (2, 22), (4, 1))), "ct labels set"), ((puts(NONE), ("ct", (2, 18), (4, 1))), "ct event set"), ((puts(NONE), ("ct", (2, 2), (4, 1))), "[ct]"),
        ((puts(pack("=H", 5)), ("ct", (2, 17), (4, 1))), "CT --zone 5"), ((puts(pack("=H", 5) + b"\1\1"), ("ct", (2, 17), (4, 1))), "CT --zone 5"), ((puts(pack("=H", 5)), ("ct", (2, 17), (4, 1), (3, b"\0"))), "CT --zone-orig 5"), ((puts(pack("=H", 0x105)), ("ct", (2, 17), (4, 1), (3, b"\1"))), "CT --zone-reply 261"),
        ((puts(pack("=H", 5)), ("ct", (2, 17), (4, 1), (3, b"\2"))), "[ct]"), ((MARK, ("ct", (2, 17), (4, 1))), "[ct]"), ((("ct", (2, 17), (4, 1)),), "[ct]"),
        # logs
        ((("log", (2, b"in: \0")),), 'LOG --log-prefix "in: "'), ((("log", (2, b"in\0"), (5, 4)),), 'LOG --log-prefix "in"'), ((("log", (2, b"in\0"), (5, 5)),), "log"), ((("log", (2, b"in\0"), (5, 3)),), "log"), ((("log", (2, b"in\0"), (4, b"\0\1")),), 'LOG --log-prefix "in"'),
        ((("log", (1, b"\0\7"), (2, b"in\0"), (4, b"\0\1")),), 'NFLOG --nflog-prefix "in" --nflog-group 7'), ((("log", (1, b"\0\7"), (2, b"in\0"), (4, b"\0\2")),), "log"), ((("log", (1, b"\0\7"), (2, b"in\0"), (3, 64)),), "log"), ((("log", (2, b"in\0"), (6, 1)),), "log"),
        ((("log", (1, b"\0\7")),), "log"), ((("log",),), "log"), ((("log", (2, b"\0")),), "log"),
    ],
    ids=str,
)  # fmt: skip
def test_an_expression_that_marks_or_logs_is_the_target_that_iptables_has_for_it(parts, target):
    assert read(*parts) == [f"-j {target}"]


def test_what_a_rule_writes_into_a_mark_are_all_of_its_bits_or_those_of_its_mask():
    assert [fields_of(decode(*parts).rules[0].target) for parts in ((puts(LOW), STORES), (MARK, mask(LOW, LOW), STORES), (CT_MARK, mask(LOW), STORES_CT))] == [
        ("SetMark", {"value": 0xFF, "mask": FULL_MASK, "connection": False}), ("SetMark", {"value": 0xFF, "mask": 0xFFFFFF00, "connection": False}), ("SetMark", {"value": 0, "mask": 0xFFFFFF00, "connection": True}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("MARK", None), ("MARK --set-mark 0x5/0x3", SetMark(value=5, mask=7)), ("MARK --set-xmark 0x5/0x3", SetMark(value=5, mask=3)), ("MARK --set-mark 5", SetMark(value=5)), ("MARK --and-mark 0", SetMark(value=0)), ("MARK --or-mark 0", SetMark(value=0, mask=0)), ("MARK --xor-mark 5", SetMark(value=5, mask=0)),
        ("MARK --set-mark 5 --or-mark 1", None), ("MARK --set-mark", None), ("MARK --set-xmark 5/x", None), ("MARK --or-mark 1 --x", None), ("MARK --mark 1", None), ("MARK --restore-mark", None), ("MARK --save-mark", None),
        ("CONNMARK", None), ("CONNMARK --set-mark 5", SetMark(value=5, connection=True)), ("CONNMARK --set-xmark 1/2", SetMark(value=1, mask=2, connection=True)), ("CONNMARK --and-mark 1", SetMark(value=0, mask=0xFFFFFFFE, connection=True)),
        ("CONNMARK --save-mark --nfmask 1 --ctmask 2", SaveMark(nfmask=1, ctmask=2)), ("CONNMARK --save-mark --mask 3 --ctmask 2", SaveMark(nfmask=3, ctmask=2)), ("CONNMARK --restore-mark --mask 3 --nfmask 2", RestoreMark(nfmask=2, ctmask=3)), ("CONNMARK --restore-mark --ctmask 4", RestoreMark(ctmask=4)),
        ("CONNMARK --save-mark --ctmask x", None), ("CONNMARK --save-mark --mask x", None), ("CONNMARK --save-mark --set-mark 1", None), ("CONNMARK --save-mark --restore-mark", None), ("CONNMARK --nfmask 1", None),
        ("CT", None), ("CT --zone 5", TrackZone(zone=5)), ("CT --zone-orig 0x10", TrackZone(zone=16, side="orig")), ("CT --zone-reply 0", TrackZone(zone=0, side="reply")), ("CT --zone 5 --zone-orig 6", None), ("CT --zone-orig x", None), ("CT --zone-other 5", None), ("CT --zone", None),
        ("CT --notrack", Untrack()), ("CT --notrack yes", None), ("CT --notrack --zone 1", None),
        ("CT --helper ftp", "CT"), ("CT --timeout slow", "CT"), ("CT --ctevents new", "CT"), ("CT --expevents new", "CT"), ("CT --helper ftp --expevents new", "CT"), ("CT --helper ftp --notrack", None),
        ("LOG", "LOG"), ("LOG --log-prefix x", LogTarget(prefix="x")), ("LOG --log-prefix x --log-uid", "LOG"), ("LOG --log-level 4", "LOG"),
        ("NFLOG", "NFLOG"), ("NFLOG --nflog-prefix x --nflog-group 65535", LogTarget(prefix="x", group=65535)), ("NFLOG --nflog-group 5 --nflog-prefix x", LogTarget(prefix="x", group=5)), ("NFLOG --nflog-group 5", "NFLOG"), ("NFLOG --nflog-prefix x", "NFLOG"), ("NFLOG --nflog-prefix x --nflog-group 5 --nflog-size 4", "NFLOG"),
    ],
)  # fmt: skip
def test_options_of_a_target_that_marks_or_logs_are_read_whole_or_not_at_all(words, target):
    expected = UnknownTarget(text=words) if target is None else Observe(text=words, is_of_ct=target == "CT") if isinstance(target, str) else target
    for family in FAMILIES:
        assert fields_of(read_target(is_goto=False, words=words.split(), text=words, family=family)) == fields_of(expected)


def connection(flags=0, zone=0, events=0, expectations=0, helper=b"", timeout=b"", end=b""):
    """struct xt_ct_target_info: where a pointer of the kernel's stands is `end`."""
    return pack("=2H2I16s32s4x", flags, zone, events, expectations, helper, timeout)[: 28 if end else 64] + end


def of_ct(text):
    return Observe(text=f"CT {text}", is_of_ct=True)


@pytest.mark.parametrize(
    ("name", "info", "target"),
    [
        (("CT", 1), connection(helper=b"ftp"), of_ct("--helper ftp")), (("CT", 2), connection(timeout=b"slow"), of_ct("--timeout slow")), (("CT", 2), connection(events=5), of_ct("--ctevents 5")), (("CT", 2), connection(expectations=6), of_ct("--expevents 6")),
        (("CT", 2), connection(helper=b"ftp", timeout=b"slow", events=5, expectations=6), of_ct("--helper ftp --timeout slow --ctevents 5 --expevents 6")), (("CT", 2), connection(helper=b"f" * 16, timeout=b"t" * 32), of_ct(f"--helper {'f' * 16} --timeout {'t' * 32}")),
        (("CT", 2), connection(), TrackZone(zone=0)), (("CT", 2), connection(zone=65535), TrackZone(zone=65535)), (("CT", 2), connection(flags=4, zone=1), TrackZone(zone=1, side="orig")), (("CT", 2), connection(flags=8, zone=1), TrackZone(zone=1, side="reply")), (("CT", 2), connection(flags=12, zone=1), None),
        (("CT", 2), connection(zone=1, events=1), None), (("CT", 2), connection(zone=1, expectations=1), None), (("CT", 2), connection(zone=1, helper=b"ftp"), None), (("CT", 2), connection(zone=1, timeout=b"slow"), None), (("CT", 2), connection(flags=4, helper=b"ftp"), None), (("CT", 2), connection(flags=16), None),
        (("CT", 2), connection(flags=1, zone=1), Untrack()), (("CT", 2), connection(flags=3), Untrack()), (("CT", 2), connection(flags=2), None),
        (("CT", 0), connection(zone=1, end=b"\1" * 8), TrackZone(zone=1)), (("CT", 0), connection(helper=b"ftp", end=b"\1" * 8), of_ct("--helper ftp")), (("CT", 3), connection(), None), (("CT", 2), connection()[:11], None),
        (("MARK", 2), pack("=2I", 0xFFFFFFFF, 0), SetMark(value=0xFFFFFFFF, mask=0)), (("MARK", 2), pack("=2I", 1, 2)[:7], None),
        (("CONNMARK", 2), pack("=3I3B", 7, 0xF, 0xF0, 1, 2, 0), None), (("CONNMARK", 2), pack("=3I3B", 7, 0xF, 0xF0, 0, 2, 1), None), (("CONNMARK", 2), pack("=3I3B", 7, 0xF, 0xF0, 1, 0, 2), RestoreMark(nfmask=0xF0, ctmask=0xF)), (("CONNMARK", 2), pack("=3I3B", 7, 0xF, 0xF0, 1, 0, 0), SetMark(value=7, mask=0xF, connection=True)),
        (("CONNMARK", 2), pack("=3I3B", 7, 0xF, 0xF0, 0, 0, 3), None), (("CONNMARK", 1), pack("=3IB", 7, 0xF, 0xF0, 2), RestoreMark(nfmask=0xF0, ctmask=0xF)), (("CONNMARK", 0), pack("=3IB", 7, 0xF, 0xF0, 2), None),
        (("LOG", 0), pack("=2B30s", 4, 0, b"p" * 29), LogTarget(prefix="p" * 29)), (("LOG", 0), pack("=2B30s", 4, 0, b"a\0b"), LogTarget(prefix="a")), (("LOG", 0), pack("=2B30s", 4, 0, b"\xff"), LogTarget(prefix="\udcff")), (("LOG", 0), pack("=2B30s", 3, 0, b"a"), Observe(text="LOG")), (("LOG", 0), pack("=2B30s", 4, 0, b"\0a"), Observe(text="LOG")), (("NFLOG", 0), pack("=I4H64s", 0, 3, 0, 0, 0, b"\0a"), Observe(text="NFLOG")),
        (("NFLOG", 0), pack("=I4H64s", 0, 65535, 0, 0, 9, b"p" * 63), LogTarget(prefix="p" * 63, group=65535)), (("NFLOG", 0), pack("=I4H64s", 1, 3, 0, 0, 0, b"x"), Observe(text="NFLOG")), (("NFLOG", 0), pack("=I4H64s", 0, 3, 0, 1, 0, b"x"), Observe(text="NFLOG")),
    ],
)  # fmt: skip
def test_a_struct_of_a_target_that_marks_or_logs_is_read_whole_or_not_at_all(name, info, target):
    assert fields_of(decode_target(*name, info, IPV4)) == fields_of(target or UnknownTarget(text=name[0]))
