"""What a rule's registers hold (the origin of each value), comparisons of them, and the ranges of sets."""

from __future__ import annotations

from sys import byteorder

from netinit.base.net import FAMILIES, Family
from netinit.base.netlink_attributes import MalformedError, number
from netinit.base.records import Record
from netinit.base.snapshot import ELEMENT_CATCHALL, ELEMENT_INTERVAL_END, SET_INTERVAL, NftElement, NftSet
from netinit.rules import numbers
from netinit.rules.matches import Match
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import ABOUT, Undecided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.rules.targets import Target

    # Readers, for the tables at the end of this folder's files; each returns None for what it does not understand
    OptionReader = Callable[[list[str], bool, str], Match | None]  # values, whether negated, the rule's protocol
    StructReader = Callable[[bytes, str, Family | None], list[Match] | None]  # the struct; the rule's protocol and family
    ComparisonReader = Callable[["RegisterTest", "Known"], list[Match] | None]
    Found = dict[int, bytes]  # attributes of an expression
    TextReader = Callable[[dict[str, str], str, Family], Target | None]  # options; all words as written
    TargetStructReader = Callable[[bytes, Family], Target | None]
    ExpressionReader = Callable[[Found, "Registers", Family | None], Target | None]  # of which family the packets are; None: both

WORD = 4  # bytes of one of the 16 small registers; the four old ones are four of these each
FIRST_SMALL, SMALL_REGISTERS, OLD_REGISTERS = 8, 16, 4  # NFT_REG32_00
Range = tuple[bytes, bytes]
META, PAYLOAD, CT, FIB, SOCKET, CONSTANT, OTHER = "meta", "payload", "ct", "fib", "socket", "constant", "other"


class Operand(Record):
    """The origin of a value: source, key (payload: base and offset), what `mask` and `xor` did, `swapped` to network order."""

    source: str
    key: tuple[int | str, ...]
    length: int
    mask: bytes = b""
    xor: bytes = b""
    swapped: bool = False
    data: bytes = b""  # of a constant

    def __str__(self) -> str:
        return " ".join([self.source, *[str(part) for part in self.key]])


class RegisterTest(Record):
    """A comparison: the operand is in one of the ranges (both ends included), or if negated in none."""

    operand: Operand
    ranges: tuple[Range, ...]
    negated: bool = False

    @property
    def single(self) -> bytes | None:
        """The only value; None if there are several."""
        return self.ranges[0][0] if len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1] else None

    def number(self, value: bytes) -> int:
        """Return a value as a number in the operand's byte order."""
        return int.from_bytes(value, "big" if self.operand.swapped else byteorder)

    def intersect(self, other: RegisterTest) -> RegisterTest | None:
        """Return the intersection of two ranges for one operand; None if they are anything else."""
        if self.operand != other.operand or self.negated or other.negated or len(self.ranges) != 1 or len(other.ranges) != 1:
            return None
        (low, high), (first, end) = self.ranges[0], other.ranges[0]
        low, high = max(low, first), min(high, end)
        return other.replace(ranges=((low, high),)) if len(self.ranges[0][0]) == len(first) and low <= high else None

    def unknown(self) -> list[Match]:
        """Return the comparison as an unknown match."""
        if self.operand.key[0] in ("numgen", "hash"):
            kind, modulus, offset = self.operand.key
            of = f"{kind} mod {modulus}{f' offset {offset}' if offset else ''} {'!=' if self.negated else '=='}"
            plain = self.single is not None and not self.operand.mask
            text = f"{of} {self.number(self.ranges[0][0])}" if plain else self.text
            return [Undecided(text=text, about=ABOUT["statistic"])]
        return [UnknownMatch(text=self.text)]

    @property
    def text(self) -> str:
        """The comparison as it is shown."""
        values = ", ".join([low.hex() if low == high else f"{low.hex()}-{high.hex()}" for low, high in self.ranges[:3]])
        mask = f" & {self.operand.mask.hex()}" if self.operand.mask else ""
        return f"{self.operand}{mask} {'!=' if self.negated else '=='} {values}"


