"""Build nf_tables expressions as bytes, with attributes in the kernel's order.

They equal the kernel's dump byte by byte once `settle` has removed what the kernel chooses: counters, ids of anonymous sets.
"""

from __future__ import annotations

from _struct import pack, unpack_from

from netinit.base.net import IPV4, IPV6, Family
from netinit.base.netlink_attributes import HEADER, write_attribute
from netinit.base.records import Record
from netinit.rules import numbers
from netinit.rules.numbers import LOADS, NFT_GOTO, NFT_JUMP, OPERATORS
from netinit.rules.structs import protocol_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


    Ranges = Sequence[tuple[bytes, bytes]]
    # Type and value; a number has 32 bits and is written in network byte order, a tuple is nested attributes.
    Attribute = tuple[int, bytes | int | "Attributes"]
    Attributes = tuple[Attribute, ...]

LIST_ELEMENT, NAME, DATA, VALUE, VERDICT = 1, 1, 2, 1, 2  # NFTA_LIST_ELEM, NFTA_EXPR_*, NFTA_DATA_*
REGISTER, NO_REGISTER = 1, 0  # NFT_REG_1: no rule here needs a second one
COUNTER, LOOKUP = b"counter\0", b"lookup\0"
NAME_AT = 2 * HEADER  # of an expression's name, in its list element
COUNTS = 2 * (HEADER + 8)  # NFTA_COUNTER_BYTES and _PACKETS
ANONYMOUS = b"__set"
SET_ANONYMOUS, SET_CONSTANT, SET_INTERVAL, INTERVAL_END = 1, 2, 4, 1  # NFT_SET_*, NFT_SET_ELEM_*
_made: dict[tuple[object, ...], bytes] = {}  # expressions by name and attributes, or by kind and key of a load
_around: dict[tuple[int, bool], tuple[bytes, bytes]] = {}  # what an element has before and behind its key, by the key's length


def expression(name: bytes, *attributes: Attribute) -> bytes:
    """Return an expression as an element of NFTA_RULE_EXPRESSIONS."""
    return write_attribute(LIST_ELEMENT, _encode(((NAME, name + b"\0"), (DATA, attributes))))


def _encode(attributes: Attributes) -> bytes:
    encoded = b""
    for kind, value in attributes:
        if isinstance(value, int):
            encoded += pack("=HH", HEADER + 4, kind) + pack(">I", value & 0xFFFFFFFF)
        else:
            encoded += write_attribute(kind, value if isinstance(value, bytes) else _encode(value))
    return encoded


def be32(number: int) -> bytes:
    """Return a 32-bit number in network byte order."""
    return pack(">I", number & 0xFFFFFFFF)


_ZERO = expression(b"counter", (1, bytes(8)), (2, bytes(8)))
END = write_attribute(3, be32(INTERVAL_END))  # NFTA_SET_ELEM_FLAGS


class EncodedSet(Record):
    """An anonymous set; each element is an NFTA_LIST_ELEM as the kernel dumps it."""

    name: str
    flags: int
    key_type: int
    key_length: int
    elements: tuple[bytes, ...]


def element(key: bytes, *, ends: bool = False) -> bytes:
    """Return an element of a set; `ends`: it is the end of an interval."""
    size = len(key)
    around = _around.get((size, ends))
    if around is None:
        whole = write_attribute(LIST_ELEMENT, write_attribute(1, write_attribute(VALUE, key)) + (END if ends else b""))
        around = _around[size, ends] = whole[: 3 * HEADER], whole[3 * HEADER + size :]
    return around[0] + key + around[1]


