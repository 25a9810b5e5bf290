"""Moulds: what a text holds whatever words stand in it, read once and filled with the words of one pod after the other.

A *word* is text of letters, digits and signs that mean nothing to YAML, with a first character that begins a plain
scalar; a foreign part may be a word, bare or in double quotes. A scanner of YAML looks at characters by what they may
mean. A word's mean nothing wherever they stand; nor do those of a token, a word around a character for private use. So
with a token in the place of each word the text has the same events, and the values of its scalars are the same with
tokens for words. Where a token's characters are refused and a word's might not be (in tags, anchors, escapes, headers of
blocks), there is no mould. Nor is there one unless every token is found again, once, in a value that has no tag of its
own: keys hide one another and may not be long, tags read their values.

What is read is that text, as if a pod had tokens for words, and under the whole guard. Parts that are no words stand in
it as they are, and are the same in every pod that it serves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from netinit.base.errors import ParseError
from netinit.golang.gojson import to_json
from netinit.golang.goyaml.scalars import resolve
from netinit.golang.template.nodes import Action
from netinit.golang.template.template import Rendering
from netinit.golang.template.values import FunctionError, Shaped
from netinit.inject.guard.outline import KEPT, checked
from netinit.inject.guard.parts import BreakOut

__all__ = ["Mould", "forget_moulds", "mould_of"]

_WORD = re.compile(r'("?)([A-Za-z0-9_/$(][A-Za-z0-9_./%+=$()~@-]*)\1')
_MARK, _ESCAPE = "\ue000", "e000"


class Mould:
    """A tree with tokens in its values; `holes` are those values cut at the tokens, and whether they are plain scalars."""

    def __init__(self, tree: Any, holes: Mapping[str, tuple[list[str], bool]]) -> None:
        self.tree, self.holes = tree, holes

    def filled(self, words: Sequence[str]) -> Any:
        """The tree with these words in the place of the tokens."""
        made: dict[str, Any] = {}
        for hole, (pieces, plain) in self.holes.items():
            text = "".join([words[int(piece)] if at % 2 else piece for at, piece in enumerate(pieces)])
            made[hole] = resolve(text) if plain else text
        return _filled(self.tree, made)


def _filled(value: Any, made: Mapping[str, Any]) -> Any:
    if value.__class__ is dict:  # texts, which most items are, without a call of their own
        return {
            key: made.get(item, item) if item.__class__ is str else _filled(item, made) for key, item in value.items()
        }
    if value.__class__ is list:
        return [made.get(item, item) if item.__class__ is str else _filled(item, made) for item in value]
    return made.get(value, value) if value.__class__ is str else value


def mould_of(rendering: Rendering, places: Sequence[tuple[int, Action]]) -> tuple[Mould | None, list[str]]:
    """The mould of a text whose foreign parts stand at these places, and the words to fill it with; None without one."""
    words: list[str] = []
    if len(rendering.text) > KEPT:
        return None, words
    parts = list(rendering.parts)
    shaped = []
    for place, _ in places:
        text = parts[place]
        if isinstance(text, Shaped):
            if text.form == "yaml":  # how it may stand in the text depends on more than what it says
                return None, words
            try:
                shaped.append((place, text.form, text.lead, to_json(text.tree)))
            except FunctionError:
                return None, words
        elif found := _WORD.fullmatch(text):
            quote, word = found.groups()
            parts[place] = f"{quote}{_MARK}{len(words)}{_MARK}{quote}"
            words.append(word)
    return _made(_Shape(parts, places, (len(words), tuple(shaped)))), words


class _Shape:
    """The parts of a text, tokens in the place of words, and where foreign ones stand; equal where nothing differs."""

    def __init__(self, parts: list[str], places: Sequence[tuple[int, Action]], more: tuple[Any, ...]) -> None:
        self.parts, self.places, self.words = parts, places, more[0]
        self.key = (tuple(parts), tuple([place for place, _ in places]), more)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shape) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=32)
def _made(shape: _Shape) -> Mould | None:
    """The mould of a text of that shape, where words can be filled in; None where the text itself is to be read."""
    text = "".join(shape.parts)
    if text.count(_MARK) != 2 * shape.words or _ESCAPE in text.lower():
        return None
    try:
        tree, found = checked(Rendering(text, shape.parts, []), shape.places)
    except (BreakOut, ParseError):
        return None
    holes: dict[str, tuple[list[str], bool]] = {}
    for event in found:
        if event.__class__ is yaml.ScalarEvent and _MARK in event.value:
            plain = event.implicit[0] and not event.style
            if not plain and event.tag is not None:
                return None
            holes[event.value] = (event.value.split(_MARK), plain)
    tokens = sorted(int(token) for pieces, _ in holes.values() for token in pieces[1::2])
    keys, values = _texts(tree)
    lost = tokens != [*range(shape.words)] or any(_MARK in key for key in keys)
    return None if lost or {value for value in values if _MARK in value} != holes.keys() else Mould(tree, holes)


def forget_moulds() -> None:
    """Lets go of the moulds that are kept."""
    _made.cache_clear()


def _texts(tree: Any) -> tuple[set[str], set[str]]:
    """The keys of the tree, and its values that are texts."""
    keys: set[str] = set()
    values: set[str] = set()
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            keys.update(item)
            todo += item.values()
        elif isinstance(item, list):
            todo += item
        elif isinstance(item, str):
            values.add(item)
    return keys, values
