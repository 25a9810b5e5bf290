"""The operating system: child processes, namespaces, netlink, programs, capabilities. Imports neither options nor rules."""

from __future__ import annotations

from netinit.base.system import posix


class Closing:
    """Closes a file descriptor at the end of a `with` block; contextlib takes a millisecond of every start."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        posix.close(self._descriptor)


def read_text(path: str, folder: int | None = None) -> str:
    """Return the text of a file of /proc or /sys, or below the opened folder; empty if it cannot be read."""
    try:
        opened = path if folder is None else posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC, dir_fd=folder)
        with open(opened, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib takes 3 ms of every start
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def identify(place: str | int) -> tuple[int, int] | None:
    """Return device and inode of the file at a path or descriptor, such as a namespace; None if it cannot be looked at."""
    try:
        status = posix.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def identify_content(path: str) -> tuple[int, ...]:
    """Return what changes whenever the file at the path is replaced or written; empty if it cannot be looked at."""
    try:
        status = posix.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
