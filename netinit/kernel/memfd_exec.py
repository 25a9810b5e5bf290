"""Programs as copies in memory that can be executed and not be read, for a child that joins another user namespace."""

from __future__ import annotations

import posix

from netinit.kernel import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MFD_EXEC = 0x10  # linux/memfd.h, since 6.3; before, every memory file can be executed


def seal(paths: Sequence[str]) -> None:
    """From now on these programs alone can be started, as copies in memory that can be executed and not be read.

    For a process that is about to join another user namespace: whoever is root there could trace programs that run in it,
    to make them open what this machine shows to everybody, or to take what they have open. The kernel lets nobody trace a
    program who has no rights over the owner of a file that the program itself could not read (would_dump of fs/exec.c):
    the copies belong to this side.
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
        # What is open for writing cannot be executed: only this descriptor stays.
        return posix.open(f"/proc/self/fd/{image}", posix.O_PATH | posix.O_CLOEXEC)
    finally:
        posix.close(image)
        posix.close(source)
