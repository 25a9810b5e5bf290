"""Reads manifests, and other texts that people name: files, folders, patterns, and stdin."""

from __future__ import annotations

import os
from collections.abc import Sequence

from netinit.base.errors import NetinitError, OptionError, ParseError
from netinit.base.sanitize import shorten, split_message
from netinit.library import safe_files
from netinit.library.safe_files import STDIN, is_folder
from netinit.options.declare import is_flag
from netinit.options.kinds import quote_value

_SUFFIXES = (".yaml", ".yml", ".json")


def in_file(name: str, error: NetinitError) -> str:
    """An error's lines, each prefixed with the file name."""
    shown = "stdin" if name == STDIN else shorten(name)
    return "\n".join(f"{shown}: {line}" for line in split_message(str(error)))


def is_file(text: str) -> bool:
    """Whether the text names an existing file; overlong texts, such as options, do not."""
    return os.path.isfile(text)  # noqa: PTH113 - pathlib takes 5 ms to import


def read_file(name: str, label: str) -> str:
    """Text of a file, or of stdin for `-`. Raises OptionError, which names the `label`."""
    try:
        return read_text(name).replace("\r\n", "\n")
    except ParseError as error:
        raise OptionError(f"{label}: {error}") from None


def read_text(name: str) -> str:
    """Text of a file or stdin. Raises ParseError if it is unreadable or not UTF-8."""
    try:
        data = safe_files.read(name)
    except OSError as error:
        raise ParseError(f"{shorten(name)}: cannot be read: {error.strerror}") from error
    return _decoded(name, data)


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"{shorten(name)}: not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}") from error


def read_manifests(names: Sequence[str], label: str = "-f", *, recursive: bool) -> list[tuple[str, str]]:
    """Name and text of each manifest in files, `-`, directories and patterns such as *.yaml; errors name the option `label`."""
    if names.count(STDIN) > 1:
        raise OptionError(f"{label}: '-' is given twice, and stdin can be read once; give it once")
    found: list[tuple[str, str]] = []
    for name in [path for given in names for path in _matching(given, label)]:
        if name == STDIN:
            found.append((name, read_text(name)))
            continue
        try:
            folder = is_folder(name)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            remedy = "options are given before --" if is_flag(name) else "name a file, a folder, or - for stdin"
            raise OptionError(f"{label}: {quote_value(name)} does not exist; {remedy}") from None
        except OSError as error:
            raise ParseError(f"{shorten(name)}: cannot be read: {error.strerror}") from error
        found += _files_of(name, label, recursive=recursive) if folder else [(name, read_text(name))]
    return found


def _matching(name: str, label: str) -> list[str]:
    """Files that match a pattern; an existing name, or one without wildcards, stands for itself."""
    if not any(sign in name for sign in "*?[") or os.path.lexists(name):
        return [name]
    from glob import glob  # rarely needed

    if not (found := sorted(glob(name, recursive=True))):  # noqa: PTH207 - a pattern may be absolute
        raise OptionError(f"{label}: no file matches {quote_value(name)}")
    return found


def _files_of(folder: str, label: str, *, recursive: bool) -> list[tuple[str, str]]:
    try:
        files = [(name, _decoded(name, data)) for name, data in safe_files.listed(folder, _SUFFIXES, recursive=recursive)]
    except OSError as error:
        raise ParseError(f"{shorten(error.filename)}: cannot be read: {error.strerror}") from error
    if not files:
        raise OptionError(f"{label}: {quote_value(folder)} has no file ending in {', '.join(_SUFFIXES)}")
    return files
