"""File access of `inject` and `check-inject` that is safe in directories of other users.

An owner can plant a symlink, pipe or device, and swap files between check and use. So each file is opened once, with
openat2(2), and the descriptor is checked. Symlinks are followed within the folder of -f, as in a mounted ConfigMap, and on
the path of -o if they belong to the caller or root.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from typing import IO

from netinit.base.errors import NetinitError
from netinit.base.output import show_lines
from netinit.cli.inject.flags import STDIN
from netinit.kernel.files import BENEATH, NO_LINKS, open_path

MAX_FILE_BYTES = 128 << 20
"""Bytes of a file: twice what the limit of YAML nodes lets through."""
_MAX_LINKS = 40  # the kernel's limit (MAXSYMLINKS)
_TYPE, _LINK, _REGULAR = 0o170000, 0o120000, 0o100000
_STREAMS = (0o010000, 0o020000)
"""Pipes and character devices."""
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_DEVICES, _DESCRIPTORS = "/dev/", "/dev/fd/"
_STANDARD = {"stdout": 1, "stderr": 2}
_MANY = "too many symbolic links; name the file itself"
_REFUSALS = {errno.EXDEV: "a symbolic link that leaves the folder; name the file itself with -f", errno.ELOOP: _MANY}


class RefusedFileError(Exception):
    """A file that must not be opened; the message has the reason and the remedy."""


def read(name: str) -> bytes:
    """Read any readable file, pipes included, or stdin for `-`. Raises OSError, or RefusedFileError if it is too long."""
    if name == STDIN:
        return _bounded(sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
    with open(name, "rb") as file:  # noqa: PTH123 - pathlib takes 5 ms to import
        return _bounded(file.read(MAX_FILE_BYTES + 1))


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise RefusedFileError(f"longer than {MAX_FILE_BYTES >> 20} MiB; split it")
    return data


def listed(folder: str, suffixes: tuple[str, ...], *, recursive: bool) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of a directory's files with these suffixes, sorted by name.

    Directories behind symlinks are skipped. Raises OSError, or RefusedFileError for a symlink that leaves the directory and for
    a file that is not regular, which is never opened.
    """
    names = _names(folder, suffixes, recursive=recursive)
    for name in sorted(names, key=lambda name: name.split("/")):
        yield f"{folder.rstrip('/')}/{name}", _content(folder, name)


def _names(folder: str, suffixes: tuple[str, ...], *, recursive: bool) -> list[str]:
    found: list[str] = []
    for path, folders, files, opened in os.fwalk(folder, onerror=_raise):
        within = f"{path[len(folder) :].strip('/')}/".lstrip("/")
        links = [name for name in folders if os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode & _TYPE == _LINK]
        found += [within + name for name in (*files, *links) if name.endswith(suffixes) and name not in suffixes]
        if not recursive:
            folders.clear()
    return found


def _raise(error: OSError) -> None:
    raise error


def _content(folder: str, name: str) -> bytes:
    try:
        top = os.open(folder, _FOLDER)
        try:
            seen = open_path(top, name, BENEATH)
        finally:
            os.close(top)
        try:
            if os.fstat(seen).st_mode & _TYPE != _REGULAR:
                raise RefusedFileError("no regular file; take it out of the folder, or name the others with -f")
            # through the descriptor, so that the file cannot be swapped
            handle = os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(seen)
        with open(handle, "rb") as file:  # noqa: PTH123 - as in read
            return _bounded(file.read(MAX_FILE_BYTES + 1))
    except (OSError, NetinitError, RefusedFileError) as error:
        reason = _REFUSALS.get(error.errno or 0, error.strerror) if isinstance(error, OSError) else str(error)
        raise RefusedFileError(f"{folder.rstrip('/')}/{name}: cannot be read: {reason}") from error


_MAX_KEPT = 4 << 20  # characters in memory; most manifests are shorter


