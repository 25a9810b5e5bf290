"""Ports whose UDP goes to another port, of the pod itself: `514:10514,20000-20100:15000`."""

from __future__ import annotations

from netinit.base.net import PortRange, bounds_of
from netinit.base.records import Record
from netinit.options.kinds import PORT, quote_value, read_items, read_port_or_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FORM = "write the port and the pod's port for it, such as 514:10514"


class UdpRedirect(Record):
    """UDP to this port, or range of ports, goes to the port `to` of the pod."""

    port: int | PortRange
    to: int

    def __str__(self) -> str:
        return f"{self.port}:{self.to}"


def read(text: str) -> tuple[UdpRedirect, ...]:
    """Read a comma list. Raises ValueError with every invalid item, and if one port would go to two."""
    found = read_items(text, _read_item)
    spans = sorted([(*bounds_of(one.port), one.to) for one in found])
    end, before = 0, 0
    for first, last, to in spans:
        if first <= end:
            raise ValueError(f"lists port {first} twice, for {before} and for {to}: list each port once")
        end, before = last, to
    return found


def _read_item(item: str) -> UdpRedirect:
    ports, colon, to = item.partition(":")
    if not colon:
        raise ValueError(f"names no port of the pod: {FORM}")
    return UdpRedirect(port=_read_part(read_port_or_range, ports), to=_read_part(PORT.read, to))


def _read_part(read_value: Callable[[str], Any], part: str) -> Any:
    """Read a part of an item; the error names the part."""
    try:
        return read_value(part)
    except ValueError as error:
        raise ValueError(f"holds {quote_value(part)}, which {error}") from None
