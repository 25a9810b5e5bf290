"""Netlink attributes (linux/netlink.h, struct nlattr), and the chain that nf_tables describes with them.

They are read strictly: lengths that do not add up are an error. Numbers of nf_tables are in network byte order.
"""

from __future__ import annotations

from _struct import pack, unpack_from

from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEADER, TYPE_MASK, NLA_F_NET_BYTEORDER, NLA_F_NESTED = 4, 0x3FFF, 0x4000, 0x8000
MAX_ATTRIBUTES = 100_000  # of one message: a set's elements come in messages of 64 KiB


class MalformedError(ValueError):
    """Bytes that are not what they are said to be."""


class NftChain(Record):
    """A chain of nf_tables; `policy` is 0 (drop) or 1 (accept). Without a hook, `kind` (filter, nat, route) is empty and `hook` -1.

    `handle` increases with everything created in its table. `has_other_devices`: `devices` are not all that it is bound to.
    """

    family: int
    table: str
    name: str
    handle: int = 0
    flags: int = 0
    kind: str = ""
    hook: int = -1
    priority: int = 0
    policy: int = 1
    uses: int = 0  # its rules and the jumps to it, which the kernel counts
    devices: tuple[str, ...] = ()
    has_other_devices: bool = False

    @property
    def is_base(self) -> bool:
        """Whether packets enter the chain from a hook."""
        return self.hook >= 0

    @property
    def facts(self) -> tuple[int, int, str, int]:
        """What is compared with a chain of a plan: uses, hook, kind and priority."""
        return self.uses, self.hook, self.kind, self.priority


def split_attributes(data: bytes, offset: int = 0) -> list[tuple[int, bytes]]:
    """The attributes from an offset on as (type, payload), in order. Raises MalformedError."""
    found = []
    end = len(data)
    while offset < end:
        if end - offset < HEADER:
            raise MalformedError(f"{end - offset} bytes are left behind the last attribute")
        length, kind = unpack_from("=HH", data, offset)
        if length < HEADER or offset + length > end:
            raise MalformedError(f"an attribute of {length} bytes where {end - offset} are left")
        found.append((kind & TYPE_MASK, data[offset + HEADER : offset + length]))
        if len(found) > MAX_ATTRIBUTES:
            raise MalformedError(f"more than {MAX_ATTRIBUTES} attributes in one message")
        offset += length + 3 & ~3
    return found


def attributes_of(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """The attributes by type. Raises MalformedError, also if a type occurs twice."""
    found = split_attributes(data, offset)
    by_kind = dict(found)
    if len(by_kind) < len(found):
        raise MalformedError("two attributes of one type")
    return by_kind


def number(value: bytes | None, default: int = 0) -> int:
    """An unsigned number in network byte order; `default` if the attribute is missing."""
    return default if value is None else int.from_bytes(value, "big")


def signed(value: bytes | None) -> int:
    """A signed number in network byte order; 0 if the attribute is missing."""
    return int.from_bytes(value or b"", "big", signed=True)


def name(value: bytes) -> str:
    """A name; bytes that are not UTF-8 become lone surrogates."""
    return value.rstrip(b"\0").decode("utf-8", "surrogateescape")


def read_hook(value: bytes) -> dict[str, Any]:
    """The fields of a chain in its NFTA_CHAIN_HOOK. Raises MalformedError, or KeyError if a part is missing."""
    found = attributes_of(value)
    listed = split_attributes(found.get(4, b"")) or [(1, found.get(3, b""))]  # NFTA_HOOK_DEVS, _DEV
    devices = dict.fromkeys([one for kind, one in listed if kind == 1 and one])  # NFTA_DEVICE_NAME; others are prefixes of names
    return {
        "hook": number(found[1]), "priority": signed(found[2]), "devices": tuple([name(one) for one in devices]),
        "has_other_devices": any(kind != 1 for kind, _ in listed),
    }  # fmt: skip


def write_attribute(kind: int, payload: bytes) -> bytes:
    """One attribute with its header and padding."""
    return pack("=HH", HEADER + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)
