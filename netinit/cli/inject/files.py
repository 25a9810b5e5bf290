"""Files of `inject` and `check-inject`, which may lie in folders of other people: walked by descriptor, one name at a time.

Whoever owns a folder can put a link, a pipe or a device where a file is expected, and swap it between two looks. So
nothing is looked up twice by its path: a name is opened within the descriptor of its folder, without following it, and
what the descriptor shows is what is used. A link is read from its own descriptor and followed where the rule allows it:

- within a folder given to -f, links that stay in it (a mounted ConfigMap is made of such);
- on the path to the file of -o, links of the caller and of root.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Self

from netinit.base.output import show_lines
from netinit.cli.inject.flags import STDIN

__all__ = ["LARGEST", "RefusedFileError", "Spool", "listed", "read", "replace"]

LARGEST = 128 << 20
"""Bytes of a file: twice what the limit of YAML nodes lets through."""
_MOST_LINKS = 40
_TYPE, _FOLDER, _LINK, _REGULAR = 0o170000, 0o040000, 0o120000, 0o100000
_STREAMS = (0o010000, 0o020000)
"""Pipes and character devices."""
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_GO = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_DEVICES, _DESCRIPTORS = "/dev/", "/dev/fd/"
_STANDARD = {"stdout": 1, "stderr": 2}


class RefusedFileError(Exception):
    """A file that must not be opened; the message says why and what to do."""


def _kind(descriptor: int) -> int:
    return os.fstat(descriptor).st_mode & _TYPE


class _FolderWalk:
    """A path through folders by descriptors, from `start` on; `follow` raises for links that must not be followed."""

    def __init__(self, start: int, follow: Callable[[int, str], None], *, beneath: bool = False) -> None:
        self.folders = [start]
        self.follow = follow
        self.beneath = beneath
        self.links = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.folders:
            os.close(descriptor)

    @property
    def folder(self) -> int:
        """The descriptor of the folder that was reached."""
        return self.folders[-1]

    def to(self, path: str) -> str:
        """Go to the folder of the file that the path leads to; the file's own name, which may not exist there."""
        todo = [*reversed(path.split("/"))]
        if path.startswith("/"):
            self._enter("/")
        while todo:
            name = todo.pop()
            if name in ("", ".") and todo:
                continue
            if name == "..":
                self._leave()
                continue
            if not todo and not self._is_link(name or "."):
                return name or "."
            todo += self._step(name, last=not todo)
        return "."

    def _is_link(self, name: str) -> bool:
        try:
            descriptor = os.open(name, _LOOK, dir_fd=self.folder)
        except FileNotFoundError:
            return False
        try:
            return _kind(descriptor) == _LINK
        finally:
            os.close(descriptor)

    def _step(self, name: str, *, last: bool) -> list[str]:
        """Enter the folder of that name; where it is a link, what is to be walked instead."""
        descriptor = os.open(name, _LOOK, dir_fd=self.folder)
        kind = _kind(descriptor)
        if kind == _FOLDER and not last:
            self.folders.append(descriptor)
            return []
        try:
            if kind == _LINK:
                return self._target(descriptor)
        finally:
            os.close(descriptor)
        if last:  # it was a link a moment ago
            raise RefusedFileError("another process changes it meanwhile; use a folder of your own")
        raise NotADirectoryError(20, "Not a directory")

    def _target(self, link: int) -> list[str]:
        self.links += 1
        if self.links > _MOST_LINKS:
            raise RefusedFileError("too many symbolic links; name the file itself")
        target = os.readlink("", dir_fd=link)
        self.follow(link, target)
        if target.startswith("/"):
            self._enter("/")
        return [*reversed(target.split("/"))]

    def _enter(self, path: str) -> None:
        self.folders.append(os.open(path, _GO))

    def _leave(self) -> None:
        if not self.beneath:
            self.folders.append(os.open("..", _GO, dir_fd=self.folder))
        elif len(self.folders) == 1:
            raise RefusedFileError("a symbolic link that leaves the folder; name the file itself with -f")
        else:
            os.close(self.folders.pop())


# --- reading -----------------------------------------------------------------------------------------------------


def read(name: str) -> bytes:
    """The content of a file that the user named: any kind that can be read, a pipe too, `-` for stdin.

    Raises OSError, or RefusedFileError where it has no end in sight.
    """
    if name == STDIN:
        return _bounded(sys.stdin.buffer.read(LARGEST + 1))
    with open(name, "rb") as file:  # noqa: PTH123 - pathlib takes 5 ms to import
        return _bounded(file.read(LARGEST + 1))


def _bounded(data: bytes) -> bytes:
    if len(data) > LARGEST:
        raise RefusedFileError(f"longer than {LARGEST >> 20} MiB; split it")
    return data


