"""Capabilities that a program's file gives to a user other than root, put into effect for this process and its programs.

The image's interpreter has them as permitted, not as effective ones (capabilities(7)): then it starts everywhere, also
where the container may not have them, and only netinit puts them into effect. Kubernetes gives a user other than root no
other way: it knows no ambient capabilities.
"""

from __future__ import annotations

import posix

from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW
from netinit.kernel.namespaces import read_text

WANTED = (CAP_NET_ADMIN, CAP_NET_RAW)
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3: 64 bits in two words
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2


def raise_permitted() -> tuple[int, ...]:
    """The capabilities that were put into effect now, of this process and of programs that it starts.

    None for root, whose programs have them anyway; none where the kernel or a seccomp profile refuses: whoever wants one
    then tells that it is missing.
    """
    if posix.geteuid() == 0:
        return ()
    sets = read_sets()
    permitted, ambient = sets.get("CapPrm", 0), sets.get("CapAmb", 0)
    wanted = tuple([number for number in WANTED if permitted >> number & 1 and not ambient >> number & 1])
    if not wanted:
        return ()
    try:
        _raise(sets, wanted)
    except OSError:
        return ()
    return wanted


def read_sets() -> dict[str, int]:
    """The capability sets of this process by the names of proc(5): CapInh CapPrm CapEff CapBnd CapAmb, as far as told.

    Some kernels tell only some of them (gVisor has no CapAmb), and without /proc there are none.
    """
    lines = [line.split() for line in read_text("/proc/self/status").splitlines() if line.startswith("Cap")]
    return {name.rstrip(":"): int(bits, 16) for name, bits in lines}


def may_gain() -> bool:
    """Whether starting a program may give this process more privileges: not under allowPrivilegeEscalation: false."""
    return "NoNewPrivs:\t1" not in read_text("/proc/self/status")


def _raise(sets: dict[str, int], numbers: tuple[int, ...]) -> None:
    import ctypes  # 4 ms, and only for users other than root

    libc = ctypes.CDLL(None, use_errno=True)
    bits = sum(1 << number for number in numbers)
    words = [sets.get("CapEff", 0) | bits, sets["CapPrm"], sets.get("CapInh", 0) | bits]
    halves = [word & 0xFFFFFFFF for word in words] + [word >> 32 for word in words]
    header, data = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)(*halves)
    _check(ctypes, libc.capset(header, data))
    for number in numbers:
        _check(ctypes, libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0))


def _check(ctypes: object, status: int) -> None:
    if status:
        number = ctypes.get_errno()  # type: ignore[attr-defined]
        raise OSError(number, posix.strerror(number))
