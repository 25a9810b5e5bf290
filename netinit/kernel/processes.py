"""The pods of a node, by their processes."""

from __future__ import annotations

import posix

from netinit.base.sanitize import escape
from netinit.kernel import read_text

_LEAST = 2  # process 1 has the machine's own network namespace, or the container's


def find_pods() -> tuple[tuple[int, str], ...]:
    """A process of each network namespace that is neither this one's nor process 1's: (process id, its command's name).

    A namespace is named by its oldest process. Those that this process may not look into are left out.
    """
    seen = {_namespace_of("self"), _namespace_of("1")}
    found = []
    for pid in sorted(int(entry) for entry in posix.listdir("/proc") if entry.isdigit() and int(entry) >= _LEAST):
        namespace = _namespace_of(str(pid))
        if namespace and namespace not in seen:
            seen.add(namespace)
            found.append((pid, escape(read_text(f"/proc/{pid}/comm").strip())))
    return tuple(found)


def _namespace_of(process: str) -> int:
    """The number of a process's network namespace; 0 where it is gone, or not ours to look into."""
    try:
        return posix.stat(f"/proc/{process}/ns/net").st_ino
    except OSError:
        return 0


def find_groups(inodes: frozenset[int]) -> dict[int, int]:
    """The group that owns each of these sockets of this network namespace, by the processes that have them open.

    Sockets of processes that this one does not see, or may not look into, are left out.
    """
    found: dict[int, int] = {}
    own = _namespace_of("self")
    for pid in [entry for entry in posix.listdir("/proc") if entry.isdigit()]:
        if len(found) == len(inodes):
            break
        if _namespace_of(pid) != own:
            continue
        try:
            opened = [posix.readlink(f"/proc/{pid}/fd/{number}") for number in posix.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue  # gone meanwhile, or not ours to look into
        numbers = [int(link[len("socket:[") : -1]) for link in opened if link.startswith("socket:[")]
        held = inodes.intersection(numbers)
        if held:
            found.update(dict.fromkeys(held, _group_of(pid)))
    return {inode: group for inode, group in found.items() if group >= 0}


def _group_of(pid: str) -> int:
    """The group that sockets of a process get (its fsgid, see proc_pid_status(5)); -1 where it is gone."""
    lines = [line.split() for line in read_text(f"/proc/{pid}/status").splitlines() if line.startswith("Gid:")]
    return int(lines[0][4]) if lines and len(lines[0]) > 4 else -1  # noqa: PLR2004 - its last column
