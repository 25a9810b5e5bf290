"""Confine a pod's values to the scalars of a template's output in which the template prints them.

A template prints annotations, labels and names into YAML without quoting, so a value could end its scalar and add
fields (`privileged: true`). Therefore the text with the values is never parsed, only its *outline*: the text with a
placeholder for each output of a foreign action (one whose output may depend on the pod, see `golang.template.origins`).

- The outline depends on the template and the branches taken, not on a value, so its tree is the template author's. This
  tree, the *skeleton*, is cached for all pods with the same branches.
- Words are inserted into a scalar as they are. With any other text, the scalar's source alone is parsed, and must be
  exactly one scalar of the same style, with the author's words unchanged. A scalar that is only a placeholder may have
  its own quotes.
- A tree that a function wrote (toYaml, toJson) becomes a value, or entries of the surrounding mapping or list, if its
  indentation is correct.
- A foreign key must only replace foreign values, must not be `<<`, and must not be next to an author's `<<`.
- In a comment, a value must not contain a line break or a character that YAML forbids.

The types of plain scalars (`80`, `true`, `~`) follow from the value, as in Istio.
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

_MAX_CULPRITS = 8
"""Maximum number of culprits in an error."""


class Foreign:
    """A text printed by a foreign action, and the action."""

    __slots__ = ("action", "text")

    def __init__(self, text: str, action: Action) -> None:
        self.text, self.action = text, action


class BreakOut(NetinitError):  # noqa: N818 - a verdict
    """Foreign parts would change more than their scalars. The message says where; `culprits`: possible causes."""

    def __init__(self, culprits: Sequence[Foreign], where: str) -> None:
        super().__init__(where)
        self.culprits = culprits


def read(rendering: Rendering) -> Any:
    """Return the tree of a rendered text; None for an empty one.

    Raises ParseError if the template itself renders invalid YAML, and BreakOut.
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
    """Return the parts with these numbers that are not words; all of them if every one is a word."""
    numbers = list(numbers)
    doubtful = [number for number in numbers if outline.parts[number].word is None] or numbers
    found = dict.fromkeys((rendering.parts[places[number][0]], places[number][1]) for number in doubtful)
    return [Foreign(text, action) for text, action in found][:_MAX_CULPRITS]
