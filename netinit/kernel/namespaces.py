"""The network namespace of this process: whose it is, and its lock. Entering somebody else's is netinit.kernel.pods' business.

How the machine's own namespace is told from a pod's, without any privilege and where /proc is masked as in containers:

- Since Linux 6.18 the first network namespace has a number of its own (NET_NS_INIT_INO of linux/nsfs.h), which no kernel
  gives to another.
- Before, by a setting that the kernel shows in the first namespace alone: net.core.netdev_max_backlog is registered for
  init_net (net/core/sysctl_net_core.c, the same since namespaces exist), and /proc/sys/net shows what the namespace of
  the reading process has.

The limits: a node that is itself a container (kind) has a namespace that the kernel did not begin with, so a hostNetwork
pod on it looks like any pod; from outside it is told by being the caller's own, or that of process 1. A pod that is a
virtual machine (Kata Containers) runs in the first namespace of a kernel of its own: it wants --host-network. Without
/proc/sys before 6.18 nothing is recognised.
"""

from __future__ import annotations

import fcntl
import posix
import time

from netinit.base.errors import LockedError, NamespaceError
from netinit.base.shown import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "/proc/self/ns/net"
FIRST = 0xEFFFFFF9
OF_THE_FIRST = "/proc/sys/net/core/netdev_max_backlog"
LOCK_POLL = 0.01  # seconds


def is_machine() -> bool:
    """Whether this process is in the network namespace that the kernel began with."""
    if posix.access(OF_THE_FIRST, posix.F_OK):
        return True
    try:
        return posix.stat(OWN).st_ino == FIRST
    except OSError:  # no /proc: the lock will say so
        return False


def refuse_machine() -> None:
    """NamespaceError where this process is in the machine's own namespace, which is changed only on demand."""
    if is_machine():
        raise NamespaceError(
            "this is the machine's own network namespace, whose rules are for all of its programs; nothing was changed.\n"
            "  for a pod: name it with --pid or --netns, or run in its init container\n"
            "  in a pod with hostNetwork: true (or of a virtual machine's kernel): leave the init container out\n"
            "  to try it: netinit demo, or unshare -n netinit …\n"
            "  if it is meant: --host-network"
        )


def lock(nanoseconds: int) -> int:
    """Waits for this namespace's lock and returns its descriptor; it is held until every copy of that is closed.

    The lock is on the namespace itself, so it needs no writable folder, is one for all containers of a pod, and is free
    again when its holder dies. Programs started from here inherit it, so that a killed run's last change is done before
    the next run looks. LockedError after `nanoseconds`.
    """
    descriptor = posix.open(OWN, posix.O_RDONLY)
    if not take(descriptor, nanoseconds):
        holders = describe_holders(descriptor)
        posix.close(descriptor)
        raise LockedError(
            f"the network namespace is being programmed by {holders}; try again when it is done, or raise --lock-timeout"
        )
    posix.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature
    return descriptor


def take(descriptor: int, nanoseconds: int) -> bool:
    """Waits for the flock(2) lock of an open file; whether it was had."""
    for _ in attempts(nanoseconds):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def attempts(nanoseconds: int) -> Iterator[None]:
    """Yields at once and then every 10 ms until the time is over, whatever becomes of the wall clock."""
    deadline = time.monotonic_ns() + nanoseconds
    yield
    while time.monotonic_ns() < deadline:
        time.sleep(LOCK_POLL)
        yield


def describe_holders(descriptor: int) -> str:
    """Who holds the flock(2) lock of an open file, as far as /proc tells: process ids and their commands.

    /proc/locks names the process that took the lock; where that has ended, those that have the file open and locked are
    looked for among all processes that this one may look into.
    """
    status = posix.fstat(descriptor)
    wanted = f"{posix.major(status.st_dev):02x}:{posix.minor(status.st_dev):02x}:{status.st_ino}"
    names = []
    for line in read_text("/proc/locks").splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted:  # noqa: PLR2004
            pids = [fields[4]] if _command(fields[4]) else _find_holders(descriptor, wanted)
            names += [f"process {pid} ({_command(pid)})" for pid in pids] or ["a process of another container"]
    return ", ".join(names) or "another process"


def _find_holders(descriptor: int, wanted: str) -> list[str]:
    """The processes that have the file open with the lock on it, by the notes of the kernel on each descriptor."""
    name = posix.readlink(f"/proc/self/fd/{descriptor}")
    found = []
    for pid in [entry for entry in posix.listdir("/proc") if entry.isdigit() and int(entry) != posix.getpid()]:
        try:
            numbers = [one for one in posix.listdir(f"/proc/{pid}/fd") if posix.readlink(f"/proc/{pid}/fd/{one}") == name]
        except OSError:
            continue  # gone meanwhile, or not ours to look into
        notes = [read_text(f"/proc/{pid}/fdinfo/{number}") for number in numbers]
        if any("FLOCK" in note and wanted in note for note in notes):
            found.append(pid)
    return found


def _command(pid: str) -> str:
    """The command's name of a process, as it calls itself; empty where there is none."""
    return escape(read_text(f"/proc/{pid}/comm").strip())


def read_text(path: str) -> str:
    """The text of a small file of /proc or /sys; empty when it cannot be read."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return ""
    parts = []
    try:
        while part := posix.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return ""
    finally:
        posix.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")
