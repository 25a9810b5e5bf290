"""The outline of a rendered text: placeholders instead of what foreign actions printed."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from netinit.base.errors import ParseError
from netinit.golang.goyaml.values import pairs_of
from netinit.golang.template.nodes import Action
from netinit.golang.template.template import Rendering
from netinit.golang.template.values import Shaped

_MARKS = {chr(code): f"{code:x}" for code in range(0xE000, 0xE010)}
"""Candidates for the mark: private-use characters, which texts rarely contain, with their code in an escape."""
_WORD = re.compile(r'([A-Za-z0-9_/$(](?:[A-Za-z0-9_./%+=$()~@-]|:(?=[A-Za-z0-9/]))*)|"([ !#-\[\]-~]*)"')
"""Text that YAML reads literally in any scalar, or text in double quotes without escapes."""
_MAX_WORD = 256
"""Maximum characters of a word: YAML limits simple keys to 1,024, so longer text is parsed."""


class ForeignPart:
    """The output of a foreign action.

    `text`: without the indentation of an indenting function. `source`: the part that the outline replaces by a
    placeholder, or by the first entry or item of a written mapping or list. `word`: the text, if YAML reads it
    literally in any scalar. `quoted`: the content of its double quotes. `kind`: if a function wrote a whole `tree`,
    "json", or "mapping", "list" or "scalar" (also for empty ones) in YAML; else "".
    """

    word: str | None
    quoted: str | None

    __slots__ = ("kind", "quoted", "source", "text", "tree", "word")

    def __init__(self, text: str, kind: str = "", tail: str = "", tree: Any = None) -> None:
        self.text, self.kind, self.tree = text, kind, tree
        self.source = text.removesuffix(tail)
        found = _WORD.fullmatch(text) if len(text) <= _MAX_WORD else None
        self.word, self.quoted = found.group(1, 2) if found else (None, None)


_part = functools.lru_cache(maxsize=1024)(ForeignPart)


class Outline:
    """A rendered text with placeholders for its non-empty foreign parts.

    A placeholder is a part's number between two `mark`s, a character that the text does not contain.
    """

    def __init__(self, rendering: Rendering, places: Sequence[tuple[int, Action]]) -> None:
        text = rendering.text.lower()
        self.mark = next((mark for mark, escaped in _MARKS.items() if mark not in text and escaped not in text), "")
        if not self.mark:
            raise ParseError("the characters U+E000 to U+E00F, reserved for placeholders, all stand in the rendered text")
        self.parts: list[ForeignPart] = []
        parts = list(rendering.parts)
        for number, (place, _) in enumerate(places):
            printed, placeholder = parts[place], f"{self.mark}{number}{self.mark}"
            if isinstance(printed, Shaped):
                parts[place] = self._add(printed, placeholder)
            else:
                self.parts.append((_part if len(printed) <= _MAX_WORD else ForeignPart)(printed))
                parts[place] = placeholder
        self.text = "".join(parts)

    def _add(self, printed: Shaped, placeholder: str) -> str:
        """Add a part with known layout; return its replacement in the outline."""
        kind, tail, stand_in = "", "", placeholder
        if printed.form == "json":
            kind = "json"
        elif printed.form == "yaml":
            blanks = printed[len(printed.rstrip(" \n")) :]
            tail = "\n" + blanks.rpartition("\n")[2] if "\n" in blanks else ""
            kind = "scalar"
            if pairs_of(printed.tree):
                kind, stand_in = "mapping", f"{placeholder}: {placeholder}"
            elif isinstance(printed.tree, list | tuple) and printed.tree:
                kind, stand_in = "list", f"- {placeholder}"
        part = ForeignPart(str(printed[len(printed.lead) :]), kind, tail, printed.tree)
        self.parts.append(part)
        return printed.lead + stand_in + tail if part.text else printed.lead
