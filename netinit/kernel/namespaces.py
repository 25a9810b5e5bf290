"""Entering network namespaces from outside, by process, path or name, as nsenter(1) does; and one lock for each.

A namespace that belongs to another user namespace (a pod with hostUsers: false) is entered through that one: the
kernel lets only it write rules that name users (xt_owner) there.
"""

from __future__ import annotations

import fcntl
import posix
import time

from netinit.base.errors import LockedError, NamespaceError
from netinit.base.shown import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NS_GET_USERNS = 0xB701  # ioctl_ns(2): a descriptor of the user namespace that owns this namespace
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NAMED = "/run/netns"
OWN = "/proc/self/ns/net"
LOCK_POLL = 0.01  # seconds
_joined = False  # this process is in the user namespace of a pod


def path_of(netns: str, pid: int) -> str:
    """The path of the namespace that the options name: a process's, a path, or a name under /run/netns; or empty."""
    if pid:
        return f"/proc/{pid}/ns/net"
    return netns if not netns or "/" in netns else f"{NAMED}/{netns}"


def enter(path: str) -> int:
    """Moves this process into the namespace at `path`; returns a descriptor of the one it left.

    When the namespace belongs to another user namespace, this process joins that one for good, as its root.
    NamespaceError names the path and the cause.
    """
    global _joined  # noqa: PLW0603 - a fact about the process, which has one user namespace
    left = posix.open(OWN, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        target = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError as error:
        posix.close(left)
        raise NamespaceError(
            f"{path}: {posix.strerror(error.errno or 0)}; --pid wants a running process, --netns a namespace's path or name"
        ) from None
    try:
        owner = _owner(target)
        if owner is not None:
            _set_namespace(owner, CLONE_NEWUSER, path)
            posix.close(owner)
            _joined = True
            posix.setresgid(0, 0, 0)
            posix.setresuid(0, 0, 0)
        _set_namespace(target, CLONE_NEWNET, path)
    finally:
        posix.close(target)
    return left


def joined_user_namespace() -> bool:
    """Whether `enter` had to join another user namespace, out of which there is no way back."""
    return _joined


def leave(left: int) -> None:
    """Back to the namespace that `enter` left."""
    _set_namespace(left, CLONE_NEWNET, OWN)
    posix.close(left)


def lock(nanoseconds: int) -> int:
    """Waits for this namespace's lock and returns its descriptor; it is held until every copy of that is closed.

    The lock is on the namespace itself, so it needs no writable folder, is one for all containers of a pod, and is free
    again when its holder dies. Programs started from here inherit it, so that a killed run's last change is done before
    the next run looks. LockedError after `nanoseconds`.
    """
    descriptor = posix.open(OWN, posix.O_RDONLY)
    for _ in attempts(nanoseconds):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        posix.set_inheritable(descriptor, True)  # noqa: FBT003 - its signature
        return descriptor
    holders = describe_holders(descriptor)
    posix.close(descriptor)
    raise LockedError(
        f"the network namespace is being programmed by {holders}; try again when it is done, or raise --lock-timeout"
    )


def attempts(nanoseconds: int) -> Iterator[None]:
    """Yields at once and then every 10 ms until the time is over."""
    deadline = time.monotonic_ns() + nanoseconds
    yield
    while time.monotonic_ns() < deadline:
        time.sleep(LOCK_POLL)
        yield


def describe_holders(descriptor: int) -> str:
    """Who holds the flock(2) lock of an open file, as far as /proc/locks tells: process ids and their commands."""
    status = posix.fstat(descriptor)
    wanted = f"{posix.major(status.st_dev):02x}:{posix.minor(status.st_dev):02x}:{status.st_ino}"
    names = []
    for line in read_text("/proc/locks").splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted:  # noqa: PLR2004
            command = read_text(f"/proc/{fields[4]}/comm").strip()
            names.append(f"process {fields[4]} ({escape(command)})" if command else "a process of another container")
    return ", ".join(names) or "another process"


def read_text(path: str) -> str:
    """The text of a small file of /proc or /sys; empty when it cannot be read."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return ""
    parts = []
    try:
        while part := posix.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:
        return ""
    finally:
        posix.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def _owner(target: int) -> int | None:
    """A descriptor of the user namespace that owns `target`, unless it is this process's."""
    try:
        owner = fcntl.ioctl(target, NS_GET_USERNS)
    except OSError:
        return None  # not ours to see (EPERM), or a kernel before 4.9: entering it tells the rest
    theirs, ours = posix.fstat(owner), posix.stat("/proc/self/ns/user")
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
        posix.close(owner)
        return None
    return owner


def _set_namespace(descriptor: int, kind: int, path: str) -> None:
    import ctypes  # Python 3.12 has os.setns; this is 2 ms, paid only where a namespace is entered

    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, kind):
        code = ctypes.get_errno()
        raise NamespaceError(
            f"{path} cannot be entered: {posix.strerror(code)}; entering wants root with SYS_ADMIN (nsenter wants the same)"
        )
