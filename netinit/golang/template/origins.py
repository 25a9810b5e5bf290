"""Find the actions whose output may come from a pod, from the template's text alone (taint analysis).

Each field of the root is the operator's (values, mesh settings) or the pod's, which is foreign, as is unknown data.
Variables, the dot and template arguments propagate it; a function's result is foreign if any argument is. Conditions do
not: the text in a branch is the template's. If a function that modifies its argument (set, merge) gets foreign data,
every map that the template created may contain it.

`find_dependent` also follows conditions: whether an action in a branch is evaluated at all may depend on the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def find_dependent(
    trees: Mapping[str, syntax.Tree], name: str, trusted: Trusted
) -> tuple[frozenset[syntax.Statement], frozenset[syntax.Statement]]:
    """Return the statements in branches that foreign data chooses, and those that read foreign data themselves.

    A call of `fail` does not count as reading: it fails for whatever it is given.
    """
    walk = _OriginWalk(trusted, is_changed=True, follows_conditions=True)
    walk.run(trees, name)
    return frozenset(walk.chosen), frozenset(walk.reading)


def statement_at(trees: Iterable[syntax.Tree], position: int) -> syntax.Statement | None:
    """Return the last action, block or call that begins at or before the position; blocks begin with each of their conditions."""
    starts = [(start, statement) for tree in trees for start, statement in _list_starts(tree.body) if start <= position]
    return max(starts, key=lambda one: one[0])[1] if starts else None


def _list_starts(nodes: Iterable[syntax.Node]) -> Iterator[tuple[int, syntax.Statement]]:
    for node in nodes:
        if isinstance(node, syntax.Action | syntax.Invoke):
            yield min(node.pos, node.pipe.pos if node.pipe else node.pos), node
        elif isinstance(node, syntax.Block):
            for pipe, body in node.branches:
                yield pipe.pos, node
                yield from _list_starts(body)
            yield from _list_starts(node.otherwise)


class _OriginWalk:
    """Walks all reachable trees until the origins no longer change (a fixed point)."""

    def __init__(self, trusted: Trusted, *, is_changed: bool = False, follows_conditions: bool = False) -> None:
        self.trusted = trusted
        self.follows_conditions = follows_conditions
        self.is_chosen = False
        """Whether something foreign chooses that this is evaluated; of whole templates, `conditional`."""
        self.conditional: set[str] = set()
        self.chosen: set[syntax.Statement] = set()
        self.reading: set[syntax.Statement] = set()
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
                self.name, self.root, self.is_chosen = name, self.dots[name], name in self.conditional
                self.body(trees[name].body, self.root)

    def call(self, name: str, dot: int) -> None:
        """Record that a template is called with a dot of this origin."""
        known = self.dots.get(name, _OWN)
        if known | dot != known or (self.is_chosen and name not in self.conditional):
            self.dots[name] = known | dot
            self.todo.add(name)
        if self.is_chosen:
            self.conditional.add(name)

    def body(self, nodes: Iterable[syntax.Node], dot: int) -> None:
        for node in nodes:
            if isinstance(node, syntax.Action):
                origin = self.pipe(node.pipe, dot)
                if origin and not node.pipe.variables:
                    self.found.add(node)
                self.note(node, origin if not _calls_fail(node.pipe) else _OWN)
            elif isinstance(node, syntax.Block):
                self.block(node, dot)
            elif isinstance(node, syntax.Invoke):
                origin = _OWN if node.pipe is None else self.pipe(node.pipe, dot)
                self.note(node, origin & _FOREIGN)
                self.call(node.name, origin)

    def block(self, node: syntax.Block, dot: int) -> None:
        outside = self.is_chosen
        for pipe, body in node.branches:
            value = self.pipe(pipe, dot, elements=node.word == "range")
            self.note(node, value)
            self.is_chosen |= self.follows_conditions and bool(value)
            self.body(body, dot if node.word == "if" else value)
        self.body(node.otherwise, dot)
        self.is_chosen = outside

    def note(self, node: syntax.Statement, origin: int) -> None:
        """Record how the statement depends on foreign data. A block itself is outside of its branches."""
        if self.is_chosen:
            self.chosen.add(node)
        if origin:
            self.reading.add(node)

    def pipe(self, pipe: syntax.Pipe, dot: int, *, elements: bool = False) -> int:
        origin, *piped = [self.command(command.args, dot) for command in pipe.commands]
        for more in piped:
            origin = _within(origin | more)
        called = [command.args[0] for command in pipe.commands]
        if origin and any(isinstance(function, syntax.Identifier) and function.text in CHANGING for function in called):
            self.is_changed = True
        if elements:
            origin = _within(origin)
        if self.is_chosen:
            origin |= _FOREIGN  # that a variable has this value depends on it
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


def _calls_fail(pipe: syntax.Pipe) -> bool:
    return any(isinstance(command.args[0], syntax.Identifier) and command.args[0].text == "fail" for command in pipe.commands)


def _within(origin: int | bool) -> int:
    """Return the origin of a value derived from this one; from the root, it may be foreign."""
    return _FOREIGN if origin else _OWN
