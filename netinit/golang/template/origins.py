"""Find the actions whose output may come from a pod, from the template's text alone (taint analysis).

Each field of the root is the operator's (values, mesh settings) or the pod's, which is foreign, as is unknown data.
Variables, the dot and template arguments propagate it; a function's result is foreign if any argument is. Conditions do
not: the text in a branch is the template's. If a function that modifies its argument (set, merge) gets foreign data,
every map that the template created may contain it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from netinit.golang.template import nodes as syntax

Trusted: TypeAlias = "Mapping[str, frozenset[str]]"
"""The operator's fields of the root, each with its own fields that are foreign."""

_CONSTANT = frozenset((syntax.Identifier, syntax.Literal))
"""Nodes that are always the operator's."""
CHANGING = frozenset(("merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite", "set"))
"""Functions that put a value into a map."""
_OWN, _ROOT, _FOREIGN = 0, 1, 2
"""Bits of an origin: the root itself, foreign, or both; 0 is the operator's."""


def foreign_actions(trees: Mapping[str, syntax.Tree], name: str, trusted: Trusted) -> frozenset[syntax.Action]:
    """Return the actions that may print data from an untrusted field when template `name` is called with the root."""
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
        self.variables: dict[syntax.Variable, int] = {}
        self.asked: set[syntax.Variable] = set()
        self.found: set[syntax.Action] = set()
        self.todo: set[str] = set()
        self.name, self.root = "", _OWN

    def run(self, trees: Mapping[str, syntax.Tree], name: str) -> None:
        """Walk all templates reachable from this one, which is called with the root."""
        self.call(name, _ROOT)
        while self.todo:
            name = self.todo.pop()
            if name in trees:  # else rendering will fail
                self.name, self.root = name, self.dots[name]
                self.body(trees[name].body, self.root)

    def call(self, name: str, dot: int) -> None:
        """Record that a template is called with a dot of this origin."""
        known = self.dots.get(name, _OWN)
        if known | dot != known:
            self.dots[name] = known | dot
            self.todo.add(name)

    def body(self, nodes: Iterable[syntax.Node], dot: int) -> None:
        for node in nodes:
            if isinstance(node, syntax.Action):
                if self.pipe(node.pipe, dot) and not node.pipe.variables:
                    self.found.add(node)
            elif isinstance(node, syntax.Block):
                self.block(node, dot)
            elif isinstance(node, syntax.Invoke):
                self.call(node.name, _OWN if node.pipe is None else self.pipe(node.pipe, dot))

    def block(self, node: syntax.Block, dot: int) -> None:
        for pipe, body in node.branches:
            value = self.pipe(pipe, dot, elements=node.word == "range")
            self.body(body, dot if node.word == "if" else value)
        self.body(node.otherwise, dot)

    def pipe(self, pipe: syntax.Pipe, dot: int, *, elements: bool = False) -> int:
        origin, *piped = [self.command(command.args, dot) for command in pipe.commands]
        for more in piped:
            origin = _within(origin | more)
        called = [command.args[0] for command in pipe.commands]
        if origin and any(isinstance(function, syntax.Identifier) and function.text in CHANGING for function in called):
            self.is_changed = True
        if elements:
            origin = _within(origin)
        for variable in pipe.variables:
            cell = variable.declared
            known = _OWN if cell is None else self.variables.get(cell, _OWN)
            if cell is not None and known | origin != known:
                self.variables[cell] = known | origin
                if cell in self.asked:  # an earlier reader saw a smaller origin: walk again
                    self.todo.add(self.name)
        return origin

    def command(self, args: Sequence[syntax.Expression], dot: int) -> int:
        if len(args) == 1:
            return self.operand(args[0], dot)
        origins = [self.operand(argument, dot) for argument in args if type(argument) not in _CONSTANT]
        return _within(any(origins))

    def operand(self, node: syntax.Expression, dot: int) -> int:
        if isinstance(node, syntax.Fields):
            return self.fields(self.operand(node.base, dot), node.names)
        if isinstance(node, syntax.Pipe):
            return self.pipe(node, dot)
        if isinstance(node, syntax.Variable):
            cell = node.declared
            if cell is not None:
                self.asked.add(cell)
            return self.held(self.root if cell is syntax.ROOT else _FOREIGN if cell is None else self.variables.get(cell, _OWN))
        return self.held(dot) if isinstance(node, syntax.Dot) else _OWN

    def held(self, origin: int) -> int:
        """Return the origin of a variable's or the dot's content, which may be a modified map."""
        return origin if origin or not self.is_changed else _FOREIGN

    def fields(self, origin: int, names: tuple[str, ...]) -> int:
        """Return the origin of a chain of fields."""
        if not names or not origin & _ROOT:
            return origin
        foreign = self.trusted.get(names[0])
        if foreign is None or (foreign and (len(names) == 1 or names[1] in foreign)):
            return _FOREIGN
        return origin & _FOREIGN


def _within(origin: int | bool) -> int:
    """Return the origin of a value derived from this one; from the root, it may be foreign."""
    return _FOREIGN if origin else _OWN
