"""The functions that every template has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template import access
from netinit.golang.template.limits import character_cost, check_size, text_cost
from netinit.golang.template.printing import printable, sprint, sprintf, sprintln
from netinit.golang.template.values import ANY, NO_VALUE, VALUE, Function, FunctionError, kind_of, to_bytes, type_name

_BASIC: Final = frozenset(("bool", "int", "uint", "float", "string"))
_WHOLE: Final = frozenset(("int", "uint"))
_ORDERED: Final = frozenset(("int", "uint", "float", "string"))


def decided_elsewhere(*_values: Any) -> Any:
    """Placeholder for and/or: their calls are compiled separately, since they do not evaluate every argument."""
    raise FunctionError("and/or cannot be called as values")


def equal(first: Any, *others: Any) -> bool:
    """Whether the first value equals any of the others."""
    if not others:
        raise FunctionError("missing argument for comparison")
    return any(_equal(first, other) for other in others)


def _equal(left: Any, right: Any) -> bool:
    if type(left) is type(right) is str:
        return bool(left == right)
    kind, other = kind_of(left), kind_of(right)
    if kind == other and kind in _BASIC:
        return bool(left == right)
    if kind in _WHOLE and other in _WHOLE:
        return bool(left == right)
    if kind in _BASIC or other in _BASIC:
        if "nil" in (kind, other):
            return False
        raise FunctionError(f"incompatible types for comparison: {type_name(left)} and {type_name(right)}")
    return _equal_others(left, right, kind, other)


def _equal_others(left: Any, right: Any, kind: str, other: str) -> bool:
    """Compare maps, lists, structs, pointers, functions and nil; most can only be compared with nil."""
    if kind == other == "nil":
        return True
    if "nil" in (kind, other):
        return (kind in ("nil", "pointer") and not left) and (other in ("nil", "pointer") and not right)
    if kind != other:
        raise FunctionError(
            f"non-comparable types {sprintf('%s', left)}: {type_name(left)}, {type_name(right)}: {sprint(right)}"
        )
    if kind == "pointer" and not (left and right):
        return not left and not right
    if kind in ("map", "slice", "func"):
        raise FunctionError(f"non-comparable type {sprintf('%s', right)}: {type_name(right)}")
    return left is right or (kind != "pointer" and type_name(left) == type_name(right) and left.fields == right.fields)


def less(left: Any, right: Any) -> bool:
    """Whether the first value is less than the second."""
    kind, other = kind_of(left), kind_of(right)
    if kind not in _BASIC or other not in _BASIC:
        raise FunctionError("invalid type for comparison")
    if kind != other and not (kind in _WHOLE and other in _WHOLE):
        raise FunctionError(f"incompatible types for comparison: {type_name(left)} and {type_name(right)}")
    if kind not in _ORDERED:
        raise FunctionError("invalid type for comparison")
    return bool(left < right)


def _less_or_equal(left: Any, right: Any) -> bool:
    return less(left, right) or _equal(left, right)


def call(written: str | None, target: Any, *args: Any) -> Any:
    """Call a function value. `written`: its text in the template, for messages; None from a pipeline."""
    if target is None or target is NO_VALUE:
        raise FunctionError("call of nil")
    shown = written
    if shown is None:
        shown = target if isinstance(target, str) else f"<{type_name(target)} Value>"
    if not isinstance(target, Function):
        raise FunctionError(f"non-function {shown} of type {type_name(target)}")
    wanted = len(target.params)
    if len(args) < wanted or (len(args) > wanted and target.variadic is None):
        least = "at least " if target.variadic is not None else ""
        raise FunctionError(f"wrong number of args for {shown}: got {len(args)} want {least}{wanted}")
    types = (*target.params, *(target.variadic or ANY for _ in args[wanted:]))
    checked: list[Any] = []
    for place, (arg, go_type) in enumerate(zip(args, types, strict=True)):
        try:
            checked.append(access.prepare(arg, go_type))
        except FunctionError as problem:
            raise FunctionError(f"arg {place}: {problem}") from None
    return target.call(*checked)


_HTML: Final = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SCRIPT: Final = {
    "\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D",
}  # fmt: skip


def _escaping(escape: Callable[[str], str], growth: int) -> Function:
    """Return a function that joins the printed values and escapes them; each character becomes `growth` ones at most."""

    def escape_all(*values: Any) -> str:
        is_text = len(values) == 1 and type(values[0]) is str
        text = values[0] if is_text else sprint(*map(printable, values))
        check_size(growth * len(text))
        return escape(text)

    return Function(escape_all, variadic=ANY, cost=lambda *values: text_cost(*values) << 1)


def _escape_script(character: str) -> str:
    if character in _SCRIPT:
        return _SCRIPT[character]
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8
        return character
    if character < " " or (not character.isascii() and not character.isprintable()):
        return f"\\u{ord(character):04X}"
    return character


def _escape_query(text: str) -> str:
    from urllib.parse import quote_plus

    return quote_plus(to_bytes(text), safe="")


BUILTINS: Final = {
    "and": Function(decided_elsewhere, VALUE, variadic=VALUE),
    "call": Function(functools.partial(call, None), VALUE, variadic=VALUE),
    "eq": Function(equal, VALUE, variadic=VALUE),
    "ge": Function(lambda left, right: not less(left, right), VALUE, VALUE),
    "gt": Function(lambda left, right: not _less_or_equal(left, right), VALUE, VALUE),
    "html": _escaping(lambda text: text.translate(_HTML), 5),
    "index": Function(access.index, VALUE, variadic=VALUE),
    "js": _escaping(lambda text: "".join(map(_escape_script, text)), 6),
    "le": Function(_less_or_equal, VALUE, VALUE),
    "len": Function(access.length, VALUE),
    "lt": Function(less, VALUE, VALUE),
    "ne": Function(lambda left, right: not _equal(left, right), VALUE, VALUE),
    "not": Function(lambda value: not value, VALUE),
    "or": Function(decided_elsewhere, VALUE, variadic=VALUE),
    "print": Function(sprint, variadic=ANY),
    "printf": Function(sprintf, "string", variadic=ANY, cost=character_cost),
    "println": Function(sprintln, variadic=ANY),
    "slice": Function(access.slice_of, VALUE, variadic=VALUE),
    "urlquery": _escaping(_escape_query, 9),
}
