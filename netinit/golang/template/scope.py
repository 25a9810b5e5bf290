"""What the compiler knows while it walks a tree: where a node stands, and which variables are visible."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from netinit.base.errors import TemplateError
from netinit.golang.template.literals import quote
from netinit.golang.template.nodes import Action, Command, Expression, FieldChain, Identifier, Invoke, Nil, Pipe, Tree
from netinit.golang.template.values import Function, to_bytes


class Slot:
    """A place for a variable; `holder` is the place of the list or map that a range takes its values from, or 0."""

    def __init__(self, name: str, place: int, holder: int = 0) -> None:
        self.name, self.place, self.holder = name, place, holder


class Frame:
    """The variables of one template while it is compiled, and its place in error messages.

    Every variable has a place of its own, a number, so that no name is looked up at rendering time; the visible ones
    are a stack, as in Go. `dot_holder` is the place of the list or map that the dot is taken from, or 0.
    """

    def __init__(
        self, tree: Tree, functions: Mapping[str, Function], own: frozenset[str], constants: frozenset[str] = frozenset()
    ) -> None:
        self.tree = tree
        self.functions = functions
        self.own = own
        self.constants = constants
        self.visible = [Slot("$", 0)]
        self.dot_holder = 0
        self.places = itertools.count(1)

    def inner(self, visible: Iterable[Slot], dot_holder: int) -> Frame:
        """The frame of a body within this one, which sees these variables; what it declares ends with it."""
        frame = Frame(self.tree, self.functions, self.own, self.constants)
        frame.visible, frame.dot_holder, frame.places = [*visible], dot_holder, self.places
        return frame

    def declare(self, name: str, holder: int = 0) -> Slot:
        """A new place for a variable of that name, visible from here on."""
        slot = Slot(name, self.new_place(), holder)
        self.visible.append(slot)
        return slot

    def hold_elements(self, holder: int) -> None:
        """The last variable holds elements of the list or map at that place, whose type may be an interface."""
        last = self.visible[-1]
        self.visible[-1] = Slot(last.name, last.place, holder)

    def new_place(self) -> int:
        """A place without a name."""
        return next(self.places)

    def find(self, name: str) -> Slot | None:
        """The innermost visible variable of that name."""
        return next((slot for slot in reversed(self.visible) if slot.name == name), None)

    def error(self, node: Expression | Command | Action | Invoke, message: str) -> TemplateError:
        """The error that Go reports when the execution of the node fails so."""
        tree = self.tree
        line_start = tree.source.rfind("\n", 0, node.pos) + 1
        line = tree.source.count("\n", 0, node.pos) + 1
        column = len(to_bytes(tree.source[line_start : node.pos]))
        where = f"{tree.parse_name}:{line}:{column}"
        return TemplateError(f"template: {where}: executing {quote(tree.name)} at <{node}>: {message}")


def last_visited(node: Expression | Command) -> Expression:
    """The operand that Go looks at last when it evaluates the node: a later failure is reported there."""
    while True:
        if isinstance(node, Pipe):
            node = node.commands[-1]
        elif isinstance(node, Command):
            if isinstance(node.args[0], Identifier) or len(node.args) > 1:
                node = node.args[-1]
            else:
                node = node.args[0]
        elif isinstance(node, FieldChain) and not isinstance(node.base, Nil):
            node = node.base
        else:
            return node
