"""Expressions of nf_tables as words: the name, then each attribute by its number, as the kernel's header numbers them."""

from __future__ import annotations

from netinit.base.net import IPV4, IPV6
from netinit.base.netlink_attributes import attributes_of, split_attributes
from netinit.rules.rule_builder import RuleBuilder

NESTED = {"cmp": {3}, "bitwise": {4, 5}, "immediate": {2}, "range": {3, 4}}  # attributes of an expression that hold others
VERDICT = 2  # NFTA_DATA_VERDICT
FAMILY_NUMBERS = {"inet": 1, "ip": 2, "ip6": 10}


def show_expressions(block: bytes) -> list[str]:
    """Each expression as its name and its attributes: numbers of 32 bits in decimal, all else in hexadecimal."""
    return [_show_expression(payload) for _, payload in split_attributes(block)]


def _show_expression(payload: bytes) -> str:
    held = attributes_of(payload)
    name = held[1].rstrip(b"\0").decode()
    return " ".join([name, *[_show(f"{kind}", value, kind in NESTED.get(name, ())) for kind, value in split_attributes(held.get(2, b""))]])


def _show(kind: str, value: bytes, is_nested: bool) -> str:
    if is_nested:
        return " ".join([f"{kind}.{_show_data(one, inner)}" for one, inner in split_attributes(value)])
    return f"{kind}={int.from_bytes(value, 'big', signed=True)}" if len(value) == 4 else f"{kind}={value.hex()}"


def _show_data(kind: int, value: bytes) -> str:
    if kind == VERDICT:
        return " ".join([_show(f"{kind}.{one}", inner, is_nested=False) for one, inner in split_attributes(value)])
    return f"{kind}={value.hex()}"


def show_match(match, family: str = "ip", **more) -> list[str]:
    """What a match appends to a rule of a table of this family (ip, ip6, inet), and the sets that it looks up."""
    builder = RuleBuilder(FAMILY_NUMBERS[family], [], **more)
    match.express(builder)
    return [*show_expressions(builder.block()), *[_show_set(one) for one in builder.sets]]


def show_target(target, family: str = "ip") -> list[str]:
    """What a target appends to a rule of a table of this family."""
    builder = RuleBuilder(FAMILY_NUMBERS[family], [])
    target.express(builder, {"ip6": IPV6}.get(family, IPV4))
    return show_expressions(builder.block())


def _show_set(one) -> str:
    elements = [attributes_of(attributes_of(payload)[1])[1].hex() + ("*" if 3 in attributes_of(payload) else "") for element in one.elements for _, payload in split_attributes(element)]
    return f"{one.name}: flags {one.flags}, type {one.key_type}, {one.key_length} bytes: {' '.join(elements)}"
