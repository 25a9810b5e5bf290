"""Waiting until files may have changed, by inotify: an idle server wakes for nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["FileEvents"]

# Of inotify(7): attributes, a written file that is closed, moved, created, deleted; the folder itself deleted or moved.
_MASK = 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_READ = 64 << 10  # bytes of notifications


class FileEvents:
    """Notifications of the folders that files are in. Where the kernel gives none, `wait` is a pause."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self) -> None:
        """Gives the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def watch(self, paths: Iterable[Path]) -> bool:
        """Watches the folders of these files, those that links lead to as well; whether all of them are watched."""
        folders = {folder for path in paths for folder in (path.parent, path.resolve().parent, path if path.is_dir() else path.parent)}
        watched = [self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _MASK) >= 0 for folder in folders]
        return self._descriptor >= 0 and all(watched)

    async def wait(self, seconds: float) -> None:
        """Returns when something has happened since the last call, or the seconds are over."""
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
            while os.read(self._descriptor, _READ):
                pass
