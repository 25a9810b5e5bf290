"""The values that a listing of nft has for a field, as the bytes that the kernel compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import byteorder
from typing import Any, Literal

from netinit.base.net import IPV4, IPV6, Network, number_of
from netinit.rules import numbers
from netinit.rules.matches.context import FLAGS
from netinit.rules.structs import ADDRESS_TYPES, protocol_number

HOST_ORDER: Literal["big", "little"] = byteorder
NETWORK_ORDER: Literal["big"] = "big"
FLAG_VALUES = ("state", "status", "tcp flag")  # that are bits: a value without an operator asks for one of them
_STATES = {name.lower(): bit for name, bit in numbers.STATES}
_STATUSES = {name.lower(): bit for name, bit in numbers.STATUSES}
Range = tuple[bytes, bytes]


class NotUnderstoodError(Exception):
    """A part of a listing that is not understood."""


def write_number(value: object, length: int, order: Literal["big", "little"]) -> bytes:
    """Write a number, or a text that is one, in `length` bytes. Raises NotUnderstoodError."""
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            raise NotUnderstoodError from None
    if type(value) is not int or not 0 <= value < 1 << 8 * length:  # no bool
        raise NotUnderstoodError
    return value.to_bytes(length, order)


def write_address(value: object, length: int) -> bytes:
    """Write the text of an address of the family that has `length` bytes. Raises NotUnderstoodError."""
    if (":" in str(value)) != (8 * length == IPV6.bits):
        raise NotUnderstoodError
    try:
        return number_of(str(value)).to_bytes(length, "big")
    except (ValueError, OSError, OverflowError):
        raise NotUnderstoodError from None


def write_protocol(value: object, length: int) -> bytes:
    """Write the number of a protocol of which nft lists the name or the number. Raises NotUnderstoodError."""
    names = {"icmpv6": "ipv6-icmp"}
    try:
        return write_number(protocol_number(names.get(str(value), str(value))), length, NETWORK_ORDER)
    except ValueError:
        raise NotUnderstoodError from None


def write_interface(value: object, length: int) -> bytes:
    """Write the whole name of an interface, filled up to `length` bytes. Raises NotUnderstoodError for a prefix."""
    encoded = str(value).encode("utf-8", "surrogateescape")
    if not isinstance(value, str) or value.endswith("*") or not 0 < len(encoded) < length:
        raise NotUnderstoodError
    return encoded.ljust(length, b"\0")


def _named(names: Mapping[str, int], order: Literal["big", "little"]) -> Any:
    def encode(value: object, length: int) -> bytes:
        return write_number(names.get(value, value) if isinstance(value, str) else value, length, order)

    return encode


_ENCODERS: dict[str, Any] = {
    "port": lambda value, length: write_number(value, length, NETWORK_ORDER),
    "number": lambda value, length: write_number(value, length, HOST_ORDER),
    "id": _named({"root": 0}, HOST_ORDER),  # other names have other numbers on other machines
    "address": write_address, "protocol": write_protocol, "interface": write_interface,
    "family": _named({"ipv4": IPV4.number, "ipv6": IPV6.number}, NETWORK_ORDER),
    "ethertype": _named({"ip": 0x0800, "ip6": 0x86DD}, NETWORK_ORDER),
    "state": _named(_STATES, HOST_ORDER), "status": _named(_STATUSES, HOST_ORDER),
    "direction": _named({"original": 0, "reply": 1}, NETWORK_ORDER),
    "address type": _named({name.lower(): number for number, name in enumerate(ADDRESS_TYPES)}, HOST_ORDER),
    "tcp flag": _named({name.lower(): 1 << at for at, name in enumerate(FLAGS)}, NETWORK_ORDER),
}  # fmt: skip


def range_of(value: object, length: int, values: str) -> Range:
    """The first and last value of a scalar, a range or a prefix. Raises NotUnderstoodError."""
    encode = _ENCODERS[values]
    if isinstance(value, Mapping) and isinstance(one := value.get("elem"), Mapping) and "val" in one:
        value = one["val"]
    if isinstance(value, Mapping):
        ends, prefix = value.get("range"), value.get("prefix")
        if isinstance(ends, Sequence) and len(ends) == 2:  # noqa: PLR2004 - first and last
            low, high = (encode(end, length) for end in ends)
        elif isinstance(prefix, Mapping) and values == "address":
            low, high = _ends_of_network(prefix, length)
        else:
            raise NotUnderstoodError
        if low > high or values in FLAG_VALUES or (values in ("number", "id") and low != high):  # ends compare in network order
            raise NotUnderstoodError
        return low, high
    found = encode(value, length)
    return found, found


def value_of(value: object, length: int, values: str) -> bytes:
    """The value of a scalar. Raises NotUnderstoodError."""
    low, high = range_of(value, length, values)
    if low != high:
        raise NotUnderstoodError
    return low


def _ends_of_network(prefix: Mapping[str, Any], length: int) -> Range:
    try:
        network = Network.parse(f"{prefix.get('addr')}/{prefix.get('len')}")
    except ValueError:
        raise NotUnderstoodError from None
    if network.family.bits != 8 * length:
        raise NotUnderstoodError
    return network.first.to_bytes(length, "big"), network.last.to_bytes(length, "big")
