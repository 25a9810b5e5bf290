"""Open files in directories that others control, without following links, blocking or activating a device.

Each foreign file is checked through O_PATH, which does not open it, and exactly the checked file is then opened.
"""

from __future__ import annotations

import time
from _struct import pack

from netinit.base.errors import NamespaceError
from netinit.base.system import LINUX, posix
from netinit.kernel import Closing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import stat_result

MAX_FILE_BYTES = 1 << 16  # bytes that are read; a resolv.conf with three servers has some hundred
_KINDS = {
    0o010000: "a FIFO", 0o020000: "a device", 0o040000: "a folder", 0o060000: "a device", 0o120000: "a symbolic link",
    0o140000: "a socket",
}  # fmt: skip
_FORMAT, _REGULAR = 0o170000, 0o100000  # inode(7)
_NULL = 0x103  # /dev/null: makedev(1, 3), which other systems lack
_OPENAT2 = 437  # the number is the same on every architecture
IN_ROOT, BENEATH, NO_LINKS, _NO_MAGIC = 0x10, 0x08, 0x04, 0x02  # RESOLVE_* of linux/openat2.h
_MISSING, _NOT_A_FOLDER, _NO_SUCH_CALL, _REFUSED, _INVALID = 2, 20, 38, 1, 22
_TRIES, _PAUSE = 1000, 0.001  # s
_READING = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NOCTTY | posix.O_NONBLOCK


class UnsuitableFileError(OSError):
    """A file that must not be opened, such as one that is not regular; `strerror` says why."""

    def __init__(self, text: str) -> None:
        super().__init__(_INVALID, text)


def open_lock_file(path: str, *, make: bool = True) -> int:
    """Return a descriptor of a lock file, created with mode 0600 if `make` is set; /dev/null is accepted, locks nothing.

    Raises UnsuitableFileError for anything else, symbolic links included; OSError, ENOENT without `make`.
    """
    try:
        seen = posix.open(path, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except FileNotFoundError:
        if not make:
            raise
        try:
            return posix.open(path, _READING | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW, 0o600)
        except FileExistsError:  # another process has created it meanwhile
            return open_lock_file(path, make=False)
    return _reopen(seen, accepted=_NULL)


def read_own(path: str) -> str:
    """Read a text file of this process's own root, at most 64 KiB of it, through links; empty if it does not exist.

    Needs no /proc. Raises UnsuitableFileError if it is not a regular file or too long; OSError.
    """
    try:
        _check_kind(posix.stat(path))
        descriptor = posix.open(path, _READING)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return _read(descriptor, MAX_FILE_BYTES).decode("utf-8", "replace")


def read_in_root(root: int, path: str) -> str:
    """Read a text file of at most 64 KiB below `root`, an O_PATH descriptor of a foreign root; empty if it does not exist.

    Absolute links, `..` and links of /proc cannot lead out. Raises UnsuitableFileError if it is not a regular file or too
    long; NamespaceError if the kernel lacks openat2(2); OSError.
    """
    try:
        seen = open_path(root, path, IN_ROOT)
    except OSError as error:
        if error.errno in (_MISSING, _NOT_A_FOLDER):
            return ""
        raise
    return _read(_reopen(seen), MAX_FILE_BYTES).decode("utf-8", "replace")


def read_regular(path: str, most: int, *, follows: bool = False) -> bytes:
    """Read a regular file of at most `most` bytes that another program owns; never waits for a writer or a device.

    `follows`: a symbolic link at the end of the path may lead to it. Raises UnsuitableFileError if it is not regular or too
    long; OSError.
    """
    return _read(_reopen(posix.open(path, posix.O_PATH | posix.O_CLOEXEC | (0 if follows else posix.O_NOFOLLOW))), most)


def _read(descriptor: int, most: int) -> bytes:
    """Read a regular file to its end, and close its descriptor."""
    parts, left = [], most + 1
    with Closing(descriptor):
        _check_kind(posix.fstat(descriptor))
        while left and (part := posix.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    if not left:
        raise UnsuitableFileError(f"it is longer than {most} bytes")
    return b"".join(parts)


def _reopen(seen: int, accepted: int = -1) -> int:
    """Open for reading, and close the O_PATH descriptor of, a regular file, or the device with the number `accepted`."""
    with Closing(seen):
        _check_kind(posix.fstat(seen), accepted)
        return posix.open(f"/proc/self/fd/{seen}", _READING)


def _check_kind(status: stat_result, accepted: int = -1) -> None:
    """Raise UnsuitableFileError for what is neither a regular file nor the device with the number `accepted`."""
    kind = status.st_mode & _FORMAT
    if kind != _REGULAR and (not LINUX or status.st_rdev != accepted):
        raise UnsuitableFileError(f"it is {_KINDS.get(kind, 'something else')}, not a regular file")


def open_path(folder: int, path: str, resolve: int) -> int:
    """Return an O_PATH descriptor of `path`, looked up from the descriptor `folder` with openat2(2).

    `resolve`: IN_ROOT (`folder` is the root of links and `..`), BENEATH (nothing leads out of it) or NO_LINKS. Raises
    OSError: EXDEV for a path that leads out, ELOOP for links; NamespaceError without openat2.
    """
    for _ in range(_TRIES - 1):
        try:
            return _openat2(folder, path, resolve)
        except BlockingIOError:  # EAGAIN: after a concurrent rename the kernel does not say whether `..` has led out
            time.sleep(_PAUSE)
    return _openat2(folder, path, resolve)


def _openat2(folder: int, path: str, resolve: int) -> int:
    from netinit.kernel import libc  # only when foreign files are opened

    how = pack("=QQQ", posix.O_PATH | posix.O_CLOEXEC, 0, resolve | _NO_MAGIC)  # struct open_how
    name = path.encode("utf-8", "surrogateescape")
    try:
        return libc.call("syscall", _OPENAT2, folder, name, how, len(how))
    except OSError as error:
        if error.errno not in (_NO_SUCH_CALL, _REFUSED):
            raise
        raise NamespaceError(
            "foreign files can be opened safely with openat2(2), which this kernel (before 5.6) or a seccomp profile does not"
            " have; for a pod, name its DNS servers with --dns-servers"
        ) from None
