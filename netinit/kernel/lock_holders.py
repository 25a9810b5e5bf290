"""Find the holder of a lock, for the message after a timeout."""

from __future__ import annotations

import posix

from netinit.base.sanitize import escape
from netinit.kernel import read_text
from netinit.kernel.processes import list_processes


def describe_holders(descriptor: int) -> str:
    """Return process ids and commands of the holders of an open file's flock(2) lock, as far as /proc shows them.

    /proc/locks names who took the lock; if that has exited or is in another container, processes that have the file open
    and locked are searched.
    """
    status = posix.fstat(descriptor)
    wanted = f"{posix.major(status.st_dev):02x}:{posix.minor(status.st_dev):02x}:{status.st_ino}"
    lines = [line.split() for line in read_text("/proc/locks").splitlines()]
    took = [fields[4] for fields in lines if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted]  # noqa: PLR2004
    pids = [pid for pid in took if _command(pid)] or _find_holders(descriptor, wanted)
    names = [f"process {pid} ({_command(pid)})" for pid in pids]
    return ", ".join(names) or ("a process of another container" if took else "another process")


def _find_holders(descriptor: int, wanted: str) -> list[str]:
    name = posix.readlink(f"/proc/self/fd/{descriptor}")
    found = []
    for pid in [str(one) for one in list_processes() if one != posix.getpid()]:
        try:
            numbers = [one for one in posix.listdir(f"/proc/{pid}/fd") if posix.readlink(f"/proc/{pid}/fd/{one}") == name]
        except OSError:
            continue  # exited meanwhile, or not accessible
        notes = [read_text(f"/proc/{pid}/fdinfo/{number}") for number in numbers]
        if any("FLOCK" in note and wanted in note for note in notes):
            found.append(pid)
    return found


def _command(pid: str) -> str:
    return escape(read_text(f"/proc/{pid}/comm").strip())
