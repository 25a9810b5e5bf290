"""Read targets from structs of iptables' extensions."""

from __future__ import annotations

from struct import error, unpack_from

from netinit.base.net import FULL_MASK, IPV4, Family, text_of
from netinit.rules import structs
from netinit.rules.foreign_targets import (
    OBSERVING,
    DestinationNat,
    Observe,
    SourceNat,
    UnknownTarget,
    Untrack,
)
from netinit.rules.marking_targets import LogTarget, RestoreMark, SaveMark, SetMark, TrackZone
from netinit.rules.structs import UNREACHABLE, WARNING
from netinit.rules.targets import Redirect, Reject, Target, Tproxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[bytes, Family], Target | None]


def decode_target(name: str, revision: int, info: bytes, family: Family) -> Target:
    """Return the target of a struct."""
    reader = _READERS.get((name, revision))
    try:
        found = reader(info, family) if reader else None
    except error:  # shorter than the struct
        found = None
    if found is not None:
        return found
    if name in OBSERVING:
        return Observe(text=name, kept=(name, revision, info))
    kind = SourceNat if name in ("SNAT", "MASQUERADE") else UnknownTarget
    return kind(text=name, kept=(name, revision, info))


def _nat_range(info: bytes, family: Family, revision: int) -> tuple[str, int] | None:
    """Return the one address and port of a NAT range; None for more."""
    if family is IPV4 and not revision:  # struct nf_nat_ipv4_multi_range_compat
        count, flags, first, last = unpack_from(structs.MULTI_RANGE, info)
        low, high = unpack_from(structs.PORTS, info, structs.MULTI_RANGE_PORTS)
        if count != 1:
            return None
    else:  # struct nf_nat_range, nf_nat_range2
        flags, first, last = unpack_from(structs.RANGE, info)
        low, high = unpack_from(structs.PORTS, info, structs.RANGE_PORTS)
        size = family.bits // 8
        first, last = first[:size], last[:size]
    if flags & ~(structs.MAP_ADDRESSES | structs.MAP_PORTS):
        return None
    if (flags & structs.MAP_ADDRESSES and first != last) or (flags & structs.MAP_PORTS and low != high):
        return None
    address = text_of(int.from_bytes(first, "big"), family) if flags & structs.MAP_ADDRESSES else ""
    return address, low if flags & structs.MAP_PORTS else 0


def _read_redirect(info: bytes, family: Family) -> Target | None:
    found = _nat_range(info, family, 0)
    return Redirect(port=found[1]) if found and not found[0] and found[1] else None


def _read_dnat(info: bytes, family: Family, revision: int) -> Target | None:
    found = _nat_range(info, family, revision)
    return DestinationNat(address=found[0], port=found[1]) if found and any(found) else None


def _read_snat(info: bytes, family: Family, revision: int) -> Target | None:
    found = _nat_range(info, family, revision)
    return SourceNat(text="SNAT", kept=("SNAT", revision, info), address=found[0]) if found else None


def _read_mark(info: bytes, _: Family) -> Target | None:
    value, mask = unpack_from(structs.SET_MARK, info)
    return SetMark(value=value, mask=mask)


def _read_connmark_shifted(info: bytes, _: Family) -> Target | None:
    """Read struct xt_connmark_tginfo2, which may shift the mark."""
    value, mask, mark_mask, _, shift, mode = unpack_from(structs.CONNMARK_SHIFTED, info)
    return None if shift else _change_connmark(value, mask, mark_mask, mode)


def _change_connmark(value: int, mask: int, mark_mask: int, mode: int) -> Target | None:
    if mode == structs.CONNMARK_SET:
        return SetMark(value=value, mask=mask, connection=True)
    if (mask, mark_mask) != (FULL_MASK, FULL_MASK):
        return None
    return {structs.CONNMARK_SAVE: SaveMark(), structs.CONNMARK_RESTORE: RestoreMark()}.get(mode)


def _read_ct(info: bytes, _: Family) -> Target | None:
    """Read a zone, or NOTRACK; None for helpers, events and timeouts."""
    flags, zone, events, expectations = unpack_from(structs.CT, info)
    if flags & structs.NOTRACK:
        return Untrack()
    if flags or events or expectations or info[12:28].strip(b"\0") or info[28:60].strip(b"\0"):
        return None
    return TrackZone(zone=zone)


def _read_tproxy(info: bytes, family: Family) -> Target | None:
    """Read struct xt_tproxy_target_info, or _v1 with an address of either family."""
    mask, mark = unpack_from(structs.TPROXY, info)
    size = 16 if len(info) >= 26 else 4  # noqa: PLR2004 - of struct xt_tproxy_target_info_v1
    address, port = info[8 : 8 + size][: family.bits // 8], unpack_from(">H", info, 8 + size)[0]
    if mask != FULL_MASK or not port:
        return None
    return Tproxy(port=port, mark=mark, address=text_of(int.from_bytes(address, "big"), family) if any(address) else "")


def _read_reject(info: bytes, family: Family) -> Target | None:
    kind = unpack_from(structs.REJECT, info)[0]
    names = structs.REJECTIONS[family.version]
    if kind == UNREACHABLE[family.version]:
        return Reject()
    return Reject(message=names[kind]) if kind < len(names) and names[kind] else None


def _read_log(info: bytes, _: Family) -> Target | None:
    level, flags, prefix = unpack_from(structs.LOG, info)
    return LogTarget(prefix=_text(prefix)) if (level, flags) == (WARNING, 0) and prefix.strip(b"\0") else None


def _read_nflog(info: bytes, _: Family) -> Target | None:
    length, group, threshold, flags, _, prefix = unpack_from(structs.NFLOG, info)
    if length or threshold > 1 or flags or not group or not prefix.strip(b"\0"):
        return None
    return LogTarget(prefix=_text(prefix), group=group)


def _text(value: bytes) -> str:
    return value.partition(b"\0")[0].decode("utf-8", "surrogateescape")


_READERS: dict[tuple[str, int], Reader] = {
    ("REDIRECT", 0): _read_redirect,
    ("DNAT", 0): lambda info, family: _read_dnat(info, family, 0),
    ("DNAT", 1): lambda info, family: _read_dnat(info, family, 1),
    ("DNAT", 2): lambda info, family: _read_dnat(info, family, 2),
    ("SNAT", 0): lambda info, family: _read_snat(info, family, 0),
    ("SNAT", 1): lambda info, family: _read_snat(info, family, 1),
    ("SNAT", 2): lambda info, family: _read_snat(info, family, 2),
    ("MARK", 2): _read_mark,
    ("CONNMARK", 1): lambda info, _: _change_connmark(*unpack_from(structs.CONNMARK, info)),
    ("CONNMARK", 2): _read_connmark_shifted,
    ("CT", 0): lambda info, family: _read_ct(info[:28], family),  # what follows is a pointer of the kernel's
    ("CT", 1): _read_ct,
    ("CT", 2): _read_ct,
    ("NOTRACK", 0): lambda _, __: Untrack(),
    ("TPROXY", 0): _read_tproxy,
    ("TPROXY", 1): _read_tproxy,
    ("REJECT", 0): _read_reject,
    ("LOG", 0): _read_log,
    ("NFLOG", 0): _read_nflog,
}
