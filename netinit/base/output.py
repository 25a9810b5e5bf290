"""Output of commands. Only this module and the event log write to stdout and stderr.

Lines for people are `sanitize.Lines`. Documents (rules, YAML, JSON) quote foreign text as their format defines and are
written unchanged; on a terminal their control characters are escaped too.
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

_LAYOUT = "\n\t"


def show(lines: sanitize.Lines, *, now: bool = False) -> None:
    """Write lines to stdout; `now` flushes. Raises NetinitError if stdout is closed."""
    stream = _stdout()
    stream.write(lines)
    if now:
        stream.flush()


def show_artefact(text: str, *, now: bool = False) -> None:
    """Write a document to stdout; `now` flushes. Raises NetinitError if stdout is closed."""
    stream = _stdout()
    stream.write(sanitize.escape(text, keep=_LAYOUT) if stream.isatty() else text)
    if now:
        stream.flush()


def show_object(tree: dict[str, Any], *, now: bool = False) -> None:
    """Write an object as JSON with its version: indented, or on one line that is flushed, as more follow."""
    import json

    from netinit.base.json_answers import to_json, with_version

    show_artefact(json.dumps(with_version(tree)) + "\n" if now else to_json(with_version(tree)), now=now)


def show_painted(rows: Iterable[Iterable[tuple[str, str]]], above: int | None = None) -> None:
    """Write lines to stdout and flush: texts, each with SGR parameters (empty for none).

    `above`: overwrite the last so many lines of a terminal; each line must fit its width.
    """
    stream = _stdout()
    start = "" if above is None else (f"\x1b[{above}A" if above else "") + "\r\x1b[J"
    stream.write(start + "".join(map(_paint_line, rows)))
    stream.flush()


def show_lines(texts: Iterable[str]) -> None:
    """Write lines to stderr, very long ones shortened; nothing if stderr is closed."""
    show_painted_lines([[(text, "")] for text in texts])


def show_lines_if_possible(rows: Iterable[Iterable[tuple[str, str]]]) -> None:
    """Write lines to stderr; errors such as a full disk do not end the run."""
    try:
        show_painted_lines(rows)
        if sys.stderr is not None:
            sys.stderr.flush()
    except BrokenPipeError:
        raise
    except OSError:
        discard_stderr()


def show_painted_lines(rows: Iterable[Iterable[tuple[str, str]]]) -> None:
    """Write lines to stderr in parts, each with a terminal style."""
    if sys.stderr is not None:
        for parts in rows:
            sys.stderr.write(_paint_line([(sanitize.shorten(text, sanitize.MAX_LINE_LENGTH), style) for text, style in parts]))


def show_progress(text: str, *, last: bool) -> None:
    """Replace the progress line on stderr."""
    sys.stderr.write(f"\r{sanitize.escape(text)}" + ("\n" if last else ""))
    sys.stderr.flush()


def answers_a_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def shows_on_a_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def width_of_answers() -> int:
    """The columns of stdout's terminal; 0 if there is none or it does not report them."""
    return _find_width(sys.stdout)


def width_of_messages() -> int:
    """The columns of stderr's terminal; 0 if there is none or it does not report them."""
    return _find_width(sys.stderr)


def can_show(text: str) -> bool:
    """Whether stdout's encoding has these characters."""
    try:
        text.encode(_stdout().encoding)
    except UnicodeEncodeError:
        return False
    return True


def _find_width(stream: TextIO | None) -> int:
    import os

    if stream is None or not stream.isatty():
        return 0
    named = os.environ.get("COLUMNS", "")
    try:
        return int(named) if named.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return 0


def _stdout() -> TextIO:
    if sys.stdout is None:
        raise NetinitError("stdout is closed: nothing can be printed; open it, or send it to /dev/null")
    return sys.stdout


def _paint_line(parts: Iterable[tuple[str, str]]) -> str:
    painted = [(f"\x1b[{style}m{sanitize.escape(text)}\x1b[0m" if style else sanitize.escape(text)) for text, style in parts]
    return "".join(painted) + "\n"
