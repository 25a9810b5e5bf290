"""The position in the tokens of a text, and syntax errors.

Nesting is limited to MAX_NESTING, so that hostile text causes an error instead of exhausting Python's stack.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

from netinit.base.errors import TemplateError
from netinit.golang.template import lexer
from netinit.golang.template.lexer import Token
from netinit.golang.template.nodes import Tree

MAX_NESTING: Final = 100

_LAST: Final = frozenset((lexer.EOF, lexer.ERROR))
"""Kinds of tokens that are never consumed, because no other follows."""


class ParserState:
    """The state that the parsers of one text share: tokens, position, and the trees found."""

    def __init__(
        self, name: str, text: str, tokens: list[Token], delimiters: tuple[str, str], functions: Collection[str]
    ) -> None:
        self.name, self.text, self.tokens = name, text, tokens
        self.delimiters, self.functions = delimiters, functions
        self.trees: dict[str, Tree] = {}
        self.at = 0
        self.read = -1
        self.nesting = 0


class Cursor:
    """A parser's position; errors are reported at the line of the last token it looked at."""

    def __init__(self, shared: ParserState) -> None:
        self.shared = shared
        self.looked_at: Token | None = None
        self.action_at: Token | None = None

    def peek(self) -> Token:
        """Return the next token without consuming it."""
        shared = self.shared
        at = shared.at
        token = shared.tokens[at]
        if at > shared.read:
            shared.read, self.looked_at = at, token
        return token

    def next(self) -> Token:
        """Consume and return the next token."""
        token = self.peek()
        if token.kind not in _LAST:
            self.shared.at += 1
        return token

    def skip(self) -> None:
        """Consume the token that `peek` returned."""
        self.shared.at += 1

    def expect(self, kind: str, context: str) -> Token:
        """Consume the next token. Raises TemplateError if it is of another kind."""
        token = self.next()
        if token.kind != kind:
            self.unexpected(token, context)
        return token

    def fail(self, message: str) -> NoReturn:
        """Raise TemplateError at the line of the last token that was looked at."""
        raise TemplateError(f"template: {self.shared.name}:{self.line_of(self.looked_at)}: {message}")

    def line_of(self, token: Token | None) -> int:
        """Return a token's line, counted from 1; 0 for None."""
        return 0 if token is None else self.shared.text.count("\n", 0, token.pos) + 1

    def unexpected(self, token: Token, context: str) -> NoReturn:
        """Raise TemplateError about the token."""
        if token.kind != lexer.ERROR:
            self.fail(f"unexpected {token} in {context}")
        extra = ""
        action_line = self.line_of(self.action_at)
        if action_line not in (0, self.line_of(token)):
            started = f" started at {self.shared.name}:{action_line}"
            extra = started if token.text.endswith(" action") else f" in action{started}"
        self.fail(f"{token}{extra}")

    def enter(self) -> None:
        """Enter a block or parenthesis. Raises TemplateError if the nesting is too deep."""
        self.shared.nesting += 1
        if self.shared.nesting > MAX_NESTING:
            self.fail(f"blocks and parentheses are nested deeper than {MAX_NESTING} levels")

    def leave(self) -> None:
        """Leave a block or parenthesis."""
        self.shared.nesting -= 1
