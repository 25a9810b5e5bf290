"""Known attributes of nf_tables expressions (linux/netfilter/nf_tables.h); a rule with another one is not understood."""

from __future__ import annotations

from netinit.base.netlink_attributes import MalformedError, attributes_of, name, split_attributes
from netinit.base.netlink_schemas import Schema, check_named, values

_VALUE: Schema = values(1)  # NFTA_DATA_VALUE
_DATA: Schema = {1: None, 2: values(1, 2, 3)}  # NFTA_DATA_VERDICT: its code, chain and chain's id
_LISTED: dict[str, tuple[int, ...]] = {"dynset": (7, 10)}  # attributes that hold an expression, or a list of them
KNOWN: dict[str, Schema] = {
    "bitwise": {**values(1, 2, 3, 6, 8), 4: _VALUE, 5: _VALUE, 7: _VALUE},
    "byteorder": values(1, 2, 3, 4, 5),
    "cmp": {1: None, 2: None, 3: _VALUE},
    "connlimit": values(1, 2),
    "counter": values(1, 2, 3),
    "ct": values(1, 2, 3, 4),
    "dup": values(1, 2),
    "dynset": values(*range(1, 11)),
    "exthdr": values(*range(1, 8)),
    "fib": values(1, 2, 3),
    "flow_offload": values(1),
    "hash": values(*range(1, 10)),
    "immediate": {1: None, 2: _DATA},
    "last": values(1, 2, 3),
    "limit": values(*range(1, 7)),
    "log": values(*range(1, 7)),
    "lookup": values(1, 2, 3, 4, 5),
    "masq": values(1, 2, 3),
    "match": values(1, 2, 3),
    "meta": values(1, 2, 3),
    "nat": values(*range(1, 8)),
    "notrack": {},
    "numgen": values(*range(1, 7)),
    "objref": values(1, 2, 3, 4, 5),
    "osf": values(1, 2, 3),
    "payload": values(*range(1, 9)),
    "queue": values(1, 2, 3, 4),
    "quota": values(1, 2, 3, 4),
    "range": {1: None, 2: None, 3: _VALUE, 4: _VALUE},
    "redir": values(1, 2, 3),
    "reject": values(1, 2),
    "rt": values(1, 2),
    "socket": values(1, 2, 3),
    "target": values(1, 2, 3),
    "tproxy": values(1, 2, 3),
    "tunnel": values(1, 2, 3),
    "xfrm": values(1, 2, 3, 4),
}  # those that are decoded; any other expression is unknown as a whole


def split_expressions(block: bytes) -> list[tuple[str, dict[int, bytes]]]:
    """Return the expressions of NFTA_RULE_EXPRESSIONS with their attributes. Raises MalformedError, also for an unknown attribute."""
    return [_read(kind, body) for kind, body in split_attributes(block)]


def _read(listed: int, body: bytes) -> tuple[str, dict[int, bytes]]:
    if listed != 1:  # NFTA_LIST_ELEM
        raise MalformedError(f"attribute {listed} is not known")
    found = attributes_of(body)
    check_named(body, values(1, 2))  # NFTA_EXPR_NAME, NFTA_EXPR_DATA
    kind, data = name(found[1]), found.get(2, b"")
    if kind in KNOWN:
        check_named(data, KNOWN[kind])
    attributes = attributes_of(data)
    one, several = _LISTED.get(kind, (0, 0))
    inner = [(1, attributes[one])] if one in attributes else []
    for each, below in [*inner, *split_attributes(attributes.get(several, b""))]:
        _read(each, below)
    return kind, attributes
