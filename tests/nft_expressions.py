"""Rules of nf_tables, written as their expressions, each with its name and its attributes, and read as what they mean."""

from __future__ import annotations

from typing import Any

from netinit.base.snapshot import INET, NftElement, NftRule, NftSet
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.foreign_targets import UnknownTarget
from netinit.rules.iptables.write import write_rule
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.rule_builder import expression
from netinit.rules.targets import Target

DEVICES = {1: "lo", 3: "eth0"}
ACCEPTS, DROPS = (("immediate", (1, 0), (2, ((2, ((1, code),)),))) for code in (1, 0))
MARK, CT_MARK = ("meta", (2, 3), (1, 1)), ("ct", (1, 1), (2, 3))
PROTOCOL = ("meta", (2, 16), (1, 1))


def equals(value: bytes, operator: int = 0, register: int = 1) -> Any:
    return ("cmp", (1, register), (2, operator), (3, ((1, value),)))


def puts(value: bytes, register: int = 1) -> Any:
    return ("immediate", (1, register), (2, ((1, value),)))


def spans(low: bytes, high: bytes, operator: int = 0) -> Any:
    return ("range", (1, 1), (2, operator), (3, ((1, low),)), (4, ((1, high),)))


def loads(base: int, offset: int, length: int, register: int = 1) -> Any:
    return ("payload", (1, register), (2, base), (3, offset), (4, length))


TCP, UDP = ((PROTOCOL, equals(bytes((number,)))) for number in (6, 17))
SPORT, DPORT = loads(2, 0, 2), loads(2, 2, 2)


def mask(keeps: bytes, flips: bytes | None = None, *, length: int | None = None, into: int = 1, **others: Any) -> Any:
    """What keeps bits and inverts others; `others`: attributes by `_` and their number."""
    flipped = bytes(len(keeps)) if flips is None else flips
    attributes = {1: 1, 2: into, 3: len(keeps) if length is None else length, 6: 0, 4: ((1, keeps),), 5: ((1, flipped),)}
    return ("bitwise", *{**attributes, **{int(name[1:]): one for name, one in others.items()}}.items())


def looks_up(name: str = "s", *more: Any, register: int = 1) -> Any:
    return ("lookup", (1, name.encode() + b"\0"), (2, register), *more)


def holds(*keys: bytes | NftElement, **fields: Any) -> NftSet:
    """A set that holds these keys, or elements."""
    elements = tuple(one if isinstance(one, NftElement) else NftElement(key=one) for one in keys)
    length = len(elements[0].key) if elements else 4
    return NftSet(**{"family": INET, "table": "t", "name": "s", "key_length": length, "elements": elements, **fields})


def encode(*parts: Any) -> bytes:
    return b"".join([expression(kind.encode(), *attributes) for kind, *attributes in parts])


def decode(*parts: Any, family: int = INET, sets: tuple[NftSet, ...] = (), userdata: bytes = b"") -> Any:
    """What a rule of these expressions is."""
    around = References(sets={(one.family, one.table, one.name): one for one in sets}, devices=DEVICES)
    return decode_rule(NftRule(family=family, table="t", chain="c", handle=9, expressions=encode(*parts), userdata=userdata), around)


def read(*parts: Any, **more: Any) -> list[str]:
    """The rule, or each of those that it stands for, as iptables would list it, with what is unknown in brackets."""
    found = decode(*parts, **more).rules
    assert all(getattr(match, "negated", False) in (True, False) for one in found for match in one.matches)
    rules = [one.replace(matches=tuple(map(_bracket, one.matches)), target=_bracket(one.target)) for one in found]
    return [" | ".join(write_rule(one, one.families[0])) for one in rules]


def _bracket(one: Any) -> Any:
    return one.replace(text=f"[{one.text}]") if isinstance(one, UnknownMatch | UnknownTarget) else one


def fields_of(one: Any) -> tuple[str, dict[str, object]]:
    """The kind of a match or a target, and all of its fields: foreign ones are equal if their texts are."""
    fields = {name: getattr(one, name) for name in one._fields}
    return type(one).__name__, {name: fields_of(value) if isinstance(value, Target) else value for name, value in fields.items()}
