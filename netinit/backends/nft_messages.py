"""Encode a plan's tables as nf_tables messages, in nft's order and with its attributes; see `Part`."""

from __future__ import annotations

from _struct import pack

from netinit.backends import base_of
from netinit.base.netlink_attributes import write_attribute as attribute
from netinit.kernel import netlink, nf_tables
from netinit.kernel.nf_tables import Message, name
from netinit.rules.nft import encode_steps
from netinit.rules.numbers import TYPE_FIB, TYPE_INTERFACE
from netinit.rules.rule_builder import EncodedSet, be32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netinit.rules.nft import NftStep, Steps

    # A message, and its place: table, chain, number of the rule in it from 1 (0: the chain), and the rule
    Part = tuple[Message, tuple[str, str, int, NftStep | None]]

NFTA_TABLE_USERDATA, NFTA_RULE_USERDATA = 6, 7
NFTNL_UDATA_TABLE_COMMENT, NFTNL_UDATA_RULE_COMMENT, NFTNL_UDATA_SET_KEYBYTEORDER = 0, 0, 0  # libnftnl/udata.h
HOST_ORDER, NETWORK_ORDER = 1, 2  # nft's numbers of byte orders
MAX_LIST_BYTES = 60_000  # bytes of elements in one message: an attribute's length has 16 bits


def delete_tables(names: Iterable[str]) -> Iterator[Part]:
    """Yield deletions of the tables, which need not exist."""
    for table in names:
        named = attribute(netlink.NFTA_TABLE_NAME, name(table))
        yield (nf_tables.NFT_MSG_NEWTABLE, netlink.NLM_F_CREATE, named), (table, "", 0, None)
        yield (nf_tables.NFT_MSG_DELTABLE, 0, named), (table, "", 0, None)


def write_tables(tables: dict[str, Steps], *, comments: bool, records: dict[str, str]) -> Iterator[Part]:
    """Yield new tables with their chains, then the rules, each after its sets. `records`: the comments of tables."""
    for table, chains in tables.items():
        named = attribute(netlink.NFTA_TABLE_NAME, name(table))
        if records.get(table):
            named += attribute(NFTA_TABLE_USERDATA, _note(NFTNL_UDATA_TABLE_COMMENT, name(records[table])))
        # an empty table with this name may exist
        yield (nf_tables.NFT_MSG_NEWTABLE, netlink.NLM_F_CREATE, named), (table, "", 0, None)
        for chain, (hook, _) in chains.items():
            number, kind, priority = base_of(table.rpartition("-")[2], chain.upper())
            yield nf_tables.create_chain(table, chain, (kind, number, priority) if hook else None), (table, chain, 0, None)
        encoded = encode_steps(chains)
        sets = list(encoded.sets)
        for chain, (_, steps) in chains.items():
            place = nf_tables.rule_place(table, chain)
            for number, (step, rule) in enumerate(zip(steps, encoded.chains[chain], strict=True), 1):
                about = (table, chain, number, step)
                while sets and name(sets[0].name) in rule:
                    for message in _write_set(table, sets.pop(0)):
                        yield message, about
                body = place + attribute(netlink.NFTA_RULE_EXPRESSIONS, rule)
                if comments:
                    body += attribute(NFTA_RULE_USERDATA, _note(NFTNL_UDATA_RULE_COMMENT, name(step.rule.comment)))
                yield (nf_tables.NFT_MSG_NEWRULE, netlink.NLM_F_CREATE | nf_tables.NLM_F_APPEND, body), about


def _write_set(table: str, one: EncodedSet) -> Iterator[Message]:
    order = HOST_ORDER if one.key_type in (TYPE_INTERFACE, TYPE_FIB) else NETWORK_ORDER
    number = be32(int(one.name.removeprefix("__set")) + 1)
    head = attribute(1, name(table)) + attribute(2, name(one.name))
    body = head + attribute(3, be32(one.flags)) + attribute(4, be32(one.key_type)) + attribute(5, be32(one.key_length))
    body += attribute(10, number) + attribute(13, _note(NFTNL_UDATA_SET_KEYBYTEORDER, pack("=I", order)))
    yield nf_tables.NFT_MSG_NEWSET, netlink.NLM_F_CREATE, body + attribute(9, attribute(1, be32(len(one.elements))))
    each = MAX_LIST_BYTES // max([len(element) for element in one.elements])
    for start in range(0, len(one.elements), each):
        elements = attribute(3, b"".join(one.elements[start : start + each]))
        yield nf_tables.NFT_MSG_NEWSETELEM, netlink.NLM_F_CREATE, head + elements + attribute(4, number)


def _note(kind: int, value: bytes) -> bytes:
    return bytes((kind, len(value))) + value
