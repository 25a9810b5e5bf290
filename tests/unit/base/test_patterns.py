"""Patterns that wait for their first use."""

from __future__ import annotations

import re

import pytest

from netinit.base.patterns import pattern


def test_a_pattern_does_what_a_compiled_one_does():
    found = pattern(r"(?P<word>[a-z]+)\d", re.IGNORECASE)
    assert found.match("Ab1")["word"] == "Ab"
    assert found.fullmatch("ab12") is None
    assert found.search("..x2", 2)["word"] == "x"
    assert found.sub("-", "a1 b2") == "- -"
    assert [item[0] for item in found.finditer("a1 b2")] == ["a1", "b2"]


def test_it_is_compiled_once_and_not_before_it_is_used(monkeypatch):
    compiled = []
    plain = re.compile
    monkeypatch.setattr(re, "compile", lambda *arguments: compiled.append(arguments) or plain(*arguments))
    found = pattern("a+")
    assert compiled == []
    assert (found.match("aa")[0], found.search("baa")[0]) == ("aa", "aa")
    assert compiled == [("a+", 0)]


def test_an_error_in_it_shows_at_the_first_use():
    found = pattern("(")
    with pytest.raises(re.error):
        found.match("")


def test_it_says_what_it_has():
    with pytest.raises(AttributeError, match="a pattern has no split; it has finditer"):
        pattern("a").split("b")
