"""Every expression that is decoded has its known attributes, so that one more makes the rule unknown."""

from __future__ import annotations

import pytest

from netinit.base.netlink_attributes import MalformedError, write_attribute
from netinit.base.snapshot import INET, NftRule
from netinit.rules.decoding import targets
from netinit.rules.expressions import rule_reader
from netinit.rules.expressions.known_attributes import KNOWN, split_expressions
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.foreign_targets import UnknownTarget
from netinit.rules.numbers import LOADS

HANDLED = {name.removeprefix("_on_") for name in vars(rule_reader._Walk) if name.startswith("_on_")}
DECODED = sorted({*HANDLED, *LOADS, *rule_reader.OTHER_LOADS, *rule_reader.ENDING, *targets._EXPRESSIONS})


def expression(kind, data=b"", listed=1):
    return write_attribute(listed, write_attribute(1, kind.encode() + b"\0") + write_attribute(2, data))


def test_each_decoded_expression_is_listed_and_no_other():
    assert sorted(KNOWN) == DECODED


@pytest.mark.parametrize("kind", DECODED)
def test_an_expression_with_an_attribute_that_nobody_knows_makes_its_rule_unknown(kind):
    held = NftRule(family=INET, table="t", chain="c", expressions=expression(kind, write_attribute(77, b"")))
    (rule,) = decode_rule(held, References(sets={}, devices={})).rules
    assert isinstance(rule.target, UnknownTarget)


@pytest.mark.parametrize("block", [
    expression("counter", listed=2), write_attribute(1, write_attribute(1, b"counter\0") + write_attribute(3, b"")),
    expression("dynset", write_attribute(7, write_attribute(1, b"counter\0") + write_attribute(2, write_attribute(9, b"")))),
    expression("dynset", write_attribute(10, expression("limit", write_attribute(9, b"")))),
    expression("immediate", write_attribute(2, write_attribute(2, write_attribute(4, b"")))),
])  # fmt: skip
def test_attributes_are_known_at_every_level(block):
    with pytest.raises(MalformedError, match="is not known"):
        split_expressions(block)
