"""Rules as iptables-save lists them, with their counters and without."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, parse_listing, parse_rule
from netinit.base.errors import ParseError
from netinit.rules.iptables.write import ListedTable
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset

TEXTS = ('-p tcp -m comment --comment "a [b] c" -j X', "-j RETURN", "-s 10.0.0.0/8 -j LOG")


@pytest.mark.parametrize("counts", [(None, None, None), (4711, 0, 12)])
def test_a_rule_is_loaded_with_its_number_text_comment_and_counter(counts):
    specs = [text if count is None else f"[{count}:99] {text}" for text, count in zip(TEXTS, counts, strict=True)]
    found = load_listing({"nat": ListedTable(policies={"OUTPUT": "DROP", "X": "-"}, rules={"OUTPUT": specs, "X": []})}, IPV4)
    comments = ("a [b] c", "", "")
    rules = [
        LoadedRule(at, text, parse_rule(text, IPV4), packets=count, comment=comment)
        for at, (text, count, comment) in enumerate(zip(TEXTS, counts, comments, strict=True), 1)
    ]
    assert found == Ruleset(IPV4, {"nat": {"OUTPUT": LoadedChain("OUTPUT", tuple(rules), "DROP"), "X": LoadedChain("X", (), "")}})


def test_each_table_is_loaded_in_its_family():
    text = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d fd00::/8 -j RETURN\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
    found = load_listing(parse_listing(text), IPV6)
    assert (found.family, [*found.tables]) == (IPV6, ["nat", "filter"])
    assert found.tables["nat"]["OUTPUT"].rules[0].rule == parse_rule("-d fd00::/8 -j RETURN", IPV6)
    assert load_listing({}, IPV4) == Ruleset(IPV4)


def test_what_is_no_rule_is_an_error():
    with pytest.raises(ParseError):
        load_listing({"nat": ListedTable(policies={}, rules={"OUTPUT": ["-p"]})}, IPV4)
