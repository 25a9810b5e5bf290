"""The lock of iptables-legacy, which all programs of a file system share: held by a run from before its first commit.

The run holds the lock itself, so that it can be had before anything is changed and kept until everything is done or put
back; its programs are given another file, since flock(2) would keep them out as well.
"""

from __future__ import annotations

import posix

from netinit.backends import Lock
from netinit.base.errors import BackendUnavailableError, LockedError
from netinit.kernel import run
from netinit.kernel.files import UnsuitableFileError, open_lock_file
from netinit.kernel.lock_holders import describe_holders
from netinit.kernel.locks import XTABLES_LOCK
from netinit.kernel.namespaces import take

NO_LOCK = "/dev/null"  # as a lock file it means that none is wanted


class XtablesLock(Lock):
    """Held by `with`, as often as one likes at a time; the lock is let go by who leaves last.

    None is taken where none can be had (a read-only root) or none is about this namespace (the host's files).
    BackendUnavailableError for a file that is none, LockedError after `nanoseconds`, naming the holders.
    """

    def __init__(self, backend: str, nanoseconds: int, *, own_files: bool) -> None:
        self._backend = backend
        self._nanoseconds = nanoseconds
        self._own_files = own_files
        self._entered = 0
        self._descriptor = -1

    def __enter__(self) -> None:
        if not self._entered:
            self._descriptor = self._take()
        self._entered += 1

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered and self._descriptor >= 0:
            posix.close(self._descriptor)

    def _take(self) -> int:
        named = posix.environ.get(b"XTABLES_LOCKFILE", b"").decode("utf-8", "surrogateescape")
        if not named and not self._own_files:
            return -1
        path = named or XTABLES_LOCK
        try:
            descriptor = open_lock_file(path)
        except OSError as error:
            if not named and not isinstance(error, UnsuitableFileError):
                return -1
            label = "XTABLES_LOCKFILE: " if named else ""
            raise BackendUnavailableError(
                f"{self._backend}: {label}{path!r} cannot be opened: {error.strerror};"
                " name a regular file in a writable folder with XTABLES_LOCKFILE"
            ) from None
        if posix.fstat(descriptor).st_rdev == posix.stat(NO_LOCK).st_rdev:  # anybody may hold it locked for ever
            posix.close(descriptor)
            return -1
        if not take(descriptor, self._nanoseconds):
            holders = describe_holders(descriptor)
            posix.close(descriptor)
            raise LockedError(f"{self._backend}: {path} is held by {holders}: wait for it, or raise --lock-timeout")
        if not run.is_sealed():  # a killed run's last change is to be done before the next run looks
            posix.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature
        return descriptor
