"""In which order tables change: what rejects goes first and comes last, and what stops capturing comes last."""

from __future__ import annotations

import pytest

from netinit.rules.iptables.table_order import order_tables

OURS, PROXY, FOREIGN, NONE = ("ISTIO_OUTPUT", "THEIRS"), ("ISTIO_TPROXY", "ISTIO_INBOUND"), ("THEIRS",), ()


@pytest.mark.parametrize(
    ("target", "listed", "skip", "names", "refuses"),
    [
        ({}, {}, (), [], False),
        # as the plan has them, then the others that are listed
        ({"mangle": OURS, "nat": OURS}, {"raw": FOREIGN, "nat": FOREIGN}, (), ["mangle", "nat", "raw"], False),
        ({"mangle": OURS, "nat": OURS}, {"raw": FOREIGN, "nat": FOREIGN}, ("mangle",), ["nat", "raw"], False),
        ({"mangle": OURS, "nat": OURS}, {"raw": FOREIGN, "nat": FOREIGN}, ("raw", "nat"), ["mangle"], False),
        # a table that stops capturing comes behind all others
        ({"nat": OURS}, {"mangle": OURS, "nat": OURS, "raw": FOREIGN}, (), ["nat", "raw", "mangle"], False),
        ({"mangle": NONE, "nat": OURS}, {"mangle": OURS}, (), ["nat", "mangle"], False),
        ({"mangle": NONE, "nat": OURS}, {"mangle": FOREIGN}, (), ["mangle", "nat"], False),
        ({"mangle": NONE, "nat": OURS}, {}, (), ["mangle", "nat"], False),
        ({"mangle": OURS, "nat": OURS}, {"mangle": PROXY}, (), ["nat", "mangle"], False),
        ({"mangle": PROXY, "nat": OURS}, {"mangle": PROXY}, (), ["mangle", "nat"], False),
        ({"mangle": PROXY, "nat": OURS}, {"mangle": OURS}, (), ["mangle", "nat"], False),
        ({"mangle": OURS, "nat": OURS}, {"mangle": OURS}, (), ["mangle", "nat"], False),
        # filter without rules of ours goes before all others, and nothing before it
        ({"mangle": OURS, "nat": OURS}, {"nat": OURS, "filter": OURS}, (), ["filter", "mangle", "nat"], False),
        ({"mangle": OURS, "nat": OURS}, {"filter": FOREIGN}, (), ["filter", "mangle", "nat"], False),
        ({"nat": OURS}, {"mangle": OURS, "filter": OURS}, (), ["filter", "nat", "mangle"], False),
        ({}, {"nat": OURS, "filter": OURS}, (), ["filter", "nat"], False),
        ({"nat": OURS}, {"filter": OURS}, ("filter",), ["nat"], False),
        # filter with other rules of ours loses what rejects in a commit before the others
        ({"mangle": OURS, "nat": OURS, "filter": OURS}, {"filter": OURS}, (), ["mangle", "nat", "filter"], True),
        ({"nat": OURS, "filter": OURS}, {"filter": FOREIGN}, (), ["nat", "filter"], True),
        ({"nat": OURS, "filter": OURS}, {"nat": FOREIGN}, (), ["nat", "filter"], False),
        ({"nat": OURS, "filter": OURS}, {"filter": OURS}, ("filter",), ["nat"], False),
        ({"filter": OURS, "nat": OURS}, {"filter": OURS}, (), ["filter", "nat"], False),
        ({"nat": OURS, "filter": OURS}, {"filter": OURS}, ("nat",), ["filter"], False),
        ({"filter": OURS, "nat": NONE}, {"filter": OURS, "nat": OURS}, (), ["filter", "nat"], False),
    ],
)  # fmt: skip
def test_no_table_rejects_what_another_redirects_and_one_captures_at_any_time(target, listed, skip, names, refuses):
    assert order_tables(target, listed, skip) == (names, refuses)
