"""Compute once what depends only on constants: fields of the root that are the same object in most renderings.

A configuration's values are the same for all pods, so `{{ toYaml .Values.resources }}` is too. The first rendering
fixes the constants' objects and keeps results that depend on nothing else; a rendering with another object in such a
field computes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from netinit.golang.template import nodes as syntax
from netinit.golang.template.limits import Run
from netinit.golang.template.values import NO_VALUE, Shaped, Struct

_LITERALS = (syntax.Identifier, syntax.Literal)
_IMMUTABLE = frozenset((bool, float, int, str, type(None), type(NO_VALUE), Shaped))
_NONE: frozenset[str] = frozenset()


class Constants:
    """The names of a template's constants, and their objects in the first rendering."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self._first: Mapping[str, Any] | None = None

    def begin(self, run: Run, data: Any) -> None:
        """Set the rendering's root, and the constants that differ from the first rendering's."""
        if not self.names or not isinstance(data, Struct):
            return
        if self._first is None:
            self._first = {name: data.fields.get(name) for name in self.names}
        run.root = data
        run.different = frozenset([name for name, value in self._first.items() if data.fields.get(name) is not value])


def constants_of(node: syntax.Expression | syntax.Command, names: frozenset[str]) -> frozenset[str] | None:
    """Return the constants that the expression depends on; None if it depends on anything else."""
    if isinstance(node, syntax.Field):
        return frozenset(node.names[:1]) if node.names[0] in names else None
    if isinstance(node, _LITERALS):
        return _NONE
    if isinstance(node, syntax.FieldChain):
        return constants_of(node.base, names)
    if isinstance(node, syntax.Pipe) and node.variables:
        return None
    found = _NONE
    for part in (
        node.commands if isinstance(node, syntax.Pipe) else node.args if isinstance(node, syntax.Command) else (None,)
    ):
        needed = None if part is None else constants_of(part, names)
        if needed is None:
            return None
        found |= needed
    return found


def fold(expr: Callable[[Run, Any], Any], node: syntax.Expression, names: frozenset[str]) -> Callable[[Run, Any], Any]:
    """Return the expression, its value kept if it depends only on constants and no later function could modify it."""
    needed = constants_of(node, names)
    if not needed:
        return expr
    is_part = isinstance(node, syntax.Field)  # of the constant itself
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