class Spool:
    """Buffers text until it is complete: in memory, or in an unnamed file if it is long."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._size = 0
        self._file: IO[str] | None = None

    def write(self, piece: str) -> None:
        """Append text. Raises OSError if the disk is full."""
        self._kept.append(piece)
        self._size += len(piece)
        if self._size > _MAX_KEPT:
            if self._file is None:
                from tempfile import TemporaryFile  # takes 10 ms to import, and most manifests are short

                self._file = TemporaryFile("w+", encoding="utf-8", newline="")  # noqa: SIM115 - lives as long
            self._file.writelines(self._kept)
            self._kept, self._size = [], 0

    def pieces(self) -> Iterator[str]:
        """All text in order."""
        if self._file is not None:
            self._file.seek(0)
            while piece := self._file.read(1 << 18):
                yield piece
        yield from self._kept


def replace(path: str, text: Iterable[str]) -> None:
    """Write a file atomically: it keeps the old content or gets all of the new.

    The target of a symlink of the caller or root is replaced; pipes and devices are written to. Raises OSError or
    RefusedFileError with nothing changed.
    """
    if (descriptor := _descriptor_of(path)) is not None:
        with open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as stream:
            stream.writelines(text)
        return
    parent, _, own = _resolve(path).rpartition("/")
    folder = _open_folder(parent)
    try:
        _write_in(folder, own or ".", text)
    finally:
        os.close(folder)


def _write_in(folder: int, own: str, text: Iterable[str]) -> None:
    try:
        seen = os.open(own, _LOOK, dir_fd=folder)
    except FileNotFoundError:
        _replace(folder, own, text, 0o666 & ~_umask())
        return
    try:
        found = os.fstat(seen)
        if found.st_mode & _TYPE in _STREAMS:
            _refuse_foreign(found.st_uid, "it")
            with open(os.open(f"/proc/self/fd/{seen}", os.O_WRONLY | os.O_NOCTTY), "w") as stream:  # noqa: PTH123
                stream.writelines(text)
            return
    finally:
        os.close(seen)
    if found.st_mode & _TYPE != _REGULAR:
        raise RefusedFileError("it is no regular file")
    mode = found.st_mode & 0o777
    _replace(folder, own, text, mode if found.st_uid == os.geteuid() else mode & 0o666 & ~_umask())


def _resolve(path: str) -> str:
    """The absolute path without symlinks, which must belong to the caller or root; empty for the root directory."""
    if not path or path.endswith("/"):
        raise RefusedFileError("it is no regular file")
    real, todo, links = "" if path.startswith("/") else os.getcwd().rstrip("/"), path.split("/")[::-1], 0  # noqa: PTH109 - as in read
    while todo:
        name = todo.pop()
        if name in ("", ".", ".."):
            real = real.rpartition("/")[0] if name == ".." else real
            continue
        try:
            seen = os.open(f"{real}/{name}", _LOOK)
        except FileNotFoundError:
            if todo:
                raise
            return f"{real}/{name}"
        try:
            status = os.fstat(seen)
            if status.st_mode & _TYPE != _LINK:
                real = f"{real}/{name}"
                continue
            _refuse_foreign(status.st_uid, "a symbolic link on the path")
            target = os.readlink("", dir_fd=seen)
        finally:
            os.close(seen)
        links += 1
        if links > _MAX_LINKS:
            raise RefusedFileError(_MANY)
        real = "" if target.startswith("/") else real
        todo += target.split("/")[::-1]
    return real


def _open_folder(path: str) -> int:
    root = os.open("/", _FOLDER)
    try:
        return open_path(root, path.lstrip("/") or ".", NO_LINKS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RefusedFileError("another process changes its path meanwhile; use a folder of your own") from None
    finally:
        os.close(root)


def _descriptor_of(path: str) -> int | None:
    """The caller's own open file descriptor that the path denotes (/proc/self/fd/N), or None."""
    number = path.removeprefix(_DESCRIPTORS)
    if number != path and number.isdecimal():
        return int(number)
    device = path.removeprefix(_DEVICES)
    return _STANDARD.get(device) if device != path else None


def _refuse_foreign(owner: int, what: str) -> None:
    if owner not in (0, os.geteuid()):
        raise RefusedFileError(f"{what} belongs to the user {owner}, who could lead the output anywhere; name the file itself")


def _replace(folder: int, own: str, text: Iterable[str], mode: int) -> None:
    temporary = f".{own[:200]}.{os.getpid()}.{os.urandom(8).hex()}"  # tempfile takes 10 ms to import
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as stream:  # noqa: PTH123 - as in read
            stream.writelines(text)
            stream.flush()
            os.fchmod(handle, mode)
            os.rename(temporary, own, src_dir_fd=folder, dst_dir_fd=folder)
            written, there = os.fstat(handle), os.stat(own, dir_fd=folder, follow_symlinks=False)
    except BaseException:
        _remove(folder, temporary)
        raise
    if (written.st_dev, written.st_ino) != (there.st_dev, there.st_ino):
        raise RefusedFileError("another process put another file in its place; write into a folder of your own")


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:  # the directory's owner was faster
        show_lines([f"{name}: another process removed the temporary file"])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