class RuleBuilder:
    """Collects the expressions of one rule, and in `sets` the anonymous sets that they look up.

    A family or protocol is compared once, before the first match that needs it. `splits_ranges`: write a range as two
    comparisons (nft up to 1.0), not as one (newer nft, iptables-nft).
    """

    def __init__(self, family: int, sets: list[EncodedSet], *, splits_ranges: bool = True) -> None:
        self._splits_ranges = splits_ranges
        self._only: Family | None = {IPV4.number: IPV4, IPV6.number: IPV6}.get(family)
        self.is_mixed = self._only is None  # packets of both families come this far
        self._protocol = ""
        self.parts: list[bytes] = []
        self.family = family
        self.sets = sets

    def block(self) -> bytes:
        """Return all expressions."""
        return b"".join(self.parts)

    def add(self, name: bytes, *attributes: Attribute) -> None:
        """Append an expression."""
        key = name, attributes
        found = _made.get(key)
        if found is None:
            found = _made[key] = expression(name, *attributes)
        self.parts.append(found)

    # ---- loads ----------------------------------------------------------------------------------------------

    def load(self, kind: str, *key: int) -> None:
        """Load a value, of a kind in `numbers.LOADS` and with its key there."""
        found = _made.get((kind, key))
        if found is None:
            register, order = LOADS[kind]
            values = iter(key)
            attributes = [(one, REGISTER if one == register else next(values)) for one in order]
            found = _made[kind, key] = expression(kind.encode(), *attributes)
        self.parts.append(found)

    def load_mark(self, *, connection: bool) -> None:
        """Load the mark of the packet or its connection."""
        if connection:
            self.load("ct", numbers.CT_MARK)
        else:
            self.load("meta", numbers.META_MARK)

    def mask(self, mask: bytes, xor: bytes | None = None) -> None:
        """Keep the bits in `mask`, then invert those in `xor`."""
        xor = bytes(len(mask)) if xor is None else xor
        size, values = (3, len(mask)), ((4, ((VALUE, mask),)), (5, ((VALUE, xor),)))
        self.add(b"bitwise", (1, REGISTER), (2, REGISTER), size, (6, NO_REGISTER), *values)

    def swap(self, length: int) -> None:
        """Convert to network byte order."""
        self.add(b"byteorder", (1, REGISTER), (2, REGISTER), (3, 1), (4, length), (5, length))

    # ---- comparisons --------------------------------------------------------------------------------------------

    def limit_family(self, family: Family) -> None:
        """Match only this family."""
        if self._only is not family:
            self._only, self.is_mixed = family, False
            self.load("meta", numbers.META_NFPROTO)
            self.compare(bytes((family.number,)))

    def limit_protocol(self, name: str) -> None:
        """Match only this protocol."""
        if self._protocol != name:
            self._protocol = name
            self.load("meta", numbers.META_L4PROTO)
            self.compare(bytes((protocol_number(name),)))

    def compare(self, value: bytes, negated: bool = False) -> None:
        """End the rule unless the register has this value, or if negated another."""
        self.compare_with("!=" if negated else "==", value)

    def compare_with(self, operator: str, value: bytes) -> None:
        """End the rule unless the comparison of the register with a value is true."""
        self.add(b"cmp", (1, REGISTER), (2, OPERATORS.index(operator)), (3, ((VALUE, value),)))

    def compare_ranges(self, ranges: Ranges, negated: bool, key_type: int) -> None:
        """Compare the register with a range, or look it up in an anonymous set of several."""
        low, high = ranges[0]
        if len(ranges) > 1:
            self._look_up(ranges, negated, key_type)
        elif low == high:
            self.compare(low, negated)
        elif negated or not self._splits_ranges:
            operator = 1 if negated else 0  # NFT_RANGE_NEQ, NFT_RANGE_EQ
            self.add(b"range", (1, REGISTER), (2, operator), (3, ((VALUE, low),)), (4, ((VALUE, high),)))
        else:
            self.compare_with(">=", low)
            self.compare_with("<=", high)

    def _look_up(self, ranges: Ranges, negated: bool, key_type: int) -> None:
        name = f"__set{len(self.sets)}"
        size = len(ranges[0][0])
        flags = SET_ANONYMOUS | SET_CONSTANT
        if all(low == high for low, high in ranges):
            elements = [element(low) for low, _ in ranges]
        else:
            flags |= SET_INTERVAL
            elements = intervals(ranges)
        self.sets.append(EncodedSet(name=name, flags=flags, key_type=key_type, key_length=size, elements=tuple(elements)))
        self.add(b"lookup", (1, name.encode() + b"\0"), (2, REGISTER), (5, 1 if negated else 0))

    # ---- actions ------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Append a counter."""
        self.parts.append(_ZERO)

    def put(self, value: bytes, register: int = 1) -> None:
        """Load a constant."""
        self.add(b"immediate", (1, register), (2, ((VALUE, value),)))

    def store_mark(self, *, connection: bool) -> None:
        """Set the mark of the packet or its connection to what is loaded."""
        if connection:
            self.add(b"ct", (4, REGISTER), (2, numbers.CT_MARK))
        else:
            self.add(b"meta", (2, numbers.META_MARK), (3, REGISTER))

    def add_struct(self, kind: bytes, struct: tuple[str, int, bytes]) -> None:
        """Append the struct of an iptables extension, NFTA_MATCH_* or NFTA_TARGET_*."""
        name, revision, info = struct
        self.add(kind, (1, name.encode("utf-8", "surrogateescape") + b"\0"), (2, revision), (3, info))

    def decide(self, code: int, chain: str = "") -> None:
        """End with a verdict (NF_*, NFT_*); `chain` for jumps."""
        verdict: Attributes = ((1, code),)
        if code in (NFT_JUMP, NFT_GOTO):
            verdict = (1, code), (2, chain.encode("utf-8", "surrogateescape") + b"\0")
        self.add(b"immediate", (1, NO_REGISTER), (2, ((VERDICT, verdict),)))


