"""Run tests in forked children, each in a network namespace of its own."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from netinit.base.errors import ChildLostError, NamespaceError, NetinitError
from netinit.kernel import children, namespaces

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914  # linux/sockios.h
IFF_UP = 1

Result = TypeVar("Result")


def attempt_all(jobs: Mapping[str, Callable[[], Result]], seconds: float) -> dict[str, Result | NetinitError]:
    """Run each job in a namespace of its own, all at once; return results and errors.

    Raises NamespaceError if no namespace can be created.
    """
    wanted = {name: partial(_attempt, job) for name, job in jobs.items()}
    found: dict[str, Result | NetinitError] = {}
    for name, outcome in children.ask_all(wanted, seconds=seconds, what=f"a feature check of {seconds:.0f} s").items():
        if isinstance(outcome, NamespaceError):
            raise outcome
        if isinstance(outcome, ChildLostError):
            found[name] = NetinitError(
                "it did not end in time and was stopped" if outcome.late else "it ended without a result; stderr says why"
            )
        else:
            found[name] = NetinitError(str(outcome)) if isinstance(outcome, (children.ChildError, OSError)) else outcome
    return found


def renew() -> None:
    """Move this process into a new network namespace with `lo` up. Raises NamespaceError."""
    namespaces.unshare()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = fcntl.ioctl(asking, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack_from("16sH", request)[1]
        fcntl.ioctl(asking, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def _attempt(job: Callable[[], Result], _: children.Answer) -> Result:
    renew()
    try:
        return job()
    except OSError as error:
        raise NetinitError(str(error)) from None
