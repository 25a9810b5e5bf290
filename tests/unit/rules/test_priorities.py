"""Priorities of base chains: a number, or a name of nft(8) with what is added to it."""

from __future__ import annotations

import pytest

from netinit.base.errors import ParseError
from netinit.rules.nft.priorities import read_priority


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("raw", -300), ("mangle", -150), ("dstnat", -100), ("filter", 0), ("security", 50), ("srcnat", 100), ("filter + 5", 5), ("filter+5", 5), ("raw - 5", -305), ("srcnat +5", 105), ("filter - 10", -10),
        ("-100", -100), (-100, -100), (0, 0), ("7", 7), ("mangle - 0", -150), (-2147483648, -(1 << 31)), ("2147483647", (1 << 31) - 1), ("srcnat + 2147483547", (1 << 31) - 1), ("raw - 2147483348", -(1 << 31)),
    ],
)  # fmt: skip
def test_a_priority_is_a_number_or_a_name_and_what_is_added_to_it(text, number):
    assert read_priority(text, "input") == number


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "newer", "X5", "5X", "- 5", "+ 5", "filter filter", "5 filter +", "Filter", "filter * 5", "\u0665", "filter + \u0665", "2147483648", "-2147483649", "srcnat + 2147483548", "raw - 2147483349",
        "99999999999", "00000000005", "raw + -5", "--5", "+5", "filter 5", "5 6", "filter + 5 + 5", "filter +", "newer + 5", " 5", "1.5", "--", None, [], "filter + ²",
    ],
)  # fmt: skip
def test_what_is_no_priority_is_refused_with_the_hook_that_it_is_of(text):
    with pytest.raises(ParseError) as error:
        read_priority(text, "input")
    assert str(error.value) == f"hook input: {text} is no priority of a chain"


@pytest.mark.parametrize("value", ["9" * 41, "x" * 41, "1 " * 20 + "99999999999999"])
def test_a_refusal_shows_the_beginnings_of_long_texts(value):
    with pytest.raises(ParseError) as error:
        read_priority(value, "h" * 41)
    assert str(error.value) == f"hook {'h' * 40}…: {value[:40]}… is no priority of a chain"
    with pytest.raises(ParseError, match=f"^hook {'h' * 40}: {'9' * 40} is no priority"):
        read_priority("9" * 40, "h" * 40)
