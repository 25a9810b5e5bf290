"""The syntax tree of a template. Every node that errors name prints itself as Go does.

A node is itself and nothing else: two of equal text at different places are different nodes, as keys too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from netinit.golang.template.lexer import SPACES
from netinit.golang.template.literals import Number, quote


@dataclass(slots=True, eq=False)
class _Word:
    """What is nothing but a word of the language."""

    pos: int


@dataclass(slots=True, eq=False)
class Text:
    """Text to be copied."""

    pos: int
    text: str


@dataclass(slots=True, eq=False)
class Bool:
    """true or false."""

    pos: int
    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


class Nil(_Word):
    """The constant nil."""

    def __str__(self) -> str:
        return "nil"


class Dot(_Word):
    """The cursor."""

    def __str__(self) -> str:
        return "."


@dataclass(slots=True, eq=False)
class NumberLiteral:
    """A number or a character."""

    pos: int
    number: Number

    def __str__(self) -> str:
        return self.number.text


@dataclass(slots=True, eq=False)
class StringLiteral:
    """A string: as written, and what it means."""

    pos: int
    literal: str
    value: str

    def __str__(self) -> str:
        return self.literal


@dataclass(slots=True, eq=False)
class Identifier:
    """The name of a function."""

    pos: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class Field:
    """A chain of fields of the cursor: .A.B."""

    pos: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


@dataclass(slots=True, eq=False)
class Variable:
    """A variable, and fields of it: $a.B."""

    pos: int
    name: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ".".join((self.name, *self.names))


@dataclass(slots=True, eq=False)
class FieldChain:
    """Fields of the value of a parenthesis or a function: (index . 1).A."""

    pos: int
    base: Expression
    names: tuple[str, ...]

    def __str__(self) -> str:
        base = f"({self.base})" if isinstance(self.base, Pipe) else str(self.base)
        return base + "".join(f".{name}" for name in self.names)


@dataclass(slots=True, eq=False)
class Command:
    """A function or operand with its arguments."""

    pos: int
    args: list[Expression] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join(f"({arg})" if isinstance(arg, Pipe) else str(arg) for arg in self.args)


@dataclass(slots=True, eq=False)
class Pipe:
    """Commands joined by |, and the variables that take the result."""

    pos: int
    commands: list[Command] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    assigns: bool = False

    def __str__(self) -> str:
        head = ""
        if self.variables:
            head = ", ".join(map(str, self.variables)) + (" = " if self.assigns else " := ")
        return head + " | ".join(map(str, self.commands))


Expression: TypeAlias = (
    "Bool | Nil | Dot | NumberLiteral | StringLiteral | Identifier | Field | Variable | FieldChain | Pipe"
)


@dataclass(slots=True, eq=False)
class Action:
    """{{pipe}}, with the delimiters it prints with."""

    pos: int
    pipe: Pipe
    delimiters: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.delimiters[0]}{self.pipe}{self.delimiters[1]}"


class Break(_Word):
    """{{break}}."""


class Continue(_Word):
    """{{continue}}."""


@dataclass(slots=True, eq=False)
class Branch:
    """A condition and what follows when it holds."""

    pipe: Pipe
    body: list[Node]


@dataclass(slots=True, eq=False)
class _Choice:
    """Branches of which the first that holds is taken, and what is taken where none does."""

    branches: list[Branch]
    otherwise: list[Node]


class If(_Choice):
    """{{if}} with any number of {{else if}}, and an {{else}}."""


class With(_Choice):
    """{{with}} with any number of {{else with}}, and an {{else}}."""


@dataclass(slots=True, eq=False)
class Range:
    """{{range}} and its {{else}}."""

    pipe: Pipe
    body: list[Node]
    otherwise: list[Node]


@dataclass(slots=True, eq=False)
class Invoke:
    """{{template "name" pipe}}."""

    pos: int
    name: str
    pipe: Pipe | None
    delimiters: tuple[str, str]

    def __str__(self) -> str:
        pipe = "" if self.pipe is None else f" {self.pipe}"
        return f"{self.delimiters[0]}template {quote(self.name)}{pipe}{self.delimiters[1]}"


Node: TypeAlias = "Text | Action | Break | Continue | If | With | Range | Invoke"


@dataclass(slots=True, eq=False)
class Tree:
    """One template: its name and body, the name it was parsed under and the text it stands in."""

    name: str
    parse_name: str
    source: str
    body: list[Node] = field(default_factory=list)


def is_empty(body: Sequence[Node]) -> bool:
    """Whether nothing but blanks is in the body: such a template does not replace another."""
    return all(isinstance(node, Text) and not node.text.strip(SPACES + "\v\f\x85\xa0") for node in body)
