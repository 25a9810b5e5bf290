"""The records of which network namespace is whose: what the agent has programmed, and what the runtime notes.

The agent writes one small file per container (netinit.pods.attachments) to a directory on a tmpfs, which lasts as long as the node's
pods. Files are replaced as a whole, so that a restarted agent knows what a killed one did.

A runtime keeps each plugin's result for each container until DEL (libcni's cache, /var/lib/cni/results, owned by root).
Its CNI_ARGS contain the pod's uid, and the result's interfaces name the namespace's path as their sandbox. Addresses
prove nothing: a pod with NET_ADMIN can take another's. The agent's own attachments come first, since they also have the
namespace's identity.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from netinit.base.tree import Tree, mapping, sequence, string
from netinit.kernel import identify, identify_content
from netinit.kernel.files import read_regular
from netinit.node.installer import replace_file
from netinit.pods.attachments import Attachment, list_attachments, read_attachment

_MAX_RECORD_BYTES = 1 << 20  # bytes per record; real ones have 2 KiB
_MAX_RECORDS = 1 << 16  # files of the runtime's folder; a node has some hundred
_MAX_NAME = 200  # characters of a record's name: file systems take 255 bytes, a temporary name has some more
_UID = "K8S_POD_UID"
_OF_POD = re.compile(r"(?:.*-)?pod([0-9A-Za-z_-]+?)(?:\.slice)?")
_QUALITY = ("burstable", "besteffort", "guaranteed")
_DEPTH = 5  # kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod….slice


class Attachments:
    """The records, in one directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, attachment: Attachment) -> None:
        """Write a record. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(attachment.container, attachment.interface)
        replace_file(path, json.dumps(asdict(attachment)).encode(), durable=False)

    def get(self, container: str, interface: str) -> Attachment | None:
        """Return the record of an interface, or None."""
        return read_attachment(self._path(container, interface))

    def drop(self, container: str, interface: str) -> None:
        """Delete the record of an interface."""
        self._path(container, interface).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Attachment]:
        return list_attachments(self._folder)

    def drop_gone(self, uids: Collection[str]) -> int:
        """Delete the records whose namespace is gone and whose pod is not among `uids`, for which no DEL came; return their number."""
        gone = [one for one in self if one.uid not in uids and not one.is_at(one.netns) and Path(one.netns).parent.is_dir()]
        for one in gone:
            self.drop(one.container, one.interface)
        return len(gone)

    def _path(self, container: str, interface: str) -> Path:
        # The protocol has checked both: neither contains a slash. CNI limits the length of neither.
        name = f"{container}@{interface}"
        if len(name) > _MAX_NAME:
            name = f"{name[:32]}@{blake2b(name.encode(), digest_size=32).hexdigest()}"
        return self._folder / f"{name}.json"


# ---- namespaces and cgroups of pods


def find_namespaces(uids: Iterable[str], *, attachments: Attachments, records: Path, folder: Path) -> dict[str, str]:
    """Return the paths of the network namespaces of these pods, by uid; pods without a record are missing.

    `records`: the runtime's cache. `folder`: where namespaces are mounted. Both as this process sees them. If a pod's
    sandbox was recreated, its newest namespace is returned.
    """
    wanted = set(uids)
    found = {one.uid: one.netns for one in attachments if one.uid in wanted and one.is_at(one.netns)}
    if wanted <= found.keys():
        return found
    for uid, name in _read_records(records):
        path = folder / name
        if uid in wanted and uid not in found and identify(str(path)):
            found[uid] = str(path)
    return found


def _read_records(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the pod's uid and the name of the namespace's file from each record, newest first."""
    paths = islice(folder.glob("*"), _MAX_RECORDS)
    modified = {path: identify_content(str(path))[2:3] for path in paths}  # the time, if it is not deleted meanwhile
    for path in sorted(modified, key=lambda path: (modified[path], path), reverse=True):
        try:
            tree = json.loads(read_regular(str(path), _MAX_RECORD_BYTES))
        except (OSError, ValueError, RecursionError):  # incomplete, deleted, or no record of a runtime
            continue
        pairs = [pair for pair in sequence(mapping(tree).get("cniArgs")) if isinstance(pair, list) and len(pair) == 2]  # noqa: PLR2004
        if uid := next((string(value) for key, value in pairs if key == _UID), ""):
            yield from ((uid, Path(netns).name) for netns in _find_paths(mapping(tree)) if Path(netns).name)


def _find_paths(tree: Tree) -> set[str]:
    """Return a record's namespaces: its `netns` (since CNI 1.1), else the sandboxes of its result's interfaces."""
    if netns := string(tree.get("netns")):
        return {netns}
    interfaces = map(mapping, sequence(mapping(tree.get("result")).get("interfaces")))
    return {string(one.get("sandbox")) for one in interfaces} - {""}


def find_cgroups(uids: Iterable[str], folder: str) -> dict[str, str]:
    """Return the paths of the pods' cgroups below `folder`, by uid; supports both cgroup drivers of the kubelet.

    The cgroups of containers are below them. Empty with cgroup v1.
    """
    wanted = {uid.replace("-", "_"): uid for uid in uids}
    found: dict[str, str] = {}
    pending = [("", 0)]
    while pending:
        above, depth = pending.pop()
        for name in _list_folders(folder + above):
            match = _OF_POD.fullmatch(name)
            uid = wanted.get(match[1].replace("-", "_")) if match else None
            if uid:
                found[uid] = f"{above}/{name}"
            elif depth < _DEPTH and not match and ("kube" in name or name in _QUALITY):
                pending.append((f"{above}/{name}", depth + 1))
    return found


def _list_folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # no such file system, or the cgroup was deleted
        return []
