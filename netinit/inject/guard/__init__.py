"""A pod's values change nothing in a template's output but the scalars that the template puts them in.

A template prints annotations, labels and names into the text of a YAML document, and nothing quotes them on the way. In
plain text a value could end its scalar, add fields (`privileged: true`), and swallow the author's with a second value.
So the text with the values is never parsed. What is parsed is the *outline*, the same text with a placeholder for each
part that a foreign action printed (one that can reach a field of the pod, see `golang.template.origins`):

- The outline depends on the author's text and on the branches taken, but on no character of a value, so its tree is the
  author's. It is built once and kept: the *skeleton*, which serves all pods that take the same branches (`skeleton`).
- Each scalar with placeholders gets its value on its own: words are put in as they are; for any other text the scalar's
  source alone is parsed, with the values in it, and must be exactly one scalar, of the style that the author gave it and
  with the author's words unchanged. One that is a placeholder alone may bring quotes of its own.
- A tree that a function wrote (toYaml, toJson and their kin) becomes a value, or entries of the mapping or the list in
  which it stands, if it is laid out correctly there.
- Keys are the one way to change a field without touching it. So a foreign key may replace only values that are foreign
  too (a list of volumes that bring names of their own), may not be `<<`, and may not stand beside an author's `<<`.
- In a comment a value may not have a line break, nor a character that YAML forbids.

Whatever a value holds, it ends up in its own place or is refused. Types of plain scalars (`80`, `true`, `~`) stay what
the value makes of them, as in Istio.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from netinit.base.errors import NetinitError, ParseError
from netinit.golang.goyaml import events
from netinit.golang.template.nodes import Action
from netinit.golang.template.template import Rendering
from netinit.inject.guard.outline import Outline
from netinit.inject.guard.skeleton import Misfit, forget, skeleton_of

__all__ = ["BreakOut", "Foreign", "forget", "read"]

_MOST_NAMED = 8
"""Culprits that an error names: the first are enough to start with."""


class Foreign:
    """A part of the text that a foreign action printed, and that action."""

    __slots__ = ("action", "text")

    def __init__(self, text: str, action: Action) -> None:
        self.text, self.action = text, action


class BreakOut(NetinitError):  # noqa: N818 - a verdict
    """Foreign parts would change more than their own scalars; the message says where.

    `culprits` are the parts that may be the cause.
    """

    def __init__(self, culprits: Sequence[Foreign], where: str) -> None:
        super().__init__(where)
        self.culprits = culprits


def read(rendering: Rendering) -> Any:
    """The tree of a rendered text; None for an empty one.

    Raises ParseError where the template itself gives no YAML, BreakOut where foreign parts leave their places.
    """
    places = [(place, action) for place, action in rendering.marks if rendering.parts[place]]
    if not places:
        return events.build(events.scan(rendering.text)).document()
    outline = Outline(rendering, places)
    try:
        skeleton = skeleton_of(outline.text, outline.mark)
        if not rendering.text.isascii() and "".join(rendering.parts) != rendering.text:
            raise Misfit("a character that was cut in two", range(len(places)))  # noqa: TRY301 - all refusals end below
        return skeleton.filled(outline.parts)
    except Misfit as problem:
        raise BreakOut(_culprits(rendering, places, outline, problem.numbers), str(problem)) from None
    except ParseError:
        if not _is_yaml(rendering.text):
            raise
        raise BreakOut(_culprits(rendering, places, outline, range(len(places))), "the lines around it") from None


def _is_yaml(text: str) -> bool:
    try:
        events.build(events.scan(text)).document()
    except ParseError:
        return False
    return True


def _culprits(
    rendering: Rendering, places: Sequence[tuple[int, Action]], outline: Outline, numbers: Iterable[int]
) -> list[Foreign]:
    """The parts of these numbers that are no words, each text of an action once; all of them where every one is a word."""
    numbers = list(numbers)
    doubtful = [number for number in numbers if outline.parts[number].word is None] or numbers
    found = dict.fromkeys((rendering.parts[places[number][0]], places[number][1]) for number in doubtful)
    return [Foreign(text, action) for text, action in found][:_MOST_NAMED]
