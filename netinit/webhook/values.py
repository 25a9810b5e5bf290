"""Validate values against the chart's schema: the JSON Schema (draft 7) keywords that it uses. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping

_ANNOTATIONS = ("$schema", "title", "description")
_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("a mapping", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("a text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
}


def find_problems(value: Any, schema: Tree, path: Sequence[str] = ()) -> Iterator[str]:
    """Yield a message for each value that violates the schema, with its path."""
    name = quote(".".join(path)) if path else "the values"
    if "anyOf" in schema:
        if all(any(True for _ in find_problems(value, one, path)) for one in schema["anyOf"]):
            yield f"{name}: {_show(value)} is none of the kinds of value that it may be"
        return
    words, is_type = _TYPES.get(str(schema.get("type")), ("", lambda _: True))
    if not is_type(value):
        yield f"{name}: {_show(value)} must be {words}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{name}: {_show(value)} is none of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str):
        yield from _check_text(value, schema, name)
    elif isinstance(value, int):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{name}: {value} must be from {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"
    elif isinstance(value, list):
        yield from _check_list(value, schema, path)
    elif isinstance(value, dict):
        yield from _check_mapping(value, schema, path)


KEYWORDS = frozenset((
    *_ANNOTATIONS, "anyOf", "type", "enum", "pattern", "minLength", "minimum", "maximum", "uniqueItems", "items", "properties",
    "additionalProperties",
))  # fmt: skip
"""The supported keywords of JSON Schema."""


def _check_list(value: list[Any], schema: Tree, path: Sequence[str]) -> Iterator[str]:
    if schema.get("uniqueItems") and any(one in value[:at] for at, one in enumerate(value)):
        yield f"{quote('.'.join(path))}: {_show(value)} has one of them twice"
    for at, one in enumerate(value):
        yield from find_problems(one, mapping(schema.get("items")), (*path, str(at)))


def _check_mapping(value: Tree, schema: Tree, path: Sequence[str]) -> Iterator[str]:
    known, others = mapping(schema.get("properties")), schema.get("additionalProperties", {})
    for key, one in value.items():
        if key not in known and others is False:
            yield f"{quote('.'.join((*path, key)))} is no value of the chart"
        else:
            yield from find_problems(one, known.get(key, mapping(others)), (*path, key))


def _check_text(value: str, schema: Tree, name: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield f"{name}: it must not be empty"
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{name}: {_show(value)} does not match {schema['pattern']}"


def _show(value: Any) -> str:
    return quote(value if isinstance(value, str) else str(value))