def listed(folder: str, suffixes: tuple[str, ...], *, recursive: bool) -> Iterator[tuple[str, bytes]]:
    """The names and contents of a folder's files that end so, in the order of their names.

    Raises OSError, or RefusedFileError for a link that leaves the folder and for what is no regular file: such a thing
    is never opened. Folders behind links are not entered.
    """
    names = _names(folder, suffixes, recursive=recursive)
    for name in sorted(names, key=lambda name: name.split("/")):
        yield f"{folder.rstrip('/')}/{name}", _content(folder, name)


def _names(folder: str, suffixes: tuple[str, ...], *, recursive: bool) -> list[str]:
    """The paths of the files within the folder."""
    found: list[str] = []
    todo = [""]
    while todo:
        within = todo.pop()
        with _FolderWalk(os.open(folder, _GO), _stay, beneath=True) as walk:
            walk.to(within + ".")
            opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=walk.folder)
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo += [f"{within}{entry.name}/"] if recursive else []
                    elif entry.name.endswith(suffixes) and entry.name not in suffixes:
                        found.append(within + entry.name)
        finally:
            os.close(opened)
    return found


def _stay(_link: int, target: str) -> None:
    if target.startswith("/"):
        raise RefusedFileError("a symbolic link that leaves the folder; name the file itself with -f")


def _content(folder: str, name: str) -> bytes:
    try:
        with _FolderWalk(os.open(folder, _GO), _stay, beneath=True) as walk:
            own = walk.to(name)
            seen = os.open(own, _LOOK, dir_fd=walk.folder)
            try:
                if _kind(seen) != _REGULAR:
                    raise RefusedFileError("no regular file; take it out of the folder, or name the others with -f")
                # through the descriptor, so that nothing else can be opened instead
                handle = os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            finally:
                os.close(seen)
        with open(handle, "rb") as file:  # noqa: PTH123 - as in read
            return _bounded(file.read(LARGEST + 1))
    except (OSError, RefusedFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RefusedFileError(f"{folder.rstrip('/')}/{name}: cannot be read: {reason}") from error


# --- keeping ---

_MOST_KEPT = 4 << 20


class Spool:
    """Text that waits until all of it is known: short text in memory, long text in a file without a name."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._size = 0
        self._file: IO[str] | None = None

    def write(self, piece: str) -> None:
        """Keep another piece. Raises OSError where there is no room for it."""
        self._kept.append(piece)
        self._size += len(piece)
        if self._size > _MOST_KEPT:
            if self._file is None:
                from tempfile import TemporaryFile  # takes 10 ms, and most manifests are short

                self._file = TemporaryFile("w+", encoding="utf-8", newline="")  # noqa: SIM115 - lives as long
            self._file.writelines(self._kept)
            self._kept, self._size = [], 0

    def pieces(self) -> Iterator[str]:
        """All that was kept, in its order."""
        if self._file is not None:
            self._file.seek(0)
            while piece := self._file.read(1 << 18):
                yield piece
        yield from self._kept


# --- writing -----------------------------------------------------------------------------------------------------


def replace(path: str, text: Iterable[str]) -> None:
    """Write the pieces of text to the file in one piece: it has the old content or all of the new.

    A link is followed where it belongs to the caller or to root, and what it leads to is replaced; pipes and devices
    are written to. Raises OSError or RefusedFileError, and leaves everything as it was.
    """
    if (descriptor := _descriptor_of(path)) is not None:
        with open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as stream:
            stream.writelines(text)
        return
    with _FolderWalk(os.open(".", _GO), _of_ours) as walk:
        own = walk.to(path)
        try:
            seen = os.open(own, _LOOK, dir_fd=walk.folder)
        except FileNotFoundError:
            _replace(walk.folder, own, text, 0o666 & ~_umask())
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
        _replace(walk.folder, own, text, mode if found.st_uid == os.geteuid() else mode & 0o666 & ~_umask())


def _descriptor_of(path: str) -> int | None:
    """The number of the caller's own open file that the path means."""
    number = path.removeprefix(_DESCRIPTORS)
    if number != path and number.isdecimal():
        return int(number)
    device = path.removeprefix(_DEVICES)
    return _STANDARD.get(device) if device != path else None


def _of_ours(link: int, _target: str) -> None:
    _refuse_foreign(os.fstat(link).st_uid, "a symbolic link on the path")


def _refuse_foreign(owner: int, what: str) -> None:
    if owner not in (0, os.geteuid()):
        raise RefusedFileError(
            f"{what} belongs to the user {owner}, who could lead the output anywhere; name the file itself"
        )


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
    except FileNotFoundError:  # the folder's owner was quicker
        show_lines([f"{name}: another process removed the temporary file"])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
