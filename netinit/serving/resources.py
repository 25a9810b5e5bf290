"""What a server takes of the machine: a port to listen on, and the processors that it may use."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from netinit.base.errors import ConfigError

__all__ = ["count_cores", "listen"]


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens there, on both families where no address is given. Raises ConfigError."""
    try:
        if address:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            return _bind(family, address, port)
        try:
            return _bind(socket.AF_INET6, "::", port)
        except OSError:  # no IPv6 here
            return _bind(socket.AF_INET, "0.0.0.0", port)  # noqa: S104 - a server's
    except OSError as error:
        raise ConfigError(
            f"port {port}{f' of {address}' if address else ''} cannot be listened on: {error.strerror}"
        ) from error


def _bind(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((address, port))
        made.listen(2048)
        made.settimeout(0)
    except BaseException:
        made.close()
        raise
    return made


def count_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The processors that this container may use: those it may run on, and no more than its limit pays for."""
    cores = len(os.sched_getaffinity(0))
    try:
        most, period = quota.read_text().split()
        paid = cores if most == "max" else -(-int(most) // int(period))
    except (OSError, ValueError):
        paid = cores
    return max(1, min(cores, paid))
