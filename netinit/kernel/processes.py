"""Processes that /proc shows, by network namespace, by socket and by lock; the processors that this one may use."""

from __future__ import annotations

from netinit.base.sanitize import escape
from netinit.base.system import posix
from netinit.kernel import identify, read_text


def list_processes() -> list[int]:
    """Return the ids of all processes that /proc shows."""
    return [int(entry) for entry in posix.listdir("/proc") if entry.isdigit()]


def namespace_of(process: int | str) -> tuple[int, int] | None:
    """Return device and inode number of a process's network namespace; None if it has ended or access is denied.

    `process`: a process id, or `self`.
    """
    return identify(f"/proc/{process}/ns/net")


def find_groups(inodes: frozenset[int]) -> dict[int, int]:
    """Return the group of each of these sockets of this network namespace, from the processes that have them open.

    Sockets of processes that are hidden or may not be inspected are left out.
    """
    found: dict[int, int] = {}
    own = namespace_of("self")
    for pid in list_processes():
        if len(found) == len(inodes):
            break
        if namespace_of(pid) != own:
            continue
        numbers = [int(link[len("socket:[") : -1]) for link in _list_opened(pid).values() if link.startswith("socket:[")]
        own_sockets = inodes.intersection(numbers)
        if own_sockets:
            found.update(dict.fromkeys(own_sockets, _group_of(pid)))
    return {inode: group for inode, group in found.items() if group >= 0}


def _group_of(pid: int) -> int:
    """Return the group that a process's sockets get (its fsgid, proc_pid_status(5)); -1 if it has ended."""
    lines = [line.split() for line in read_text(f"/proc/{pid}/status").splitlines() if line.startswith("Gid:")]
    return int(lines[0][4]) if lines and len(lines[0]) > 4 else -1  # noqa: PLR2004 - its last column


def count_cores(quota: str = "/sys/fs/cgroup/cpu.max") -> int:
    """Return the container's CPUs: its affinity, limited by the cgroup quota."""
    cores = len(posix.sched_getaffinity(0))
    limit, _, period = read_text(quota).strip().partition(" ")
    allowed = -(-int(limit) // int(period)) if limit.isdigit() and period.isdigit() else cores
    return max(1, min(cores, allowed))


def describe_holders(descriptor: int) -> str:
    """Return process ids and commands of the holders of an open file's flock(2) lock, as far as /proc shows them.

    /proc/locks names who took the lock; if that has exited or is in another container, processes that have the file open
    and locked are searched.
    """
    status = posix.fstat(descriptor)
    wanted = f"{posix.major(status.st_dev):02x}:{posix.minor(status.st_dev):02x}:{status.st_ino}"
    lines = [line.split() for line in read_text("/proc/locks").splitlines()]
    took = [fields[4] for fields in lines if fields[1:2] == ["FLOCK"] and fields[5:6] == [wanted]]
    pids = [pid for pid in took if _command(pid)] or _find_holders(descriptor, wanted)
    names = [f"process {pid} ({_command(pid)})" for pid in pids]
    return ", ".join(names) or ("a process of another container" if took else "another process")


def _find_holders(descriptor: int, wanted: str) -> list[str]:
    name = posix.readlink(f"/proc/self/fd/{descriptor}")
    found = []
    for pid in [str(one) for one in list_processes() if one != posix.getpid()]:
        notes = [read_text(f"/proc/{pid}/fdinfo/{number}") for number, link in _list_opened(pid).items() if link == name]
        if any("FLOCK" in note and wanted in note for note in notes):
            found.append(pid)
    return found


def _list_opened(pid: int | str) -> dict[str, str]:
    """Return the links of a process's descriptors; empty if it has ended or may not be looked into."""
    try:
        numbers = posix.listdir(f"/proc/{pid}/fd")
    except OSError:
        return {}
    found = {}
    for number in numbers:
        try:
            found[number] = posix.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:  # closed since the folder was listed; the others count
            continue
    return found


def _command(pid: str) -> str:
    return escape(read_text(f"/proc/{pid}/comm").strip())
