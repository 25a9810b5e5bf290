"""Terminal output: answers on stdout, notes and warnings on stderr; in colour on a terminal, or if --color asks for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click

from netinit.base.logs import Log
from netinit.base.output import (
    answers_a_terminal,
    show,
    show_lines,
    show_lines_if_possible,
    show_object,
    show_painted,
    shows_on_a_terminal,
    width_of_answers,
    width_of_messages,
)
from netinit.base.sanitize import Lines, split_message
from netinit.cli.values import OneOf

AUTO, ALWAYS, NEVER = "auto", "always", "never"
RED, GREEN, YELLOW, MAGENTA, BOLD, DIM = "1;31", "32", "33", "35", "1", "2"
STYLES = {  # by the first words of a line
    "captured": GREEN, "direct": YELLOW, "dropped": RED, "unknown": MAGENTA,
    "as planned": GREEN, "NOT as planned": RED, "not proven": MAGENTA,
    "no rules of netinit here": YELLOW,
    "error": RED, "warning": YELLOW, "note": DIM, "missing": RED, "extra": YELLOW, "moved": YELLOW,
    "shadowing": YELLOW, "leftover": YELLOW, "inactive": RED, "escaping": RED, "doubt": YELLOW,
    "packet": BOLD, "path": BOLD, "what would change it": BOLD, "remedy": BOLD, "OK": GREEN, "probably OK": GREEN,
    "pods will not work": RED, "refused": RED, "to change it": BOLD, "no problems found": GREEN, "netinit": BOLD,
}  # fmt: skip
SIGNS = {"✔": GREEN, "✘": RED, "?": MAGENTA, "!": YELLOW}
_FIRST = re.compile(rf"( *)({'|'.join(sorted(map(re.escape, STYLES), key=len, reverse=True))})(?![\w-])")
_SIGN = re.compile(r"[✔✘]|^\s*[?!](?= )")
_LABEL = re.compile(r" *(?:[✔✘!?·*] )?(?:[a-z][a-z ]*: +)?")
_OPTION = re.compile(r"(?<!\S)(--?[\w-]+) (?=[^\s-])")
_GLUE = "\0"  # stands for a blank that must not be broken; occurs in no line
_NARROWEST = 30  # columns; narrower terminals wrap lines themselves
_KEY = "netinit.color"


color_option = click.option(  # applies to the whole command and is not passed to its function
    "--color", type=OneOf((AUTO, ALWAYS, NEVER)), default=AUTO, show_default=True, expose_value=False, is_eager=True,
    callback=lambda context, _, choice: context.meta.update({_KEY: choice}),
    help="Colour the output; auto does on a terminal, unless NO_COLOR is set or TERM is dumb.",
)  # fmt: skip


def wants_colour(is_terminal: bool) -> bool:
    """Whether to use colour on a stream: as --color says, or on a terminal without NO_COLOR or TERM=dumb."""
    context = click.get_current_context(silent=True)
    choice = context.meta.get(_KEY, AUTO) if context else AUTO
    if choice != AUTO:
        return bool(choice == ALWAYS)
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def answer(lines: Lines, *, now: bool = False) -> None:
    """Write the answer to stdout; `now` flushes it because more follows later."""
    is_terminal = answers_a_terminal()
    painted = wants_colour(is_terminal)
    if is_terminal or painted:
        show_painted(_rows(split_message(lines), width_of_answers(), painted=painted))
    else:
        show(lines, now=now)


def answer_either(tree: dict[str, Any], lines: Lines, *, as_json: bool, notes: Iterable[str] = ()) -> None:
    """Write the answer as JSON with its version, or as lines for people, with its notes."""
    if as_json:
        show_object(tree)
    else:
        note(notes)
        answer(lines)


def answer_again(texts: list[str], above: int) -> int:
    """Overwrite the previous answer of `above` lines; return the number of lines written."""
    show_painted(_rows(texts, 0, painted=wants_colour(answers_a_terminal())), above)
    return len(texts)


def fit(line: str, width: int) -> list[str]:
    """Wrap a line to `width` columns (0: unlimited) at blanks, not between an option and its value; the rest is indented."""
    if not width or width < _NARROWEST or len(line) <= width:
        return [line]
    import textwrap

    label = _LABEL.match(line)
    indented = len(line) - len(line.lstrip(" "))
    under = len(label[0]) if label and indented < len(label[0]) <= width // 3 else indented + 2
    parts = textwrap.wrap(
        _OPTION.sub(rf"\1{_GLUE}", line), width, subsequent_indent=" " * under, break_long_words=False, break_on_hyphens=False,
        replace_whitespace=False,
    )  # fmt: skip
    return [part.replace(_GLUE, " ") for part in parts]


def _rows(texts: Iterable[str], width: int, *, painted: bool) -> Iterator[list[tuple[str, str]]]:
    for text in texts:
        first, *more = fit(text, width)
        yield paint(first) if painted else [(first, "")]
        yield from [[(line, "")] for line in more]


def note(texts: Iterable[str], label: str = "note") -> None:
    """Print texts on stderr, each once, with the label; further lines of a text are indented."""
    split = [split_message(text) for text in dict.fromkeys(texts)]
    say([line for first, *more in split for line in (f"{label}: {first}", *[f"  {line}" for line in more])])


def warn(texts: Iterable[str]) -> None:
    """Print warnings."""
    note(texts, "warning")


def say(texts: Iterable[str]) -> None:
    """Write lines to stderr, wrapped for a terminal."""
    show_lines_if_possible(_rows(texts, width_of_messages(), painted=wants_colour(shows_on_a_terminal())))


def paint(line: str) -> list[tuple[str, str]]:
    """Split a line into styled parts, by its first words and by symbols."""
    first = _FIRST.match(line)
    parts = [(first[0], STYLES[first[2]])] if first else []
    rest = line[first.end() :] if first else line
    at = 0
    for sign in _SIGN.finditer(rest):
        parts += [(rest[at : sign.start()], ""), (sign[0], SIGNS[sign[0].strip()])]
        at = sign.end()
    return [*parts, (rest[at:], "")]


class TerminalLog(Log):
    """Log of the init container's job for terminals: plain text, without listings of all rules."""

    def info(self, message: str, text: str = "") -> None:
        """Print an event, with its listing only at the highest verbosity."""
        if not text or self.wants("debug"):
            super().info(message, text)

    def _write(self, level: str, message: str) -> None:
        if not self.wants(level):
            return
        labels = {"error": "netinit", "warn": "warning", "debug": "debug"}
        if level in labels:
            note([message], labels[level])
        else:
            show_lines(split_message(message))
