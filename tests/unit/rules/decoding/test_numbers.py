"""Numbers in options, as C's library reads them."""

from __future__ import annotations

import pytest

from netinit.rules.decoding import read_masked, read_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0x0", 0), ("0xaF", 0xAF), ("0Xaf", 0xAF), ("00", 0), ("07", 7), ("0777", 511), ("9", 9), ("10", 10), ("0xfedcba98", 0xFEDCBA98), ("0x100000000", None), ("040000000000", None), ("4294967295", 0xFFFFFFFF), ("4294967296", None),
        ("0xX1", None), ("0x1X", None), ("0x0x1", None), ("x1", None), ("X", None), ("0b1", None), ("08", None), ("09", None), ("078", None), ("1X", None), ("X1", None), ("f", None), ("0x", None), ("0X", None), ("", None), ("-0", None), ("1 ", None), ("0x-1", None),
    ],
)  # fmt: skip
def test_a_number_is_in_the_base_that_its_beginning_says(text, number):
    assert read_number(text) == number
    assert read_masked(text) == (None if number is None else (number, 0xFFFFFFFF))
    assert read_masked(f"1/{text}") == (None if number is None else (1, number))
    assert read_masked(f"{text}/1") == (None if number is None else (number, 1))
