"""The outline of a rendered text: placeholders where foreign actions printed."""

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

__all__ = ["ForeignPart", "Outline"]

_MARKS = {chr(code): f"{code:x}" for code in range(0xE000, 0xE010)}
"""Characters for private use, and how an escape in a template would name them. Texts have none of them; 16 leave a choice."""
_WORD = re.compile(r'([A-Za-z0-9_/$(](?:[A-Za-z0-9_./%+=$()~@-]|:(?=[A-Za-z0-9/]))*)|"([ !#-\[\]-~]*)"')
"""Text that YAML reads literally inside of any scalar, and text in double quotes without escapes."""
_LONGEST_WORD = 256
"""Characters of the longest word: YAML reads no key of more than 1,024, so longer text is parsed."""


class ForeignPart:
    """What a foreign action printed.

    `text` is what was printed, without the blanks that an indenting function put before it, and `source` the part of it
    that the outline has something in place of: a placeholder, or the entry or item that a written mapping or list begins with.
    `word` is the text if YAML reads it literally anywhere, `quoted` what is between its quotes if it is in double quotes.
    `kind` is "json", or for YAML "mapping", "list" or "scalar", where the text is the whole of a `tree` that a function
    wrote, else "". Empty mappings and lists count as scalars: they are one word.
    """

    word: str | None
    quoted: str | None

    __slots__ = ("kind", "quoted", "source", "text", "tree", "word")

    def __init__(self, text: str, kind: str = "", tail: str = "", tree: Any = None) -> None:
        self.text, self.kind, self.tree = text, kind, tree
        self.source = text.removesuffix(tail)
        found = _WORD.fullmatch(text) if len(text) <= _LONGEST_WORD else None
        self.word, self.quoted = found.group(1, 2) if found else (None, None)


_part = functools.lru_cache(maxsize=1024)(ForeignPart)


class Outline:
    """A rendered text with placeholders for the parts at these places, none of which is empty.

    A placeholder is the number of a part between two `mark`s, a character that the text neither has nor escapes.
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
                self.parts.append((_part if len(printed) <= _LONGEST_WORD else ForeignPart)(printed))
                parts[place] = placeholder
        self.text = "".join(parts)

    def _add(self, printed: Shaped, placeholder: str) -> str:
        """Add a part of known layout; returns what the outline has in its place."""
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
