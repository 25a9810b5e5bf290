"""Read nf_tables of all families over netlink (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

from netinit.base.netlink_attributes import MalformedError, attributes_of, name, number, signed, split_attributes
from netinit.base.snapshot import FAMILY_NAMES, HeldChain, NftElement, NftObject, NftRule, NftSet, NftTable, Unknown
from netinit.kernel import netlink, nf_tables
from netinit.kernel.detect import WITHOUT_NF_TABLES
from netinit.kernel.netlink import NETFILTER_SIZE, NETLINK_NETFILTER, Netlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any, TypeVar

    Read = TypeVar("Read")

TOO_BIG = (27, 90)  # EFBIG, EMSGSIZE


def read(unknown: list[Unknown], *, family: int = 0, tables: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a Snapshot that nf_tables fills; empty on a kernel without it. Raises OSError.

    `family`: only this one; `tables`: only their rules and sets.
    """

    def dump() -> tuple[dict[str, Any], list[Unknown]]:
        missed: list[Unknown] = []
        with Netlink(NETLINK_NETFILTER) as link:
            return _Dump(link, missed, family, tables).read(), missed

    try:
        netlink.read_nft_generation()
    except OSError as error:
        if error.errno in WITHOUT_NF_TABLES:
            return {}
        raise
    generation, (found, missed) = netlink.read_unchanged(dump)
    unknown += missed
    return {"generation": generation, **found}


class _Dump:
    def __init__(self, link: Netlink, unknown: list[Unknown], family: int, only: Collection[str]) -> None:
        self._link = link
        self._unknown = unknown
        self._family = family
        self._only = only
        self._element_bytes = nf_tables.MAX_ELEMENT_BYTES

    def read(self) -> dict[str, Any]:
        tables = self._read(nf_tables.NFT_MSG_NEWTABLE, "table", _read_table)
        if not tables:
            return {}
        sets = self._read(nf_tables.NFT_MSG_NEWSET, "set", _read_set)
        return {
            "tables": tables,
            "chains": self._read(nf_tables.NFT_MSG_NEWCHAIN, "chain", _read_chain),
            "rules": sum([self._read(nf_tables.NFT_MSG_NEWRULE, "rule", _read_rule, table) for table in self._only or ("",)], ()),
            "sets": tuple([self._fill(one) for one in sets if not self._only or one.table in self._only]),
            "objects": (
                *self._read(nf_tables.NFT_MSG_NEWOBJ, "object", _read_object),
                *self._read(nf_tables.NFT_MSG_NEWFLOWTABLE, "flow table", _read_flowtable),
            ),
        }

    def _read(self, kind: int, what: str, reader: Callable[[int, dict[int, bytes]], Read], table: str = "") -> tuple[Read, ...]:
        only = netlink.attribute(1, nf_tables.name(table)) if table else b""  # NFTA_RULE_TABLE
        return _decode(nf_tables.dump_objects(self._link, self._family, kind, only), what, reader, self._unknown)

    def _fill(self, one: NftSet) -> NftSet:
        place = f"set {one.name} of table {FAMILY_NAMES.get(one.family)} {one.table}"
        try:
            messages = nf_tables.dump_elements(one.family, nf_tables.name(one.table), nf_tables.name(one.name), self._element_bytes)
        except OSError as error:
            if error.errno not in TOO_BIG:
                raise
            self._unknown.append(Unknown(place=place, reason="it has more elements than are read"))
            return one.replace(is_complete=False)
        self._element_bytes -= sum([len(payload) for payload in messages])
        try:
            elements = tuple([element for payload in messages for element in _read_elements(payload)])
        except (MalformedError, KeyError) as error:
            self._unknown.append(_misread(place, error))
            return one.replace(is_complete=False)
        return one.replace(elements=elements)


def decode_rules(messages: Iterable[bytes]) -> tuple[tuple[NftRule, ...], list[Unknown]]:
    """Return the rules of messages that were read before, and what is not understood."""
    unknown: list[Unknown] = []
    return _decode(messages, "rule", _read_rule, unknown), unknown


def _decode(
    messages: Iterable[bytes], what: str, reader: Callable[[int, dict[int, bytes]], Read], unknown: list[Unknown]
) -> tuple[Read, ...]:
    found = []
    for body in messages:
        try:
            found.append(reader(body[0], attributes_of(body, NETFILTER_SIZE)))
        except (MalformedError, KeyError, IndexError) as error:
            unknown.append(_misread(f"a {what} of {FAMILY_NAMES.get(body[0] if body else 0, 'an unknown family')}", error))
    return tuple(found)


def _misread(place: str, error: Exception) -> Unknown:
    return Unknown(place=place, reason=f"the kernel's message is not understood: {error}")


def _read_table(family: int, found: dict[int, bytes]) -> NftTable:
    return NftTable(
        family=family, name=name(found[1]), flags=number(found.get(2)), handle=number(found.get(4)), userdata=found.get(6, b"")
    )


def _read_chain(family: int, found: dict[int, bytes]) -> HeldChain:
    chain = HeldChain(
        family=family, table=name(found[1]), handle=number(found.get(2)), name=name(found[3]), flags=number(found.get(10))
    )
    if 4 not in found:  # NFTA_CHAIN_HOOK  # noqa: PLR2004
        return chain
    hook = attributes_of(found[4])
    devices = [name(hook[3])] if 3 in hook else []  # NFTA_HOOK_DEV, NFTA_HOOK_DEVS  # noqa: PLR2004
    devices += [name(device) for _, device in split_attributes(hook.get(4, b""))]
    return chain.replace(
        kind=name(found[7]), hook=number(hook[1]), priority=signed(hook[2]), policy=number(found.get(5), 1),
        devices=tuple(dict.fromkeys(devices)),
    )  # fmt: skip


def _read_rule(family: int, found: dict[int, bytes]) -> NftRule:
    return NftRule(
        family=family, table=name(found[1]), chain=name(found[2]), handle=number(found.get(3)),
        expressions=found.get(4, b""), userdata=found.get(7, b""),
    )  # fmt: skip


def _read_set(family: int, found: dict[int, bytes]) -> NftSet:
    return NftSet(
        family=family, table=name(found[1]), name=name(found[2]), flags=number(found.get(3)),
        key_type=number(found.get(4)), key_length=number(found.get(5)), data_type=number(found.get(6)),
    )  # fmt: skip


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


def _read_object(family: int, found: dict[int, bytes]) -> NftObject:
    return NftObject(family=family, table=name(found[1]), name=name(found[2]), kind=str(number(found.get(3))))


def _read_flowtable(family: int, found: dict[int, bytes]) -> NftObject:
    hook = attributes_of(found.get(3, b""))
    devices = tuple([name(device) for _, device in split_attributes(hook.get(3, b""))])
    return NftObject(
        family=family, table=name(found[1]), name=name(found[2]), kind="flowtable", priority=signed(hook.get(2)), devices=devices
    )
