"""Write targets as nf_tables expressions; `effects` reads them.

Each function takes the builder, the target, the index of the rule (see Target.nft), and the family.
"""

from __future__ import annotations

from _struct import pack

from netinit.base.net import FULL_MASK, IPV4, Family, family_of, number_of
from netinit.rules import targets
from netinit.rules.expressions import numbers
from netinit.rules.expressions.building import RuleBuilder, be32, data
from netinit.rules.targets import Target
from netinit.rules.xtables.names import UNREACHABLE, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.rules.foreign_targets import DestinationNat

SOCKET_ALONE = 2  # as `part`: TPROXY without its mark and verdict
SECOND = be32(2)  # NFT_REG_2
_VERDICTS: dict[type[Target], int] = {
    targets.Accept: numbers.NF_ACCEPT,
    targets.Drop: numbers.NF_DROP,
    targets.Return: numbers.NFT_RETURN,
}


def _finish_verdict(writer: RuleBuilder, target: Target, _: int, __: Family) -> None:
    writer.decide(_VERDICTS[type(target)])


def _finish_jump(writer: RuleBuilder, target: targets.Jump, _: int, __: Family) -> None:
    writer.decide(numbers.NFT_GOTO if target.goto else numbers.NFT_JUMP, target.chain)


def _finish_redirect(writer: RuleBuilder, target: targets.Redirect, _: int, __: Family) -> None:
    writer.put(pack(">H", target.port))
    writer.add(b"redir", (1, be32(1)), (2, be32(1)), (3, be32(2)))


def _finish_reject(writer: RuleBuilder, target: targets.Reject, _: int, family: Family) -> None:
    if target.message == "tcp-reset":
        writer.add(b"reject", (1, be32(numbers.REJECT_RESET)))
    elif target.message.startswith((numbers.ICMP_CODE, numbers.ICMPX_CODE)):
        kind = numbers.REJECT_ICMP if target.message.startswith(numbers.ICMP_CODE) else numbers.REJECT_ICMPX
        writer.add(b"reject", (1, be32(kind)), (2, bytes((int(target.message.rpartition(" ")[2]),))))
    elif target.message:
        raise ValueError(f"reject with {target.message}: nft has another name for it")
    elif writer.is_mixed:
        writer.add(b"reject", (1, be32(numbers.REJECT_ICMPX)), (2, bytes((numbers.ICMPX_PORT_UNREACHABLE,))))
    else:
        writer.add(b"reject", (1, be32(numbers.REJECT_ICMP)), (2, bytes((UNREACHABLE[family.version],))))


def _finish_tproxy(writer: RuleBuilder, target: targets.Tproxy, part: int, family: Family) -> None:
    """Write the rule that captures, or (`part` 1) the one that drops without a socket."""
    if part == 1:
        writer.decide(numbers.NF_DROP)
        return
    if target.address:
        writer.put(number_of(target.address).to_bytes(family.bits // 8, "big"))
        writer.add(b"immediate", (1, SECOND), (2, data(pack(">H", target.port))))
        writer.add(b"tproxy", (1, be32(family.number)), (2, be32(1)), (3, SECOND))
    else:
        writer.put(pack(">H", target.port))
        writer.add(b"tproxy", (1, be32(family.number)), (3, be32(1)))
    if part != SOCKET_ALONE:
        _set_meta_mark(writer, target.mark)
        writer.decide(numbers.NF_ACCEPT)


def _set_meta_mark(writer: RuleBuilder, value: int) -> None:
    writer.put(pack("=I", value))
    _store_mark(writer, connection=False)


def _store_mark(writer: RuleBuilder, *, connection: bool) -> None:
    if connection:
        writer.add(b"ct", (4, be32(1)), (2, be32(numbers.CT_MARK)))
    else:
        writer.add(b"meta", (2, be32(numbers.META_MARK)), (3, be32(1)))


def _load_mark(writer: RuleBuilder, *, connection: bool) -> None:
    if connection:
        writer.load_ct(numbers.CT_MARK)
    else:
        writer.load_meta(numbers.META_MARK)


def _finish_mark(writer: RuleBuilder, target: targets.SetMark, _: int, __: Family) -> None:
    if target.mask == FULL_MASK:
        writer.put(pack("=I", target.value))
    else:
        _load_mark(writer, connection=target.connection)
        writer.mask(pack("=I", FULL_MASK & ~target.mask), pack("=I", target.value))
    _store_mark(writer, connection=target.connection)


def _finish_copy(writer: RuleBuilder, target: targets.SaveMark | targets.RestoreMark, _: int, __: Family) -> None:
    is_saved = isinstance(target, targets.SaveMark)
    _load_mark(writer, connection=not is_saved)
    _store_mark(writer, connection=is_saved)


def _finish_zone(writer: RuleBuilder, target: targets.TrackZone, _: int, __: Family) -> None:
    writer.put(pack("=H", target.zone))
    writer.add(b"ct", (4, be32(1)), (2, be32(numbers.CT_ZONE)))


def _finish_log(writer: RuleBuilder, target: targets.LogTarget, _: int, __: Family) -> None:
    prefix = target.prefix.encode("utf-8", "surrogateescape") + b"\0"
    where = (1, pack(">H", target.group)) if target.group else (5, be32(WARNING))
    writer.add(b"log", (2, prefix), where)


def finish_foreign(writer: RuleBuilder, target: Target) -> bool:
    """Write a target that only foreign rules have; return whether it is one."""
    from netinit.rules.foreign_targets import DestinationNat, Untrack  # no plan has them

    if isinstance(target, Untrack):
        writer.add(b"notrack")
    elif isinstance(target, DestinationNat):
        _finish_nat(writer, target)
    return isinstance(target, (DestinationNat, Untrack))


def _finish_nat(writer: RuleBuilder, target: DestinationNat) -> None:
    attributes = [(1, be32(1))]  # NFT_NAT_DNAT
    if target.address:
        family = family_of(target.address)
        writer.put(number_of(target.address).to_bytes(family.bits // 8, "big"))
        attributes += [(2, be32(family.number)), (3, be32(1)), (4, be32(1))]
    else:
        attributes.append((2, be32(IPV4.number)))
    if target.port:
        writer.add(b"immediate", (1, SECOND), (2, data(pack(">H", target.port))))
        attributes += [(5, SECOND), (6, SECOND)]
    writer.add(b"nat", *attributes, (7, be32(3 if target.port else 1)))


TARGETS: dict[type, Callable[..., None]] = {
    **dict.fromkeys((targets.Accept, targets.Drop, targets.Return), _finish_verdict),
    targets.Jump: _finish_jump,
    targets.Redirect: _finish_redirect,
    targets.Reject: _finish_reject,
    targets.Tproxy: _finish_tproxy,
    targets.SetMark: _finish_mark,
    **dict.fromkeys((targets.SaveMark, targets.RestoreMark), _finish_copy),
    targets.TrackZone: _finish_zone,
    targets.LogTarget: _finish_log,
}