class Known(Record):
    """What earlier comparisons of the rule determine: the possible families, and the protocol; and device names by index."""

    families: tuple[Family, ...]
    protocol: str = ""
    devices: dict[int, str]

    @property
    def family(self) -> Family | None:
        """The only family; None for both."""
        return self.families[0] if len(self.families) == 1 else None


class Registers:
    """The registers at one point of a rule."""

    def __init__(self) -> None:
        self._operands: dict[int, Operand] = {}  # by the first word

    def store(self, register: bytes | None, operand: Operand) -> None:
        """Store an operand. Raises MalformedError if there is no such register."""
        first = _word_of(register)
        words = range(first, first + max(1, -(-operand.length // WORD)))
        self._operands = {at: one for at, one in self._operands.items() if at not in words}
        self._operands[first] = operand

    def load(self, register: bytes | None) -> Operand:
        """Return the operand in a register; an unknown one if it is empty."""
        return self._operands.get(_word_of(register)) or Operand(source=OTHER, key=("register",), length=WORD)

    def load_fields(self, register: bytes | None, length: int) -> list[Operand]:
        """Return the operands in `length` bytes of registers, as in keys of several fields."""
        at = _word_of(register)
        end = at + -(-length // WORD)
        fields = []
        while at < end:
            operand = self._operands.get(at)
            if operand is None:
                return [Operand(source=OTHER, key=("register",), length=length)]
            fields.append(operand)
            at += -(-operand.length // WORD)
        return fields


def _word_of(register: bytes | None) -> int:
    at = number(register)
    if 1 <= at <= OLD_REGISTERS:
        return (at - 1) * WORD
    if FIRST_SMALL <= at < FIRST_SMALL + SMALL_REGISTERS:
        return at - FIRST_SMALL
    raise MalformedError(f"there is no register {at}")


def families_of(compared: RegisterTest) -> tuple[Family, ...] | None:
    """Return the families that a comparison accepts; None if it is not about families."""
    operand, value = compared.operand, compared.single
    if operand.source != META or operand.mask or value is None:
        return None
    asked = int.from_bytes(value, "big")
    chosen = None
    if operand.key == (numbers.META_NFPROTO,) and len(value) == 1:
        chosen = next((one for one in FAMILIES if one.number == asked), None)
    elif operand.key == (numbers.META_PROTOCOL,) and len(value) == 2:  # noqa: PLR2004 - an ethertype's
        chosen = numbers.ETHERTYPES.get(asked)
    if chosen is None:
        return None
    return tuple([one for one in FAMILIES if (one is chosen) is not compared.negated])


def catch_all_of(nft_set: NftSet) -> NftElement | None:
    """Return the element `*`, which lookups find that find no other; None if there is none."""
    return next((element for element in nft_set.elements if element.flags & ELEMENT_CATCHALL), None)


def with_ends(nft_set: NftSet) -> list[tuple[NftElement, Range]] | None:
    """Return a set's elements but `*` with their ranges; None if they are not understood.

    In an interval set the end is an element: the first key after it.
    """
    elements = [element for element in nft_set.elements if not element.flags & ELEMENT_CATCHALL]
    if nft_set.flags & SET_INTERVAL and any(element.key_end for element in elements):
        return [(element, (element.key, element.key_end or element.key)) for element in elements]
    ordered = sorted(elements, key=lambda element: (element.key, not element.flags & ELEMENT_INTERVAL_END))
    if not nft_set.flags & SET_INTERVAL:
        return [(element, (element.key, element.key)) for element in ordered]
    found: list[tuple[NftElement, Range]] = []
    for at, element in enumerate(ordered):
        if element.flags & ELEMENT_INTERVAL_END:
            continue
        behind = ordered[at + 1].key if at + 1 < len(ordered) else b""
        size = len(element.key)
        if behind and len(behind) != size:
            return None
        last = int.from_bytes(behind, "big") - 1 if behind else (1 << 8 * size) - 1
        if last < int.from_bytes(element.key, "big"):
            return None
        found.append((element, (element.key, last.to_bytes(size, "big"))))
    return found