def intervals(ranges: Ranges) -> list[bytes]:
    """Return the elements of an interval set: where each interval begins, and where it ends."""
    size = len(ranges[0][0])
    elements: list[bytes] = []
    behind = 0
    for low, high in sorted(ranges):
        first = int.from_bytes(low, "big")
        if first > behind or (first and not elements):
            elements.append(element(behind.to_bytes(size, "big"), ends=True))
        elements.append(element(low))
        behind = int.from_bytes(high, "big") + 1
    if behind < 1 << 8 * size:
        elements.append(element(behind.to_bytes(size, "big"), ends=True))
    return elements


def settle(block: bytes, rename: Callable[[bytes], bytes] | None = None) -> bytes:
    """Return the expressions with counters at zero and the names of anonymous sets (`__set0`) replaced by `rename`."""
    parts: list[bytes] = []
    at, copied = 0, 0
    while at + NAME_AT + len(COUNTER) <= len(block):
        length = unpack_from("=H", block, at)[0] + 3 & ~3
        if length < HEADER:
            break  # no expression: compared as it is
        behind = at + NAME_AT + len(COUNTER) + HEADER
        if block.startswith(COUNTER, at + NAME_AT) and length >= behind - at + COUNTS:
            parts += block[copied : behind + HEADER], bytes(8), block[behind + HEADER + 8 : behind + 2 * HEADER + 8], bytes(8)
            copied = behind + COUNTS
        elif rename and block.startswith(LOOKUP, at + NAME_AT) and block.startswith(ANONYMOUS, behind + HEADER):
            size = unpack_from("=H", block, behind)[0]
            old = block[behind + HEADER : behind + size].rstrip(b"\0")
            others = block[behind + (size + 3 & ~3) : at + length]
            attributes = write_attribute(NAME, rename(old) + b"\0") + others
            parts += block[copied:at], write_attribute(LIST_ELEMENT, write_attribute(NAME, LOOKUP) + write_attribute(DATA, attributes))
            copied = at + length
        at += length
    parts.append(block[copied:])
    return b"".join(parts)
