"""Block YAML: the layout that kubectl and Helm print, whatever the values and their quotes.

`write` lays out; what it is given says which pairs a mapping has, in which order, and what a scalar looks like. `dump`
writes plain trees so that no reader misunderstands them; Go's values are written by `goyaml.values`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from netinit.golang.goyaml.text import careful_text

__all__ = ["dump", "write"]

_LONGEST_KEY = 128
"""Bytes of a key that may stand on one line with its value."""
_SPECIAL_FLOATS = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
_WITHOUT_POINT = r"^([-+]?[0-9]+)e"


def write(value: Any, pairs: Callable[[Any], list[tuple[str, Any]]], scalar: Callable[[Any, str], str]) -> str:
    """The value as block YAML, ending in a line feed.

    `pairs` gives the keys and values of a mapping, and nothing for an empty one and for everything else; `scalar` gives
    the text of what is neither a mapping with pairs nor a list with elements, its further lines indented as it is told.
    """
    writer = _Writer(pairs, scalar)
    writer.node(value, "")
    return "".join(writer.parts)


class _Writer:
    """The text so far, and how its values are written."""

    def __init__(self, pairs: Callable[[Any], list[tuple[str, Any]]], scalar: Callable[[Any, str], str]) -> None:
        self.pairs, self.scalar = pairs, scalar
        self.parts: list[str] = []

    def node(self, value: Any, indent: str) -> None:
        """Write the node at the start of a line, whose indentation stands there already."""
        if found := self.pairs(value):
            self.mapping(found, indent)
        elif isinstance(value, (list, tuple)) and value:
            self.sequence(value, indent)
        else:
            self.parts.append(self.scalar(value, indent or "  ") + "\n")

    def mapping(self, found: list[tuple[str, Any]], indent: str) -> None:
        lead = ""
        for key, item in found:
            shown = self.scalar(key, indent + "  ")
            if "\n" in shown or "\r" in key or len(shown.encode()) > _LONGEST_KEY:
                self.parts.append(f"{lead}? {shown}\n{indent}: ")
                self.node(item, indent + "  ")
            else:
                self.parts.append(f"{lead}{shown}:")
                self.behind_key(item, indent)
            lead = indent

    def behind_key(self, value: Any, indent: str) -> None:
        if value.__class__ is not str and (found := self.pairs(value)):
            self.parts.append(f"\n{indent}  ")
            self.mapping(found, indent + "  ")
        elif isinstance(value, (list, tuple)) and value:
            self.parts.append(f"\n{indent}")
            self.sequence(value, indent)
        else:
            self.parts.append(f" {self.scalar(value, indent + '  ')}\n")

    def sequence(self, items: list[Any] | tuple[Any, ...], indent: str) -> None:
        lead = "- "
        for item in items:
            self.parts.append(lead)
            self.node(item, indent + "  ")
            lead = f"{indent}- "


def dump(tree: Any) -> str:
    """The tree as block YAML in the order of its keys; what any reader would take for another type is quoted."""
    return write(tree, _pairs, _scalar)


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return careful_text(value, indent)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return _SPECIAL_FLOATS.get(text) or re.sub(_WITHOUT_POINT, r"\1.0e", text)
    if isinstance(value, dict):
        return "{}"
    return "[]" if isinstance(value, list) else str(value)
