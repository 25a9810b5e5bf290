"""What a rule's registers hold: the origin of each value."""

from __future__ import annotations

from netinit.base.netlink_attributes import MalformedError, number
from netinit.base.records import Record

WORD = 4  # bytes of one of the 16 small registers; the four old ones are four of these each
FIRST_SMALL, SMALL_REGISTERS, OLD_REGISTERS = 8, 16, 4  # NFT_REG32_00
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


class Registers:
    """The registers at one point of a rule."""

    def __init__(self) -> None:
        self._held: dict[int, Operand] = {}  # by the first word

    def store(self, register: bytes | None, operand: Operand) -> None:
        """Store an operand. Raises MalformedError if there is no such register."""
        first = _word_of(register)
        words = range(first, first + max(1, -(-operand.length // WORD)))
        self._held = {at: held for at, held in self._held.items() if at not in words}
        self._held[first] = operand

    def load(self, register: bytes | None) -> Operand:
        """Return the operand in a register; an unknown one if it is empty."""
        return self._held.get(_word_of(register)) or Operand(source=OTHER, key=("register",), length=WORD)

    def load_fields(self, register: bytes | None, length: int) -> list[Operand]:
        """Return the operands in `length` bytes of registers, as in keys of several fields."""
        at = _word_of(register)
        end = at + -(-length // WORD)
        fields = []
        while at < end:
            operand = self._held.get(at)
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
