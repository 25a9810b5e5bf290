"""JSON patches: pointers with tildes and slashes, every law of RFC 6901 and 6902 that we need, and hostile patches."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.errors import ParseError
from netinit.inject import apply_patch, json_patch
from sweeps import together

KEYS = st.text(alphabet='~/01-a\u00e9\u2028 \n"', max_size=4)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "~", "/", "~1", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.just("name"), inner, max_size=4),
    max_leaves=12,
)


@given(before=st.dictionaries(KEYS, TREES, max_size=4), after=st.dictionaries(KEYS, TREES, max_size=4))
def test_the_patch_makes_the_other_object_whatever_its_keys_are(before, after):
    kept = copy.deepcopy(before)
    result = apply_patch(before, json_patch(before, after))
    assert json.dumps(result, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert before == kept


@pytest.mark.parametrize(
    ("key", "path"),
    [("a/b", "/a~1b"), ("m~n", "/m~0n"), ("~1", "/~01"), ("/~", "/~1~0"), ("", "/"), ("~01", "/~001"), ("-", "/-"), ("a%2Fb", "/a%2Fb"), (" ", "/ "), ("\\", "/\\")],
)  # fmt: skip
def test_tildes_and_slashes_are_written_as_rfc_6901_says(key, path):
    assert json_patch({}, {key: 1}) == [{"op": "add", "path": path, "value": 1}]
    assert apply_patch({}, [{"op": "add", "path": path, "value": 1}]) == {key: 1}
    assert json_patch({key: 1}, {}) == [{"op": "remove", "path": path}]


def test_the_pointers_of_rfc_6901_lead_where_it_says():
    document = {
        "foo": ["bar", "baz"],
        "": 0,
        "a/b": 1,
        "c%d": 2,
        "e^f": 3,
        "g|h": 4,
        "i\\j": 5,
        'k"l': 6,
        " ": 7,
        "m~n": 8,
    }
    places = {
        "/foo/0": ("foo", 0),
        "/": "",
        "/a~1b": "a/b",
        "/c%d": "c%d",
        "/e^f": "e^f",
        "/g|h": "g|h",
        "/i\\j": "i\\j",
        '/k"l': 'k"l',
        "/ ": " ",
        "/m~0n": "m~n",
    }
    for path, place in places.items():
        changed = apply_patch(document, [{"op": "replace", "path": path, "value": "new"}])
        wanted = copy.deepcopy(document)
        if isinstance(place, tuple):
            wanted[place[0]][place[1]] = "new"
        else:
            wanted[place] = "new"
        assert changed == wanted, path


DOCUMENT = {"a": ["x", "y"], "m": {"k": "v"}, "s": "text", "~": 1}


@together(
    "path",
    ["/a/-1", "/a/+1", "/a/01", "/a/ 1", "/a/1 ", "/a/1_0", "/a/\u0661", "/a/1e0", "/a/2", "/a/", "/a/9999999999999", "/a/x", "/s/0", "/s/x", "/none/x", "/m/k/0", "/m//k"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["remove", "replace"])
def test_a_path_that_leads_nowhere_is_an_error_and_changes_nothing(kind, path):
    before = copy.deepcopy(DOCUMENT)
    with pytest.raises(ParseError, match="there is no such place"):
        apply_patch(
            DOCUMENT, [{"op": "remove", "path": "/m"} if path == "" else {"op": kind, "path": path, "value": 1}]
        )
    assert before == DOCUMENT


@pytest.mark.parametrize("path", ["/a/-1", "/a/3", "/a/01", "/s/0", "/none/x"])
def test_nothing_is_added_where_no_place_is(path):
    with pytest.raises(ParseError, match="there is no such place"):
        apply_patch(DOCUMENT, [{"op": "add", "path": path, "value": 1}])


@together(
    ("operations", "message"),
    [
        ({}, "must be a list"), ("x", "must be a list"), (None, "must be a list"), ([5], "must be an object"), ([{}], "None is not one of add"),
        ([{"op": "move", "from": "/a", "path": "/b"}], "'move' is not one of"), ([{"op": ["add"], "path": "/b", "value": 1}], "is not one of"),
        ([{"op": "add", "path": "/b"}], "it has no value"), ([{"op": "add", "value": 1}], "None is not a JSON pointer"), ([{"op": "remove", "path": 5}], "5 is not a JSON pointer"),
        ([{"op": "remove", "path": "a"}], "'a' is not a JSON pointer"), ([{"op": "remove", "path": "/~"}], "is not a JSON pointer"), ([{"op": "remove", "path": "/~2"}], "is not a JSON pointer"),
        ([{"op": "remove", "path": ""}], "nothing would be left"), ([{"op": "remove", "path": "/x" + "y" * 500_000}], "there is no such place"),
    ],
)  # fmt: skip
def test_a_hostile_patch_is_a_clear_error(operations, message):
    with pytest.raises(ParseError, match=message) as caught:
        apply_patch(DOCUMENT, operations)
    assert len(str(caught.value)) < 400


def test_the_whole_document_may_be_replaced():
    assert apply_patch(DOCUMENT, [{"op": "replace", "path": "", "value": {"b": 1}}]) == {"b": 1}


def test_long_lists_are_compared_in_one_pass():
    before = [{"name": f"n{number}", "value": "x"} for number in range(30_000)]
    after = [{"name": f"n{number}", "value": "x"} for number in range(30_000, 60_000)]
    assert apply_patch({"l": before}, json_patch({"l": before}, {"l": after})) == {"l": after}
