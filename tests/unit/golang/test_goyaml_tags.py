"""Scalars of every shape with every core tag, as values and as keys: what sigs.k8s.io/yaml made of them when it was asked."""

from __future__ import annotations

import json
import re

import pytest

from netinit.golang.errors import YamlError
from netinit.golang.goyaml import load
from recorded_yaml import CASES, RECORDED
from sweeps import together

ANSWERS = json.loads(RECORDED.read_text())
LARGE = 10**18  # untagged whole numbers beyond 64 bits keep their digits here, and go-yaml rounds them
OURS_ALONE = ("!json: unsupported value", "!unsupported map key of type: uint64")  # read here


@together(("text", "answer"), zip(CASES, ANSWERS, strict=True))
def test_a_tag_and_a_scalar_give_what_go_gives(text, answer):
    if not answer.startswith("!"):
        told = json.loads(answer)
        assert is_alike(load(text), told) or is_large(text), told
    elif not answer.startswith(OURS_ALONE):
        words = re.search(r"cannot decode .*|!!binary .*", answer)
        with pytest.raises(YamlError, match=re.escape(words[0]) if words else r"^line [12], column ") as refused:
            load(text)
        assert str(refused.value).startswith("line ")


def is_alike(found, told):
    """Whether the values are equal, and a number or truth in both; JSON has one kind of number."""
    (key, value), (other_key, other) = *found.items(), *told.items()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    same = float(other) == value if isinstance(value, float) else other == value
    return key == other_key and same and (isinstance(other, (int, float)) and not isinstance(other, bool)) == is_number


def is_large(text):
    digits = re.fullmatch(r"(?:a: |\? ) (-?[0-9]{19,}|0x[0-9a-f]{16,})(?:\n: x)?", text)
    return digits is not None and abs(int(digits[1], 16 if "x" in digits[1] else 10)) >= LARGE


def test_numbers_are_floats_if_their_tag_says_so():
    found = load("[!!float 0o17, !!float 0x1F, !!float 3, !!int 0x1F]")
    assert [(one, type(one)) for one in found] == [(15.0, float), (31.0, float), (3.0, float), (31, int)]


def test_a_foreign_text_in_an_error_is_short_and_escaped():
    with pytest.raises(YamlError) as refused:
        load(f'a: !!int "\\e{"x" * 5000}"')
    assert len(str(refused.value)) < 220
    assert "\x1b" not in str(refused.value)
