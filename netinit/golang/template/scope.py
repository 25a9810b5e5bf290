"""What the compiler knows of a tree: positions for errors, and visible variables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from netinit.base.errors import TemplateError
from netinit.golang.template.literals import quote
from netinit.golang.template.nodes import Action, Command, Expression, FieldChain, Identifier, Invoke, Pipe, Tree
from netinit.golang.template.values import Function, to_bytes


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
        own: frozenset[str],
        constants: frozenset[str] = frozenset(),
    ) -> None:
        self.tree = tree
        self.functions = functions
        self.own = own
        self.constants = constants
        self.visible = [Slot("$", 0)]
        self.dot_holder = 0
        self.places = itertools.count(1)

    def inner(self, visible: Iterable[Slot], dot_holder: int) -> Frame:
        """Return the frame of a nested body; variables that it declares end with it."""
        frame = Frame(self.tree, self.functions, self.own, self.constants)
        frame.visible, frame.dot_holder, frame.places = [*visible], dot_holder, self.places
        return frame

    def declare(self, name: str, holder: int = 0) -> Slot:
        """Declare a variable."""
        slot = Slot(name, self.new_place(), holder)
        self.visible.append(slot)
        return slot

    def hold_elements(self, holder: int) -> None:
        """Mark the last variable as an element of the list or map at this place, whose type may be an interface."""
        last = self.visible[-1]
        self.visible[-1] = Slot(last.name, last.place, holder)

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
        elif isinstance(node, FieldChain):
            node = node.base
        else:
            return node
