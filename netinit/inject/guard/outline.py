"""The outline of a rendered text: tokens in the place of its foreign parts."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from netinit.base.errors import ParseError
from netinit.golang.goyaml import events
from netinit.golang.goyaml.values import pairs_of
from netinit.golang.template.nodes import Action
from netinit.golang.template.template import Rendering
from netinit.golang.template.values import Shaped
from netinit.inject.guard.parts import BreakOut, Foreign, Mismatch, Want, wants
from netinit.inject.guard.reading import Reading

__all__ = ["KEPT", "Outline", "checked"]

_PRIVATE = range(0xE000, 0xF8FF)
_INERT = r"[A-Za-z0-9_/$(](?:[A-Za-z0-9_./%+=$()~@-]|:(?=[A-Za-z0-9/]))*"
"""Text that is part of a scalar wherever it stands: nobody who looks for culprits needs to try it."""
KEPT = 1 << 16
"""Characters of the longest outline that is kept parsed; real ones have 5,000 to 20,000."""
_SUSPECTS = 8
"""How many foreign parts are tried one by one when culprits are looked for."""

kept_wants = functools.lru_cache(maxsize=32)(wants)


def checked(rendering: Rendering, places: Sequence[tuple[int, Action]]) -> tuple[Any, Sequence[Any]]:
    """The tree of a rendered text whose foreign parts, none of them empty, stand at these places, and its events.

    Raises ParseError where the template itself gives no YAML, BreakOut where foreign parts leave their places.
    """
    outline = Outline(rendering, places)
    try:
        wanted = outline.wanted()
    except ParseError:
        if not _is_yaml(rendering.text):
            raise
        raise BreakOut(outline.suspects(), "the lines around it") from None
    try:
        if "".join(rendering.parts) != rendering.text:
            raise Mismatch("a character that was cut in two")  # noqa: TRY301 - all refusals end below
        reading = Reading(rendering.text, wanted, outline.foreign)
        return reading.tree(), reading.events
    except Mismatch as problem:
        culprits = [problem.culprit] if problem.culprit else outline.culprits(wanted)
        raise BreakOut(culprits, str(problem)) from None
    except ParseError as problem:
        # only its place is told: its words may quote the value
        raise BreakOut(outline.culprits(wanted), str(problem).partition(": ")[0]) from None


def _is_yaml(text: str) -> bool:
    try:
        for _ in events.scan(text):
            pass
    except ParseError:
        return False
    return True


class Outline:
    """The text with tokens in the place of its foreign parts."""

    def __init__(self, rendering: Rendering, places: Sequence[tuple[int, Action]]) -> None:
        self.parts = rendering.parts
        text = rendering.text
        self.mark = next((mark for mark in map(chr, _PRIVATE) if mark not in text), "")
        if not self.mark:
            raise ParseError("every character for private use stands in the rendered text")
        self.foreign = [Foreign(place, self.parts[place], action) for place, action in places]
        self.stand_ins = {
            place: _stand_in(self.parts[place], f"{self.mark}{number}{self.mark}")
            for number, (place, _) in enumerate(places)
        }
        _locate(self.parts, self.foreign)

    def wanted(self) -> tuple[Want, ...]:
        """The outline's events. Raises ParseError."""
        text = "".join(self._with({}))
        return kept_wants(text, self.mark) if len(text) <= KEPT else wants(text, self.mark)

    def _with(self, real: dict[int, str]) -> list[str]:
        """The parts, all foreign ones but the real ones replaced by what stands for them."""
        parts = list(self.parts)
        for place, text in (self.stand_ins | real).items():
            parts[place] = text
        return parts

    def suspects(self) -> list[Foreign]:
        """Foreign parts that may break out, each text of an action once; not more than are worth naming."""
        found = {(part.action, part.text): part for part in reversed(self.foreign)}
        doubtful = [part for part in found.values() if not re.fullmatch(_INERT, part.text)]
        return (doubtful or list(found.values()))[: -_SUSPECTS - 1 : -1]

    def culprits(self, wanted: tuple[Want, ...]) -> list[Foreign]:
        """The suspects that break out alone; all of them where none does."""
        suspects = self.suspects()
        return [suspect for suspect in suspects if not self._fits(wanted, suspect)] or suspects

    def _fits(self, wanted: tuple[Want, ...], alone: Foreign) -> bool:
        parts = self._with({alone.place: alone.text})
        shown = [
            Foreign(part.place, parts[part.place], part.action, trusted=part.place != alone.place)
            for part in self.foreign
        ]
        _locate(parts, shown)
        try:
            Reading("".join(parts), wanted, shown).tree()
        except (Mismatch, ParseError):
            return False
        return True


def _locate(parts: Sequence[str], foreign: Sequence[Foreign]) -> None:
    """Marks the foreign parts where they begin."""
    start, done = 0, 0
    for part in foreign:
        start += sum(map(len, parts[done : part.place]))
        done = part.place
        part.start = start


def _stand_in(text: str, token: str) -> str:
    """What stands for a foreign part in the outline: its token, as the entry or item that a written tree begins with."""
    if not isinstance(text, Shaped):
        return token
    if text.form != "yaml":
        return text.lead + token if len(text) > len(text.lead) else text.lead
    rest = text[len(text.rstrip(" \n")) :]
    tail = "\n" + rest.rpartition("\n")[2] if "\n" in rest else ""
    if pairs_of(text.tree):
        return f"{text.lead}{token}: {token}{tail}"
    if isinstance(text.tree, list | tuple) and text.tree:
        return f"{text.lead}- {token}{tail}"
    return text.lead + token + tail
