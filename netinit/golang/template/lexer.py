"""Split template text into tokens.

An error is the last token, so that the parser reports whichever error comes first. Positions are indexes into the text.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal, TypeAlias, get_args

from netinit.golang.template.literals import is_identifier_character, quote
from netinit.golang.template.values import to_bytes

SPACES: Final = " \t\r\n"
_TRIMMING: Final = tuple(f"-{space}" for space in SPACES)
"""What follows a left delimiter that trims the space before it."""

Keyword: TypeAlias = Literal[
    "block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with"
]  # fmt: skip
"""Words that are a kind of their own."""
Kind: TypeAlias = Keyword | Literal[
    "text", "left delimiter", "right delimiter", "error", "EOF", "bool", "character", "=", ":=", "field", "identifier", "(", ")",
    "number", "|", "raw string", "string", "variable", "dot",
]  # fmt: skip
KEYWORDS: Final[frozenset[Keyword]] = frozenset(get_args(Keyword))

_NAMES: Final[dict[str, Kind]] = {".": "field", "$": "variable"}
"""The kind of a name by its first character; other names are identifiers."""
_CONSTANTS: Final[dict[str, Kind]] = {"number": "number", "raw": "raw string", "string": "string"}
"""The kind of a constant by its alternative in the pattern of an action."""
_SIGNS: Final[dict[str, Kind]] = {"|": "|", "=": "=", ":=": ":=", "(": "(", ")": ")"}
_FAILING: Final = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    ":": "expected :=",
}
"""The error for characters that nothing can start with here."""
_LONG: Final = 10

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = (
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)


class Token:
    """A token: kind, position, and text (of an error, the message). `spaced`: it follows space in an action."""

    def __init__(self, kind: Kind, pos: int, text: str, spaced: bool = False) -> None:
        self.kind, self.pos, self.text, self.spaced = kind, pos, text, spaced

    def __str__(self) -> str:
        if self.kind == "EOF":
            return "EOF"
        if self.kind == "error":
            return self.text
        if self.kind in KEYWORDS or self.kind == "dot":
            return f"<{self.text}>"
        if len(to_bytes(self.text)) > _LONG:
            return f"{quote(self.text[:_LONG])}..."
        return quote(self.text)


class _LexError(Exception):
    """An error in the text; arguments: the message and the start of the bad token."""


def tokenize(text: str, left: str, right: str, words: frozenset[str] = frozenset()) -> list[Token]:
    """Split the text into tokens, ending in "EOF" or "error".

    `words`: the keywords (break, continue) that are function names instead.
    """
    lexer = _Lexer(text, left, right, words)
    try:
        lexer.cut()
    except _LexError as problem:
        message, start = problem.args
        lexer.tokens.append(Token("error", start, message))
    return lexer.tokens


@functools.lru_cache(maxsize=16)
def _patterns(right: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return patterns for a right delimiter, for the tokens of an action, and for what may follow a name.

    A token's alternative is named after its kind, or after the method `cut_NAME` that reads it.
    """
    end = re.escape(right)
    delimiter = rf"{end}|[ \t\r\n]-{end}"
    after = rf"[ \t\r\n.,|:()]|\Z|{end}"
    tokens = rf"""(?:[ \t\r\n]+(?!-{end}))?(?:(?P<right>{delimiter})
        |(?P<name>(?:\$|\.?[A-Za-z_])[A-Za-z0-9_]*+(?={after}))
        |(?P<raw>`[^`]*`)
        |(?P<string>"(?:[^"\\\n]|\\[^\n])*")
        |(?P<number>[0-9]+(?![\w.+-]))
        |(?P<word>\w+|\.(?=[^0-9])\w*|\$\w*)
        |(?P<char>'(?:[^'\\\n]|\\[^\n])*'?)
        |(?P<sign>:=|.))"""
    return re.compile(delimiter), re.compile(tokens, re.VERBOSE | re.DOTALL), re.compile(after)


