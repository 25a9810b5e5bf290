"""File locks: this machine's locks of pods, and the path of iptables-legacy's. See also netinit.kernel.namespaces."""

from __future__ import annotations

import posix

from netinit.base.errors import NamespaceError
from netinit.kernel import files
from netinit.kernel.namespaces import LATER, take_or_refuse

XTABLES_LOCK = "/run/xtables.lock"  # iptables-legacy's lock, unless XTABLES_LOCKFILE names another
FOLDER = "/run/netinit"  # directory of this machine's locks of pods
_PRIVATE_FOLDER = 0o040700


def lock_outside(namespace: int, nanoseconds: int) -> tuple[int, str]:
    """Acquire this machine's lock of a pod, where no pod can open it; return descriptor and path, -1 if impossible.

    The file is named after the namespace and deleted after the run: a process that waited for a deleted file tries the next
    one. Raises LockedError with the holder.
    """
    status = posix.fstat(namespace)
    path = f"{FOLDER}/{status.st_dev}-{status.st_ino}.lock"
    if not _make_folder():
        return -1, ""
    while True:
        descriptor = files.open_lock_file(path)
        take_or_refuse(descriptor, nanoseconds, "the pod is being programmed by", LATER)
        try:
            if posix.stat(path).st_ino == posix.fstat(descriptor).st_ino:
                return descriptor, path
        except FileNotFoundError:
            pass  # the previous holder has deleted it
        posix.close(descriptor)


def _make_folder() -> bool:
    """Create the directory for root only; return whether it exists. Raises NamespaceError if it is another user's."""
    try:
        posix.mkdir(FOLDER, 0o700)
    except FileExistsError:
        status = posix.lstat(FOLDER)
        if status.st_mode != _PRIVATE_FOLDER or status.st_uid != posix.geteuid():
            raise NamespaceError(
                f"{FOLDER} is not a folder of mode 0700 of uid {posix.geteuid()}, so locks in it prove nothing:"
                " see who made it, and remove it"
            ) from None
    except OSError:  # a read-only root, or no permission: the pod's own lock must suffice
        return False
    return True
