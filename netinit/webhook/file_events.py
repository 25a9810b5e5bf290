"""Wait for file changes with inotify, without polling."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

# inotify(7): ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF
_MASK = 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_READ_BYTES = 64 << 10


class FileEvents:
    """Notifications for the directories of files; without inotify `wait` only sleeps."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def watch(self, paths: Iterable[Path]) -> bool:
        """Watch the directories of files and of their symbolic links' targets; return whether all are watched."""
        folders = {folder for path in paths for folder in (path.parent, path.resolve().parent, path if path.is_dir() else path.parent)}
        watched = [self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _MASK) >= 0 for folder in folders]
        return self._descriptor >= 0 and all(watched)

    async def wait(self, seconds: float) -> None:
        """Return after a change since the last call, or after `seconds`."""
        loop, happened = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._descriptor, happened.set)
        try:
            async with asyncio.timeout(seconds):
                await happened.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(self._descriptor)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, _READ_BYTES):
                pass
