"""Find the actions of a template whose output may come from a pod, from the template's text alone (taint analysis).

A template reads data of its operator (values, mesh settings) and of the pod, which is foreign. Each field of the root
is of one kind; variables, the dot and template arguments propagate it; a function's result is foreign if any argument
is. Unknown data is foreign. Conditions do not propagate: the text in a branch is the author's. If a function that
modifies its argument (set, merge) gets foreign data, every map that the template created may contain it; then only
constants and trusted root fields are the operator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from netinit.golang.template.nodes import (
    Action,
    Bool,
    Dot,
    Expression,
    Field,
    FieldChain,
    Identifier,
    If,
    Invoke,
    Nil,
    Node,
    NumberLiteral,
    Pipe,
    Range,
    StringLiteral,
    Text,
    Tree,
    Variable,
    With,
)

Trusted: TypeAlias = "Mapping[str, frozenset[str]]"
"""The root's fields that are the operator's, each with those of its own fields that are foreign all the same."""

_CONSTANT = frozenset((Bool, Identifier, Nil, NumberLiteral, StringLiteral))
"""Nodes that are always the operator's."""
CHANGING = frozenset(("merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite", "set"))
"""Functions that put a value into a map that they are given."""
_OWN, _ROOT, _FOREIGN = 0, 1, 2
"""A value may be the root itself (1), foreign (2), either (3), or neither: the operator's."""


def foreign_actions(trees: Mapping[str, Tree], name: str, trusted: Trusted) -> frozenset[Action]:
    """Return the actions that may print data from an untrusted field, if the template `name` is called with the root."""
    walk = _OriginWalk(trusted)
    walk.run(trees, name)
    if walk.is_changed:
        walk = _OriginWalk(trusted, is_changed=True)
        walk.run(trees, name)
    return frozenset(walk.found)


class _OriginWalk:
    """Walks all reachable trees until the origins no longer change (a fixed point)."""

    def __init__(self, trusted: Trusted, *, is_changed: bool = False) -> None:
        self.trusted = trusted
        self.is_changed = is_changed
        """Whether something foreign is put into maps that the template made."""
        self.dots: dict[str, int] = {}
        self.variables: dict[Variable, int] = {}
        self.asked: set[Variable] = set()
        self.found: set[Action] = set()
        self.todo: set[str] = set()
        self.visible: list[Variable] = []
        self.name, self.root = "", _OWN

    def run(self, trees: Mapping[str, Tree], name: str) -> None:
        """Walk all templates reachable from this one, which is called with the root."""
        self.call(name, _ROOT)
        while self.todo:
            name = self.todo.pop()
            if name in trees:  # else rendering will fail
                self.tree(trees[name])

    def call(self, name: str, dot: int) -> None:
        """Record that a template is called with a dot of this origin."""
        known = self.dots.get(name, _OWN)
        if known | dot != known:
            self.dots[name] = known | dot
            self.todo.add(name)

    def tree(self, tree: Tree) -> None:
        self.name, self.root = tree.name, self.dots[tree.name]
        self.visible = []
        self.body(tree.body, self.root)

    def body(self, nodes: Iterable[Node], dot: int) -> None:
        mark = len(self.visible)
        for node in nodes:
            if not isinstance(node, Text):
                self.node(node, dot)
        del self.visible[mark:]

    def node(self, node: Node, dot: int) -> None:
        if isinstance(node, Action):
            if self.pipe(node.pipe, dot) and not node.pipe.variables:
                self.found.add(node)
        elif isinstance(node, (If, With, Range)):
            self.block(node, dot)
        elif isinstance(node, Invoke):
            self.call(node.name, _OWN if node.pipe is None else self.pipe(node.pipe, dot))

    def block(self, node: If | With | Range, dot: int) -> None:
        mark = len(self.visible)
        if isinstance(node, Range):
            self.body(node.body, self.pipe(node.pipe, dot, elements=True))
        else:
            for branch in node.branches:
                value = self.pipe(branch.pipe, dot)
                self.body(branch.body, value if isinstance(node, With) else dot)
        self.body(node.otherwise or (), dot)
        del self.visible[mark:]

    def pipe(self, pipe: Pipe, dot: int, *, elements: bool = False) -> int:
        origin, *piped = [self.command(command.args, dot) for command in pipe.commands]
        for more in piped:
            origin = _within(origin | more)
        if origin and any(_changes(command.args) for command in pipe.commands):
            self.is_changed = True
        if elements:
            origin = _within(origin)
        for variable in pipe.variables:
            cell = self.find(variable.name) if pipe.assigns else variable
            if not pipe.assigns:
                self.visible.append(variable)
            known = _OWN if cell is None else self.variables.get(cell, _OWN)
            if cell is not None and known | origin != known:
                self.variables[cell] = known | origin
                if cell in self.asked:  # an earlier reader saw a smaller origin: walk again
                    self.todo.add(self.name)
        return origin

    def command(self, args: Sequence[Expression], dot: int) -> int:
        if len(args) == 1:
            return self.operand(args[0], dot)
        origins = [self.operand(argument, dot) for argument in args if type(argument) not in _CONSTANT]
        return _within(any(origins))

    def operand(self, node: Expression, dot: int) -> int:
        if isinstance(node, Field):
            return self.fields(self.held(dot), node.names)
        if isinstance(node, Pipe):
            return self.pipe(node, dot)
        if isinstance(node, Variable):
            cell = self.find(node.name)
            if cell is not None:
                self.asked.add(cell)
            origin = self.root if node.name == "$" else _FOREIGN if cell is None else self.variables.get(cell, _OWN)
            return self.fields(self.held(origin), node.names)
        if isinstance(node, FieldChain):
            return self.fields(self.operand(node.base, dot), node.names)
        return self.held(dot) if isinstance(node, Dot) else _OWN

    def held(self, origin: int) -> int:
        """Return the origin of the content of a variable or the dot, which may be a modified map."""
        return origin if origin or not self.is_changed else _FOREIGN

    def fields(self, origin: int, names: tuple[str, ...]) -> int:
        """Return the origin of a chain of fields."""
        if not names or not origin & _ROOT:
            return origin
        foreign = self.trusted.get(names[0])
        if foreign is None or (foreign and (len(names) == 1 or names[1] in foreign)):
            return _FOREIGN
        return origin & _FOREIGN

    def find(self, name: str) -> Variable | None:
        return next((variable for variable in reversed(self.visible) if variable.name == name), None)


def _changes(args: Sequence[Expression]) -> bool:
    return isinstance(args[0], Identifier) and args[0].name in CHANGING


def _within(origin: int | bool) -> int:
    """Return the origin of a value derived from this one: from the root, it may be anything."""
    return _FOREIGN if origin else _OWN
