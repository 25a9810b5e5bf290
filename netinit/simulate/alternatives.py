"""Other option values that may change a packet's verdict, derived from each option's type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.net import Network, PortRange, lists_port
from netinit.options import Interception, kinds
from netinit.options.interception import PORT_OR_NONE, PORTS_OF_GIDS, PORTS_OF_UIDS
from netinit.options.kinds import ALL, Flag
from netinit.rules.packet import Packet

_PORTS, _NETWORKS = (kinds.PORTS, kinds.PORTS_OR_ALL), (kinds.NETWORKS, kinds.NETWORKS_OR_ALL)
_LISTS = (kinds.INTERFACES, kinds.GROUPS, kinds.GROUPS_OR_ALL, kinds.ADDRESSES, PORTS_OF_UIDS, PORTS_OF_GIDS)
Alternative = tuple[str, dict[str, Any]]
"""An option as it would be given, and the fields that it sets."""


def find_alternatives(options: Interception, packet: Packet) -> Iterator[tuple[str, Interception]]:
    """Yield each option of the layout with another value: how to write it, and the resulting options."""
    for flag in Interception.flags:
        if flag.offers == () or options.layout not in (flag.layouts or (options.layout,)):
            continue
        for label, changes in _values(flag, options, packet):
            with suppress(OptionError):  # it contradicts another option
                changed = options.replace(**changes)
                if changed != options:
                    yield label, changed


def _values(flag: Flag, options: Interception, packet: Packet) -> Iterator[Alternative]:
    value, field, label = getattr(options, flag.field), flag.field, flag.label
    if flag.kind is kinds.SWITCH:
        yield _switch(flag, options)
    elif flag.kind is PORT_OR_NONE:
        yield f"{label} 0", {field: 0}
    elif flag.kind.words:
        yield from [(f"{label} {word}", {field: word}) for word in flag.offers or flag.kind.words if word != value]
    elif flag.kind in _LISTS:
        yield f"without {label}", {field: flag.default}
    elif value == ALL:
        return
    elif flag.kind in _PORTS and packet.destination_port:
        port = packet.destination_port
        yield _take_out_or_add(flag, value, port, [one for one in value if lists_port((one,), port)])
    elif flag.kind in _NETWORKS:
        address = packet.source if packet.in_interface else packet.destination
        host = Network((packet.family.version, address or 0, packet.family.bits))
        inside = [one for one in value if one.family is host.family and one.first <= host.first <= one.last]
        yield _take_out_or_add(flag, value, host, inside)
        if inside:
            yield f"add {host} to {label}", {field: (*value, host)}
    if flag.kind in (kinds.PORTS_OR_ALL, kinds.NETWORKS_OR_ALL):
        yield f"{label} '*'", {field: ALL}


def _switch(flag: Flag, options: Interception) -> Alternative:
    """Flip a switch, together with the option it requires."""
    if getattr(options, flag.field):
        return f"{flag.label}=false", {flag.field: False}
    if not flag.needs:
        return flag.label, {flag.field: True}
    return f"{options.flag(flag.needs).label} {flag.label}", {flag.needs: True, flag.field: True}


def _take_out_or_add(flag: Flag, listed: tuple[Any, ...], item: int | PortRange | Network, found: list[Any]) -> Alternative:
    """Remove the entries that contain an item, or add the item if none does."""
    if not found:
        return f"add {item} to {flag.label}", {flag.field: (*listed, item)}
    left = tuple([one for one in listed if one not in found])
    return f"remove {', '.join(map(str, found))} from {flag.label}", {flag.field: left}
