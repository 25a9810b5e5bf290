"""Locks: of a network namespace itself, of a pod as this machine has it, and who holds one."""

from __future__ import annotations

import fcntl
import posix
import time

from netinit.base.errors import LockedError, NamespaceError
from netinit.base.shown import escape
from netinit.kernel import files
from netinit.kernel.namespaces import OWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

XTABLES_LOCK = "/run/xtables.lock"  # iptables-legacy's, where XTABLES_LOCKFILE names no other
FOLDER = "/run/netinit"  # of this machine's locks of pods
POLL = 0.01  # seconds
_PRIVATE_FOLDER = 0o040700


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


def lock_outside(namespace: int, nanoseconds: int) -> tuple[int, str]:
    """The lock that this machine has of a pod, in a folder that no pod can open, and its path; -1 where there is no place for it.

    The file is named by the namespace and goes with the run: whoever waited for a file that is gone takes the next.
    LockedError names the holder.
    """
    status = posix.fstat(namespace)
    path = f"{FOLDER}/{status.st_dev}-{status.st_ino}.lock"
    if not _make_folder():
        return -1, ""
    while True:
        descriptor = files.open_lock_file(path)
        if not take(descriptor, nanoseconds):
            holders = describe_holders(descriptor)
            posix.close(descriptor)
            raise LockedError(f"the pod is being programmed by {holders}; try again when it is done, or raise --lock-timeout")
        try:
            if posix.stat(path).st_ino == posix.fstat(descriptor).st_ino:
                return descriptor, path
        except FileNotFoundError:
            pass  # the holder before has taken it away
        posix.close(descriptor)


def _make_folder() -> bool:
    """Whether there is a folder for locks that root alone can open; NamespaceError where somebody has put another there."""
    try:
        posix.mkdir(FOLDER, 0o700)
    except FileExistsError:
        status = posix.lstat(FOLDER)
        if status.st_mode != _PRIVATE_FOLDER or status.st_uid != posix.geteuid():
            raise NamespaceError(
                f"{FOLDER} is not a folder of mode 0700 of uid {posix.geteuid()}, so locks in it prove nothing:"
                " see who made it, and remove it"
            ) from None
    except OSError:  # a root that is read-only, or not ours: the pod's own lock has to do
        return False
    return True


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
        time.sleep(POLL)
        yield


def describe_holders(descriptor: int) -> str:
    """Who holds the flock(2) lock of an open file, as far as /proc tells: process ids and their commands.

    /proc/locks names the process that took the lock; where that has ended, those that have the file open and locked are
    looked for among all processes that this one may look into.
    """
    status = posix.fstat(descriptor)
    wanted = f"{posix.major(status.st_dev):02x}:{posix.minor(status.st_dev):02x}:{status.st_ino}"
    names = []
    for line in files.read_text("/proc/locks").splitlines():
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
        notes = [files.read_text(f"/proc/{pid}/fdinfo/{number}") for number in numbers]
        if any("FLOCK" in note and wanted in note for note in notes):
            found.append(pid)
    return found


def _command(pid: str) -> str:
    """The command's name of a process, as it calls itself; empty where there is none."""
    return escape(files.read_text(f"/proc/{pid}/comm").strip())
