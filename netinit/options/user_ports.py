"""Ports of users: `tcp:22,80:1000-2000;udp:53:3000`, as Kuma's --exclude-outbound-ports-for-uids.

Lists are normalised: one item for each protocol and range of users, in order of appearance.
"""

from __future__ import annotations

from netinit.base.net import Ports, bounds_of, join_ranges, merge_ports
from netinit.base.records import Record
from netinit.options.kinds import ALL, quote_value, read_ports_or_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PROTOCOLS = ("tcp", "udp")
FORM = "write protocol:ports:users, such as tcp:22,80:1000-2000; separate several with ;"
MAX_PARTS = 3


class PortsOfUsers(Record):
    """Traffic of users `first` to `last` over `protocol` to these ports; no ports means all."""

    protocol: str
    ports: Ports
    first: int
    last: int

    @property
    def users(self) -> str:
        """The user, or the range of users."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def __str__(self) -> str:
        ports = ",".join([str(port) for port in self.ports]) or ALL
        return f"{self.protocol}:{ports}:{self.users}"


def is_within(narrow: PortsOfUsers, wide: PortsOfUsers) -> bool:
    """Whether one item covers only what the other covers."""
    ranges = join_ranges(sorted(map(bounds_of, wide.ports)))
    inside = all(any(low <= first and last <= high for low, high in ranges) for first, last in map(bounds_of, narrow.ports))
    ports = not wide.ports or (bool(narrow.ports) and inside)
    return wide.protocol == narrow.protocol and wide.first <= narrow.first and narrow.last <= wide.last and ports


def find_same(items: tuple[PortsOfUsers, ...]) -> frozenset[object]:
    """Return a key that equal lists of items share, regardless of the order of their ports."""
    return frozenset([(item.protocol, item.first, item.last, tuple(sorted(map(bounds_of, item.ports)))) for item in items])


def read(text: str, read_user: Callable[[str], int]) -> tuple[PortsOfUsers, ...]:
    """Read a list of items; `read_user` reads a user or group. Raises ValueError with every invalid item."""
    found: dict[tuple[str, int, int], Ports] = {}
    items = [item for part in text.split(";") if (item := part.strip(" \t"))]
    wrong: list[str] = []
    for item in items:
        try:
            _read_item(item, found, read_user)
        except ValueError as error:
            if len(items) == 1:
                raise
            wrong.append(f"{quote_value(item)}, which {error}")
    if wrong:
        raise ValueError(f"holds {'; and '.join(wrong)}")
    return tuple([PortsOfUsers(protocol=key[0], ports=ports, first=key[1], last=key[2]) for key, ports in found.items()])


def _read_item(item: str, found: dict[tuple[str, int, int], Ports], read_user: Callable[[str], int]) -> None:
    parts = [part.strip(" \t") for part in item.split(":")]
    if len(parts) > MAX_PARTS:
        raise ValueError(f"has more than three parts: {FORM}")
    protocol, listed, users = ["", ALL, *parts][-MAX_PARTS:]
    if protocol not in ("", ALL, *PROTOCOLS):
        raise ValueError(f"begins with neither tcp nor udp nor *: {FORM}")
    ports = _read_part(read_ports_or_all, listed, item)
    if not ports:
        raise ValueError(f"names no ports; all are written as *: {FORM}")
    spans = [_read_span(one.strip(" \t"), item, read_user) for one in users.split(",") if one.strip(" \t")]
    if not spans:
        raise ValueError(f"names no user: {FORM}")
    for name in (protocol,) if protocol in PROTOCOLS else PROTOCOLS:
        for first, last in spans:
            before = found.get((name, first, last))
            every = isinstance(ports, str) or before == ()
            found[name, first, last] = () if every else merge_ports((*(before or ()), *ports))


def _read_part(read: Callable[[str], Any], part: str, item: str) -> Any:
    """Read a part of an item, which the error names unless it is the whole item."""
    try:
        return read(part)
    except ValueError as error:
        reason = str(error)
        stands_alone = part == item or reason.startswith("holds ")
        raise ValueError(reason if stands_alone else f"holds {quote_value(part)}, which {reason}") from None


def _read_span(text: str, item: str, read_user: Callable[[str], int]) -> tuple[int, int]:
    if text == ALL:
        raise ValueError("means every user: exclude the ports themselves with --istio-local-outbound-ports-exclude")
    low, dash, high = text.partition("-")
    if not dash or not (low + high).isdigit():
        user = _read_part(read_user, text, item)
        return user, user
    if not (low and high):
        raise ValueError(f"holds {quote_value(text)}, which is not a range of users: write first and last, such as 1000-2000")
    first, last = (_read_part(read_user, one, item) for one in (low, high))
    if first > last:
        raise ValueError(f"names an empty range of users: write {high}-{low}")
    return first, last
