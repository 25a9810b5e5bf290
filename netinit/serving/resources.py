"""Listening sockets, and the CPU, memory and descriptor limits of the process."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

from netinit.base.errors import ConfigError

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 50  # bytes; cgroup v1 reports a larger number without a limit


def listen(address: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a TCP socket, dual-stack if `address` is empty. Raises ConfigError.

    `shared`: set SO_REUSEPORT, so that a successor can listen before this process exits.
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
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6 and address == "::":
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind((address, port))
        server.listen(2048)
        server.settimeout(0)
    except BaseException:
        server.close()
        raise
    return server


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
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = number if hard == resource.RLIM_INFINITY else min(number, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
