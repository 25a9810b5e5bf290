"""Drop capabilities (capabilities(7)) of this process for good, before it reads foreign data."""

from __future__ import annotations

import posix
from _struct import pack

from netinit.kernel import read_text
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW, read_capabilities

WANTED = (CAP_NET_ADMIN, CAP_NET_RAW)
CAP_SETPCAP = 8
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3: 64 bits in two words
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38
_PR_SET_DUMPABLE = 4


def may_gain() -> bool:
    """Whether exec may give more privileges; False with allowPrivilegeEscalation: false."""
    return "NoNewPrivs:\t1" not in read_text("/proc/self/status")


def confine(keep: tuple[int, ...] = (), *, wanted: tuple[int, ...] = WANTED) -> None:
    """Limit this process and its programs for good to NET_ADMIN, NET_RAW and those in `keep`, as far as it has them.

    Without CAP_SETPCAP a program started by root gets all capabilities back; this process does not. Raises OSError.
    """
    from netinit.kernel import libc

    prctl = libc.function("prctl")
    kept = sum(1 << number for number in (*wanted, *keep))
    number = 0
    while (held := prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if held and not kept >> number & 1:
            prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # EPERM without CAP_SETPCAP: see above
        number += 1
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    permitted = read_capabilities("CapPrm") & kept
    halves = [bits >> shift & 0xFFFFFFFF for shift in (0, 32) for bits in (permitted, permitted, 0)]  # the last: inheritable
    header, data = libc.buffer(8, pack("=II", _VERSION, 0)), libc.buffer(24, pack("=6I", *halves))
    if libc.function("capset")(header, data) or prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(libc.errno(), posix.strerror(libc.errno()))


def give_up() -> None:
    """Drop every capability of this process and its programs for good."""
    confine(wanted=())


def hide() -> None:
    """Forbid unprivileged processes to trace this one or read its descriptors (PR_SET_DUMPABLE of prctl(2))."""
    from netinit.kernel import libc

    libc.function("prctl")(_PR_SET_DUMPABLE, 0, 0, 0, 0)
