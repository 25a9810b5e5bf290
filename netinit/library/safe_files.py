"""File access for manifests that is safe in directories of other users.

An owner can plant a symlink, pipe or device, and swap files between check and use. So each file is opened once, with
openat2(2), and the descriptor is checked. Symlinks are followed within the folder of -f, as in a mounted ConfigMap, and on
the path of -o if they belong to the caller or root.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import StringIO
from typing import IO

from netinit.base.system import LINUX, posix
from netinit.kernel.files import BENEATH, NO_LINKS, UnsuitableFileError, open_path

STDIN = "-"
MAX_FILE_BYTES = 128 << 20
"""Bytes of a file: twice what the limit of YAML nodes lets through."""
_MAX_LINKS = 40  # the kernel's limit (MAXSYMLINKS)
_TYPE_OF_FILE, _FOLDER = 0o170000, 0o040000
_LOOK = posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC
_READ = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC | getattr(posix, "O_BINARY", 0)
_NOWHERE = -100  # AT_FDCWD: the path is absolute
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_MANY = "too many symbolic links; name the file itself"
_REFUSALS = {errno.EXDEV: "a symbolic link that leaves the folder; name the file itself", errno.ELOOP: _MANY}


def is_folder(name: str) -> bool:
    """Whether the path is a directory. Raises OSError, or ValueError for a NUL in the name."""
    return os.stat(name).st_mode & _TYPE_OF_FILE == _FOLDER  # noqa: PTH116 - pathlib takes 6 ms to import


def read(name: str) -> bytes:
    """Read any readable file, pipes included, or stdin for `-`. Raises OSError, also if it is too long."""
    if name == STDIN:
        if sys.stdin is None:  # as Python has it where no such descriptor was open at the start
            raise OSError(errno.EBADF, "stdin is closed")
        return _bounded(sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
    with open(name, "rb") as file:  # noqa: PTH123 - pathlib takes 5 ms to import
        return _bounded(file.read(MAX_FILE_BYTES + 1))


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise UnsuitableFileError(f"longer than {MAX_FILE_BYTES >> 20} MiB; split it")
    return data


def listed(folder: str, suffixes: tuple[str, ...], *, recursive: bool) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the name of each of a directory's files with these suffixes, sorted, and what reads it.

    Directories behind symlinks are skipped. Raises OSError with the file's name; reading does so, too, for a symlink that leaves
    the directory and for a file that is not regular, which is never opened.
    """
    names = _names(folder, suffixes, recursive=recursive)
    for name in sorted(names, key=lambda name: name.split("/")):
        yield _join(folder, name), partial(_content, folder, name)


def _join(folder: str, name: str) -> str:
    """The path of a folder's file: `a.yaml` in the working folder, as programs name the files of a repository, and not `./a.yaml`."""
    start = folder.rstrip("/") if folder.strip("/") else ""
    while start.startswith("./"):
        start = start[2:].lstrip("/")
    return name if start == "." or (not start and folder[:1] != "/") else f"{start}/{name}"


def _names(folder: str, suffixes: tuple[str, ...], *, recursive: bool) -> list[str]:
    found: list[str] = []
    for path, folders, files in os.walk(folder, onerror=_raise):
        within = f"{path[len(folder) :].replace(os.sep, '/').strip('/')}/".lstrip("/")
        links = [name for name in folders if os.path.islink(f"{path}/{name}")]  # noqa: PTH114 - as in read
        found += [within + name for name in (*files, *links) if name.endswith(suffixes) and name not in suffixes]
        if not recursive:
            break
    return found


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _content(folder: str, name: str) -> bytes:
    if not LINUX:
        return _content_elsewhere(folder, name)
    try:
        with _closing(os.open(folder, posix.O_PATH | posix.O_CLOEXEC)) as top, _closing(open_path(top, name, BENEATH)) as seen:
            if not stat.S_ISREG(os.fstat(seen).st_mode):
                raise UnsuitableFileError("no regular file; move it out of the folder, or name the others")
            # through the descriptor, so that the file cannot be swapped; a lease of its owner does not block
            with open(os.open(f"/proc/self/fd/{seen}", posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC), "rb") as file:  # noqa: PTH123
                return _bounded(file.read(MAX_FILE_BYTES + 1))
    except OSError as error:
        error.filename, error.strerror = _join(folder, name), _REFUSALS.get(error.errno or 0, error.strerror)
        raise


