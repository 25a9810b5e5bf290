"""What was programmed, by container: which pod it is, where its namespace is, and with which options.

A folder in the node's memory (a tmpfs that lasts as long as the pods do), one small file a container, each replaced whole:
so a restarted agent knows what a killed one has done. A file that cannot be read is as good as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from netinit.base.errors import OptionError
from netinit.options import Options

__all__ = ["Attachment", "Attachments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A container's interface that was programmed; `device` and `inode` are those of its namespace."""

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
        """The options that it was programmed with; None where another version of netinit wrote them."""
        try:
            return Options.from_argv(self.argv, self.environ)
        except OptionError:
            return None


class Attachments:
    """The folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, attachment: Attachment) -> None:
        """Remembers it. OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(attachment.container, attachment.interface)
        new = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            new.write_text(json.dumps(asdict(attachment)))
            new.rename(path)
        except OSError:  # a full folder is to be no fuller than before
            new.unlink(missing_ok=True)
            raise

    def get(self, container: str, interface: str) -> Attachment | None:
        """The record of a programmed container."""
        return _read(self._path(container, interface))

    def drop(self, container: str, interface: str) -> None:
        """Forgets it."""
        self._path(container, interface).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Attachment]:
        for path in sorted(self._folder.glob("[!.]*.json")):
            found = _read(path)
            if found is not None:
                yield found

    def keep(self, valid: set[tuple[str, str]]) -> int:
        """Forgets all but these containers and interfaces; how many those were."""
        gone = [one for one in self if (one.container, one.interface) not in valid]
        for one in gone:
            self.drop(one.container, one.interface)
        return len(gone)

    def _path(self, container: str, interface: str) -> Path:
        # Both were checked: an id has no slash, and a name of an interface has none either.
        return self._folder / f"{container}@{interface}.json"


def _read(path: Path) -> Attachment | None:
    try:
        tree = json.loads(path.read_bytes())
        return Attachment(**{**tree, "argv": tuple(tree["argv"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
