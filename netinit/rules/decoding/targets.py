"""Read a target in any notation; what is not understood is an UnknownTarget."""

from __future__ import annotations

from _functools import partial  # type: ignore[import-not-found] # functools takes 2 ms of a removal
from struct import error, unpack_from

from netinit.base.net import IPV4, IPV6, Family, Network, number_of, parse_address, text_of
from netinit.base.netlink_attributes import attributes_of, name, number, signed
from netinit.rules import foreign_targets, numbers, structs, targets
from netinit.rules.decoding import marking_targets, read_masked, read_number
from netinit.rules.decoding.registers import CONSTANT, Registers
from netinit.rules.foreign_targets import (
    DestinationNat,
    MapNetwork,
    Observe,
    OfferedToSocket,
    Queue,
    SourceNat,
    UnknownTarget,
    Untrack,
)
from netinit.rules.structs import UNREACHABLE
from netinit.rules.targets import Jump, Redirect, Reject, Target, Tproxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.decoding.registers import ExpressionReader, Found, TargetStructReader, TextReader

# Names that iptables takes for an extension and not for a chain
_EXTENSIONS = foreign_targets.OBSERVING | frozenset((
    "CLUSTERIP", "CONNMARK", "CT", "DNAT", "DNPT", "HL", "HMARK", "MARK", "MASQUERADE", "NETMAP", "NFQUEUE", "NOTRACK", "QUEUE",
    "REDIRECT", "REJECT", "SET", "SNAT", "SNPT", "SYNPROXY", "TPROXY", "TTL",
))  # fmt: skip
VERDICTS = {one.code: one for one in targets.VERDICTS.values()}
GOES_ON = (-1, -2)  # NFT_CONTINUE, NFT_BREAK: continue with the next rule
COPYING = "TEE"  # the extension that sends a copy of the packet to another host
TRAFFIC_CLASS = {4: 2, 6: 4}  # the first bytes of the network header: only DSCP, ECN and the flow label can be set in them
LIFETIME = {4: 8, 6: 7}  # where a header has the number of routers that a packet may still pass
OBJECTS_WITHOUT_EFFECT = (1, 3, 7, 9)  # NFT_OBJECT_COUNTER, CT_HELPER, CT_TIMEOUT, CT_EXPECT

# ---- options of iptables ---------------------------------------------------------------------------------------------------


def read_target(is_goto: bool, words: list[str], text: str, family: Family) -> Target:
    """Return the target; `is_goto`: after `-g`; `text`: the words as written."""
    if not words:
        return Observe(text="")
    name = words[0]
    if is_goto:
        return Jump(chain=name, goto=True)
    plain = _PLAIN.get(name)
    if plain is not None and len(words) == 1:
        return plain
    if name not in _EXTENSIONS and name not in _PLAIN and len(words) == 1:
        return Jump(chain=name)
    reader = _WORDS.get(name)
    options = _pair(words[1:])
    target = reader(options, text, family) if reader and options is not None else None
    return target or (Observe(text=text, copies=name == COPYING) if name in foreign_targets.OBSERVING else UnknownTarget(text=text))


