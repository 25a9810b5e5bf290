"""Read nf_tables of all families over netlink (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

import struct

from netinit.base.netlink_attributes import MalformedError, attributes_of, name, number, signed, split_attributes
from netinit.base.netlink_schemas import Schema, check_named, find_unnamed, values
from netinit.base.snapshot import (
    ELEMENT_CATCHALL,
    ELEMENT_INTERVAL_END,
    FAMILY_NAMES,
    NftChain,
    NftElement,
    NftObject,
    NftRule,
    NftSet,
    NftTable,
    Unknown,
)
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


# Known attributes: NFTA_TABLE_*, _CHAIN_*, _RULE_*, _SET_*, _OBJ_*, _FLOWTABLE_*. Expressions are checked where they are decoded.
_DEVICES, _COUNTER = values(1, 2), values(1, 2, 3)
_DESCRIPTION: Schema = {1: None, 2: {1: values(1)}}  # NFTA_SET_DESC_SIZE; _CONCAT: the length of each field
_TUNNEL: Schema = {  # NFTA_TUNNEL_KEY_*: addresses, and options of VXLAN, ERSPAN and GENEVE besides
    **values(*range(1, 9)), 2: values(1, 2), 3: values(1, 2, 3), 9: {1: values(1), 2: values(1, 2, 3, 4), 3: values(1, 2, 3)},
}  # fmt: skip
_OF_OBJECTS: dict[int, Schema] = {  # NFTA_OBJ_DATA by NFT_OBJECT_*
    1: _COUNTER, 2: values(1, 2, 3, 4), 3: values(1, 2, 3), 4: values(*range(1, 7)), 5: values(1, 2), 6: _TUNNEL,
    7: {1: None, 2: None, 3: values(*range(1, 12))}, 8: values(1), 9: values(1, 2, 3, 4, 5), 10: values(1, 2, 3),
}  # fmt: skip
# Expressions of sets and their elements. The first two only count; another one may keep a lookup from matching.
_ONLY_COUNTS = frozenset(("counter", "last"))
_STATEFUL = {
    "counter": _COUNTER, "last": values(1, 2, 3), "limit": _OF_OBJECTS[4], "quota": _OF_OBJECTS[2], "connlimit": _OF_OBJECTS[5],
}  # fmt: skip
_KNOWN: dict[str, Schema] = {
    "table": values(*range(1, 8)),
    "chain": {**values(*range(1, 13)), 4: {1: None, 2: None, 3: None, 4: _DEVICES}, 8: _COUNTER},
    "rule": {**values(*range(1, 12)), 5: values(1, 2)},
    "set": {**values(*range(1, 21)), 9: _DESCRIPTION, 17: values(1, 2), 18: {1: values(1, 2)}},
    "object": values(*range(1, 9)),
    "flow table": {**values(*range(1, 8)), 3: {1: None, 2: None, 3: _DEVICES}},
}
_ELEMENT: Schema = values(*range(1, 12))
_OF_ELEMENTS: dict[int, Schema] = {
    1: values(1, 2), 2: {1: None, 2: values(1, 2, 3)}, 7: values(1, 2), 10: values(1, 2), 11: {1: values(1, 2)},
}  # fmt: skip
NFTA_SET_ELEM_EXPR, NFTA_SET_ELEM_EXPRESSIONS = 7, 11
_FLAGS = {"table": 7, "chain": 7, "set": 0x1FF}  # NFT_TABLE_F_*, NFT_CHAIN_*, NFT_SET_*: those known
_ELEMENT_FLAGS = ELEMENT_INTERVAL_END | ELEMENT_CATCHALL


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
    return one.replace(elements=elements, is_complete=not any(element.is_conditional for element in elements)), size


def decode_rules(messages: Iterable[bytes]) -> tuple[tuple[NftRule, ...], list[Unknown]]:
    """Return the rules of messages that were read before, and what is not understood."""
    unknown: list[Unknown] = []
    return _decode_objects(nf_tables.NFT_MSG_NEWRULE, messages, unknown), unknown


def _decode_objects(kind: int, messages: Iterable[bytes], unknown: list[Unknown]) -> tuple[Any, ...]:
    what, record, fields = _OBJECTS[kind]
    labels = {OTHER: "an unknown family", **FAMILY_NAMES}
    places = {family: f"a {what} of {label}" for family, label in labels.items()}

    def read(body: bytes) -> Any:
        found = attributes_of(body, NETFILTER_SIZE)
        made = record(family=body[0], **fields_of(found, fields))
        if isinstance(made, NftChain) and made.is_base and not made.kind:
            raise MalformedError("a base chain has no type")
        reason = _not_known(what, found, body, getattr(made, "flags", 0))
        if reason:
            unknown.append(Unknown(place=_place_of(what, made), reason=reason))
        return made

    return decode(messages, read, places, unknown)


def _not_known(what: str, found: Mapping[int, bytes], body: bytes, flags: int) -> str:
    """Return what of an object is not known, or ""."""
    unnamed = find_unnamed(body, _KNOWN[what], NETFILTER_SIZE)
    data = _OF_OBJECTS.get(number(found.get(3))) if what == "object" else None
    if not unnamed and data and (below := find_unnamed(found.get(4, b""), data)):
        unnamed = f"4.{below}"
    if what == "set" and not unnamed:
        unnamed = _unnamed_of_expressions(found)
    others = flags & ~_FLAGS.get(what, 0) if what in _FLAGS else 0
    return f"attribute {unnamed} is not known" if unnamed else f"flag {others:#x} is not known" if others else ""


def _unnamed_of_expressions(found: Mapping[int, bytes]) -> str:
    """Return the unknown attribute of an expression that new elements of a set get, or ""."""
    one = [(17, found[17])] if 17 in found else []  # NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS  # noqa: PLR2004
    for kind, body in [*one, *[(18, each) for _, each in split_attributes(found.get(18, b""))]]:
        expression = attributes_of(body)
        schema = _STATEFUL.get(name(expression.get(1, b"")))
        if schema and (below := find_unnamed(expression.get(2, b""), schema)):
            return f"{kind}.2.{below}"
    return ""


def _place_of(what: str, made: Any) -> str:
    """Name an object. The end differs from that of objects that are left out, which keep a whole table from being compared."""
    family = FAMILY_NAMES.get(made.family, made.family)
    if what == "table":
        return f"table {family} {made.name}, its properties"
    rule = f"chain {made.chain}, rule with handle {made.handle}" if what == "rule" else f"{what} {made.name}"
    return f"table {family} {made.table}, {rule}, its properties"


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
    _refuse(listed.keys() - {1, 2, 3, 4})  # NFTA_SET_ELEM_LIST_*
    for kind, body in split_attributes(listed.get(3, b"")):  # NFTA_SET_ELEM_LIST_ELEMENTS
        found = attributes_of(body)
        _refuse({kind} - {1} or found.keys() - _ELEMENT.keys())
        for inner in found.keys() & _OF_ELEMENTS.keys():
            check_named(found[inner], _OF_ELEMENTS[inner])
        key, data = (attributes_of(found.get(kind, b"")) for kind in (1, 2))  # NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_DATA
        end = attributes_of(found.get(10, b""))  # NFTA_SET_ELEM_KEY_END
        flags = number(found.get(3))
        if flags & ~_ELEMENT_FLAGS:
            raise MalformedError(f"flag {flags:#x} of an element is not known")
        expressions = [found[NFTA_SET_ELEM_EXPR]] if NFTA_SET_ELEM_EXPR in found else []
        expressions += [one for _, one in split_attributes(found.get(NFTA_SET_ELEM_EXPRESSIONS, b""))]
        kinds = [_read_expression(one) for one in expressions]
        yield NftElement(
            key=key.get(1, b""), key_end=end.get(1, b""), value=data.get(1, b""), verdict=data.get(2, b""), flags=flags,
            is_conditional=not _ONLY_COUNTS.issuperset(kinds),
        )  # fmt: skip


def _read_expression(body: bytes) -> str:
    found = attributes_of(body)  # NFTA_EXPR_NAME, NFTA_EXPR_DATA
    kind = name(found.get(1, b""))
    check_named(body, values(1, 2))
    if kind in _STATEFUL:
        check_named(found.get(2, b""), _STATEFUL[kind])
    return kind


def _refuse(unnamed: Collection[int]) -> None:
    if unnamed:
        raise MalformedError(f"attribute {min(unnamed)} is not known")
