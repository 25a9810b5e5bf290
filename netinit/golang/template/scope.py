"""What the compiler knows of a tree: positions for errors, visible variables, and what depends on constants only.

Constants are fields of the root that are the same object in most renderings: a configuration's values are the same for
all pods, so `{{ toYaml .Values.resources }}` is too. The first rendering fixes the constants' objects and keeps results
that depend on nothing else; a rendering with another object in such a field computes them again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from netinit.base.errors import TemplateError
from netinit.golang.template.limits import Rendering
from netinit.golang.template.literals import quote
from netinit.golang.template.nodes import (
    Action,
    Command,
    Dot,
    Expression,
    Fields,
    Identifier,
    Invoke,
    Literal,
    Pipe,
    Tree,
    Variable,
)
from netinit.golang.template.values import NO_VALUE, Function, Shaped, to_bytes

_CONSTANTS = (Identifier, Literal)
_IMMUTABLE = frozenset((bool, float, int, str, type(None), type(NO_VALUE), Shaped))
_NONE: frozenset[str] = frozenset()


class Slot:
    """The place of a variable; `holder`: the place of the list or map that a range reads it from, or 0."""

    def __init__(self, name: str, place: int, holder: int = 0) -> None:
        self.name, self.place, self.holder = name, place, holder


class Frame:
    """The variables of one template during compilation.

    Each variable has a number, its place, so that rendering looks up no names; the visible ones are a stack.
    `dot_holder`: the place of the list or map that the dot is read from, or 0.
    """

    def __init__(
        self,
        tree: Tree,
        functions: Mapping[str, Function],
        constants: frozenset[str],
        marked: frozenset[Action],
        bodies: Mapping[str, Any],
    ) -> None:
        self.tree, self.functions, self.constants, self.marked, self.bodies = tree, functions, constants, marked, bodies
        self.visible = [Slot("$", 0)]
        self.dot_holder = 0
        self.places = itertools.count(1)

    def inner(self, dot_holder: int) -> Frame:
        """Return the frame of a nested body; variables that it declares end with it."""
        frame = Frame.__new__(Frame)
        vars(frame).update(vars(self), visible=self.visible.copy(), dot_holder=dot_holder)
        return frame

    def declare(self, name: str) -> Slot:
        """Declare a variable."""
        slot = Slot(name, self.new_place())
        self.visible.append(slot)
        return slot

    def new_place(self) -> int:
        """Return an unused place."""
        return next(self.places)

    def find(self, name: str) -> Slot | None:
        """Return the innermost visible variable with this name."""
        return next((slot for slot in reversed(self.visible) if slot.name == name), None)

    def error(self, node: Expression | Command | Action | Invoke, message: str) -> TemplateError:
        """Return Go's error for a failed execution of the node."""
        tree = self.tree
        line_start = tree.source.rfind("\n", 0, node.pos) + 1
        line = tree.source.count("\n", 0, node.pos) + 1
        column = len(to_bytes(tree.source[line_start : node.pos]))
        where = f"{tree.parse_name}:{line}:{column}"
        return TemplateError(f"template: {where}: executing {quote(tree.name)} at <{node}>: {message}")


def last_visited(node: Expression | Command) -> Expression:
    """Return the operand that Go evaluates last in the node: later failures are reported there."""
    while True:
        if isinstance(node, Pipe):
            node = node.commands[-1]
        elif isinstance(node, Command):
            if isinstance(node.args[0], Identifier) or len(node.args) > 1:
                node = node.args[-1]
            else:
                node = node.args[0]
        elif isinstance(node, Fields) and not isinstance(node.base, Dot | Variable):
            node = node.base
        else:
            return node


def constants_of(node: Expression | Command, names: frozenset[str]) -> frozenset[str] | None:
    """Return the constants that the expression depends on; None if it depends on anything else."""
    if isinstance(node, _CONSTANTS):
        return _NONE
    if isinstance(node, Fields):
        if isinstance(node.base, Dot):
            return frozenset(node.names[:1]) if node.names[0] in names else None
        return constants_of(node.base, names)
    if isinstance(node, Pipe) and node.variables:
        return None
    found = _NONE
    for part in (
        node.commands if isinstance(node, Pipe) else node.args if isinstance(node, Command) else (None,)
    ):
        needed = None if part is None else constants_of(part, names)
        if needed is None:
            return None
        found |= needed
    return found


def fold(expr: Callable[[Rendering, Any], Any], node: Expression, names: frozenset[str]) -> Callable[[Rendering, Any], Any]:
    """Return the expression, its value kept if it depends only on constants and no later function could modify it."""
    needed = constants_of(node, names)
    if not needed:
        return expr
    is_part = isinstance(node, Fields)  # of the constant itself
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
