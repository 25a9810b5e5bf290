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


def test_an_expression_without_attributes_has_none():
    assert split_expressions(write_attribute(1, write_attribute(1, b"notrack\0"))) == [("notrack", {})]
    assert split_expressions(expression("notrack") + expression("newer", write_attribute(9, b"x"))) == [("notrack", {}), ("newer", {9: b"x"})]
    assert split_expressions(b"") == []


def test_what_a_set_s_elements_are_given_is_read_with_the_expression_that_adds_them():
    one = write_attribute(7, write_attribute(1, b"counter\0") + write_attribute(2, write_attribute(1, bytes(8))))
    several = write_attribute(10, expression("counter") + expression("limit", write_attribute(1, bytes(8))))
    for data, numbers in ((one, [7]), (several, [10]), (b"", [])):
        ((kind, found),) = split_expressions(expression("dynset", data))
        assert (kind, list(found)) == ("dynset", numbers)
    with pytest.raises(MalformedError, match="attribute 2 is not known"):
        split_expressions(expression("dynset", write_attribute(10, expression("counter", listed=2))))
    with pytest.raises(KeyError):
        split_expressions(write_attribute(1, write_attribute(2, b"")))
