"""Read targets of `rules.marking_targets`: marks, zones of connection tracking, logs."""

from __future__ import annotations

from _functools import partial  # type: ignore[import-not-found] # functools takes 2 ms of a removal
from struct import unpack_from
from sys import byteorder

from netinit.base.net import FULL_MASK, Family
from netinit.base.netlink_attributes import name, number
from netinit.rules import numbers, structs
from netinit.rules.decoding import read_masked, read_number
from netinit.rules.decoding.registers import CONSTANT, CT, META, Operand, Registers
from netinit.rules.foreign_targets import Observe, Untrack
from netinit.rules.marking_targets import DIRECTIONS, LogTarget, RestoreMark, SaveMark, SetMark, TrackZone
from netinit.rules.structs import WARNING
from netinit.rules.targets import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.decoding.registers import ExpressionReader, Found, TargetStructReader, TextReader

HARMLESS_META = {2: "priority", 12: "nftrace", 13: "rtclassid"}  # not used by our rules, nor by routing
OF_CONNECTIONS = frozenset(("--helper", "--timeout", "--ctevents", "--expevents"))  # of CT: they change no packet
HARMLESS_CT = {12: "helper", 14: "labels", 18: "event", 22: "labels"}

# ---- options of iptables ---------------------------------------------------------------------------------------------------


def _mark_words(options: dict[str, str], _: str, __: Family, *, connection: bool = False) -> Target | None:
    """Return the value to xor, and the mask to clear before, that an option of MARK or CONNMARK stands for."""
    if len(options) != 1:
        return None
    ((option, text),) = options.items()
    if option in ("--set-mark", "--set-xmark"):
        change = read_masked(text)
        if change and option == "--set-mark":
            change = change[0], change[0] | change[1]
    else:
        number = read_number(text)
        bits = number or 0
        known = {"--and-mark": (0, FULL_MASK & ~bits), "--or-mark": (bits, bits), "--xor-mark": (bits, 0)}
        change = None if number is None else known.get(option)
    return SetMark(value=change[0], mask=change[1], connection=connection) if change is not None else None


def _connmark_words(options: dict[str, str], text: str, family: Family) -> Target | None:
    for option, target in (("--save-mark", SaveMark), ("--restore-mark", RestoreMark)):
        if option in options:
            both = options.get("--mask", str(FULL_MASK))
            nfmask, ctmask = (read_number(options.get(name, both)) for name in ("--nfmask", "--ctmask"))
            if nfmask is None or ctmask is None or options.keys() - {option, "--nfmask", "--ctmask", "--mask"}:
                return None
            return target(nfmask=nfmask, ctmask=ctmask)
    return _mark_words(options, text, family, connection=True)


def _zone_words(options: dict[str, str], text: str, _: Family) -> Target | None:
    if options == {"--notrack": ""}:
        return Untrack()
    if options and options.keys() <= OF_CONNECTIONS:
        return Observe(text=text, is_of_ct=True)
    for side in ("", *DIRECTIONS):
        zone = read_number(options.get(f"--zone-{side}" if side else "--zone", ""))
        if zone is not None:
            return TrackZone(zone=zone, side=side) if len(options) == 1 else None
    return None


def _log_words(options: dict[str, str], _: str, __: Family) -> Target | None:
    return LogTarget(prefix=options["--log-prefix"]) if options.keys() == {"--log-prefix"} else None


def _group_log_words(options: dict[str, str], _: str, __: Family) -> Target | None:
    group = read_number(options.get("--nflog-group", ""))
    prefixed = options.keys() == {"--nflog-prefix", "--nflog-group"}
    return LogTarget(prefix=options["--nflog-prefix"], group=group) if group and prefixed else None


WORDS: dict[str, TextReader] = {
    "MARK": _mark_words, "CONNMARK": _connmark_words, "CT": _zone_words, "LOG": _log_words, "NFLOG": _group_log_words,
}  # fmt: skip

# ---- structs of extensions -----------------------------------------------------------------------------------------------


def _read_mark(info: bytes, _: Family) -> Target | None:
    value, mask = unpack_from(structs.SET_MARK, info)
    return SetMark(value=value, mask=mask)


def _read_connmark(info: bytes, _: Family, *, form: str) -> Target | None:
    """Read struct xt_connmark_tginfo1 or 2, which may shift the mark."""
    value, mask, mark_mask, *shift, mode = unpack_from(form, info)
    if mode == structs.CONNMARK_SET and not any(shift[1:]):
        return SetMark(value=value, mask=mask, connection=True)
    target = {structs.CONNMARK_SAVE: SaveMark, structs.CONNMARK_RESTORE: RestoreMark}.get(mode)
    return target(nfmask=mark_mask, ctmask=mask) if target and not any(shift[1:]) else None


