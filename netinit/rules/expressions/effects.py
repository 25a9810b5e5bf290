"""Decode the actions of nf_tables rules."""

from __future__ import annotations

from collections.abc import Callable
from sys import byteorder

from netinit.base.net import FULL_MASK, IPV4, IPV6, Family, text_of
from netinit.base.netlink_attributes import MalformedError, attributes_of, name, number, signed
from netinit.rules import marking_targets, numbers, targets
from netinit.rules.decoding.registers import CONSTANT, CT, META, Operand, Registers
from netinit.rules.foreign_targets import DestinationNat, Observe, SourceNat, UnknownTarget, Untrack, WriteDestination
from netinit.rules.structs import UNREACHABLE, WARNING
from netinit.rules.targets import Target
from netinit.rules.xtables.targets import decode_target

VERDICTS = {one.code: one for one in targets.VERDICTS.values()}
GOES_ON = (-1, -2)  # NFT_CONTINUE, NFT_BREAK: continue with the next rule
HARMLESS_META = {2: "priority", 12: "nftrace", 13: "rtclassid"}  # not used by our rules, nor by routing
HARMLESS_CT = {12: "helper", 14: "labels", 18: "event", 22: "labels"}
TRAFFIC_CLASS = {4: 2, 6: 4}  # the first bytes of the network header: only DSCP, ECN and the flow label can be set in them
DESTINATION_ADDRESS = {4: (16, 4), 6: (24, 16)}  # places in the network header, and in that of TCP and UDP
DESTINATION_PORT = (2, 2)
OBJECTS_WITHOUT_EFFECT = (1, 3, 7, 9)  # NFT_OBJECT_COUNTER, CT_HELPER, CT_TIMEOUT, CT_EXPECT
Found = dict[int, bytes]
Reader = Callable[[Found, Registers, "Family | None"], "Target | None"]


def decode_verdict(payload: bytes) -> Target | None:
    """Return the target for NFTA_DATA_VERDICT; None if the next rule follows."""
    found = attributes_of(payload)
    code = signed(found[1])
    if code in GOES_ON:
        return None
    if code in (numbers.NFT_JUMP, numbers.NFT_GOTO):
        return targets.Jump(chain=name(found[2]), goto=code == numbers.NFT_GOTO)
    return VERDICTS.get(code) or UnknownTarget(text=f"verdict {code}")


def decode_effect(kind: str, found: Found, registers: Registers, family: Family | None) -> Target | None:
    """Return the target for an expression; `family` None: both. Raises MalformedError."""
    reader = _READERS.get(kind)
    return (reader and reader(found, registers, family)) or UnknownTarget(text=kind)


def _constant(registers: Registers, register: bytes | None) -> bytes | None:
    operand = registers.load(register)
    return operand.data if operand.source == CONSTANT else None


def _port(registers: Registers, register: bytes | None) -> int | None:
    value = _constant(registers, register)
    return None if value is None else int.from_bytes(value[:2], "big")


def _nat(found: Found, registers: Registers, _: Family | None) -> Target | None:
    is_source = number(found.get(1)) == 0  # NFT_NAT_SNAT
    target = _read_nat(found, registers)
    if not is_source:
        return target
    return SourceNat(text="snat", address=target.address if target else "")


def _read_nat(found: Found, registers: Registers) -> DestinationNat | None:
    """Return the one address and port of a translation; None for a range."""
    if found.get(4, found.get(3)) != found.get(3) or found.get(6, found.get(5)) != found.get(5) or number(found.get(7)) & ~3:
        return None
    address, port = "", 0
    if 3 in found:  # noqa: PLR2004 - NFTA_NAT_REG_ADDR_MIN
        value = _constant(registers, found[3])
        size = {IPV4.number: 4, IPV6.number: 16}.get(number(found.get(2)))
        if value is None or size is None:
            return None
        address = _address(value[:size])
    if 5 in found:  # noqa: PLR2004 - NFTA_NAT_REG_PROTO_MIN
        known = _port(registers, found[5])
        if known is None:
            return None
        port = known
    return DestinationNat(address=address, port=port) if address or port else None


def _address(value: bytes) -> str:
    return text_of(int.from_bytes(value, "big"), IPV4 if len(value) == 4 else IPV6)  # noqa: PLR2004 - bytes of IPv4


def _redirect(found: Found, registers: Registers, _: Family | None) -> Target | None:
    if found.get(2, found.get(1)) != found.get(1) or number(found.get(3)) & ~2:
        return None
    port = _port(registers, found.get(1)) if 1 in found else None
    return targets.Redirect(port=port) if port else None


