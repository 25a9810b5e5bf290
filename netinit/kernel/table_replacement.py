"""Replace tables of legacy iptables with setsockopt(2) (linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6 alike).

The structs are those of 64-bit processes: the kernel takes others from 32-bit ones.
"""

from __future__ import annotations

from _socket import SOCK_RAW, socket
from _struct import calcsize, pack

from netinit.base.net import Family
from netinit.kernel import libc
from netinit.kernel.snapshot.legacy_tables import LEVELS, RAW_PROTOCOL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

SET_REPLACE, SET_ADD_COUNTERS = 64, 65  # IPT_SO_SET_REPLACE, IPT_SO_SET_ADD_COUNTERS; IP6T's are the same
COUNTERS = 16  # struct xt_counters
IS_64_BIT = calcsize("P") == 8  # noqa: PLR2004


class Replacement:
    """A socket for the tables of a family, as a context manager. Raises OSError."""

    def __init__(self, family: Family) -> None:
        self._level = LEVELS[family.version]
        self._socket = socket(family.number, SOCK_RAW, RAW_PROTOCOL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def replace(
        self, table: str, hooks: int, offsets: Sequence[int], entries: bytes, *, size: int, old_size: int
    ) -> bytes:
        """Replace a table; return the counters of its old entries (struct xt_counters).

        `hooks`: a bit for each that the table has. `offsets`: of the hooks' first entries, then of their policies.
        Raises OSError: EAGAIN if the table has another number of entries by now.
        """
        counters = libc.buffer(old_size * COUNTERS)
        head = pack("=32s3I", table.encode(), hooks, size, len(entries)) + pack("=10I", *offsets)
        head += pack("=IQ", old_size, libc.address_of(counters))  # struct ipt_replace
        self._socket.setsockopt(self._level, SET_REPLACE, head + entries)
        answer: bytes = counters.raw
        return answer

    def add_counters(self, table: str, counters: bytes) -> None:
        """Add to the counters of a table's entries, of which each has one. Raises OSError: EINVAL if they are others by now."""
        head = pack("=32sI4x", table.encode(), len(counters) // COUNTERS)  # struct xt_counters_info
        self._socket.setsockopt(self._level, SET_ADD_COUNTERS, head + counters)