def _read_ct(info: bytes, _: Family) -> Target | None:
    """Read a zone, NOTRACK, or, without a zone, a helper, a timeout policy and events."""
    flags, zone, events, expectations = unpack_from(structs.CT, info)
    if flags & structs.NOTRACK:
        return Untrack()
    helper, timeout = (_text(info[start:end]) for start, end in ((12, 28), (28, 60)))
    if not flags and not zone and (events or expectations or helper or timeout):
        found = {"helper": helper, "timeout": timeout, "ctevents": events, "expevents": expectations}
        return Observe(text=" ".join(["CT", *[f"--{option} {value}" for option, value in found.items() if value]]), is_of_ct=True)
    sides = {0: "", **{flag: side for side, flag in structs.ZONE_SIDES.items()}}
    if flags not in sides or events or expectations or helper or timeout:
        return None
    return TrackZone(zone=zone, side=sides[flags])


def _read_log(info: bytes, _: Family) -> Target | None:
    level, flags, prefix = unpack_from(structs.LOG, info)
    return LogTarget(prefix=_text(prefix)) if (level, flags) == (WARNING, 0) and _text(prefix) else None


def _read_nflog(info: bytes, _: Family) -> Target | None:
    length, group, threshold, flags, _, prefix = unpack_from(structs.NFLOG, info)
    if length or threshold > 1 or flags or not group or not _text(prefix):
        return None
    return LogTarget(prefix=_text(prefix), group=group)


def _text(value: bytes) -> str:
    return value.partition(b"\0")[0].decode("utf-8", "surrogateescape")


STRUCTS: dict[tuple[str, int], TargetStructReader] = {
    ("MARK", 2): _read_mark,
    ("CONNMARK", 1): partial(_read_connmark, form=structs.CONNMARK),
    ("CONNMARK", 2): partial(_read_connmark, form=structs.CONNMARK_SHIFTED),
    ("CT", 0): lambda info, family: _read_ct(info[:28], family),  # what follows is a pointer of the kernel's
    **dict.fromkeys((("CT", 1), ("CT", 2)), _read_ct),
    ("LOG", 0): _read_log,
    ("NFLOG", 0): _read_nflog,
}

# ---- expressions of nf_tables --------------------------------------------------------------------------------------------


def _set_meta(found: Found, registers: Registers, _: Family | None) -> Target | None:
    key = number(found.get(2))
    if key in HARMLESS_META:
        return Observe(text=f"meta {HARMLESS_META[key]} set")
    return _set_mark(registers.load(found.get(3)), META, numbers.META_MARK) if key == numbers.META_MARK else None


def _set_ct(found: Found, registers: Registers, _: Family | None) -> Target | None:
    key, operand = number(found.get(2)), registers.load(found.get(4))
    if key in HARMLESS_CT:
        return Observe(text=f"ct {HARMLESS_CT[key]} set")
    if key == numbers.CT_ZONE and operand.source == CONSTANT:
        side = number(found.get(numbers.CT_SIDE)) if numbers.CT_SIDE in found else None
        if side is not None and side >= len(DIRECTIONS):
            return None
        return TrackZone(zone=int.from_bytes(operand.data[:2], byteorder), side="" if side is None else [*DIRECTIONS][side])
    return _set_mark(operand, CT, numbers.CT_MARK) if key == numbers.CT_MARK else None


def _set_mark(operand: Operand, whose: str, key: int) -> Target | None:
    connection = whose == CT
    if operand.swapped:
        return None
    if operand.source == CONSTANT:
        return SetMark(value=int.from_bytes(operand.data, byteorder), connection=connection)
    if (operand.source, operand.key[0]) == (whose, key):
        kept = int.from_bytes(operand.mask, byteorder) if operand.mask else FULL_MASK
        return SetMark(value=int.from_bytes(operand.xor, byteorder), mask=FULL_MASK & ~kept, connection=connection)
    other = (META, numbers.META_MARK) if connection else (CT, numbers.CT_MARK)
    if (operand.source, operand.key[0]) != other or operand.xor:
        return None
    copied = int.from_bytes(operand.mask, byteorder) if operand.mask else FULL_MASK
    return SaveMark(nfmask=copied) if connection else RestoreMark(ctmask=copied)


def _log(found: Found, _: Registers, __: Family | None) -> Target | None:
    prefix = name(found.get(2, b""))
    # NFTA_LOG_GROUP, _PREFIX, _QTHRESHOLD, _LEVEL: the usual level is a warning's
    plain = not set(found) - {1, 2, 4, 5} and number(found.get(4)) <= 1 and number(found.get(5), WARNING) == WARNING and prefix
    return LogTarget(prefix=prefix, group=number(found.get(1))) if plain else Observe(text="log")


EXPRESSIONS: dict[str, ExpressionReader] = {"meta": _set_meta, "ct": _set_ct, "log": _log}
