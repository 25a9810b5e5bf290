"""The walk through the tokens that all parsers of one text share, and the words of syntax errors.

Blocks and parentheses may nest MAX_NESTING deep, far more than people write and few enough for Python's stack:
hostile text gets an error, not a crash.
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
"""The kinds behind which no token follows: they are taken again and again."""


class ParserState:
    """What the parsers of one text have in common: the tokens and how far they were read, the trees found."""

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
    """A parser's place in the tokens; errors are reported at the line of the last token that it looked at."""

    def __init__(self, shared: ParserState) -> None:
        self.shared = shared
        self.looked_at: Token | None = None
        self.action_at: Token | None = None

    def peek(self) -> Token:
        """The token that comes next."""
        shared = self.shared
        at = shared.at
        token = shared.tokens[at]
        if at > shared.read:
            shared.read, self.looked_at = at, token
        return token

    def next(self) -> Token:
        """The next token, which is taken."""
        token = self.peek()
        if token.kind not in _LAST:
            self.shared.at += 1
        return token

    def skip(self) -> None:
        """Take the token that was looked at, which is not the last one."""
        self.shared.at += 1

    def expect(self, kind: str, context: str) -> Token:
        """The next token, which has to be of that kind."""
        token = self.next()
        if token.kind != kind:
            self.unexpected(token, context)
        return token

    def fail(self, message: str) -> NoReturn:
        """Never returns: raises TemplateError at the line of the last token that was looked at."""
        raise TemplateError(f"template: {self.shared.name}:{self.line_of(self.looked_at)}: {message}")

    def line_of(self, token: Token | None) -> int:
        """The number of the token's line, counted from 1; 0 for none."""
        return 0 if token is None else self.shared.text.count("\n", 0, token.pos) + 1

    def unexpected(self, token: Token, context: str) -> NoReturn:
        """Never returns: raises TemplateError about the token."""
        if token.kind != lexer.ERROR:
            self.fail(f"unexpected {token} in {context}")
        extra = ""
        action_line = self.line_of(self.action_at)
        if action_line not in (0, self.line_of(token)):
            started = f" started at {self.shared.name}:{action_line}"
            extra = started if token.text.endswith(" action") else f" in action{started}"
        self.fail(f"{token}{extra}")

    def enter(self) -> None:
        """One level of nesting more."""
        self.shared.nesting += 1
        if self.shared.nesting > MAX_NESTING:
            self.fail(f"blocks and parentheses are nested deeper than {MAX_NESTING} levels")

    def leave(self) -> None:
        """One level of nesting less."""
        self.shared.nesting -= 1
