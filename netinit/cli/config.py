"""Reads the option file named by --config (NETINIT_CONFIG): YAML or JSON."""

from __future__ import annotations

import sys

from netinit.base.errors import OptionError, ParseError
from netinit.base.sanitize import shorten
from netinit.options import Options
from netinit.options.file import read_tree
from netinit.options.kinds import quote_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from netinit.options.kinds import Text

MAX_BYTES = 1 << 20  # a file with every option is a few KiB


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
    if problems := [*duplicates, *yaml_texts.find_octal_numbers(text)]:
        raise OptionError(*[one.in_file(place) for one in problems])
    return tree
