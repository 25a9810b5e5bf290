"""Quantities as the API server writes them; the answers were recorded from Kubernetes' own resource package."""

from __future__ import annotations

import pytest

from netinit.inject.adding.quantities import canonical, round_up
from sweeps import together

RECORDED = [
    ("0", "0"), ("1", "1"), ("1.5", "1500m"), ("0.5Gi", "512Mi"), ("1024", "1024"), ("1024Ki", "1Mi"), ("1000Ki", "1000Ki"),
    ("3000m", "3"), ("1500m", "1500m"), ("-1500m", "-1500m"), ("1e3", "1e3"), ("1E3", "1E3"), ("12e4", "120e3"), ("1e-3", "1e-3"),
    ("5e6", "5e6"), ("1000000", "1M"), ("0.1Mi", "104857600m"), ("1.", "1."), (".5", "500m"), ("0.0000000001", "1n"), ("1e1", "10"),
    ("1E", "1E"), ("-0", "0"), ("0Ki", "0"), ("0.9Ki", "921600m"), ("1048576", "1048576"), ("27.420G", "27.420G"),
    ("75.215k", "75.215k"), ("9223372036854775808", "9223372036854775808"),
]  # fmt: skip


@together(("given", "written"), RECORDED)
def test_a_quantity_has_one_spelling(given, written):
    assert canonical(given) == written


def test_numbers_of_yaml_are_quantities_too():
    assert [canonical(2), canonical(0.5), canonical(1000)] == ["2", "500m", "1k"]


@pytest.mark.parametrize("given", ["", "abc", "1x", "1Kii", "--1", None, [], {}, "1e999"])
def test_what_is_no_quantity_stays(given):
    assert canonical(given) == given


@pytest.mark.parametrize(
    ("given", "number"), [("500m", 1), ("6500m", 7), ("2", 2), (2, 2), ("1.5", 2), (".5", 1), ("1e3", 1000), ("1Ki", 1024), ("-1500m", -1), ("1E", 10**18)]
)
def test_a_quantity_is_rounded_up_to_a_whole_number(given, number):
    assert round_up(given) == number


@pytest.mark.parametrize("given", ["", "abc", "1x", "1e999", None, []])
def test_what_is_no_quantity_has_no_number(given):
    assert round_up(given) is None
