"""Compute once what depends only on constants: fields of the root that are the same object in most renderings.

A configuration's values do not change from pod to pod, so neither does `{{ toYaml .Values.resources }}`. The first
rendering decides which objects the constants are, and keeps the results that depend on nothing else. A rendering with
another object in one of these fields computes what depends on that field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from netinit.golang.template.limits import Run
from netinit.golang.template.nodes import (
    Bool,
    Command,
    Expression,
    Field,
    FieldChain,
    Identifier,
    Nil,
    NumberLiteral,
    Pipe,
    StringLiteral,
)
from netinit.golang.template.values import NO_VALUE, Shaped, Struct

_LITERALS = (Bool, Identifier, Nil, NumberLiteral, StringLiteral)
_IMMUTABLE = frozenset((bool, float, int, str, type(None), type(NO_VALUE), Shaped))
_NONE: frozenset[str] = frozenset()


class Constants:
    """The names of a template's constants, and the objects that they were in its first rendering."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._first: Mapping[str, Any] | None = None

    def begin(self, run: Run, data: Any) -> None:
        """Tell the rendering its root, and which constants differ from the first rendering's."""
        if not self.names or not isinstance(data, Struct):
            return
        if self._first is None:
            self._first = {name: data.fields.get(name) for name in self.names}
        run.root = data
        run.different = frozenset([name for name, value in self._first.items() if data.fields.get(name) is not value])


def constants_of(node: Expression | Command, names: frozenset[str]) -> frozenset[str] | None:
    """Return the constants that the expression depends on, if it depends on nothing else; otherwise None."""
    if isinstance(node, Field):
        return frozenset(node.names[:1]) if node.names[0] in names else None
    if isinstance(node, _LITERALS):
        return _NONE
    if isinstance(node, FieldChain):
        return constants_of(node.base, names)
    if isinstance(node, Pipe) and node.variables:
        return None
    found = _NONE
    for part in node.commands if isinstance(node, Pipe) else node.args if isinstance(node, Command) else (None,):
        needed = None if part is None else constants_of(part, names)
        if needed is None:
            return None
        found |= needed
    return found


def fold(expr: Callable[[Run, Any], Any], node: Expression, names: frozenset[str]) -> Callable[[Run, Any], Any]:
    """Return the expression, so that its value is kept for renderings with the same constants, if it depends on them alone.

    A value that a function made and a later one could change is not kept.
    """
    needed = constants_of(node, names)
    if not needed:
        return expr
    is_part = isinstance(node, Field)  # of the constant itself
    kept: list[Any] = []

    def folded(run: Run, dot: Any) -> Any:
        if dot is not run.root or not needed.isdisjoint(run.different):
            return expr(run, dot)
        if kept:
            return kept[0]
        value = expr(run, dot)
        if is_part or type(value) in _IMMUTABLE:
            kept.append(value)
        return value

    if getattr(expr, "never_nil", False):
        folded.never_nil = True  # type: ignore[attr-defined]
    return folded
