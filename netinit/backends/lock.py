"""The lock of iptables-legacy, which a run holds from before its first change until its end."""

from __future__ import annotations

from netinit.backends import Lock
from netinit.base.errors import BackendUnavailableError
from netinit.base.system import posix
from netinit.kernel.files import UnsuitableFileError, open_lock_file
from netinit.kernel.namespaces import XTABLES_LOCK, take_or_refuse

NO_LOCK = "/dev/null"  # as a lock file it disables locking


class XtablesLock(Lock):
    """The lock as a reentrant context manager; the outermost exit releases it.

    Does nothing if a lock file is impossible (a read-only root) or not for this namespace (the host's files). Raises
    BackendUnavailableError for an unsuitable file, LockedError with the holders after `nanoseconds`.
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
        if posix.fstat(descriptor).st_rdev == posix.stat(NO_LOCK).st_rdev:  # any process may keep it locked forever
            posix.close(descriptor)
            return -1
        held = f"{self._backend}: {path} is held by"
        take_or_refuse(descriptor, self._nanoseconds, held, ": wait for it, or raise --lock-timeout")
        return descriptor
