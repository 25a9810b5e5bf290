"""Trees of JSON: copies, and what is shown of them."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import OptionError
from netinit.base.tree import clone, explain_json_error


def test_a_copy_shares_no_map_and_no_list():
    original = {"a": [[1], {"b": [2]}], "c": {"d": {}}}
    copy = clone(original)
    assert copy == original
    copy["a"][0].append(9)
    copy["a"][1]["b"].append(9)
    copy["c"]["d"]["e"] = 9
    assert original == {"a": [[1], {"b": [2]}], "c": {"d": {}}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9" * 5000, "an integer has more digits than any field takes"), ('{"a": -' + "1" * 4301 + "}", "an integer has more digits than any field takes"),
        ("[" * 100_000, "it is nested too deeply"), ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_json_is_told_in_words_for_its_author(text, said):
    with pytest.raises((ValueError, RecursionError)) as caught:
        json.loads(text)
    assert explain_json_error(caught.value) == said


def test_an_error_of_several_options_is_a_line_for_each():
    error = OptionError("first", "second")
    assert (str(error), error.problems) == ("first\nsecond", ("first", "second"))
