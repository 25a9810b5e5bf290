"""Keep the expressions of what is not decoded, with those that loaded its registers, to write them back."""

from __future__ import annotations

from netinit.base.netlink_attributes import write_attribute
from netinit.rules.foreign_targets import AsWritten
from netinit.rules.matches import Match
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.targets import Target

# By expression, the attributes that name the registers it reads, and the one it fills
READS: dict[str, tuple[int, ...]] = {
    "cmp": (1,), "range": (1,), "bitwise": (1,), "byteorder": (1,), "meta": (3,), "ct": (4,), "payload": (5,), "exthdr": (7,),
    "nat": (3, 4, 5, 6), "redir": (1, 2), "masq": (2, 3), "tproxy": (2, 3), "dup": (1, 2), "fwd": (1, 2), "hash": (1,),
}  # fmt: skip
READS_ALL = {"lookup": 2, "dynset": 4, "objref": 3}  # keys may take several registers; the first one's attribute
FILLS = {
    "meta": 1, "ct": 1, "payload": 1, "fib": 1, "socket": 2, "rt": 1, "exthdr": 1, "numgen": 1, "hash": 2, "osf": 1, "tunnel": 2,
    "xfrm": 1, "immediate": 1, "bitwise": 2, "byteorder": 2, "lookup": 3,
}  # fmt: skip
LIST_ELEMENT = 1


class RegisterCode:
    """The expressions that filled each register."""

    def __init__(self) -> None:
        self._code: dict[bytes, bytes] = {}  # by register

    def code(self, kind: str, found: dict[int, bytes], body: bytes) -> bytes:
        """Return an expression with those it depends on; empty if it reads an unfilled register."""
        registers = [found[one] for one in (READS_ALL.get(kind, 0), *READS.get(kind, ())) if one in found]
        if any(register not in self._code for register in registers):
            return b""
        before = [self._code[register] for register in (self._code if kind in READS_ALL else dict.fromkeys(registers))]
        return b"".join(before) + write_attribute(LIST_ELEMENT, body)

    def code_of(self, register: bytes) -> bytes:
        """Return the expressions that filled a register."""
        return self._code.get(register, b"")

    def note(self, kind: str, found: dict[int, bytes], code: bytes) -> None:
        """Record which register an expression fills."""
        register = found.get(FILLS.get(kind, 0), b"")
        if register.strip(b"\0"):
            self._code.pop(register, None)  # the order is that of filling
            if code:
                self._code[register] = code


def keep_match(match: Match, code: bytes) -> Match:
    """Return the match; an unknown one with its expressions."""
    return match.replace(kept=code) if isinstance(match, UnknownMatch) and not match.kept else match


def keep_target(target: Target, code: bytes) -> Target:
    """Return the target; one kept as written with its expressions."""
    return target.replace(kept=code) if isinstance(target, AsWritten) and not target.kept else target
