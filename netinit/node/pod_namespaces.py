"""Which network namespace is a pod's: by the runtime's own record, never by what is in the namespace.

A runtime keeps what each plugin returned for each container until DEL (libcni's cache, /var/lib/cni/results, written by root).
The pod's uid is among the arguments (CNI_ARGS), the namespace's path is the sandbox of the result's interfaces. Addresses say
nothing: a pod with NET_ADMIN can take another's. Where the agent has programmed a container itself, its own attachment comes
first, since it knows the namespace's identity too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from netinit.base.tree import Tree, mapping, sequence, string
from netinit.node.attachments import Attachment, Attachments

__all__ = ["find_cgroups", "find_namespaces"]

_LARGEST = 1 << 20  # bytes of a record; one has 2 KiB
_UID = "K8S_POD_UID"
_OF_POD = re.compile(r"(?:.*-)?pod([0-9A-Za-z_-]+?)(?:\.slice)?")
_QUALITY = ("burstable", "besteffort", "guaranteed")
_DEPTH = 5  # kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod….slice


def find_namespaces(uids: Iterable[str], *, attachments: Attachments, records: Path, folder: Path) -> dict[str, str]:
    """The paths of the namespaces of the pods with these uids, those that are known.

    `records` is the runtime's folder of results, `folder` where its namespaces are mounted, both as this process sees them. A pod
    whose sandbox was recreated has the newest.
    """
    wanted = set(uids)
    found = {one.uid: one.netns for one in attachments if one.uid in wanted and _is_there(one)}
    if wanted <= found.keys():
        return found
    for uid, name in _read_records(records):
        path = folder / name
        if uid in wanted and uid not in found and path.is_file():
            found[uid] = str(path)
    return found


def _is_there(one: Attachment) -> bool:
    """Whether the namespace that was programmed is still at its path."""
    try:
        status = Path(one.netns).stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (one.device, one.inode)


def _read_records(folder: Path) -> Iterator[tuple[str, str]]:
    """A pod's uid and the name of its namespace's file, of each record, the newest first."""
    aged = []
    for path in folder.glob("*"):
        try:
            aged.append((path.stat().st_mtime_ns, path))
        except OSError:  # DEL came meanwhile
            continue
    for _, path in sorted(aged, reverse=True):
        try:
            with path.open("rb") as file:
                tree = json.loads(file.read(_LARGEST))
        except (OSError, ValueError, RecursionError):  # being written, gone, or of another program
            continue
        uid = _find_uid(mapping(tree))
        if uid:
            yield from ((uid, Path(netns).name) for netns in _find_paths(mapping(tree)) if Path(netns).name)


def _find_uid(tree: Tree) -> str:
    pairs = [pair for pair in sequence(tree.get("cniArgs")) if isinstance(pair, list) and len(pair) == 2]  # noqa: PLR2004
    return next((string(value) for key, value in pairs if key == _UID), "")


def _find_paths(tree: Tree) -> set[str]:
    """The namespace of a record: it says it since CNI 1.1, else the interfaces of its result do."""
    if netns := string(tree.get("netns")):
        return {netns}
    interfaces = map(mapping, sequence(mapping(tree.get("result")).get("interfaces")))
    return {string(one.get("sandbox")) for one in interfaces} - {""}


def find_cgroups(uids: Iterable[str], folder: str) -> dict[str, str]:
    """Return the paths of the pods' cgroups below `folder`, by uid, as the kubelet names them with either cgroup driver.

    Those of containers are below them. Empty where the kubelet uses cgroups of version 1.
    """
    wanted = {uid.replace("-", "_"): uid for uid in uids}
    found: dict[str, str] = {}
    waiting = [("", 0)]
    while waiting:
        above, depth = waiting.pop()
        for name in _list_folders(folder + above):
            named = _OF_POD.fullmatch(name)
            uid = wanted.get(named[1].replace("-", "_")) if named else None
            if uid:
                found[uid] = f"{above}/{name}"
            elif depth < _DEPTH and not named and ("kube" in name or name in _QUALITY):
                waiting.append((f"{above}/{name}", depth + 1))
    return found


def _list_folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # no such file system, or a cgroup that has ended
        return []
