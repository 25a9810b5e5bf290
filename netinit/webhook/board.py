"""The board: a folder by which the server's processes tell each other what holds; each file is replaced whole.

Files and not messages, since whoever starts later must find what the others know, and a reader that dies or is slow
holds up nobody. A reader asks for the file's identity some times a second, which costs two microseconds. The folder is
for this user alone; it belongs in memory, for the serving key is in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "CERTIFICATE",
    "CLIENT_AUTHORITY",
    "CONFIGURATION",
    "DRAINING",
    "EXPIRY",
    "NAMESPACES",
    "STATUS",
    "TRIED",
    "TRIED_CLIENTS",
    "Board",
    "Watched",
]

CONFIGURATION = "configuration.json"
CERTIFICATE = "serving.pem"  # the key and the chain, as the TLS library reads them
CLIENT_AUTHORITY = "clients.pem"
TRIED, TRIED_CLIENTS = "tried.pem", "tried-clients.pem"  # the same, for the moment in which they are tried
EXPIRY = "expiry.json"  # of that, in seconds of the epoch
NAMESPACES = "namespaces.json"
STATUS = "status.json"  # what the keeper knows of itself
DRAINING = "draining.json"  # there from the moment on in which the server was told to end
_BEAT = "worker-"


class Board:
    """The folder; every process has its own object for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Where a file of the board is."""
        return self.folder / name

    def clear(self) -> None:
        """Takes away what a server that was killed has left here, its key before all."""
        for pattern in ("*.pem", ".*.pem.*", "*.json", ".*.json.*", f"{_BEAT}*"):
            for old in self.folder.glob(pattern):
                old.unlink(missing_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """The file holds these bytes from now on; a reader sees the old ones or the new ones, whole."""
        new = self.folder / f".{name}.{os.getpid()}"
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            new.rename(self.folder / name)
        except OSError:  # a full folder: it is to be no fuller than before
            new.unlink(missing_ok=True)
            raise

    def take_away(self, name: str) -> None:
        """The file is not there from now on."""
        (self.folder / name).unlink(missing_ok=True)

    def put_tree(self, name: str, tree: Any) -> None:
        """The same for what JSON can hold."""
        self.put(name, json.dumps(tree).encode())

    def tree(self, name: str) -> Any:
        """What `put_tree` put there, None before that."""
        try:
            return json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None

    def beat(self, slot: int) -> None:
        """The worker is alive, and has its turn in time."""
        path = self.folder / f"{_BEAT}{slot}"
        path.touch(0o600)
        os.utime(path)

    def silence(self, slot: int) -> float:
        """Seconds since the worker's last beat; infinite before the first."""
        try:
            return max(0.0, time.time() - (self.folder / f"{_BEAT}{slot}").stat().st_mtime)
        except FileNotFoundError:
            return float("inf")

    def forget(self, slot: int) -> None:
        """The worker is gone."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / f"{_BEAT}{slot}").unlink()


class Watched:
    """A file of which one wants to know when it is another one; it need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()

    def changes(self) -> Iterator[bytes]:
        """The content, if it is another than the last time; nothing else. Raises OSError."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            data = self.path.read_bytes()
            self._seen = seen
            yield data
