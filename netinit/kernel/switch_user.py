"""Act as another user: for new sockets, or for good in a child."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence

_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.argtypes = _libc.setfsgid.argtypes = (ctypes.c_uint,)


@contextlib.contextmanager
def creating_as(uid: int | None, gid: int | None, groups: Sequence[int] | None = None) -> Iterator[None]:
    """Create sockets in the block as this user and group, with all capabilities; `groups`: supplementary ones, of all threads.

    setfsuid(2) changes the identity that the kernel stores in new files, which the owner match compares. Unlike seteuid it
    keeps the network capabilities, so ports below 1024 and IP_TRANSPARENT work.
    """
    old_groups = os.getgroups()
    other_groups = groups is not None and set(groups) != set(old_groups)
    if other_groups:
        os.setgroups(groups or ())
    old_gid = _libc.setfsgid(gid) if gid is not None else None
    old_uid = _libc.setfsuid(uid) if uid is not None else None
    try:
        yield
    finally:
        if old_uid is not None:
            _libc.setfsuid(old_uid)
        if old_gid is not None:
            _libc.setfsgid(old_gid)
        if other_groups:
            os.setgroups(old_groups)


def become(uid: int | None, gid: int | None, groups: Sequence[int] = ()) -> None:
    """Switch to these ids for good; None keeps one. Supplementary groups are always set."""
    os.setgroups(list(groups))
    if gid is not None:
        os.setresgid(gid, gid, gid)
    if uid is not None:
        os.setresuid(uid, uid, uid)
