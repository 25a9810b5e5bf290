"""Notice that something changes in the directories of files: written, replaced, created, deleted or moved (inotify(7)).

A notification only wakes; whoever waits looks at the files then. Some file systems (network, FUSE, overlay's lower layers) send
none, so look every RESYNC_SECONDS too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from netinit.kernel import libc

RESYNC_SECONDS = 10.0  # between checks of unchanged files, for file systems without inotify
# inotify(7): ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF
_MASK = 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_READ_BYTES = 64 << 10


class FileChanges:
    """Notifications for the directories of some files, which need not exist; readable after a change until it is drained."""

    def __init__(self) -> None:
        descriptor = libc.function("inotify_init1")(os.O_NONBLOCK | os.O_CLOEXEC)
        # Beyond the limit of fs.inotify.max_user_instances, one that is never readable: then nothing can be watched.
        self._descriptor = descriptor if descriptor >= 0 else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._add_watch = libc.function("inotify_add_watch")

    def fileno(self) -> int:
        """Return the descriptor, for an event loop."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def watch(self, paths: Iterable[Path]) -> bool:
        """Watch the directories of the paths and of their symbolic links' targets; return whether all are watched.

        A directory that was replaced is watched only after another call.
        """
        folders = {folder for path in paths for folder in (path.parent, path.resolve().parent, path if path.is_dir() else path.parent)}
        added = [self._add_watch(self._descriptor, os.fsencode(folder), _MASK) for folder in folders]
        return min(added) >= 0

    def drain(self) -> None:
        """Forget the notifications so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, _READ_BYTES):
                pass
