"""What is wrong with a text in one of Go's languages."""

from __future__ import annotations


class YamlError(Exception):
    """A YAML text cannot be read, or exceeds a limit: `problem`, and where, by `line` and `column` from 1 (0: not known)."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.problem, self.line, self.column = problem, line, column


class TemplateError(Exception):
    """A template cannot be parsed or rendered; worded as in Go, with name, line and column.

    Of rendering, `position` in the text is known; `is_certain`: the data's type rules it out, whatever its values.
    """

    def __init__(self, message: str, *, position: int | None = None, is_certain: bool = False) -> None:
        super().__init__(message)
        self.position = position
        self.is_certain = is_certain
