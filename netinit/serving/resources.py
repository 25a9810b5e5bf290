"""A server's resources: its listening socket, and the processors, memory and descriptors that it may use."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

from netinit.base.errors import ConfigError

__all__ = ["allow_descriptors", "count_cores", "listen", "memory_limit"]

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 50  # bytes; cgroups version 1 reports such a number if there is no limit


def listen(address: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket, for both families if no address is given. Raises ConfigError.

    `shared`: another process of the same user may listen too, as a successor does while this one stops.
    """
    try:
        if address:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            return _bind(family, address, port, shared=shared)
        try:
            return _bind(socket.AF_INET6, "::", port, shared=shared)
        except OSError:  # no IPv6 here
            return _bind(socket.AF_INET, "0.0.0.0", port, shared=shared)  # noqa: S104 - a server's
    except OSError as error:
        raise ConfigError(
            f"port {port}{f' of {address}' if address else ''} cannot be listened on: {error.strerror}"
        ) from error


def _bind(family: socket.AddressFamily, address: str, port: int, *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and address == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((address, port))
        made.listen(2048)
        made.settimeout(0)
    except BaseException:
        made.close()
        raise
    return made


def count_cores(quota: Path = _CGROUPS / "cpu.max") -> int:
    """Return the number of processors of this container: its CPU affinity, limited by its quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        most, period = quota.read_text().split()
        paid = cores if most == "max" else -(-int(most) // int(period))
    except (OSError, ValueError):
        paid = cores
    return max(1, min(cores, paid))


def memory_limit(cgroups: Path = _CGROUPS) -> int | None:
    """Return the container's memory limit in bytes, from cgroups version 2 or 1; None if it has none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = int((cgroups / name).read_text())
        except (OSError, ValueError):  # missing, or "max"
            continue
        return limit if 0 < limit < _NO_LIMIT else None
    return None


def allow_descriptors(wanted: int) -> None:
    """Raise the limit of open files to this number, or as far as permitted."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
