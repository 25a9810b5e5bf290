"""Confine a pod's values to the scalars of a template's output in which the template prints them.

A template prints annotations, labels and names into YAML text without quoting. In plain text a value could end its
scalar, add fields (`privileged: true`), and hide the template's with a second value. So the text with the values is
never parsed. Instead, the *outline* is parsed: the same text with a placeholder for each part printed by a foreign
action (one whose output may depend on a field of the pod, see `golang.template.origins`):

- The outline depends on the template's text and the branches taken, but not on the characters of a value, so its tree is the
  template author's. It is built once and cached: the *skeleton*, shared by all pods with the same branches (`skeleton`).
- Each scalar with placeholders gets its value separately: words are inserted as they are; for any other text only the
  scalar's source is parsed, with the values, and must be exactly one scalar, in the same style, with the author's
  words unchanged. A scalar that is only a placeholder may have quotes of its own.
- A tree written by a function (toYaml, toJson and similar) becomes a value, or entries of the surrounding mapping or list,
  if its indentation is correct there.
- A key could change a field without touching its value. So a foreign key may only replace foreign values (a list of volumes
  with their own names), must not be `<<`, and must not be next to an author's `<<`.
- In a comment, a value must not contain a line break, or a character that YAML forbids.

So every value stays in its place, or is rejected. The types of plain scalars (`80`, `true`, `~`) follow from the value,
as in Istio.
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
"""Maximum number of culprits in an error."""


class Foreign:
    """A text printed by a foreign action, and the action."""

    __slots__ = ("action", "text")

    def __init__(self, text: str, action: Action) -> None:
        self.text, self.action = text, action


class BreakOut(NetinitError):  # noqa: N818 - a verdict
    """Foreign parts would change more than their own scalars. The message says where; `culprits` are possible causes."""

    def __init__(self, culprits: Sequence[Foreign], where: str) -> None:
        super().__init__(where)
        self.culprits = culprits


def read(rendering: Rendering) -> Any:
    """Return the tree of a rendered text; None for an empty one.

    Raises ParseError if the template itself renders invalid YAML, and BreakOut if foreign parts leave their scalars.
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
    """Return the parts with these numbers that are not words, without duplicates; all of them if every one is a word."""
    numbers = list(numbers)
    doubtful = [number for number in numbers if outline.parts[number].word is None] or numbers
    found = dict.fromkeys((rendering.parts[places[number][0]], places[number][1]) for number in doubtful)
    return [Foreign(text, action) for text, action in found][:_MOST_NAMED]