def _content_elsewhere(folder: str, name: str) -> bytes:
    """Read a folder's file on systems without openat2(2): checked by its real path before and by its descriptor after it is opened."""
    path = f"{folder.rstrip('/')}/{name}"
    try:
        top, real = os.path.realpath(folder), os.path.realpath(path)
        if real != top and not real.startswith(os.path.join(top, "")):  # noqa: PTH118 - as in read
            raise UnsuitableFileError(_REFUSALS[errno.EXDEV])
        if not stat.S_ISREG(os.stat(real).st_mode):  # noqa: PTH116
            raise UnsuitableFileError("no regular file; move it out of the folder, or name the others")
        with open(os.open(real, _READ | posix.O_NOFOLLOW), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnsuitableFileError("another process put another file in its place")
            return _bounded(file.read(MAX_FILE_BYTES + 1))
    except OSError as error:
        error.filename = path
        raise


_MAX_KEPT = 4 << 20  # characters in memory; most manifests are shorter


class Spool:
    """Buffers text until it is complete: in memory, or in an unnamed file if it is long."""

    def __init__(self) -> None:
        self._file: IO[str] = StringIO(newline="")

    def write(self, piece: str) -> None:
        """Append text. Raises OSError if the disk is full."""
        self._file.write(piece)
        if isinstance(self._file, StringIO) and self._file.tell() > _MAX_KEPT:
            from tempfile import TemporaryFile  # takes 10 ms to import

            kept, self._file = self._file.getvalue(), TemporaryFile("w+", encoding="utf-8", newline="")  # noqa: SIM115 - lives as long
            self._file.write(kept)

    def pieces(self) -> Iterator[str]:
        """All text in order."""
        self._file.seek(0)
        return iter(lambda: self._file.read(1 << 18), "")


def replace(path: str, text: Iterable[str]) -> None:
    """Write a file atomically: it keeps the old content or gets all of the new.

    The target of a symlink of the caller or root is replaced; pipes and devices are written to. Raises OSError with nothing
    changed, UnsuitableFileError for what others could make of the path.
    """
    number = path.removeprefix("/dev/fd/")
    descriptor = int(number) if number != path and number.isdecimal() else _STANDARD.get(path)
    if descriptor is not None:  # the caller's own
        with open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as stream:
            stream.writelines(text)
        return
    if not LINUX:
        _replace_elsewhere(path, text)
        return
    parent, _, own = _resolve(path).rpartition("/")
    try:
        folder = open_path(_NOWHERE, parent or "/", NO_LINKS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UnsuitableFileError("another process changes its path meanwhile; use a folder of your own") from None
    with _closing(folder):
        _write_in(folder, own or ".", text)


def _replace_elsewhere(path: str, text: Iterable[str]) -> None:
    """Write a file atomically beside its real place, on systems without openat2(2)."""
    real = os.path.realpath(path)
    if os.path.exists(real) and not stat.S_ISREG(os.stat(real).st_mode):  # noqa: PTH110, PTH116 - as in read
        raise UnsuitableFileError("it is not a regular file")
    temporary = f"{real}.{os.getpid()}.{os.urandom(8).hex()}"
    handle = os.open(temporary, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC, 0o666)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as stream:  # noqa: PTH123 - as in read
            stream.writelines(text)
        os.replace(temporary, real)  # noqa: PTH105
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _write_in(folder: int, own: str, text: Iterable[str]) -> None:
    try:
        seen = os.open(own, _LOOK, dir_fd=folder)
    except FileNotFoundError:
        _replace(folder, own, text, 0o666)
        return
    with _closing(seen):
        found = os.fstat(seen)
        if stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode):
            _refuse_foreign(found.st_uid, "it")
            with open(os.open(f"/proc/self/fd/{seen}", posix.O_WRONLY | posix.O_NOCTTY), "w") as stream:  # noqa: PTH123
                stream.writelines(text)
            return
    if not stat.S_ISREG(found.st_mode):
        raise UnsuitableFileError("it is not a regular file")
    _replace(folder, own, text, found.st_mode & 0o777, is_own=found.st_uid == posix.geteuid())


def _resolve(path: str) -> str:
    """The absolute path without symlinks, which must belong to the caller or root; empty for the root directory."""
    if not path or path.endswith("/"):
        raise UnsuitableFileError("it is not a regular file")
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
        with _closing(seen):
            status = os.fstat(seen)
            if not stat.S_ISLNK(status.st_mode):
                real = f"{real}/{name}"
                continue
            _refuse_foreign(status.st_uid, "a symbolic link on the path")
            target = os.readlink("", dir_fd=seen)
        links += 1
        if links > _MAX_LINKS:
            raise UnsuitableFileError(_MANY)
        real = "" if target.startswith("/") else real
        todo += target.split("/")[::-1]
    return real


def _refuse_foreign(owner: int, what: str) -> None:
    if owner not in (0, posix.geteuid()):
        raise UnsuitableFileError(f"{what} belongs to the user {owner}, who could lead the output anywhere; name the file itself")


def _replace(folder: int, own: str, text: Iterable[str], mode: int, *, is_own: bool = False) -> None:
    """Write a new file and rename it; it has this mode, of which the umask takes bits unless the old file is the caller's."""
    temporary = f".{own[:200]}.{os.getpid()}.{os.urandom(8).hex()}"  # tempfile takes 10 ms to import
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
    handle = os.open(temporary, flags, mode & 0o666, dir_fd=folder)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as stream:  # noqa: PTH123 - as in read
            stream.writelines(text)
            stream.flush()
            if is_own:
                posix.fchmod(handle, mode)
            os.rename(temporary, own, src_dir_fd=folder, dst_dir_fd=folder)
            written, there = os.fstat(handle), os.stat(own, dir_fd=folder, follow_symlinks=False)
    except BaseException:
        with suppress(FileNotFoundError):  # the directory's owner was faster
            os.unlink(temporary, dir_fd=folder)
        raise
    if (written.st_dev, written.st_ino) != (there.st_dev, there.st_ino):
        raise UnsuitableFileError("another process put another file in its place; write into a folder of your own")
