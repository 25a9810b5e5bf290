"""System calls and child processes of the laboratory.

Children are forked, not started anew: a forked Python is ready in two milliseconds, a started one in thirty. They
hold the reading end of a pipe, the leash, whose writing end only the parent keeps: when the parent ends, however it
ends, the kernel closes the leash and the children leave.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from select import POLLIN, poll

from netinit.base.errors import LabError
from netinit.base.logs import flush
from netinit.base.output import tell
from netinit.base.shown import split_message

OWN_NAMESPACE = "/proc/thread-self/ns/net"  # a namespace belongs to a thread; /proc/self speaks of the main one
_CLONE_NEWNET = 0x40000000  # sched.h
_PR_SET_PDEATHSIG = 1  # sys/prctl.h
_LENGTH_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.argtypes = _libc.setfsgid.argtypes = (ctypes.c_uint,)


def unshare_network() -> None:
    """The calling thread is in a fresh network namespace. os.unshare came with 3.12."""
    if _libc.unshare(_CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise LabError(f"cannot make a network namespace: {os.strerror(code)}; run as root with CAP_SYS_ADMIN")


def setns(descriptor: int) -> None:
    """The calling thread is in the network namespace that the open descriptor stands for. os.setns came with 3.12."""
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise LabError(f"cannot enter a network namespace: {os.strerror(code)}; run as root with CAP_SYS_ADMIN")


@contextlib.contextmanager
def visiting(descriptor: int) -> Iterator[None]:
    """Inside the block this thread is in the network namespace of the descriptor, afterwards where it was before."""
    home = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(descriptor)
        try:
            yield
        finally:
            setns(home)
    finally:
        os.close(home)


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


def die_with_parent() -> None:
    """The kernel kills this process when the thread that forked it ends; a change of ids would undo it."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def fork(body: Callable[[], object]) -> int:
    """The pid of a child that runs `body` and then ends without running anything else of this program.

    Python 3.12 warns of forks in processes with threads, because a lock held by another thread stays locked in the
    child. The children here touch no foreign locks, so that a test runner's threads do no harm.
    """
    flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        gc.freeze()  # objects of the parent are never finalised here: their descriptors may be reused
        body()
        flush()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may unwind into the parent's frames
        tell(split_message(traceback.format_exc()))
    finally:
        os._exit(code)


def settle(*descriptors: int) -> None:
    """A forked child that is to stay keeps these descriptors and stderr, and no other file of its parent.

    Pipes of the parent would otherwise never end for their readers. Ctrl-C is the parent's to handle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    low = 3
    for descriptor in sorted(descriptors):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def end(pid: int) -> int | None:
    """The wait status of the child, which is gone now; None if somebody else has reaped it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return None


def send(descriptor: int, message: bytes) -> None:
    """The message is in the pipe as a whole, its length first, so that `receive` need not wait for the pipe's end."""
    data = len(message).to_bytes(_LENGTH_BYTES, "little") + message
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int, timeout: float) -> bytes:
    """The message that `send` put into the pipe.

    Raises TimeoutError after `timeout` seconds and EOFError when the writer ended without a whole message.
    """
    deadline = time.monotonic() + timeout
    data = b""
    wanted = _LENGTH_BYTES
    poller = poll()
    poller.register(descriptor, POLLIN)
    while len(data) < wanted:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            raise TimeoutError
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            raise EOFError
        data += piece
        if len(data) >= _LENGTH_BYTES:
            wanted = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    return data[_LENGTH_BYTES:wanted]
