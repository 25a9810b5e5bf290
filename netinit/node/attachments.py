"""The records of what the agent has programmed: per container, its pod, its namespace and the options used.

One small file per container in a directory on a tmpfs, which lasts as long as the node's pods. Files are replaced as a
whole, so that a restarted agent knows what a killed one did. An unreadable file counts as missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from netinit.base.errors import OptionError
from netinit.kernel import identify
from netinit.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A programmed interface of a container; `device` and `inode` identify its network namespace."""

    container: str
    interface: str
    namespace: str
    name: str
    uid: str
    netns: str
    device: int = 0
    inode: int = 0
    argv: tuple[str, ...] = ()
    environ: dict[str, str]

    @property
    def options(self) -> Options | None:
        """The options used to program it; None if another version of netinit wrote options that this one cannot parse."""
        try:
            return Options.from_argv(self.argv, self.environ)
        except OptionError:
            return None

    def is_at(self, place: str | int) -> bool:
        """Whether the programmed namespace is the one at this path or descriptor."""
        return identify(place) == (self.device, self.inode)


class Attachments:
    """The records, in one directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, attachment: Attachment) -> None:
        """Write a record. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(attachment.container, attachment.interface)
        new = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            new.write_text(json.dumps(asdict(attachment)))
            new.rename(path)
        except OSError:  # leave nothing behind on a full disk
            new.unlink(missing_ok=True)
            raise

    def get(self, container: str, interface: str) -> Attachment | None:
        """Return the record of an interface, or None."""
        return _read(self._path(container, interface))

    def drop(self, container: str, interface: str) -> None:
        """Delete the record of an interface."""
        self._path(container, interface).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Attachment]:
        for path in sorted(self._folder.glob("[!.]*.json")):
            found = _read(path)
            if found is not None:
                yield found

    def drop_all_but(self, valid: set[tuple[str, str]]) -> int:
        """Delete the records of all but these (container, interface) pairs; return how many were deleted."""
        gone = [one for one in self if (one.container, one.interface) not in valid]
        for one in gone:
            self.drop(one.container, one.interface)
        return len(gone)

    def _path(self, container: str, interface: str) -> Path:
        # The protocol has checked both: neither contains a slash.
        return self._folder / f"{container}@{interface}.json"


def _read(path: Path) -> Attachment | None:
    try:
        tree = json.loads(path.read_bytes())
        return Attachment(**{**tree, "argv": tuple(tree["argv"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
