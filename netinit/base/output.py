"""What commands print: lines for people, artefacts for programs. With the event log the only way to stdout and stderr.

Lines for people are `shown.Lines`, which hold nothing that a terminal obeys. An artefact (rules, YAML, JSON, a picture) is
written to the letter, for its format says how it holds foreign text; on a terminal, which reads no format, what a
terminal obeys is escaped there too.
"""

from __future__ import annotations

import sys

from netinit.base import sanitize
from netinit.base.errors import NetinitError
from netinit.base.logs import discard_stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TextIO

ANSWER_VERSION = 1  # of the JSON that commands print; netinit/data/*.schema.json describes each
_LAYOUT = "\n\t"


def show(lines: sanitize.Lines, *, now: bool = False) -> None:
    """Writes the answer to stdout, and at once where more follows later. NetinitError where the process was started without one."""
    stream = _stdout()
    stream.write(lines)
    if now:
        stream.flush()


def show_artefact(text: str, *, now: bool = False) -> None:
    """Writes an artefact to stdout, and at once where somebody waits for each. NetinitError as above."""
    stream = _stdout()
    stream.write(sanitize.escape(text, keep=_LAYOUT) if stream.isatty() else text)
    if now:
        stream.flush()


def with_version(tree: dict[str, Any]) -> dict[str, Any]:
    """An answer as an object: `version` rises when a field that readers rely on goes or changes, not when one is added."""
    return {"version": ANSWER_VERSION, **tree}


def to_json(value: Any) -> str:
    """The document in ASCII, indented: foreign text can neither command a terminal nor be something else to its reader."""
    import json

    return json.dumps(value, indent=2) + "\n"


def show_in_place(rows: Iterable[Iterable[tuple[str, str]]], above: int) -> None:
    """Writes lines over the last `above` ones of a terminal, at once; each has to fit into its width."""
    stream = _stdout()
    stream.write((f"\x1b[{above}A" if above else "") + "\r\x1b[J")
    stream.write("".join(["".join([_paint(text, style) for text, style in parts]) + "\n" for parts in rows]))
    stream.flush()


def show_painted(parts: Iterable[tuple[str, str]]) -> None:
    """Writes one line to stdout at once: texts, each with its style of the terminal (SGR parameters; empty for none)."""
    stream = _stdout()
    stream.write("".join([_paint(text, style) for text, style in parts]) + "\n")
    stream.flush()


def show_lines(texts: Iterable[str]) -> None:
    """Writes lines to stderr, cut where somebody's value is a page; nothing is written where the process has no stderr."""
    if sys.stderr is not None:
        sys.stderr.write(sanitize.lines([sanitize.shorten(text, sanitize.MOST_OF_A_LINE) for text in texts]))


def show_lines_if_possible(rows: Iterable[Iterable[tuple[str, str]]]) -> None:
    """The same; where stderr cannot be written (a full disk) nobody is told, and the run goes on."""
    try:
        show_painted_lines(rows)
        if sys.stderr is not None:
            sys.stderr.flush()
    except BrokenPipeError:
        raise
    except OSError:
        discard_stderr()


def show_painted_lines(rows: Iterable[Iterable[tuple[str, str]]]) -> None:
    """Writes lines to stderr in parts, each with its style of the terminal."""
    if sys.stderr is not None:
        for parts in rows:
            sys.stderr.write("".join([_paint(sanitize.shorten(text, sanitize.MOST_OF_A_LINE), style) for text, style in parts]) + "\n")


def show_progress(text: str, *, last: bool) -> None:
    """Writes over the line of stderr that showed the progress before."""
    sys.stderr.write(f"\r{sanitize.escape(text)}" + ("\n" if last else ""))
    sys.stderr.flush()


def answers_a_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def shows_on_a_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def can_show(text: str) -> bool:
    """Whether the encoding of stdout has these characters."""
    try:
        text.encode(_stdout().encoding)
    except UnicodeEncodeError:
        return False
    return True


def _stdout() -> TextIO:
    if sys.stdout is None:
        raise NetinitError("stdout is closed: nothing can be printed; open it, or send it to /dev/null")
    return sys.stdout


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{sanitize.escape(text)}\x1b[0m" if style else sanitize.escape(text)
