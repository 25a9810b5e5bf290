"""Go's fmt.Sprintf: verbs, flags, widths, explicit argument numbers and the texts of its complaints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from netinit.golang.template.limits import check_size
from netinit.golang.template.printing import Flags, _Buffer, format_value, print_value
from netinit.golang.template.values import FUNC, INT, MAP, NO_VALUE, POINTER, SLICE, UINT, kind_of, type_name

__all__ = ["sprintf"]

_WIDEST: Final = 1_000_000
_DIGITS: Final = "[0-9]+"
_FLAGS: Final = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}


def sprintf(template: str, *values: Any) -> str:
    """The format with its verbs replaced by the values; raises FunctionError when the text grows too large."""
    if template.count("%") == template.count("%s") == len(values) and all(type(value) is str for value in values):
        pieces = template.split("%s")  # what most templates print
        check_size(sum(map(len, pieces)) + sum(map(len, values)))
        return "".join([part for pair in zip(pieces, (*values, ""), strict=True) for part in pair])
    printer = _Printer(template, values)
    printer.print_all()
    return printer.buffer.text()


class _Printer:
    """The state of one Sprintf: where in the format we are, and which argument comes next."""

    def __init__(self, template: str, values: Sequence[Any]) -> None:
        self.format, self.values = template, values
        self.buffer = _Buffer()
        self.at = 0
        self.argument = 0
        self.reordered = self.good = self.after_index = False

    def print_all(self) -> None:
        text = self.format
        while True:
            percent = text.find("%", self.at)
            if percent < 0:
                self.buffer.add(text[self.at :])
                break
            self.buffer.add(text[self.at : percent])
            self.at = percent + 1
            self.good = True
            flags = self.read_flags()
            if self.at >= len(text):
                self.buffer.add("%!(NOVERB)")
                break
            verb = text[self.at]
            self.at += 1
            self.print_verb(verb, flags)
        if not self.reordered and self.argument < len(self.values):
            self.complain_of_extra()

    def read_flags(self) -> Flags:
        flags, text = Flags(), self.format
        while (name := _FLAGS.get(text[self.at : self.at + 1])) is not None:
            setattr(flags, name, True)
            self.at += 1
        self.after_index = False
        self.read_index()
        if text.startswith("*", self.at):
            self.at += 1
            flags.width = self.number_argument()
            if flags.width is None:
                self.buffer.add("%!(BADWIDTH)")
            elif flags.width < 0:
                flags.width, flags.minus, flags.zero = -flags.width, True, False
            self.after_index = False
        else:
            flags.width = self.read_number()
            if self.after_index and flags.width is not None:
                self.good = False
        if text.startswith(".", self.at) and self.at + 1 < len(text):
            self.at += 1
            self.read_precision(flags)
        if not self.after_index:
            self.read_index()
        return flags

    def read_precision(self, flags: Flags) -> None:
        if self.after_index:
            self.good = False
        self.read_index()
        if self.format.startswith("*", self.at):
            self.at += 1
            flags.precision = self.number_argument()
            if flags.precision is not None and flags.precision < 0:
                flags.precision = None
            if flags.precision is None:
                self.buffer.add("%!(BADPREC)")
            self.after_index = False
        else:
            flags.precision = self.read_number() or 0

    def read_number(self) -> int | None:
        """Take a width or precision; one of more digits than Go allows takes the rest of the format with it."""
        found = re.compile(_DIGITS).match(self.format, self.at)
        if found is None:
            return None
        number = 0
        for digit in found[0]:
            if number > _WIDEST:
                self.at = len(self.format)
                return None
            number = number * 10 + int(digit)
        self.at = found.end()
        return number

    def read_index(self) -> None:
        """Take an explicit argument number such as [2]."""
        text = self.format
        self.after_index = False
        if not text.startswith("[", self.at):
            return
        self.reordered = True
        end = text.find("]", self.at)
        inside = text[self.at + 1 : end] if end >= 0 else ""
        if end < 0:
            self.at += 1
            self.good = False
            return
        self.at = end + 1
        number = int(inside[:8]) if inside.isascii() and inside.isdigit() else 0
        self.after_index = bool(number)
        if 0 < number <= len(self.values):
            self.argument = number - 1
        else:
            self.good = False

    def number_argument(self) -> int | None:
        if self.argument >= len(self.values):
            return None
        value = self.values[self.argument]
        self.argument += 1
        if kind_of(value) not in (INT, UINT) or abs(value) > _WIDEST:
            return None
        return int(value)

    def print_verb(self, verb: str, flags: Flags) -> None:
        if verb == "%":
            self.buffer.add("%")
        elif not self.good:
            self.buffer.add(f"%!{verb}(BADINDEX)")
        elif self.argument >= len(self.values):
            self.buffer.add(f"%!{verb}(MISSING)")
        else:
            value = self.values[self.argument]
            self.argument += 1
            if verb in "vw":
                flags.go, flags.sharp = flags.sharp, False
                flags.names, flags.plus = flags.plus, False
            self.print_argument(value, verb, flags)

    def print_argument(self, value: Any, verb: str, flags: Flags) -> None:
        if verb == "T":
            missing = value is None or value is NO_VALUE
            self.buffer.add(flags.pad("<nil>") if missing else format_value(type_name(value), "s", flags))
        elif verb == "p" and kind_of(value) in (FUNC, MAP, POINTER, SLICE):
            # Go prints an address, which means nothing to us
            self.buffer.add(flags.pad("0x0"))
        elif verb == "p" or (verb == "w" and not isinstance(value, bytes)):
            self.refuse(value, verb, flags)
        elif isinstance(value, bytes) and verb == "d":
            print_value(self.buffer, value, "v", flags, 0)
        else:
            print_value(self.buffer, value, verb, flags, 0)

    def complain_of_extra(self) -> None:
        self.buffer.add("%!(EXTRA ")
        for index, value in enumerate(self.values[self.argument :]):
            if index:
                self.buffer.add(", ")
            if value is None or value is NO_VALUE:
                self.buffer.add("<nil>")
            else:
                self.buffer.add(f"{type_name(value)}=")
                print_value(self.buffer, value, "v", Flags(), 0)
        self.buffer.add(")")

    def refuse(self, value: Any, verb: str, flags: Flags) -> None:
        """Complain that the verb is not for the value, which is printed without its methods."""
        if value is None or value is NO_VALUE:
            self.buffer.add(f"%!{verb}(<nil>)")
            return
        flags.erring = True
        self.buffer.add(f"%!{verb}({type_name(value)}=")
        print_value(self.buffer, value, "v", flags, 0)
        self.buffer.add(")")
