"""Throw-away network namespaces: a forked child enters one, tries, tells, and takes it along when it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping

from netinit.base.errors import LabError, NetinitError
from netinit.kernel import forks as processes

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914  # linux/sockios.h
IFF_UP = 1


def attempt_all(jobs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, object]:
    """What each job returned in a namespace of its own, all at the same time; for one that failed, its NetinitError.

    Results go through JSON. LabError when no namespace can be made (SYS_ADMIN is missing), or the time was not enough.
    """
    children = {}
    found: dict[str, object] = {}
    try:
        for name, job in jobs.items():
            children[name] = _start(job)
        deadline = time.monotonic() + seconds
        for name, (_, answer) in children.items():
            found[name] = _collect(answer, deadline)
    finally:
        for pid, answer in children.values():
            os.close(answer)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # its programs too
            processes.end(pid)
    return found


def renew() -> None:
    """Puts this process into a fresh network namespace whose loopback device is up. LabError where that is not allowed."""
    processes.unshare_network()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = fcntl.ioctl(asking, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack_from("16sH", request)[1]
        fcntl.ioctl(asking, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def _start(job: Callable[[], object]) -> tuple[int, int]:
    answer, ours = os.pipe()

    def body() -> None:
        os.setpgid(0, 0)
        processes.die_with_parent()
        os.close(answer)
        try:
            renew()
            told = [True, job()]
        except LabError as error:
            told = [None, str(error)]
        except (NetinitError, OSError) as error:
            told = [False, str(error)]
        processes.send(ours, json.dumps(told).encode())

    pid = processes.fork(body)
    os.close(ours)
    with contextlib.suppress(OSError):  # whoever comes first
        os.setpgid(pid, pid)
    return pid, answer


def _collect(answer: int, deadline: float) -> object:
    try:
        good, result = json.loads(processes.receive(answer, deadline - time.monotonic()))
    except TimeoutError:
        return NetinitError("it did not end in time and was stopped")
    except EOFError:
        return NetinitError("it ended without a result; stderr says why")
    if good is None:
        raise LabError(result)
    return result if good else NetinitError(result)
