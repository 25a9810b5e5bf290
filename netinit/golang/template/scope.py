"""What the compiler knows of a tree: positions for errors, where the dot comes from, and what depends on constants only.

Constants are fields of the root that are the same object in most renderings: a configuration's values are the same for
all pods, so `{{ toYaml .Values.resources }}` is too. The first rendering fixes the constants' objects and keeps results
that depend on nothing else; a rendering with another object in such a field computes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netinit.golang.errors import TemplateError
from netinit.golang.template import nodes as syntax
from netinit.golang.template.limits import Rendering
from netinit.golang.template.literals import quote
from netinit.golang.template.values import NO_VALUE, Function, Shaped, to_bytes

_CONSTANTS = (syntax.Identifier, syntax.Literal)
_IMMUTABLE = frozenset((bool, float, int, str, type(None), type(NO_VALUE), Shaped))


class Frame:
    """What the parts of a template have in common; `loop`: the range whose elements the dot gets, or None."""

    def __init__(
        self,
        tree: syntax.Tree,
        functions: Mapping[str, Function],
        constants: frozenset[str],
        marked: frozenset[syntax.Action],
        bodies: Mapping[str, Any],
    ) -> None:
        self.tree, self.functions, self.constants, self.marked, self.bodies = tree, functions, constants, marked, bodies
        self.loop: syntax.Block | None = None

    def inner(self, loop: syntax.Block | None) -> Frame:
        """Return the frame of a nested body with a dot of its own."""
        frame = Frame.__new__(Frame)
        vars(frame).update(vars(self), loop=loop)
        return frame

    def error(
        self, node: syntax.Expression | syntax.Command | syntax.Action | syntax.Invoke, message: str, *, is_certain: bool = False
    ) -> TemplateError:
        """Return Go's error for a failed execution of the node."""
        tree = self.tree
        line_start = tree.source.rfind("\n", 0, node.pos) + 1
        line = tree.source.count("\n", 0, node.pos) + 1
        column = len(to_bytes(tree.source[line_start : node.pos]))
        where = f"{tree.parse_name}:{line}:{column}"
        text = f"template: {where}: executing {quote(tree.name)} at <{node}>: {message}"
        return TemplateError(text, position=node.pos, is_certain=is_certain)


def last_visited(node: syntax.Expression | syntax.Command) -> syntax.Expression:
    """Return the operand that Go evaluates last in the node: later failures are reported there."""
    while True:
        if isinstance(node, syntax.Pipe):
            node = node.commands[-1]
        elif isinstance(node, syntax.Command):
            node = node.args[-1]
        elif isinstance(node, syntax.Fields) and not isinstance(node.base, syntax.Dot | syntax.Variable):
            node = node.base
        else:
            return node


def constants_of(node: syntax.Expression | syntax.Command, names: frozenset[str]) -> frozenset[str] | None:
    """Return the constants that the expression depends on; None if it depends on anything else."""
    if isinstance(node, _CONSTANTS):
        return frozenset()
    if isinstance(node, syntax.Fields):
        if isinstance(node.base, syntax.Dot):
            return frozenset(node.names[:1]) if node.names[0] in names else None
        return constants_of(node.base, names)
    parts: Sequence[syntax.Expression | syntax.Command] | None = None
    if isinstance(node, syntax.Pipe):
        parts = None if node.variables else node.commands
    elif isinstance(node, syntax.Command):
        parts = node.args
    found = [constants_of(part, names) for part in parts or ()]
    return None if parts is None or None in found else frozenset().union(*filter(None, found))


def fold(expr: Callable[[Rendering, Any], Any], node: syntax.Expression, names: frozenset[str]) -> Callable[[Rendering, Any], Any]:
    """Return the expression, its value kept if it depends only on constants and no later function could modify it."""
    needed = constants_of(node, names)
    if not needed:
        return expr
    is_part = isinstance(node, syntax.Fields)  # of the constant itself
    kept: list[Any] = []

    def folded(run: Rendering, dot: Any) -> Any:
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
