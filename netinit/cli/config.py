"""Reads the option file named by --config (NETINIT_CONFIG): YAML or JSON."""

from __future__ import annotations

import re
import sys

from netinit.base.errors import OptionError, ParseError
from netinit.base.sanitize import shorten
from netinit.options import Options
from netinit.options.file import read_tree
from netinit.options.kinds import quote_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from netinit.options.kinds import Text

MAX_BYTES = 1 << 20  # a file with every option is a few KiB
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+")


def read_options(
    texts: Mapping[str, tuple[Text, str]], environ: Mapping[str, str], known_problems: Sequence[str] = ()
) -> Options:
    """Merge command line and environment over the option file. Raises one OptionError with all problems."""
    path = str(texts["config"][0]) if "config" in texts else environ["NETINIT_CONFIG"]
    file: Mapping[str, tuple[Text, str]] = {}
    problems = list(known_problems)
    if path:
        try:
            file = read_tree(load_file(path, "--config"), path)
        except OptionError as error:
            problems += error.problems
    return Options.from_texts(texts, environ, problems, file)


def load_file(path: str, label: str) -> Any:
    """Parse a YAML or JSON file (`-` is stdin). Raises OptionError beginning with the label."""
    shown, place = f"{label}: {quote_value(path)}", f"{label}: {'stdin' if path == '-' else shorten(path)}"
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as opened:  # noqa: PTH123 - keeps the path unchanged, and saves an import
                data = opened.read(MAX_BYTES + 1)
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise OptionError(f"{shown} is not text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise OptionError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise OptionError(f"{shown} is longer than {MAX_BYTES >> 20} MB, too long for a file of options")
    try:
        from netinit.inject.deciding import yaml_texts

        tree, duplicates = yaml_texts.load_reporting(text)
    except ImportError:
        raise OptionError(f"{shown}: reading files needs the Python package PyYAML; install it") from None
    except ParseError as error:
        raise OptionError(error.in_file(place)) from None
    if problems := [*duplicates, *_find_octal_numbers(text)]:
        raise OptionError(*[one.in_file(place) for one in problems])
    return tree


def _find_octal_numbers(text: str) -> Iterator[ParseError]:
    """An error for each number that YAML reads as octal: 010 is 8."""
    from netinit.golang.goyaml.events import scan, value_of

    for event in scan(text):
        value = value_of(event) if event.__class__.__name__ == "ScalarEvent" else None
        if value.__class__ is int and _LEADING_ZERO.fullmatch(event.value):
            problem = f"{event.value} is the number {value} in YAML: write it without the leading zero"
            yield ParseError(problem, event.start_mark.line + 1, event.start_mark.column + 1)
