"""Look up users and groups of this image by name, on POSIX systems. Not pure: the C library reads /etc/passwd and /etc/group."""

from __future__ import annotations

import sys

from netinit.base.system import posix

MAX_DATABASE = 16 << 20  # bytes; reading 30 MiB takes 0.16 s
_FORMAT, _REGULAR = 0o170000, 0o100000  # inode(7)


def find_uid(name: str) -> int:
    """Return a user's id. Raises LookupError if there is none, ValueError with the reason if the users cannot be read."""
    if sys.platform != "win32":
        _check_database("/etc/passwd")
        from pwd import getpwnam

        try:  # contextlib.suppress would import 13 modules at each removal, whose default user is a name
            return getpwnam(name).pw_uid
        except ValueError:  # a NUL in the name
            pass
    raise LookupError(name)


def find_gid(name: str) -> int:
    """Return a group's id. Raises LookupError if there is none, ValueError with the reason if the groups cannot be read."""
    if sys.platform != "win32":
        _check_database("/etc/group")
        from grp import getgrnam

        try:
            return getgrnam(name).gr_gid
        except ValueError:  # a NUL in the name
            pass
    raise LookupError(name)


def _check_database(path: str) -> None:
    """Raise ValueError for a file that the C library would wait for, or read without end; one that is missing is none."""
    try:
        status = posix.stat(path)
    except OSError:  # names may come from elsewhere (nsswitch.conf)
        return
    if status.st_mode & _FORMAT != _REGULAR or status.st_size > MAX_DATABASE:
        raise ValueError(f"{path} is not a regular file of at most {MAX_DATABASE >> 20} MiB")
