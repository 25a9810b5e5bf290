"""Go's fmt.Sprintf, with the verbs, flags and error texts that templates use.

Not supported, and a FunctionError: the flags `#` and space, `*`, argument numbers, and the verbs b, e, o, p, U and w,
which no template of Istio's releases and known charts has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from netinit.golang.template.limits import check_size
from netinit.golang.template.printing import Flags, _Buffer, format_value, print_value
from netinit.golang.template.values import NO_VALUE, FunctionError, type_name

_MAX_WIDTH: Final = 1_000_000
_VERB: Final = re.compile(r"%(?:%|([-+0]*)([0-9]*)(?:\.([0-9]*))?([a-zA-Z]))")
_VERBS: Final = frozenset("sdvqtxcfgT")


def sprintf(template: str, *values: Any) -> str:
    """Format values like fmt.Sprintf. Raises FunctionError for an unsupported verb and for too long a text."""
    if template.count("%") == template.count("%s") == len(values) and all(type(value) is str for value in values):
        pieces = template.split("%s")  # what most templates print
        check_size(sum(map(len, pieces)) + sum(map(len, values)))
        return "".join([part for pair in zip(pieces, (*values, ""), strict=True) for part in pair])
    buffer = _Buffer()
    at, used = 0, 0
    while (percent := template.find("%", at)) >= 0:
        buffer.add(template[at:percent])
        found = _VERB.match(template, percent)
        if found is None or (found[4] and found[4] not in _VERBS):
            shown = template[percent:][:12]
            raise FunctionError(
                f"{shown!r} is not supported; use %s %d %v %q %t %x %c %f %g %T, with - + 0, a width, a precision"
            )
        at = found.end()
        if not found[4]:
            buffer.add("%")
        elif used == len(values):
            buffer.add(f"%!{found[4]}(MISSING)")
        else:
            _print_argument(buffer, values[used], found[4], _flags(found))
            used += 1
    buffer.add(template[at:])
    if used < len(values):
        _complain_of_extra(buffer, values[used:])
    return buffer.text()


def _flags(found: re.Match[str]) -> Flags:
    """Return the flags of a verb. Raises FunctionError for a width or precision beyond Go's limit."""
    flags = Flags()
    signs, width, precision, verb = found.groups(default="")
    flags.minus, flags.zero = "-" in signs, "0" in signs
    flags.plus = "+" in signs and verb != "v"
    flags.names = "+" in signs and verb == "v"
    numbers = [int(number[:8] or 0) for number in (width, precision)]
    if max(numbers) > _MAX_WIDTH:
        raise FunctionError(f"{found[0][:20]!r}: a width or precision is {_MAX_WIDTH} at most")
    flags.width = numbers[0] if width else None
    flags.precision = numbers[1] if found[3] is not None else None
    return flags


def _print_argument(buffer: _Buffer, value: Any, verb: str, flags: Flags) -> None:
    if verb == "T":
        missing = value is None or value is NO_VALUE
        buffer.add(flags.pad("<nil>") if missing else format_value(type_name(value), "s", flags))
    else:
        print_value(buffer, value, "v" if isinstance(value, bytes) and verb == "d" else verb, flags, 0)


def _complain_of_extra(buffer: _Buffer, values: Sequence[Any]) -> None:
    buffer.add("%!(EXTRA ")
    for index, value in enumerate(values):
        if index:
            buffer.add(", ")
        if value is None or value is NO_VALUE:
            buffer.add("<nil>")
        else:
            buffer.add(f"{type_name(value)}=")
            print_value(buffer, value, "v", Flags(), 0)
    buffer.add(")")
