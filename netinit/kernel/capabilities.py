"""Capabilities: what this process has, and what is given up for good before foreign data is read (capabilities(7))."""

from __future__ import annotations

import posix

from netinit.kernel import read_text
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WANTED = (CAP_NET_ADMIN, CAP_NET_RAW)
CAP_SETPCAP = 8
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3: 64 bits in two words
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38
_PR_SET_DUMPABLE = 4


def read_sets() -> dict[str, int]:
    """The capability sets of this process by the names of proc(5): CapInh CapPrm CapEff CapBnd CapAmb, as far as known.

    Some kernels show only some of them (gVisor has no CapAmb), and without /proc there are none.
    """
    lines = [line.split() for line in read_text("/proc/self/status").splitlines() if line.startswith("Cap")]
    return {name.rstrip(":"): int(bits, 16) for name, bits in lines}


def may_gain() -> bool:
    """Whether starting a program may give this process more privileges: not under allowPrivilegeEscalation: false."""
    return "NoNewPrivs:\t1" not in read_text("/proc/self/status")


def confine(keep: tuple[int, ...] = (), *, wanted: tuple[int, ...] = WANTED) -> None:
    """From now on this process and its programs have NET_ADMIN, NET_RAW and what is to be kept, as far as they had it.

    For good: also a program that root starts or that is set-user-ID gets no more. Root without CAP_SETPCAP cannot take
    anything from the programs that it starts; what it has itself is given up all the same.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    kept = sum(1 << number for number in (*wanted, *keep))
    number = 0
    while (held := libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if held and not kept >> number & 1:
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # EPERM without CAP_SETPCAP: see above
        number += 1
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    permitted = read_sets().get("CapPrm", 0) & kept
    _check(ctypes, _set(ctypes, libc, [permitted, permitted, 0]))
    _check(ctypes, libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def give_up() -> None:
    """From now on this process and its programs have no capability at all, for good."""
    confine(wanted=())


def hide() -> None:
    """Nobody without rights over the whole machine may trace this process or read what it has open (PR_SET_DUMPABLE)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _set(ctypes: Any, libc: Any, words: list[int]) -> int:
    """capset(2) of effective, permitted and inheritable sets."""
    halves = [word & 0xFFFFFFFF for word in words] + [word >> 32 for word in words]
    header, data = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)(*halves)
    return int(libc.capset(header, data))


def _check(ctypes: object, status: int) -> None:
    if status:
        number = ctypes.get_errno()  # type: ignore[attr-defined]
        raise OSError(number, posix.strerror(number))
