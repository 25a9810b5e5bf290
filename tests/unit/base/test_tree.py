"""Trees of JSON: copies, and what is shown of them."""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.base.tree import clone


def test_a_copy_shares_no_map_and_no_list():
    original = {"a": [[1], {"b": [2]}], "c": {"d": {}}}
    copy = clone(original)
    assert copy == original
    copy["a"][0].append(9)
    copy["a"][1]["b"].append(9)
    copy["c"]["d"]["e"] = 9
    assert original == {"a": [[1], {"b": [2]}], "c": {"d": {}}}


def test_an_error_of_several_options_is_a_line_for_each():
    error = OptionError("first", "second")
    assert (str(error), error.problems) == ("first\nsecond", ("first", "second"))
