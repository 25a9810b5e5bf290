"""The syntax tree of a template. A node that errors name prints itself as Go does.

Nodes compare by identity. They are plain classes: dataclasses would take a sixth of the time of a small injection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from netinit.golang.template.lexer import SPACES
from netinit.golang.template.literals import Number, quote


class _Node:
    """A node at a position; `text` is what stands there."""

    def __init__(self, pos: int, text: str = "") -> None:
        self.pos, self.text = pos, text

    def __str__(self) -> str:
        return self.text


class Text(_Node):
    """Text to be copied."""


class Dot(_Node):
    """The cursor."""


class Identifier(_Node):
    """The name of a function."""


class Literal(_Node):
    """A constant: a bool, a number or character, a string, or nil (None)."""

    def __init__(self, pos: int, text: str, value: bool | Number | str | None) -> None:
        super().__init__(pos, text)
        self.value = value


class Variable(_Node):
    """The name of a variable, with $.

    `declared`: where the variable is declared (of a declaration, itself); None if no such variable can be set there.
    `loop`: of a declaration, the range whose elements the variable gets.
    """

    def __init__(self, pos: int, text: str, declared: Variable | None = None) -> None:
        super().__init__(pos, text)
        self.declared = declared
        self.loop: Block | None = None


class Fields:
    """Fields of the cursor, of a variable, or of the value of a parenthesis or function: .A.B, $x.A, (index . 1).A."""

    def __init__(self, pos: int, base: Expression, names: tuple[str, ...]) -> None:
        self.pos, self.base, self.names = pos, base, names

    def __str__(self) -> str:
        base = f"({self.base})" if isinstance(self.base, Pipe) else str(self.base)
        return ".".join(("" if isinstance(self.base, Dot) else base, *self.names))


class Command:
    """A function or operand, with its arguments."""

    def __init__(self, pos: int) -> None:
        self.pos = pos
        self.args: list[Expression] = []

    def __str__(self) -> str:
        return " ".join(f"({arg})" if isinstance(arg, Pipe) else str(arg) for arg in self.args)


class Pipe:
    """Commands joined by |, and the variables that get the result."""

    def __init__(self, pos: int) -> None:
        self.pos = pos
        self.commands: list[Command] = []
        self.variables: list[Variable] = []
        self.assigns = False

    def __str__(self) -> str:
        head = ""
        if self.variables:
            head = ", ".join(map(str, self.variables)) + (" = " if self.assigns else " := ")
        return head + " | ".join(map(str, self.commands))


Expression: TypeAlias = "Literal | Dot | Identifier | Variable | Fields | Pipe"


class Action:
    """{{pipe}}, with its delimiters for messages."""

    def __init__(self, pos: int, pipe: Pipe, delimiters: tuple[str, str]) -> None:
        self.pos, self.pipe, self.delimiters = pos, pipe, delimiters

    def __str__(self) -> str:
        return f"{self.delimiters[0]}{self.pipe}{self.delimiters[1]}"


class LoopControl(_Node):
    """{{break}} or {{continue}}; `text` is the word."""


class Block:
    """{{if}}, {{with}} or {{range}}: branches, of which the first true one is rendered, else `otherwise`.

    A branch is a condition, and the nodes if it is true; of a range, what it iterates over, and the nodes for each
    element. {{else if}} and {{else with}} are further branches; a range has one.
    """

    def __init__(self, word: str, branches: list[tuple[Pipe, list[Node]]], otherwise: list[Node]) -> None:
        self.word, self.branches, self.otherwise = word, branches, otherwise


class Invoke:
    """{{template "name" pipe}}."""

    def __init__(self, pos: int, name: str, pipe: Pipe | None, delimiters: tuple[str, str]) -> None:
        self.pos, self.name, self.pipe, self.delimiters = pos, name, pipe, delimiters

    def __str__(self) -> str:
        pipe = "" if self.pipe is None else f" {self.pipe}"
        return f"{self.delimiters[0]}template {quote(self.name)}{pipe}{self.delimiters[1]}"


ROOT = Variable(0, "$")
"""The declaration of $."""

Node: TypeAlias = "Text | Action | LoopControl | Block | Invoke"
Statement: TypeAlias = "Action | Block | Invoke"


class Tree:
    """A template: its name and body, the name of the parsed text, and the text."""

    def __init__(self, name: str, parse_name: str, source: str) -> None:
        self.name, self.parse_name, self.source = name, parse_name, source
        self.body: list[Node] = []


def is_empty(body: Sequence[Node]) -> bool:
    """Whether the body is only space; such a template does not replace another one."""
    return all(isinstance(node, Text) and not node.text.strip(SPACES + "\v\f\x85\xa0") for node in body)
