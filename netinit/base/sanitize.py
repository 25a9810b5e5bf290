r"""Makes foreign text safe to show, so that a pod's names, comments and errors cannot control a terminal or forge a line. Pure.

Unprintable characters (Unicode's control, direction and width characters, separators other than the space, lone
surrogates, tags) are escaped as in a Python string; a byte that is not UTF-8, which Python holds as a surrogate, as `\xff`.
Texts in DOT, Mermaid or JSON are escaped for that format afterwards.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TEXT_LENGTH = 120  # characters of a foreign text that are shown
MAX_LINE_LENGTH = 2000
MAX_RULE_LENGTH = 400  # longer than the longest rule that netinit writes, with fifteen ports and both interfaces


class Lines(str):
    """Lines that foreign text cannot break or extend; created only by `lines`."""

    __slots__ = ()


def lines(texts: Iterable[str]) -> Lines:
    """One line per text; line breaks inside a text are escaped."""
    return Lines("".join([escape(text) + "\n" for text in texts]))


def escape(text: str, keep: str = "") -> str:
    """Escape unprintable characters, except those in `keep`, as in a Python string; escaping twice changes nothing."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else escape_character(c) for c in text])


def escape_character(letter: str) -> str:
    """Escape a character as in a Python string, quotes left alone; one that stands for a byte that is not UTF-8 as this byte."""
    return f"\\x{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else repr(letter)[1:-1]


def split_message(message: str) -> list[str]:
    """Split at line feeds only, not at other characters that Python treats as line breaks."""
    return message.removesuffix("\n").split("\n")


def shorten(text: str, most: int = MAX_TEXT_LENGTH) -> str:
    """The text, cut with an ellipsis if longer than `most` characters."""
    return text if len(text) <= most else text[:most] + "…"


def quote(text: str) -> str:
    """Quote a foreign text as a Python string on one line, cut if long."""
    return '"' + escape(shorten(text).replace("\\", "\\\\").replace('"', '\\"')) + '"'


def quote_words(text: str) -> str:
    """Quote a text in double quotes as iptables listings do."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
    return f'"{escaped}"'
