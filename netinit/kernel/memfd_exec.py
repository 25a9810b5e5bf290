"""Programs in memory files that can be executed but not read, for a child that joins another user namespace."""

from __future__ import annotations

import posix

from netinit.kernel import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MFD_EXEC = 0x10  # linux/memfd.h, since 6.3; before, every memory file can be executed


def seal(paths: Sequence[str]) -> None:
    """Allow only these programs to be started, from memory files that can be executed but not read.

    Root of the user namespace that this process joins could trace its programs. The kernel forbids that for a program that
    may not read its own file (would_dump of fs/exec.c), and the copies belong to this user namespace.
    """
    images: dict[tuple[int, int], int] = {}
    for path in paths:
        status = posix.stat(path)
        if (status.st_dev, status.st_ino) not in images:  # the programs of a variant are one file
            images[status.st_dev, status.st_ino] = _copy(path)
    run.exec_from_memfd(images)


def _copy(path: str) -> int:
    try:
        image = posix.memfd_create("program", posix.MFD_CLOEXEC | _MFD_EXEC)
    except OSError:
        image = posix.memfd_create("program", posix.MFD_CLOEXEC)
    source = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        while posix.sendfile(image, source, None, 1 << 24):
            pass
        posix.fchmod(image, 0o111)
        # A file open for writing cannot be executed, so only this descriptor stays open.
        return posix.open(f"/proc/self/fd/{image}", posix.O_PATH | posix.O_CLOEXEC)
    finally:
        posix.close(image)
        posix.close(source)
