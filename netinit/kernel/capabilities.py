"""Drop capabilities (capabilities(7)) of this process for good, before it reads foreign data, or say how to give it some.

The remedy depends on where the process runs: in a pod's container, another container, or on a host.
"""

from __future__ import annotations

from _struct import pack

from netinit.base.logs import TERMINATION_LOG
from netinit.base.system import posix
from netinit.kernel import read_text
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW, read_capabilities

KUBERNETES, CONTAINER, PERSON = "a container of a pod", "a container", "a person"
OF_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set by the kubelet in every container
OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
NUMBERS = {"NET_ADMIN": CAP_NET_ADMIN, "NET_RAW": CAP_NET_RAW}
WANTED = (CAP_NET_ADMIN, CAP_NET_RAW)
CAP_SETPCAP = 8
_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3: 64 bits in two words
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 23, 24, 38
_PR_SET_DUMPABLE = 4


def may_gain() -> bool:
    """Whether exec may give more privileges; False with allowPrivilegeEscalation: false."""
    return "NoNewPrivs:\t1" not in read_text("/proc/self/status")


def confine(keep: tuple[int, ...] = (), *, wanted: tuple[int, ...] = WANTED) -> int:
    """Limit this process and its programs for good to NET_ADMIN, NET_RAW and those in `keep`, as far as it has them.

    Without CAP_SETPCAP a program started by root gets all capabilities back; this process does not. Return those that it has
    now, as bits. Raises OSError.
    """
    from netinit.kernel import libc

    prctl = libc.function("prctl")
    kept = sum(1 << number for number in (*wanted, *keep))
    number = 0
    while (is_bounding := prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if is_bounding and not kept >> number & 1:
            prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # EPERM without CAP_SETPCAP: see above
        number += 1
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    permitted = read_capabilities("CapPrm") & kept
    use(permitted, permitted)
    libc.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return permitted


def use(effective: int, permitted: int) -> None:
    """Make capabilities effective, of those that stay permitted; both as bits. Raises OSError."""
    from netinit.kernel import libc

    halves = [bits >> shift & 0xFFFFFFFF for shift in (0, 32) for bits in (effective, permitted, 0)]  # the last: inheritable
    header, data = libc.buffer(8, pack("=II", _VERSION, 0)), libc.buffer(24, pack("=6I", *halves))
    libc.call("capset", header, data)


def give_up() -> None:
    """Drop every capability of this process and its programs for good."""
    confine(wanted=())


def hide() -> None:
    """Forbid unprivileged processes to trace this one or read its descriptors (PR_SET_DUMPABLE of prctl(2))."""
    from netinit.kernel import libc

    libc.function("prctl")(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def find_situation() -> str:
    """Return KUBERNETES, CONTAINER or PERSON."""
    if posix.environ.get(OF_KUBERNETES.encode()) or posix.access(TERMINATION_LOG, posix.F_OK):
        return KUBERNETES
    return CONTAINER if any(posix.access(path, posix.F_OK) for path in OF_CONTAINERS) else PERSON


def advise(*capabilities: str, reading: bool = False) -> str:
    """Return how to give this process these capabilities, as the end of a message.

    `reading`: the command only reads a pod, so a debug container is likelier than an init container.
    """
    root = posix.geteuid() == 0
    names = ", ".join(capabilities)
    situation = find_situation()
    if not read_text("/proc/self/status"):
        return "or /proc, which shows capabilities, is not mounted: mount -t proc proc /proc"
    if situation == PERSON:
        return f"this root lacks {names}: run it where root has all rights" if root else "run it as root (sudo)"
    # The capability is in the bounding set but not effective: the program, or its user, does not get it.
    is_refused = not root and all(read_capabilities("CapBnd") >> NUMBERS[name] & 1 for name in capabilities)
    user = " as user 0" if is_refused or (not root and not may_gain()) else ""
    if situation == KUBERNETES and reading:
        return f"give the container securityContext.capabilities.add: [{names}]{user}, as kubectl debug --profile=netadmin does"
    if situation == KUBERNETES:
        return f"run the init container with securityContext.capabilities.add: [{names}]{user}"
    options = " ".join([f"--cap-add {name}" for name in capabilities])
    return f"start the container with {options}{user}"
