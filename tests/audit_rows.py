"""Which line of `netinit audit --full --json` a packet is in."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

CAPTURED = ("captured", "resolved")
USUAL = {"state": "NEW", "sent by a socket": "yes", "socket open": "no", "source port": 40000, "mark": 0, "connection mark": 0}


def find_row(traffic, direction, **facts):
    """The one line that holds a first packet: of `protocol`, from `source` to `destination` and `port`, through `interface`, by `uid`, `gid`."""
    known = {**USUAL, **facts, "destination port": facts["port"]}
    place = (f"IPv{ip_address(facts['destination']).version}", direction)
    found = [
        row for row in traffic
        if any((sets["family"], sets["direction"]) == place and any(_holds(box, known) for box in sets["boxes"]) for sets in row["sets"])
    ]  # fmt: skip
    (row,) = found
    return row


def _holds(box, known):
    return all(any(_fits(name, text, known[name]) for text in values) for name, values in box.items())


def _fits(name, text, value):
    if name in {"mark", "connection mark"}:
        wanted, mask = (int(number, 16) for number in text.split("/"))
        return value & mask == wanted
    if name in {"destination", "source"}:
        low, dash, high = text.partition("-")
        return ip_address(low) <= ip_address(value) <= ip_address(high) if dash else ip_address(value) in ip_network(text)
    if isinstance(value, int):
        low, _, high = text.partition("-")
        return int(low) <= value <= int(high or low)
    return text == value
