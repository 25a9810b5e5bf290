"""Locks that lie in files: of a pod as this machine has it, and that of iptables-legacy. Those of namespaces themselves are theirs."""

from __future__ import annotations

import posix

from netinit.base.errors import LockedError, NamespaceError
from netinit.kernel import files
from netinit.kernel.lock_holders import describe_holders
from netinit.kernel.namespaces import take

XTABLES_LOCK = "/run/xtables.lock"  # iptables-legacy's, where XTABLES_LOCKFILE names no other
FOLDER = "/run/netinit"  # of this machine's locks of pods
_PRIVATE_FOLDER = 0o040700


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
