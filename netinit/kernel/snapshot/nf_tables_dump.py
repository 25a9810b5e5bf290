"""Read nf_tables of all families over netlink (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

import struct

from netinit.base.netlink_attributes import MalformedError, attributes_of, name, number, signed, split_attributes
from netinit.base.snapshot import FAMILY_NAMES, NftChain, NftElement, NftObject, NftRule, NftSet, NftTable, Unknown
from netinit.kernel import netlink, nf_tables
from netinit.kernel.detect import WITHOUT_NF_TABLES
from netinit.kernel.netlink import NETFILTER_SIZE, NETLINK_NETFILTER, OF_CHAINS, Netlink, fields_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    from netinit.kernel.netlink import Fields

    Read = TypeVar("Read")

TOO_BIG = (27, 90)  # EFBIG, EMSGSIZE
OTHER = -1  # than the families that have a name
MISREAD = (MalformedError, LookupError, TypeError, struct.error)  # from a message that is cut off, or lacks what a record needs


def _read_flow_table_hook(value: bytes) -> dict[str, Any]:
    found = attributes_of(value)
    devices = tuple([name(one) for _, one in split_attributes(found.get(3, b""))])
    return {"kind": "flowtable", "priority": signed(found.get(2)), "devices": devices}


_OBJECTS: dict[int, tuple[str, type, Fields]] = {  # by message
    nf_tables.NFT_MSG_NEWTABLE: ("table", NftTable, {
        1: ("name", name), 2: ("flags", number), 4: ("handle", number), 6: ("userdata", bytes),
    }),
    nf_tables.NFT_MSG_NEWCHAIN: ("chain", NftChain, OF_CHAINS),
    nf_tables.NFT_MSG_NEWRULE: ("rule", NftRule, {
        1: ("table", name), 2: ("chain", name), 3: ("handle", number), 4: ("expressions", bytes), 7: ("userdata", bytes),
    }),
    nf_tables.NFT_MSG_NEWSET: ("set", NftSet, {
        1: ("table", name), 2: ("name", name), 3: ("flags", number), 4: ("key_type", number), 5: ("key_length", number),
    }),
    nf_tables.NFT_MSG_NEWOBJ: ("object", NftObject, {
        1: ("table", name), 2: ("name", name), 3: ("kind", lambda value: str(number(value))),
    }),
    nf_tables.NFT_MSG_NEWFLOWTABLE: ("flow table", NftObject, {1: ("table", name), 2: ("name", name), 3: ("", _read_flow_table_hook)}),
}  # fmt: skip


def read(unknown: list[Unknown], *, family: int = 0, tables: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a Snapshot that nf_tables fills; empty on a kernel without it. Raises OSError.

    `family`: only this one; `tables`: only their rules and sets.
    """

    def dump() -> tuple[dict[str, Any], list[Unknown]]:
        missed: list[Unknown] = []
        with Netlink(NETLINK_NETFILTER) as link:
            return _dump(link, missed, family, tables), missed

    try:
        netlink.read_nft_generation()
    except OSError as error:
        if error.errno in WITHOUT_NF_TABLES:
            return {}
        raise
    generation, (found, missed) = netlink.read_unchanged(dump)
    unknown += missed
    return {"generation": generation, **found}


def _dump(link: Netlink, unknown: list[Unknown], family: int, only: Collection[str]) -> dict[str, Any]:
    def read_all(kind: int, table: str = "") -> tuple[Any, ...]:
        named = netlink.attribute(1, nf_tables.name(table)) if table else b""  # NFTA_RULE_TABLE
        return _decode_objects(kind, nf_tables.dump_objects(link, family, kind, named), unknown)

    tables = read_all(nf_tables.NFT_MSG_NEWTABLE)
    if not tables:
        return {}
    sets = [one for one in read_all(nf_tables.NFT_MSG_NEWSET) if not only or one.table in only]
    chains = read_all(nf_tables.NFT_MSG_NEWCHAIN)
    rules = sum([read_all(nf_tables.NFT_MSG_NEWRULE, table) for table in only or ("",)], ())
    left = nf_tables.MAX_ELEMENT_BYTES
    for index, one in enumerate(sets):
        sets[index], size = _fill(one, left, unknown)
        left -= size
    objects = read_all(nf_tables.NFT_MSG_NEWOBJ) + read_all(nf_tables.NFT_MSG_NEWFLOWTABLE)
    return {"tables": tables, "chains": chains, "rules": rules, "sets": tuple(sets), "objects": objects}


def _fill(one: NftSet, most: int, unknown: list[Unknown]) -> tuple[NftSet, int]:
    """Return the set with its elements, and how many bytes they take; at most `most` are read."""
    place = f"set {one.name} of table {FAMILY_NAMES.get(one.family)} {one.table}"
    try:
        messages = nf_tables.dump_elements(one.family, nf_tables.name(one.table), nf_tables.name(one.name), most)
    except OSError as error:
        if error.errno not in TOO_BIG:
            raise
        unknown.append(Unknown(place=place, reason="it has more elements than are read"))
        return one.replace(is_complete=False), 0
    size = sum([len(payload) for payload in messages])
    try:
        elements = tuple([element for payload in messages for element in _read_elements(payload)])
    except MISREAD as error:
        unknown.append(_misread(place, error))
        return one.replace(is_complete=False), size
    return one.replace(elements=elements), size


def decode_rules(messages: Iterable[bytes]) -> tuple[tuple[NftRule, ...], list[Unknown]]:
    """Return the rules of messages that were read before, and what is not understood."""
    unknown: list[Unknown] = []
    return _decode_objects(nf_tables.NFT_MSG_NEWRULE, messages, unknown), unknown


def _decode_objects(kind: int, messages: Iterable[bytes], unknown: list[Unknown]) -> tuple[Any, ...]:
    what, record, fields = _OBJECTS[kind]
    labels = {OTHER: "an unknown family", **FAMILY_NAMES}
    places = {family: f"a {what} of {label}" for family, label in labels.items()}

    def read(body: bytes) -> Any:
        made = record(family=body[0], **fields_of(attributes_of(body, NETFILTER_SIZE), fields))
        if isinstance(made, NftChain) and made.is_base and not made.kind:
            raise MalformedError("a base chain has no type")
        return made

    return decode(messages, read, places, unknown)


def decode(
    messages: Iterable[bytes], read: Callable[[bytes], Read], places: Mapping[int, str], unknown: list[Unknown]
) -> tuple[Read, ...]:
    """Return what `read` makes of the kernel's messages; others are `unknown`, in the place of their family or of OTHER."""
    found = []
    for body in messages:
        try:
            found.append(read(body))
        except MISREAD as error:
            unknown.append(_misread(places.get(body[0] if body else OTHER, places[OTHER]), error))
    return tuple(found)


def _misread(place: str, error: Exception) -> Unknown:
    return Unknown(place=place, reason=f"the kernel's message is not understood: {error}")


def _read_elements(payload: bytes) -> Iterator[NftElement]:
    listed = attributes_of(payload, NETFILTER_SIZE)
    for _, body in split_attributes(listed.get(3, b"")):  # NFTA_SET_ELEM_LIST_ELEMENTS
        found = attributes_of(body)
        key, data = (attributes_of(found.get(kind, b"")) for kind in (1, 2))  # NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_DATA
        end = attributes_of(found.get(10, b""))  # NFTA_SET_ELEM_KEY_END
        yield NftElement(
            key=key.get(1, b""), key_end=end.get(1, b""), value=data.get(1, b""), verdict=data.get(2, b""),
            flags=number(found.get(3)),
        )  # fmt: skip
