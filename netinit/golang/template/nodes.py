"""The syntax tree of a template. Every node prints itself as Go does in error messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from netinit.golang.template.lexer import SPACES
from netinit.golang.template.literals import Number, quote

__all__ = [
    "Action",
    "Block",
    "Bool",
    "Branch",
    "Break",
    "Chain",
    "Command",
    "Continue",
    "Dot",
    "Expression",
    "Field",
    "Identifier",
    "If",
    "Invoke",
    "Nil",
    "Node",
    "NumberLiteral",
    "Pipe",
    "Range",
    "StringLiteral",
    "Text",
    "Tree",
    "Variable",
    "With",
    "is_empty",
]


class Text:
    """Text to be copied."""

    __slots__ = ("pos", "text")

    def __init__(self, pos: int, text: str) -> None:
        self.pos = pos
        self.text = text


class Bool:
    """true or false."""

    __slots__ = ("pos", "value")

    def __init__(self, pos: int, value: bool) -> None:
        self.pos = pos
        self.value = value

    def __str__(self) -> str:
        return "true" if self.value else "false"


class Nil:
    """The constant nil."""

    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "nil"


class Dot:
    """The cursor."""

    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "."


class NumberLiteral:
    """A number or a character."""

    __slots__ = ("number", "pos")

    def __init__(self, pos: int, number: Number) -> None:
        self.pos = pos
        self.number = number

    def __str__(self) -> str:
        return self.number.text


class StringLiteral:
    """A string: as written, and what it means."""

    __slots__ = ("literal", "pos", "value")

    def __init__(self, pos: int, literal: str, value: str) -> None:
        self.pos = pos
        self.literal = literal
        self.value = value

    def __str__(self) -> str:
        return self.literal


class Identifier:
    """The name of a function."""

    __slots__ = ("name", "pos")

    def __init__(self, pos: int, name: str) -> None:
        self.pos = pos
        self.name = name

    def __str__(self) -> str:
        return self.name


class Field:
    """A chain of fields of the cursor: .A.B."""

    __slots__ = ("names", "pos")

    def __init__(self, pos: int, names: tuple[str, ...]) -> None:
        self.pos = pos
        self.names = names

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


class Variable:
    """A variable, and fields of it: $a.B."""

    __slots__ = ("name", "names", "pos")

    def __init__(self, pos: int, name: str, names: tuple[str, ...] = ()) -> None:
        self.pos = pos
        self.name = name
        self.names = names

    def __str__(self) -> str:
        return ".".join((self.name, *self.names))


class Chain:
    """Fields of the value of a parenthesis or a function: (index . 1).A."""

    __slots__ = ("base", "names", "pos")

    def __init__(self, pos: int, base: Expression, names: tuple[str, ...]) -> None:
        self.pos = pos
        self.base = base
        self.names = names

    def __str__(self) -> str:
        base = f"({self.base})" if isinstance(self.base, Pipe) else str(self.base)
        return base + "".join(f".{name}" for name in self.names)


class Command:
    """A function or operand with its arguments."""

    __slots__ = ("args", "pos")

    def __init__(self, pos: int, args: list[Expression] | None = None) -> None:
        self.pos = pos
        self.args: list[Expression] = args or []

    def __str__(self) -> str:
        return " ".join(f"({arg})" if isinstance(arg, Pipe) else str(arg) for arg in self.args)


class Pipe:
    """Commands joined by |, and the variables that take the result."""

    __slots__ = ("assigns", "commands", "pos", "variables")

    def __init__(
        self,
        pos: int,
        commands: list[Command] | None = None,
        variables: list[Variable] | None = None,
        assigns: bool = False,
    ) -> None:
        self.pos = pos
        self.commands: list[Command] = commands or []
        self.variables: list[Variable] = variables or []
        self.assigns = assigns

    def __str__(self) -> str:
        head = ""
        if self.variables:
            head = ", ".join(map(str, self.variables)) + (" = " if self.assigns else " := ")
        return head + " | ".join(map(str, self.commands))


Expression: TypeAlias = (
    "Bool | Nil | Dot | NumberLiteral | StringLiteral | Identifier | Field | Variable | Chain | Pipe"
)


class Action:
    """{{pipe}}, with the delimiters it prints with."""

    __slots__ = ("delimiters", "pipe", "pos")

    def __init__(self, pos: int, pipe: Pipe, delimiters: tuple[str, str]) -> None:
        self.pos = pos
        self.pipe = pipe
        self.delimiters = delimiters

    def __str__(self) -> str:
        return f"{self.delimiters[0]}{self.pipe}{self.delimiters[1]}"


class Break:
    """{{break}}."""

    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos


class Continue:
    """{{continue}}."""

    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos


class Branch:
    """A condition and what follows when it holds."""

    __slots__ = ("body", "pipe")

    def __init__(self, pipe: Pipe, body: list[Node]) -> None:
        self.pipe = pipe
        self.body = body


class If:
    """{{if}} with any number of {{else if}}, and an {{else}}."""

    __slots__ = ("branches", "otherwise")

    def __init__(self, branches: list[Branch], otherwise: list[Node] | None = None) -> None:
        self.branches = branches
        self.otherwise = otherwise


class With:
    """{{with}} with any number of {{else with}}, and an {{else}}."""

    __slots__ = ("branches", "otherwise")

    def __init__(self, branches: list[Branch], otherwise: list[Node] | None = None) -> None:
        self.branches = branches
        self.otherwise = otherwise


class Range:
    """{{range}} and its {{else}}."""

    __slots__ = ("body", "otherwise", "pipe")

    def __init__(self, pipe: Pipe, body: list[Node], otherwise: list[Node] | None = None) -> None:
        self.pipe = pipe
        self.body = body
        self.otherwise = otherwise


class Invoke:
    """{{template "name" pipe}}."""

    __slots__ = ("delimiters", "name", "pipe", "pos")

    def __init__(self, pos: int, name: str, pipe: Pipe | None, delimiters: tuple[str, str]) -> None:
        self.pos = pos
        self.name = name
        self.pipe = pipe
        self.delimiters = delimiters

    def __str__(self) -> str:
        pipe = "" if self.pipe is None else f" {self.pipe}"
        return f"{self.delimiters[0]}template {quote(self.name)}{pipe}{self.delimiters[1]}"


Block: TypeAlias = "If | With | Range"
Node: TypeAlias = "Text | Action | Break | Continue | If | With | Range | Invoke"


class Tree:
    """One template: its name and body, the name it was parsed under and the text it stands in."""

    __slots__ = ("body", "name", "parse_name", "source")

    def __init__(self, name: str, parse_name: str, source: str, body: list[Node] | None = None) -> None:
        self.name = name
        self.parse_name = parse_name
        self.source = source
        self.body: list[Node] = body or []


def is_empty(body: Sequence[Node]) -> bool:
    """Whether nothing but blanks is in the body: such a template does not replace another."""
    return all(isinstance(node, Text) and not node.text.strip(SPACES + "\v\f\x85\xa0") for node in body)
