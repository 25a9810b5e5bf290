"""Reads manifests, and other texts that people name: files, folders, patterns, and stdin."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from netinit.base.errors import NetinitError, OptionError, ParseError
from netinit.base.sanitize import shorten, split_message
from netinit.inject.deciding.manifests import ManifestFile, separate_objects
from netinit.library import safe_files
from netinit.library.safe_files import STDIN, is_folder
from netinit.options.declare import is_flag
from netinit.options.kinds import quote_value

_MARKS_OF_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SUFFIXES = (".yaml", ".yml", ".json")
Takes = Callable[[str], bool]
"""Whether to read the file of this name."""


def shown_name(name: str) -> str:
    """The name of a file for messages."""
    return "stdin" if name == STDIN else shorten(name)


def in_file(name: str, error: NetinitError) -> str:
    """An error's lines, each prefixed with the file name, and the place in the file if it is known."""
    shown = shown_name(name)
    if isinstance(error, ParseError) and error.line:
        return error.in_file(shown)
    return "\n".join(f"{shown}: {line}" for line in split_message(str(error)))


def is_file(text: str) -> bool:
    """Whether the text names an existing file; overlong texts, such as options, do not."""
    return os.path.isfile(text)  # noqa: PTH113 - pathlib takes 5 ms to import


def is_manifest_name(name: str) -> bool:
    """Whether a folder's file of this name is read."""
    return name.endswith(_SUFFIXES)


def read_file(name: str, label: str) -> str:
    """Text of a file, or of stdin for `-`. Raises OptionError, which names the `label`."""
    try:
        return read_text(name).replace("\r\n", "\n")
    except ParseError as error:
        raise OptionError(f"{label}: {error}") from None


def read_text(name: str) -> str:
    """Text of a file or stdin. Raises ParseError if it is unreadable or neither UTF-8 nor, with its mark, UTF-16."""
    return _text_of(_read_file(name, partial(safe_files.read, name)))


def _read_file(name: str, read: Callable[[], bytes]) -> ManifestFile:
    try:
        data = read().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        return ManifestFile(name=name, text="", problem=f"cannot be read: {error.strerror}")
    encoding = "UTF-16" if data.startswith(_MARKS_OF_UTF_16) else "UTF-8"  # as Windows PowerShell's > writes it; YAML may be both
    try:
        return ManifestFile(name=name, text=data.decode(encoding))
    except UnicodeDecodeError as error:
        problem = f"not {encoding}: byte {error.start} is 0x{data[error.start]:02x}"
        text = data.decode(errors="replace").replace("\0", "")  # UTF-16 has a NUL beside each letter
        return ManifestFile(name=name, text=text, problem=problem)


def _as_documents(file: ManifestFile) -> ManifestFile:
    return file if file.problem else file.replace(text=separate_objects(file.text))


def _text_of(file: ManifestFile) -> str:
    if file.problem:
        raise ParseError(f"{shorten(file.name)}: {file.problem}")
    return file.text


def read_manifests(names: Sequence[str], label: str = "-f", *, recursive: bool) -> list[tuple[str, str]]:
    """Name and text of each manifest in files, `-`, directories and patterns such as *.yaml; errors name the option `label`."""
    return [(file.name, _text_of(file)) for file in read_each(names, label, recursive=recursive)]


def read_each(names: Sequence[str], label: str, *, recursive: bool, takes: Takes = lambda name: True) -> Iterator[ManifestFile]:  # noqa: ARG005
    """Each manifest in files, `-`, directories and patterns, once, also those that cannot be read, as far as `takes` says so.

    Errors name the option `label`, if there is one. Raises OptionError for a name that is none, ParseError for a directory that
    cannot be listed.
    """
    of_option = f"{label}: " if label else ""
    if names.count(STDIN) > 1:
        raise OptionError(f"{of_option}'-' is given twice, and stdin can be read once; give it once")
    seen = set[str]()
    for name in [path for given in names for path in _matching(given, of_option)]:
        if name == STDIN:
            yield _as_documents(_read_file(name, partial(safe_files.read, name)))
            continue
        try:
            folder = is_folder(name)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            remedy = "options are given before --" if is_flag(name) else "name a file, a folder, or - for stdin"
            raise OptionError(f"{of_option}{quote_value(name)} does not exist; {remedy}") from None
        except OSError as error:
            raise ParseError(f"{shorten(name)}: cannot be read: {error.strerror}") from error
        found = _files_of(name, of_option, recursive=recursive) if folder else [(name, partial(safe_files.read, name))]
        new = [(os.path.normpath(file), file, read) for file, read in found if takes(file)]
        yield from [_as_documents(_read_file(file, read)) for path, file, read in new if path not in seen]
        seen |= {path for path, _, _ in new}


def _matching(name: str, of_option: str) -> list[str]:
    """Files that match a pattern; an existing name, or one without wildcards, stands for itself."""
    if not any(sign in name for sign in "*?[") or os.path.lexists(name):
        return [name]
    from glob import glob  # rarely needed

    if not (found := sorted(glob(name, recursive=True))):  # noqa: PTH207 - a pattern may be absolute
        raise OptionError(f"{of_option}no file matches {quote_value(name)}")
    return found


def _files_of(folder: str, of_option: str, *, recursive: bool) -> list[tuple[str, Callable[[], bytes]]]:
    try:
        files = list(safe_files.listed(folder, _SUFFIXES, recursive=recursive))
    except OSError as error:
        raise ParseError(f"{shorten(error.filename)}: cannot be read: {error.strerror}") from error
    if not files:
        raise OptionError(f"{of_option}{quote_value(folder)} has no file ending in {', '.join(_SUFFIXES)}")
    return files


class FileExclusion:
    """Says which files to read; counts those that a pattern leaves out: by path, by name, or by a folder that they are in."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.left_out = 0
        self._patterns = [form for one in patterns for form in (one.strip("/"), f"{one.strip('/')}/*")]

    def takes(self, name: str) -> bool:
        """Whether no pattern matches the end of the path, or the path of a folder in it."""
        from fnmatch import fnmatchcase  # rarely needed

        parts = name.split("/")[-_MAX_DEPTH:] if self._patterns else []
        ends = ["/".join(parts[start:]) for start in range(len(parts))]
        taken = not any(fnmatchcase(end, pattern) for end in ends for pattern in self._patterns)
        self.left_out += not taken
        return taken


_MAX_DEPTH = 64  # folders of a path that are compared with patterns: deeper than any repository
