"""A foreign rule in a message: its text between backquotes, its comment as a quotation of its own."""

from __future__ import annotations

import pytest

from netinit.base.sanitize import MAX_RULE_LENGTH, MAX_TEXT_LENGTH
from netinit.rules.iptables.parse import part_comment, quote_rule

PARTED = [
    ("-p tcp -j RETURN", "-p tcp -j RETURN", ""),
    ("-m comment --comment why -j RETURN", "-j RETURN", "why"),
    ('-p tcp -m comment --comment "a b" -m mark --mark 0x1 -j RETURN', "-p tcp -m mark --mark 0x1 -j RETURN", "a b"),
    ("-m comment --comment a -m comment --comment b -j RETURN", "-j RETURN", "a; b"),
    ("-j LOG -m comment --comment last", "-j LOG", "last"),
    # no comment of the rule: quotes that do not close, a value that is missing, another extension's words
    ('-m comment --comment "a -j RETURN', '-m comment --comment "a -j RETURN', ""),
    ("-j RETURN  -m comment --comment", "-j RETURN  -m comment --comment", ""),
    ("-m other --comment a  -j RETURN", "-m other --comment a  -j RETURN", ""),
    ('-j LOG --log-prefix "-m comment --comment x"', '-j LOG --log-prefix "-m comment --comment x"', ""),
]


@pytest.mark.parametrize(("spec", "rule", "comment"), PARTED)
def test_a_rule_and_its_comment_are_parted(spec, rule, comment):
    assert part_comment(spec) == (rule, comment)


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("-j RETURN", "`-j RETURN`"),
        ('-m comment --comment "it is so" -j RETURN', '`-j RETURN` with comment "it is so"'),
        ("-i a\x1b[2J -j RETURN", "`-i a\\x1b[2J -j RETURN`"),
        ('-m comment --comment "a\nb" -j RETURN', '`-j RETURN` with comment "a\\nb"'),
        ("x" * (MAX_RULE_LENGTH + 1), f"`{'x' * MAX_RULE_LENGTH}…`"),
        (f"-m comment --comment {'x' * (MAX_TEXT_LENGTH + 1)} -j RETURN", f'`-j RETURN` with comment "{"x" * MAX_TEXT_LENGTH}…"'),
    ],
)
def test_a_rule_is_quoted_on_one_line_and_cut(spec, shown):
    assert quote_rule(spec) == shown
