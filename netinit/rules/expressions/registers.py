"""What the registers of a rule hold: not values, which only a packet has, but where each value comes from."""

from __future__ import annotations

from netinit.base.netlink_attributes import MalformedError, number
from netinit.base.records import Record

WORD = 4  # bytes of one of the 16 small registers; the four old ones are four of these each
FIRST_SMALL, SMALL_REGISTERS, OLD_REGISTERS = 8, 16, 4  # NFT_REG32_00
META, PAYLOAD, CT, FIB, SOCKET, CONSTANT, OTHER = "meta", "payload", "ct", "fib", "socket", "constant", "other"


class Operand(Record):
    """Where a value comes from: `source` and its key (of payload the base and the offset), and what was done to it since.

    `mask` and `xor` are those of a bitwise expression, empty for none. `swapped`: brought into network byte order.
    """

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
    """The registers while a rule is walked."""

    def __init__(self) -> None:
        self._held: dict[int, Operand] = {}  # by the first word

    def store(self, register: bytes | None, operand: Operand) -> None:
        """Puts an operand into a register. MalformedError for a register that there is not."""
        first = _word_of(register)
        words = range(first, first + max(1, -(-operand.length // WORD)))
        self._held = {at: held for at, held in self._held.items() if at not in words}
        self._held[first] = operand

    def load(self, register: bytes | None) -> Operand:
        """What a register holds; something unknown where nothing was put there."""
        return self._held.get(_word_of(register)) or Operand(source=OTHER, key=("register",), length=WORD)

    def load_fields(self, register: bytes | None, length: int) -> list[Operand]:
        """What stands in `length` bytes of registers, each field in words of its own, as keys of sets have them."""
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
