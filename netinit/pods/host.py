"""Read the host that this network namespace is: its addresses, routes and forwarding."""

from __future__ import annotations

from collections.abc import Callable

from netinit.base.errors import ParseError
from netinit.base.net import Family
from netinit.base.snapshot import Snapshot, explain_unread
from netinit.kernel.snapshot.reader import read_host
from netinit.live.host import surroundings_of
from netinit.rules.packet_inputs import Surroundings


def read_surroundings(family: Family) -> Surroundings:
    """Read addresses, routes and forwarding of this namespace. Raises ParseError."""
    return surroundings_of(read_or_refuse(read_host), family)


def read_or_refuse(read: Callable[[], Snapshot]) -> Snapshot:
    """Return the snapshot that `read` makes. Raises ParseError, with the reason, if the kernel does not report it."""
    try:
        return read()
    except OSError as error:
        raise ParseError(explain_unread(error)) from None
