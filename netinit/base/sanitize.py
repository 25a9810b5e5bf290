"""Foreign text as people may see it: names, comments and errors of a pod command no terminal and forge no line. Pure.

What is not printable (Unicode's controls, those of direction and width, separators but the space, lone surrogates, tags)
is spelled as in a Python string. Everything that a command prints for people is made of `lines`; texts in a grammar of
their own (DOT, Mermaid, JSON) are escaped by that grammar too, after this.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 120  # characters of a foreign text that are shown
MOST_OF_A_LINE = 2000
MOST_OF_A_RULE = 400  # the longest that netinit writes, fifteen ports and both interfaces, is shorter


class Lines(str):
    """Whole lines that nobody else's text can have broken or added to; only `lines` makes them."""

    __slots__ = ()


def lines(texts: Iterable[str]) -> Lines:
    """One line a text. A line break inside a text is not ours, and shown escaped."""
    return Lines("".join([escape(text) + "\n" for text in texts]))


def escape(text: str, keep: str = "") -> str:
    """The text on one line: what is not printable is spelled as in a Python string, unless it is in `keep`.

    What was escaped stays as it is when it is escaped again.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text])


def split_message(message: str) -> list[str]:
    """The lines of a message as its author broke them: at line feeds alone, not at what else Python takes for a break."""
    return message.removesuffix("\n").split("\n")


def shorten(text: str, most: int = MOST) -> str:
    """The text, or its beginning and an ellipsis where it has more than `most` characters."""
    return text if len(text) <= most else text[:most] + "…"


def quote(text: str) -> str:
    """A foreign text as a quotation that it cannot close: a string of Python on one line, cut where it is long."""
    return '"' + escape(shorten(text).replace("\\", "\\\\").replace('"', '\\"')) + '"'


def quote_words(text: str) -> str:
    """A text, such as a comment, as listings of iptables have it between double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
    return f'"{escaped}"'