def _tproxy(found: Found, registers: Registers, _: Family | None) -> Target | None:
    """Return the target without its mark, which is another expression."""
    port = _port(registers, found.get(3)) if 3 in found else None  # noqa: PLR2004 - NFTA_TPROXY_REG_PORT
    if not port:
        return None
    address = ""
    if 2 in found:  # noqa: PLR2004 - NFTA_TPROXY_REG_ADDR
        value = _constant(registers, found[2])
        if value is None or len(value) not in (4, 16):
            return None
        address = _address(value)
    return targets.Tproxy(port=port, mark=0, address=address)


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
        return marking_targets.TrackZone(zone=int.from_bytes(operand.data[:2], byteorder))
    return _set_mark(operand, CT, numbers.CT_MARK) if key == numbers.CT_MARK else None


def _set_mark(operand: Operand, whose: str, key: int) -> Target | None:
    connection = whose == CT
    if operand.swapped:
        return None
    if operand.source == CONSTANT:
        return marking_targets.SetMark(value=int.from_bytes(operand.data, byteorder), connection=connection)
    if (operand.source, operand.key[0]) == (whose, key):
        kept = int.from_bytes(operand.mask, byteorder) if operand.mask else FULL_MASK
        return marking_targets.SetMark(value=int.from_bytes(operand.xor, byteorder), mask=FULL_MASK & ~kept, connection=connection)
    if operand.mask or operand.xor:
        return None
    if (operand.source, operand.key[0]) == ((META, numbers.META_MARK) if connection else (CT, numbers.CT_MARK)):
        return marking_targets.SaveMark() if connection else marking_targets.RestoreMark()
    return None


def _set_payload(found: Found, registers: Registers, family: Family | None) -> Target | None:
    base, offset, length = (number(found.get(kind)) for kind in (2, 3, 4))
    header = "network" if base == numbers.NETWORK_HEADER else "transport"
    text = f"write {length} bytes at {offset} of the {header} header"
    value = _constant(registers, found.get(5))  # NFTA_PAYLOAD_SREG
    if base == numbers.NETWORK_HEADER and family and offset + length <= TRAFFIC_CLASS[family.version]:
        return Observe(text="DSCP set")
    if value and base == numbers.NETWORK_HEADER and family and (offset, length) == DESTINATION_ADDRESS[family.version]:
        return WriteDestination(text=text, address=_address(value[:length]))
    if value and base == numbers.TRANSPORT_HEADER and (offset, length) == DESTINATION_PORT:
        return WriteDestination(text=text, port=int.from_bytes(value[:2], "big"))
    return UnknownTarget(text=text)


def _reject(found: Found, _: Registers, family: Family | None) -> Target | None:
    kind, code = number(found.get(1)), number(found.get(2))
    if kind == numbers.REJECT_RESET:
        return targets.Reject(message="tcp-reset")
    if (kind == numbers.REJECT_ICMPX and code == numbers.ICMPX_PORT_UNREACHABLE) or (
        kind == numbers.REJECT_ICMP and family and code == UNREACHABLE[family.version]
    ):
        return targets.Reject()
    return targets.Reject(message=f"{numbers.ICMPX_CODE if kind == numbers.REJECT_ICMPX else numbers.ICMP_CODE}{code}")


def _log(found: Found, _: Registers, __: Family | None) -> Target | None:
    prefix = name(found.get(2, b""))
    # NFTA_LOG_GROUP, _PREFIX, _QTHRESHOLD, _LEVEL: the usual level is a warning's
    plain = not set(found) - {1, 2, 4, 5} and number(found.get(4)) <= 1 and number(found.get(5), WARNING) == WARNING and prefix
    return marking_targets.LogTarget(prefix=prefix, group=number(found.get(1))) if plain else Observe(text="log")


_READERS: dict[str, Reader] = {
    "nat": _nat,
    "redir": _redirect,
    "masq": lambda _, __, ___: SourceNat(text="masquerade"),
    "tproxy": _tproxy,
    "notrack": lambda _, __, ___: Untrack(),
    "meta": _set_meta,
    "ct": _set_ct,
    "payload": _set_payload,
    "reject": _reject,
    "log": _log,
    "target": lambda found, _, family: decode_target(name(found[1]), number(found.get(2)), found.get(3, b""), family or IPV4),
    "objref": lambda found, _, __: Observe(text="object") if number(found.get(1)) in OBJECTS_WITHOUT_EFFECT else None,
    "flow_offload": lambda _, __, ___: Observe(text="flow add"),
    "dup": lambda _, __, ___: Observe(text="dup"),
    "last": lambda _, __, ___: Observe(text="last"),
}
__all__ = ["MalformedError", "decode_effect", "decode_verdict"]