def _pair(words: list[str]) -> dict[str, str] | None:
    """Return options with one value each; None for anything else."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words):
        option = words[at]
        if not option.startswith("--") or option in options:
            return None
        has_value = at + 1 < len(words) and not words[at + 1].startswith("--")
        options[option] = words[at + 1] if has_value else ""
        at += 1 + has_value
    return options


def _redirect_words(options: dict[str, str], _: str, __: Family) -> Target | None:
    port = read_number(options.get("--to-ports") or options.get("--to-port") or "")
    return Redirect(port=port) if port and len(options) == 1 else None


def _tproxy_words(options: dict[str, str], _: str, family: Family) -> Target | None:
    port = read_number(options.get("--on-port", ""))
    mark = read_masked(options.get("--tproxy-mark", ""))
    if not port or mark is None or not set(options) <= {"--on-port", "--tproxy-mark", "--on-ip"}:
        return None
    address = options.get("--on-ip", family.any_address)
    try:
        address = "" if address == family.any_address else parse_address(address)
    except ValueError:
        return None
    return Tproxy(port=port, mark=mark[0], mask=mark[1], address=address)


def _reject_words(options: dict[str, str], _: str, family: Family) -> Target | None:
    if not options:
        return Reject()
    message = options.get("--reject-with", "")
    message = _MESSAGES.get(message, message)
    if not message or len(options) > 1:
        return None
    return Reject() if Reject().xt(family).endswith(f" {message}") else Reject(message=message)


def _snat_words(options: dict[str, str], text: str, _: Family) -> Target:
    alone = options.get("--to-source", "") if len(options) == 1 else ""
    try:
        return SourceNat(text=text, address=parse_address(alone))
    except ValueError:  # a range, ports or more options: the kernel chooses
        return SourceNat(text=text)


def _dnat_words(options: dict[str, str], _: str, __: Family) -> Target | None:
    text = options.get("--to-destination", "")
    if not text or len(options) > 1:
        return None
    address, colon, port = text.rpartition(":") if text.count(":") == 1 or text.startswith("[") else (text, "", "")
    if text.startswith("[") and not address.endswith("]"):
        return None
    number = read_number(port) if colon else 0
    try:
        address = parse_address(address.strip("[]")) if address else ""
    except ValueError:  # a range of addresses: the kernel chooses
        return None
    return None if number is None else DestinationNat(address=address, port=number)


def _netmap_words(options: dict[str, str], _: str, family: Family) -> Target | None:
    address, _, mask = options.get("--to", "").partition("/")
    length = number_of(mask).bit_count() if "." in mask else mask or family.bits
    try:
        return MapNetwork(network=Network.parse(f"{address}/{length}")) if len(options) == 1 else None
    except ValueError:
        return None


def _lifetime_words(options: dict[str, str], text: str, _: Family) -> Target | None:
    """Return a target without effect on where packets end, unless routers may drop them for it."""
    if len(options) != 1:
        return None
    ((option, value),) = options.items()
    number, kind = read_number(value), option[-3:]
    harmless = number is not None and (kind == "inc" or (kind == "set" and number > 1) or (kind == "dec" and number == 1))
    return Observe(text=text) if harmless else None


_MESSAGES = {
    "port-unreach": "icmp-port-unreachable", "port-unreachable": "icmp-port-unreachable",
    "icmp6-port-unreach": "icmp6-port-unreachable",
}  # fmt: skip
_PLAIN = {one.name: one for one in targets.VERDICTS.values()}
_WORDS: dict[str, TextReader] = {
    **marking_targets.WORDS, "REDIRECT": _redirect_words, "TPROXY": _tproxy_words, "REJECT": _reject_words, "DNAT": _dnat_words,
    "SNAT": _snat_words, "NETMAP": _netmap_words, "TTL": _lifetime_words, "HL": _lifetime_words,
    **dict.fromkeys(("NFQUEUE", "QUEUE"), lambda _, text, __: Queue(text=text)),
    "NOTRACK": lambda options, _, __: None if options else Untrack(),
    "MASQUERADE": lambda _, text, __: SourceNat(text=text, own=True),
}  # fmt: skip

# ---- structs of extensions -----------------------------------------------------------------------------------------------


def decode_target(name: str, revision: int, info: bytes, family: Family) -> Target:
    """Return the target of a struct."""
    reader = _STRUCTS.get((name, revision))
    try:
        found = reader(info, family) if reader else None
    except error:  # shorter than the struct
        found = None
    if found is not None:
        return found
    if name in foreign_targets.OBSERVING:
        return Observe(text=name, copies=name == COPYING)
    return SourceNat(text=name, own=name == "MASQUERADE") if name in ("SNAT", "MASQUERADE") else UnknownTarget(text=name)


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


def _read_nat(info: bytes, family: Family, *, revision: int, name: str) -> Target | None:
    found = _nat_range(info, family, revision)
    if not found or not any(found):
        return None
    address, port = found
    if name == "SNAT":
        return SourceNat(text=name, address="" if port else address)
    if name == "REDIRECT":
        return None if address else Redirect(port=port)
    return DestinationNat(address=address, port=port)


def _read_tproxy(info: bytes, family: Family) -> Target | None:
    """Read struct xt_tproxy_target_info, or _v1 with an address of either family."""
    mask, mark = unpack_from(structs.TPROXY, info)
    size = 16 if len(info) >= 26 else 4  # noqa: PLR2004 - of struct xt_tproxy_target_info_v1
    address, port = info[8 : 8 + size][: family.bits // 8], unpack_from(">H", info, 8 + size)[0]
    if not port:
        return None
    return Tproxy(port=port, mark=mark, mask=mask, address=text_of(int.from_bytes(address, "big"), family) if any(address) else "")


def _read_netmap(info: bytes, family: Family) -> Target | None:
    """Read struct nf_nat_ipv4_multi_range_compat or nf_nat_range with the ends of a network."""
    size, at = family.bits // 8, 8 if family is IPV4 else 4
    first, last = (int.from_bytes(info[start : start + size], "big") for start in (at, at + (4 if family is IPV4 else 16)))
    host, length = first ^ last, family.bits - (first ^ last).bit_length()
    return None if host & host + 1 else MapNetwork(network=Network.parse(f"{text_of(first, family)}/{length}"))


def _read_lifetime(info: bytes, _: Family, *, name: str) -> Target | None:
    """Read struct ipt_TTL_info or ip6t_HL_info: how it is changed, and by what."""
    mode, number = unpack_from("=2B", info)
    kind = ("set", "inc", "dec")[mode] if mode < 3 else ""  # noqa: PLR2004 - IPT_TTL_SET, _INC, _DEC
    return _lifetime_words({f"--{kind}": str(number)}, f"{name} --{name.lower()}-{kind} {number}", IPV4)


def _read_queue(info: bytes, _: Family) -> Target | None:
    """Read struct xt_NFQ_info, _v1, _v2 or _v3: the first queue, how many there are, and flags."""
    first, total, flags = unpack_from("=3H", info + bytes(6))
    number = f"--queue-balance {first}:{first + total - 1}" if total > 1 else f"--queue-num {first}"
    return Queue(text=f"NFQUEUE {number}{' --queue-bypass' if flags & 1 else ''}{' --queue-cpu-fanout' if flags & 2 else ''}")


def _read_tee(info: bytes, family: Family) -> Target | None:
    """Read struct xt_tee_tginfo."""
    address = text_of(int.from_bytes(info[: family.bits // 8], "big"), family)
    return Observe(text=f"TEE --gateway {address}", copies=True) if len(info) >= 16 else None  # noqa: PLR2004 - union nf_inet_addr


def _read_reject(info: bytes, family: Family) -> Target | None:
    kind = unpack_from(structs.REJECT, info)[0]
    names = structs.REJECTIONS[family.version]
    if kind == UNREACHABLE[family.version]:
        return Reject()
    return Reject(message=names[kind]) if kind < len(names) and names[kind] else None


_STRUCTS: dict[tuple[str, int], TargetStructReader] = {
    **marking_targets.STRUCTS,
    ("REDIRECT", 0): partial(_read_nat, revision=0, name="REDIRECT"),
    **{(name, revision): partial(_read_nat, revision=revision, name=name) for name in ("DNAT", "SNAT") for revision in (0, 1, 2)},
    ("NOTRACK", 0): lambda _, __: Untrack(),
    **dict.fromkeys((("TPROXY", 0), ("TPROXY", 1)), _read_tproxy),
    ("REJECT", 0): _read_reject,
    ("TEE", 1): _read_tee,
    ("NETMAP", 0): _read_netmap,
    **{(name, 0): partial(_read_lifetime, name=name) for name in ("TTL", "HL")},
    **dict.fromkeys([("NFQUEUE", revision) for revision in range(4)], _read_queue),
}

# ---- expressions of nf_tables --------------------------------------------------------------------------------------------


def decode_verdict(payload: bytes) -> tuple[Target, ...]:
    """Return the target for NFTA_DATA_VERDICT; none if the next rule follows."""
    found = attributes_of(payload)
    code = signed(found[1])
    if code in (numbers.NFT_JUMP, numbers.NFT_GOTO):
        return (Jump(chain=name(found[2]), goto=code == numbers.NFT_GOTO),)
    return () if code in GOES_ON else (VERDICTS.get(code) or UnknownTarget(text=f"verdict {code}"),)


def decode_effect(kind: str, found: Found, registers: Registers, family: Family | None) -> Target:
    """Return the target for an expression; `family` None: both. Raises MalformedError."""
    reader = _EXPRESSIONS.get(kind)
    return (reader and reader(found, registers, family)) or UnknownTarget(text=kind)


def _constant(registers: Registers, register: bytes | None) -> bytes | None:
    operand = registers.load(register)
    return operand.data if operand.source == CONSTANT else None


def _port(registers: Registers, register: bytes | None) -> int | None:
    value = _constant(registers, register)
    return None if value is None else int.from_bytes(value[:2], "big")


def _nat(found: Found, registers: Registers, _: Family | None) -> Target | None:
    is_source = number(found.get(1)) == 0  # NFT_NAT_SNAT
    target = _one_destination(found, registers)
    if not is_source:
        return target
    return SourceNat(text="snat", address=target.address if target else "")


def _one_destination(found: Found, registers: Registers) -> DestinationNat | None:
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
    return Redirect(port=port) if port else None


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
    return OfferedToSocket(port=port, whole=Tproxy(port=port, mark=0, address=address))


def _set_payload(found: Found, registers: Registers, family: Family | None) -> Target | None:
    base, offset, length = (number(found.get(kind)) for kind in (2, 3, 4))
    header = "network" if base == numbers.NETWORK_HEADER else "transport"
    text = f"write {length} bytes at {offset} of the {header} header"
    value = _constant(registers, found.get(5))  # NFTA_PAYLOAD_SREG
    if base == numbers.NETWORK_HEADER and family and offset + length <= TRAFFIC_CLASS[family.version]:
        return Observe(text="DSCP set")
    if value and base == numbers.NETWORK_HEADER and family and (offset, length) == (LIFETIME[family.version], 1) and value[0] > 1:
        return Observe(text="ttl set")
    if value and base == numbers.NETWORK_HEADER and family and (offset, length) == numbers.ADDRESSES[family][1]:
        return foreign_targets.WriteDestination(text=text, address=_address(value[:length]))
    if value and base == numbers.TRANSPORT_HEADER and (offset, length, False) == numbers.PORTS[1]:
        return foreign_targets.WriteDestination(text=text, port=int.from_bytes(value[:2], "big"))
    return UnknownTarget(text=text)


def _reject(found: Found, _: Registers, family: Family | None) -> Target | None:
    kind, code = number(found.get(1)), number(found.get(2))
    if kind == numbers.REJECT_RESET:
        return Reject(message="tcp-reset")
    if kind == numbers.REJECT_ICMPX:
        return Reject(message="" if code == numbers.ICMPX_PORT_UNREACHABLE else f"{numbers.ICMPX_CODE}{code}")
    if kind != numbers.REJECT_ICMP:  # no rule of the kernel has another kind
        return None
    return Reject(message="" if family and code == UNREACHABLE[family.version] else f"{numbers.ICMP_CODE}{code}")


def _dup(found: Found, registers: Registers, _: Family | None) -> Target | None:
    address = _constant(registers, found[1]) if 1 in found else None  # NFTA_DUP_SREG_ADDR; family netdev has only a device
    return Observe(text=f"dup to {_address(address)}" if address and len(address) in (4, 16) else "dup", copies=True)


_EXPRESSIONS: dict[str, ExpressionReader] = {
    **marking_targets.EXPRESSIONS,
    "nat": _nat,
    "redir": _redirect,
    "masq": lambda _, __, ___: SourceNat(text="masquerade", own=True),
    "tproxy": _tproxy,
    "notrack": lambda _, __, ___: Untrack(),
    "payload": _set_payload,
    "reject": _reject,
    "target": lambda found, _, family: decode_target(name(found[1]), number(found.get(2)), found.get(3, b""), family or IPV4),
    "objref": lambda found, _, __: Observe(text="object") if number(found.get(1)) in OBJECTS_WITHOUT_EFFECT else None,
    "flow_offload": lambda _, __, ___: Observe(text="flow add"),
    "dup": _dup,
    "queue": lambda found, _, __: Queue(text=f"queue num {number(found.get(1))}"),
    "exthdr": lambda _, __, ___: Observe(text="tcp option set"),  # or removed: no rule of ours depends on one
    "last": lambda _, __, ___: Observe(text="last"),
}