class _Lexer:
    """The state of the lexer: tokens and position. Methods that read what is rare return a token's kind and text."""

    def __init__(self, text: str, left: str, right: str, words: frozenset[str]) -> None:
        self.text, self.left, self.right = text, left, right
        self.delimiter, self.inside, self.after_name = _patterns(right)
        self.tokens: list[Token] = []
        self.names: dict[str, Kind] = {"true": "bool", "false": "bool", **{word: word for word in KEYWORDS - words}}
        self.at = 0

    def cut(self) -> None:
        text, tokens, left = self.text, self.tokens, self.left
        while (action := text.find(left, self.at)) >= 0:
            inside = action + len(left)
            plain = text[self.at : action]
            if text.startswith(_TRIMMING, inside):
                plain = plain.rstrip(SPACES)
                inside += 2
            if plain:
                tokens.append(Token("text", self.at, plain))
            if text.startswith("/*", inside):
                self.skip_comment(inside)
                continue
            tokens.append(Token("left delimiter", action, left))
            self.at = inside
            self.cut_action()
        if self.at < len(text):
            tokens.append(Token("text", self.at, text[self.at :]))
        tokens.append(Token("EOF", len(text), "EOF"))

    def skip_comment(self, start: int) -> None:
        end = self.text.find("*/", start + 2)
        if end < 0:
            raise _LexError("unclosed comment", start)
        closing = self.delimiter.match(self.text, end + 2)
        if closing is None:
            raise _LexError("comment ends before closing delimiter", start)
        self.leave(closing.end(), closing[0])

    def leave(self, end: int, closing: str) -> None:
        """Continue after a right delimiter, and after the space that its trim marker removes."""
        self.at = end
        if len(closing) > len(self.right):
            self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr] # it matches anywhere

    def cut_action(self) -> None:
        """Read the tokens of an action, including its right delimiter."""
        match, text, names, tokens = self.inside.match, self.text, self.names, self.tokens
        at, depth = self.at, 0
        while found := match(text, at):
            group = found.lastgroup or ""
            value, end = found[group], found.end()
            start = end - len(value)
            spaced, at = start > at, end
            if group == "name":
                kind = _NAMES.get(value[0]) or names.get(value, "identifier")
            elif constant := _CONSTANTS.get(group):
                kind = constant
            elif group == "right":
                if depth:
                    raise _LexError("unclosed left paren", start)
                tokens.append(Token("right delimiter", end - len(self.right), self.right))
                self.leave(end, value)
                return
            else:
                kind, value = _CUTTERS[group](self, value, start)
                at = start + len(value)
                depth += (kind == "(") - (kind == ")")
                if depth < 0:
                    raise _LexError("unexpected right paren", start)
            tokens.append(Token(kind, start, value, spaced))
        raise _LexError("unclosed action", len(text))

    def cut_sign(self, value: str, at: int) -> tuple[Kind, str]:
        if sign := _SIGNS.get(value):
            return sign, value
        if value in "+-.":
            return self.cut_number(at)
        if value in _FAILING:
            raise _LexError(_FAILING[value], at)
        if value.isascii() and value.isprintable():
            return "character", value
        raise _LexError(f"unrecognized character in action: {_show(value)}", at)

    def cut_word(self, value: str, at: int) -> tuple[Kind, str]:
        if "0" <= value[0] <= "9":
            return self.cut_number(at)
        if not (value[0].isascii() or is_identifier_character(value[0])):
            raise _LexError(f"unrecognized character in action: {_show(value[0])}", at)
        if not value.isascii():
            end = next((i for i, c in enumerate(value) if i and not is_identifier_character(c)), len(value))
            value = value[:end]
        end = at + len(value)
        if not self.after_name.match(self.text, end):
            raise _LexError(f"bad character {_show(self.text[end])}", at)
        return "dot" if value == "." else _NAMES.get(value[0]) or self.names.get(value, "identifier"), value

    def cut_char(self, value: str, at: int) -> tuple[Kind, str]:
        if len(value) < 2 or not value.endswith("'"):  # noqa: PLR2004 - the two quotes
            raise _LexError("unterminated character constant", at)
        return "number", value

    def cut_number(self, at: int) -> tuple[Kind, str]:
        text = self.text
        end = self.number_end(at, at)
        if text[end : end + 1] in ("+", "-"):  # a complex number
            end = self.number_end(at, end)
            if text[end - 1] != "i":
                raise _LexError(f"bad number syntax: {quote(text[at:end])}", at)
        return "number", text[at:end]

    def number_end(self, start: int, at: int) -> int:
        end = re.compile(_NUMBER).match(self.text, at).end()  # type: ignore[union-attr] # it matches anywhere
        if end < len(self.text) and is_identifier_character(self.text[end]):
            raise _LexError(f"bad number syntax: {quote(self.text[start : end + 1])}", start)
        return end


_CUTTERS = {"word": _Lexer.cut_word, "char": _Lexer.cut_char, "sign": _Lexer.cut_sign}


def _show(character: str) -> str:
    """Format a character like Go's %#U."""
    code = ord(character)
    shown = f" '{character}'" if character.isprintable() else ""
    return f"U+{code:04X}{shown}"
