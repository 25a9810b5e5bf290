"""Make foreign text safe to show: names, comments and errors from a pod must not control a terminal or forge a line. Pure.

Unprintable characters (Unicode control, direction and width characters, separators except the space, lone surrogates,
tags) are escaped as in a Python string. All output for people consists of `lines`; texts in another format (DOT, Mermaid,
JSON) are escaped for that format as well, afterwards.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TEXT_LENGTH = 120  # characters of a foreign text that are shown
MAX_LINE_LENGTH = 2000
MAX_RULE_LENGTH = 400  # longer than the longest rule that netinit writes, with fifteen ports and both interfaces


class Lines(str):
    """Lines that no foreign text can have broken or extended; only `lines` creates them."""

    __slots__ = ()


def lines(texts: Iterable[str]) -> Lines:
    """Return one line for each text; line breaks inside a text are escaped."""
    return Lines("".join([escape(text) + "\n" for text in texts]))


def escape(text: str, keep: str = "") -> str:
    """Escape a text to one line: unprintable characters as in a Python string, except those in `keep`.

    Escaping an escaped text does not change it.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text])


def split_message(message: str) -> list[str]:
    """Split a message at line feeds only, not at other characters that Python treats as line breaks."""
    return message.removesuffix("\n").split("\n")


def shorten(text: str, most: int = MAX_TEXT_LENGTH) -> str:
    """Return the text, shortened with an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else text[:most] + "…"


def quote(text: str) -> str:
    """Quote a foreign text as a Python string on one line, shortened if long."""
    return '"' + escape(shorten(text).replace("\\", "\\\\").replace('"', '\\"')) + '"'


def quote_words(text: str) -> str:
    """Quote a text, such as a comment, as iptables listings do in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
    return f'"{escaped}"'
