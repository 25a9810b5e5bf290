"""Capabilities (capabilities(7)): read those of this process, and drop them for good before foreign data is read."""

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
    """Return the capability sets of this process by their names in proc(5): CapInh CapPrm CapEff CapBnd CapAmb.

    Some kernels show only some of them (gVisor has no CapAmb), and without /proc there are none.
    """
    lines = [line.split() for line in read_text("/proc/self/status").splitlines() if line.startswith("Cap")]
    return {name.rstrip(":"): int(bits, 16) for name, bits in lines}


def may_gain() -> bool:
    """Whether exec may give this process more privileges; False with allowPrivilegeEscalation: false."""
    return "NoNewPrivs:\t1" not in read_text("/proc/self/status")


def confine(keep: tuple[int, ...] = (), *, wanted: tuple[int, ...] = WANTED) -> None:
    """Limit this process and its programs to NET_ADMIN, NET_RAW and the capabilities in `keep`, as far as it has them.

    Permanent: a program started by root or with set-user-ID gets no more either. Without CAP_SETPCAP root cannot limit
    the programs it starts; this process's own capabilities are dropped all the same.
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
    """Drop every capability of this process and its programs, for good."""
    confine(wanted=())


def hide() -> None:
    """Forbid tracing this process and reading its descriptors without privileges over the whole machine (PR_SET_DUMPABLE)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _set(ctypes: Any, libc: Any, words: list[int]) -> int:
    """Call capset(2) with effective, permitted and inheritable sets."""
    halves = [word & 0xFFFFFFFF for word in words] + [word >> 32 for word in words]
    header, data = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)(*halves)
    return int(libc.capset(header, data))


def _check(ctypes: object, status: int) -> None:
    if status:
        number = ctypes.get_errno()  # type: ignore[attr-defined]
        raise OSError(number, posix.strerror(number))
