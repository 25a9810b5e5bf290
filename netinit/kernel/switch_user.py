"""Being another user: for the sockets of a moment, or for good in a child."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence

_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.argtypes = _libc.setfsgid.argtypes = (ctypes.c_uint,)


@contextlib.contextmanager
def creating_as(uid: int | None, gid: int | None) -> Iterator[None]:
    """Inside the block new sockets belong to this user and group, while all capabilities stay.

    setfsuid(2) changes the one identity that the kernel copies into a file at its creation, which is what the owner
    match compares. Unlike seteuid it takes no network capability away, so ports below 1024 and IP_TRANSPARENT work.
    """
    old_gid = _libc.setfsgid(gid) if gid is not None else None
    old_uid = _libc.setfsuid(uid) if uid is not None else None
    try:
        yield
    finally:
        if old_uid is not None:
            _libc.setfsuid(old_uid)
        if old_gid is not None:
            _libc.setfsgid(old_gid)


def become(uid: int | None, gid: int | None, groups: Sequence[int] = ()) -> None:
    """The process has these ids for good; None keeps one as it is, the supplementary groups are always set."""
    os.setgroups(list(groups))
    if gid is not None:
        os.setresgid(gid, gid, gid)
    if uid is not None:
        os.setresuid(uid, uid, uid)
