"""A server's process: its listening sockets, its limits of memory and descriptors, and tasks that are restarted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Protocol

from netinit.base.errors import ConfigError, NetinitError
from netinit.serving.event_log import EventLog


class HasFileno(Protocol):
    """What has a descriptor."""

    def fileno(self) -> int:
        """Return it."""


_CGROUPS = Path("/sys/fs/cgroup")
_BACKLOG = 2048
_RETRY_SECONDS = 1.0
_NO_LIMIT = 1 << 50  # bytes; cgroup v1 reports a larger number without a limit


def listen(address: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a TCP socket, dual-stack if `address` is empty. Raises ConfigError.

    `shared`: set SO_REUSEPORT, so that a successor can listen before this process exits.
    """
    is_dual = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, port), family=family, backlog=_BACKLOG, reuse_port=shared, dualstack_ipv6=is_dual)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # create_server adds the address, which is named here
        raise ConfigError(f"port {port}{f' of {address}' if address else ''} cannot be listened on: {reason}") from error
    server.settimeout(0)
    return server


def is_answered(path: str) -> bool:
    """Whether a process listens on this Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        return asking.connect_ex(path) in {0, errno.EAGAIN}  # the latter: its backlog is full


def memory_limit(cgroups: Path = _CGROUPS) -> int | None:
    """Return the container's memory limit in bytes (cgroup v1 or v2), or None."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = int((cgroups / name).read_text())
        except (OSError, ValueError):  # missing, or "max"
            continue
        return limit if 0 < limit < _NO_LIMIT else None
    return None


def allow_descriptors(number: int) -> None:
    """Set the soft limit of open files to `number`, or to the hard limit if that is less, even if it was higher before."""
    import resource  # not on Windows, where help is asked for

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = number if hard == resource.RLIM_INFINITY else min(number, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def wait_readable(file: int | socket.socket | HasFileno, seconds: float | None = None) -> None:
    """Wait until a descriptor, socket or file can be read, or `seconds` have passed."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ready.wait()
    finally:
        loop.remove_reader(file)


async def run_forever(
    name: str, task: Callable[[], Awaitable[None]], problems: MutableMapping[str, str], log: EventLog, *,
    exhausted: Callable[[str], None] | None = None,
) -> None:  # fmt: skip
    """Restart a task whenever it ends; an error is in `problems` until then, and logged once.

    `exhausted`: called with the name if the task runs out of memory, by a server whose process is replaced as soon as it ends.
    """
    last = ""
    while True:
        try:
            await task()
        except (Exception, ExceptionGroup) as error:  # noqa: BLE001 - the other tasks go on
            if exhausted and (isinstance(error, MemoryError) or (isinstance(error, ExceptionGroup) and error.subgroup(MemoryError))):
                exhausted(name)
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            problems[name] = problem = f"{cause}" if isinstance(cause, NetinitError) else f"{type(cause).__name__}: {cause}"
            if problem != last:
                log.event("error", f"{name}: {problem}")
            last = problem
        await asyncio.sleep(_RETRY_SECONDS)
        problems.pop(name, None)
