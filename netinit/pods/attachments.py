"""The records of what the node's agent has programmed: whose network namespace it is, and with which options.

The agent writes one small file per container to a folder beside its socket, on a tmpfs (netinit.node.pod_records). Commands that are
asked about a pod's namespace, and are given no options, read what it wrote. An unreadable file counts as missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netinit.base.errors import OptionError
from netinit.kernel import identify
from netinit.kernel.files import read_regular
from netinit.kernel.open_pod import FOLDER
from netinit.options import Options

ATTACHMENTS = "attachments"  # the folder beside the agent's socket
USUAL_FOLDER = Path(FOLDER, ATTACHMENTS)
_MAX_BYTES = 1 << 20  # of a record; real ones have 2 KiB


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


def list_attachments(folder: Path) -> Iterator[Attachment]:
    """Return all records of a folder. Raises OSError."""
    return filter(None, map(read_attachment, sorted(folder.glob("[!.]*.json"))))


def read_attachment(path: Path) -> Attachment | None:
    """Return the record in a file, or None."""
    try:
        tree = json.loads(read_regular(str(path), _MAX_BYTES))
        return Attachment(**{**tree, "argv": tuple(tree["argv"])})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
