"""A difference on one line: where, what, and why it was planned."""

from __future__ import annotations

import pytest

from netinit.base.sanitize import MAX_RULE_LENGTH, MAX_TEXT_LENGTH
from netinit.rules.model import EXTRA, MISSING, Difference


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"kind": MISSING, "where": "IPv4", "table": "nat", "chain": "A"}, "missing: IPv4 nat A: the chain itself"),
        ({"kind": EXTRA, "where": "nft", "table": "t", "rule": "the whole table"}, "extra: nft t: the whole table"),
        ({"kind": MISSING, "where": "IPv6", "table": "nat", "chain": "A", "number": 2, "rule": "-j RETURN", "purpose": "so", "origin": "--flag"},
         "missing: IPv6 nat A rule 2: -j RETURN  (so; --flag)"),
        ({"kind": EXTRA, "where": "IPv4", "table": "nat", "chain": "A", "number": 1, "rule": "-j DROP", "comment": 'say "x"'},
         'extra: IPv4 nat A rule 1: `-j DROP` with comment "say \\"x\\""'),
        ({"kind": EXTRA, "where": "IPv4", "rule": "a\x1bb"}, "extra: IPv4: a\\x1bb"),
        ({"kind": EXTRA, "where": "IPv4", "rule": "x" * (MAX_RULE_LENGTH + 1)}, f"extra: IPv4: {'x' * MAX_RULE_LENGTH}…"),
    ],
)  # fmt: skip
def test_a_difference_says_where_it_is_and_why_the_rule_was_planned(found, line):
    assert Difference(**found).describe() == line


def test_a_long_comment_of_somebody_else_is_cut():
    shown = Difference(kind=EXTRA, where="IPv4", rule="-j DROP", comment="y" * (MAX_TEXT_LENGTH + 1)).describe()
    assert shown == f'extra: IPv4: `-j DROP` with comment "{"y" * MAX_TEXT_LENGTH}…"'
