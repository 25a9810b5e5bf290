"""Network namespaces: whose this process's is, its lock, and the only way to enter another, to make one and to come back.

`enter` is for good, in a child that netinit.kernel.pods has prepared; `Visit` is for a block, in a namespace of our own making.

How the machine's own namespace is distinguished from a pod's, without any privilege and where /proc is masked as in containers:

- Since Linux 6.18 the first network namespace has a number of its own (NET_NS_INIT_INO of linux/nsfs.h), which no kernel
  gives to another.
- Before, by a setting that the kernel shows in the first namespace alone: net.core.netdev_max_backlog is registered for
  init_net (net/core/sysctl_net_core.c, the same since namespaces exist), and /proc/sys/net shows what the namespace of
  the reading process has.

The limits: a node that is itself a container (kind) has a namespace that the kernel did not begin with, so a hostNetwork
pod on it looks like any pod; from outside it is known by being the caller's own, or that of process 1. A pod that is a
virtual machine (Kata Containers) runs in the first namespace of a kernel of its own: it needs --host-network. Without
/proc/sys before 6.18 nothing is recognised.
"""

from __future__ import annotations

import fcntl
import posix
import time

from netinit.base.errors import LockedError, NamespaceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

OWN = "/proc/self/ns/net"
FIRST = 0xEFFFFFF9
OF_THE_FIRST = "/proc/sys/net/core/netdev_max_backlog"
POLL = 0.01  # seconds between two attempts to lock
NETWORK, USER = 0x40000000, 0x10000000  # CLONE_NEWNET, CLONE_NEWUSER of sched.h: kinds of namespaces
_OF_THIS_THREAD = "/proc/thread-self/ns/net"  # a namespace belongs to a thread; /proc/self speaks of the main one


def is_machine() -> bool:
    """Whether this process is in the network namespace that the kernel began with."""
    if posix.access(OF_THE_FIRST, posix.F_OK):
        return True
    try:
        return posix.stat(OWN).st_ino == FIRST
    except OSError:  # no /proc: the lock will say so
        return False


def refuse_host() -> None:
    """NamespaceError where this process is in the machine's own namespace, which is changed only on demand."""
    if is_machine():
        raise NamespaceError(f"{OF_THE_MACHINE}; nothing was changed.\n{_what_is_meant()}")


def _what_is_meant() -> str:
    """What each of those who come here by mistake wants to do instead."""
    from netinit.kernel.runtime_environment import PERSON, find_situation

    if find_situation() == PERSON:
        return (
            "  for a pod: name it with --pid (a process of it) or --netns\n"
            "  to try it on this machine: netinit demo, or unshare -n netinit …\n"
            "  to see the rules and change nothing: netinit render …\n"
            "  if the whole machine is meant: --host-network"
        )
    return (
        "  this pod has hostNetwork: true: its rules would capture the traffic of the whole node and stay when the pod is gone;"
        " leave the init container out\n"
        "  for another pod of the node: name it with --pid or --netns\n"
        "  where the pod is a virtual machine with a kernel of its own: --host-network"
    )


OF_THE_MACHINE = "this is the machine's own network namespace, whose rules are for all of its programs"


def lock(nanoseconds: int) -> int:
    """Waits for this namespace's lock and returns its descriptor; it is held until every copy of that is closed.

    The lock is on the namespace itself, so it needs no writable folder, is one for all containers of a pod, and is free
    again when its holder dies. Programs started from here inherit it, so that a killed run's last change is done before
    the next run looks. LockedError after `nanoseconds`.
    """
    descriptor = posix.open(OWN, posix.O_RDONLY)
    if not take(descriptor, nanoseconds):
        from netinit.kernel.lock_holders import describe_holders  # for the one run that has to wait in vain

        holders = describe_holders(descriptor)
        posix.close(descriptor)
        raise LockedError(
            f"the network namespace is being programmed by {holders}; try again when it is done, or raise --lock-timeout"
        )
    posix.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature
    return descriptor


def take(descriptor: int, nanoseconds: int) -> bool:
    """Waits for the flock(2) lock of an open file; whether it was had."""
    for _ in attempts(nanoseconds):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def attempts(nanoseconds: int) -> Iterator[None]:
    """Yields at once and then every 10 ms until the time is over, whatever becomes of the wall clock."""
    deadline = time.monotonic_ns() + nanoseconds
    yield
    while time.monotonic_ns() < deadline:
        time.sleep(POLL)
        yield


def enter(descriptor: int, kind: int = NETWORK, name: str = "the network namespace") -> None:
    """The calling thread is in the namespace of the open descriptor. NamespaceError."""
    if refusal := _call("setns", descriptor, kind):
        raise NamespaceError(f"{name} cannot be entered: {refusal}; entering needs root with SYS_ADMIN (nsenter needs the same)")


def unshare() -> None:
    """The calling thread is in a fresh network namespace, whose loopback device is down. NamespaceError."""
    if refusal := _call("unshare", NETWORK):
        raise NamespaceError(f"cannot make a network namespace: {refusal}; run as root with CAP_SYS_ADMIN")


class Visit:
    """A block in which the calling thread is in the namespace of a descriptor, or in a fresh one; then where it was before.

    NamespaceError where it cannot be entered or made.
    """

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor
        self._home = -1

    def __enter__(self) -> Self:
        self._home = open_own()
        try:
            if self._descriptor < 0:
                unshare()
            else:
                enter(self._descriptor)
        except BaseException:
            posix.close(self._home)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            enter(self._home)
        finally:
            posix.close(self._home)


def open_own() -> int:
    """A descriptor of the namespace that the calling thread is in."""
    return posix.open(_OF_THIS_THREAD, posix.O_RDONLY | posix.O_CLOEXEC)


def _call(name: str, *arguments: int) -> str:
    """Makes the system call of the C library; why the kernel refused it, empty where it did not."""
    import ctypes  # Python 3.12 has os.setns and os.unshare; this is 2 ms, paid only where a namespace is entered

    library = ctypes.CDLL(None, use_errno=True)
    return posix.strerror(ctypes.get_errno()) if library[name](*arguments) else ""
