"""Write block YAML in the layout of kubectl and Helm."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from netinit.golang.goyaml.text import careful_text

_MAX_KEY = 128
"""Bytes of a key that is on one line with its value."""
_SPECIAL_FLOATS = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
_WITHOUT_POINT = r"^([-+]?[0-9]+)e"


def write(value: Any, pairs: Callable[[Any], list[tuple[str, Any]]], scalar: Callable[[Any, str], str]) -> str:
    """Write the value as block YAML with a final line feed.

    `pairs` returns the keys and values of a mapping; empty for anything else. `scalar` writes everything but non-empty
    mappings and lists; it gets the indentation of further lines.
    """
    writer = _Writer(pairs, scalar)
    writer.node(value, "")
    return "".join(writer.parts)


class _Writer:
    def __init__(self, pairs: Callable[[Any], list[tuple[str, Any]]], scalar: Callable[[Any, str], str]) -> None:
        self.pairs, self.scalar = pairs, scalar
        self.parts: list[str] = []

    def node(self, value: Any, indent: str) -> None:
        """Write a node after its indentation."""
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
            if "\n" in shown or "\r" in key or len(shown.encode()) > _MAX_KEY:
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
    """Write a tree as block YAML, keys in their order; ambiguous text is quoted."""
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
