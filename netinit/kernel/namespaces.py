"""Network namespaces: recognise the machine's own, lock, enter, create.

The machine's own namespace is recognised without privileges: since Linux 6.18 by its fixed inode number (NET_NS_INIT_INO of
linux/nsfs.h), before by net.core.netdev_max_backlog, which exists in the initial namespace only
(net/core/sysctl_net_core.c); /proc/sys/net shows the reader's namespace.

Limits: a node that is a container (kind) is not in the initial namespace, so its hostNetwork pods look like any pod; from
outside they are recognised as the caller's own namespace or process 1's. A pod that is a virtual machine (Kata Containers)
is in its kernel's initial namespace and needs --host-network. Before 6.18 nothing is recognised without /proc/sys.
"""

from __future__ import annotations

import time

from netinit.base.errors import LockedError, NamespaceError
from netinit.base.system import fcntl, posix
from netinit.kernel import identify

TYPE_CHECKING = False

OWN = "/proc/self/ns/net"
XTABLES_LOCK = "/run/xtables.lock"  # iptables-legacy's lock, unless XTABLES_LOCKFILE names another
FIRST = 0xEFFFFFF9
OF_THE_FIRST = "/proc/sys/net/core/netdev_max_backlog"
POLL = 0.01  # seconds between two attempts to lock
LATER = "; try again when it is done, or raise --lock-timeout"
NETWORK, USER = 0x40000000, 0x10000000  # CLONE_NEWNET, CLONE_NEWUSER of sched.h: kinds of namespaces
_OF_THIS_THREAD = "/proc/thread-self/ns/net"  # a namespace belongs to a thread; /proc/self shows the main thread's


def is_machine() -> bool:
    """Whether this process is in the kernel's initial network namespace."""
    found = identify(OWN)  # nothing without /proc, which `lock` reports
    return posix.access(OF_THE_FIRST, posix.F_OK) or (found is not None and found[1] == FIRST)


def refuse_host() -> None:
    """Raise NamespaceError in the machine's own namespace, which is changed only with --host-network."""
    if is_machine():
        what = "this is the machine's own network namespace, whose rules are for all of its programs; nothing was changed."
        raise NamespaceError(f"{what}\n{_suggest()}")


def _suggest() -> str:
    from netinit.kernel.capabilities import PERSON, find_situation

    if find_situation() == PERSON:
        return (
            "  for a pod: name it with --pid (a process of it) or --netns\n"
            "  to try it on this machine: netinit demo, or unshare -n sh -c 'ip link set lo up; netinit …'\n"
            "  to see the rules and change nothing: netinit render …\n"
            "  for the whole machine: --host-network"
        )
    return (
        "  this pod has hostNetwork: true: its rules would capture the traffic of the whole node and stay when the pod is deleted;"
        " leave the init container out\n"
        "  for another pod of the node: name it with --pid or --netns\n"
        "  where the pod is a virtual machine with a kernel of its own: --host-network"
    )


def lock(nanoseconds: int) -> int:
    """Acquire this namespace's lock; return its descriptor. Raises LockedError after `nanoseconds`.

    The lock is on the namespace itself: no writable directory is needed, and all containers of a pod share it. Child
    programs inherit it, so a killed run's last change completes before the next run reads.
    """
    descriptor = posix.open(OWN, posix.O_RDONLY)
    take_or_refuse(descriptor, nanoseconds, "the network namespace is being programmed by", LATER)
    posix.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature
    return descriptor


def take(descriptor: int, nanoseconds: int) -> bool:
    """Wait for the flock(2) lock of an open file; return whether it was acquired."""
    deadline = time.monotonic_ns() + nanoseconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic_ns() >= deadline:
                return False
            time.sleep(POLL)
        else:
            return True


def take_or_refuse(descriptor: int, nanoseconds: int, what: str, remedy: str) -> None:
    """Wait for the flock(2) lock of an open file; on a timeout close it and raise LockedError: what, holders, remedy."""
    if take(descriptor, nanoseconds):
        return
    from netinit.kernel.processes import describe_holders  # only a run that timed out needs it

    holders = describe_holders(descriptor)
    posix.close(descriptor)
    raise LockedError(f"{what} {holders}{remedy}")


def enter(descriptor: int, kind: int = NETWORK, name: str = "the network namespace") -> None:
    """Move the calling thread into an open namespace for good. Raises NamespaceError."""
    from netinit.kernel import libc  # Python 3.12 has os.setns and os.unshare

    try:
        libc.call("setns", descriptor, kind)
    except OSError as error:
        remedy = "entering needs root with SYS_ADMIN (nsenter needs the same)"
        raise NamespaceError(f"{name} cannot be entered: {error.strerror}; {remedy}") from None


def unshare() -> None:
    """Move the calling thread into a new network namespace, with `lo` down. Raises NamespaceError."""
    from netinit.kernel import libc

    try:
        libc.call("unshare", NETWORK)
    except OSError as error:
        raise NamespaceError(f"cannot make a network namespace: {error.strerror}; run as root with CAP_SYS_ADMIN") from None


def open_own() -> int:
    """Return a descriptor of the calling thread's network namespace."""
    return posix.open(_OF_THIS_THREAD, posix.O_RDONLY | posix.O_CLOEXEC)
