"""Render the Helm chart with netinit's own template engine, and validate values against its schema. Pure.

The chart uses only what both engines support: sprig, `template` instead of `include`, flow-style maps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from netinit.base.errors import ConfigError, ParseError, TemplateError
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, clone, mapping, string
from netinit.golang import goyaml
from netinit.golang.sprig import FUNCTIONS
from netinit.golang.template import Struct, Template
from netinit.inject.config import with_floats

_ORDER = (  # webhooks last, after their server
    "rbac.yaml", "certificate.yaml", "service.yaml", "availability.yaml", "dashboard.yaml", "injection.yaml", "deployment.yaml",
    "node.yaml", "webhooks.yaml",
)  # fmt: skip


def render(files: Mapping[str, str], values: Tree, *, name: str, namespace: str, service: str = "netinit") -> list[Tree]:
    """Return the chart's objects. `files`: content by path in the chart. Raises ConfigError."""
    chart = mapping(goyaml.load(files["Chart.yaml"]))
    own = {name: string(chart.get(key)) for name, key in (("Name", "name"), ("Version", "version"), ("AppVersion", "appVersion"))}
    data = {
        "Values": with_floats(values),
        "Release": {"Name": name, "Namespace": namespace, "Service": service},
        "Chart": own,
        "Files": Struct("engine.files", {}, {"Get": lambda path: files.get(path, "")}),
    }
    helpers = "".join(text for path, text in sorted(files.items()) if path.startswith("templates/_"))
    objects: list[Tree] = []
    for path in _ORDER:
        text = helpers + files[f"templates/{path}"]
        try:
            rendered = Template(f"{own['Name']}/templates/{path}", text, functions=FUNCTIONS).render(data)
            objects += [tree for tree in goyaml.load_all(rendered) if isinstance(tree, dict)]
        except (TemplateError, ParseError) as error:
            raise ConfigError(f"the chart's {path} cannot be rendered with these values: {error}") from error
    return objects


def merge_values(base: Tree, more: Tree, label: str, schema: Tree, path: Sequence[str] = ()) -> Tree:
    """Merge `more` over `base` as Helm does. Raises ConfigError, naming `label`, for keys not in the schema."""
    result: Tree = clone(base)
    known = mapping(schema.get("properties"))
    for key, value in more.items():
        name = quote(".".join((*path, key)))
        if schema.get("additionalProperties") is False and key not in known:
            near = get_close_matches(key, list(known))
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise ConfigError(f"{label}: {name} is no value of the chart; {hint}")
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            result[key] = merge_values(base[key], value, label, mapping(known.get(key)), (*path, key))
        else:
            result[key] = clone(value)
    return result


def set_value(text: str) -> Tree:
    """Parse `--set a.b=value`; the value is YAML. Raises ConfigError."""
    keys, equals, value = text.partition("=")
    if not equals or not all(keys.split(".")):
        raise ConfigError(f"--set: {quote(text)} is not KEY=VALUE, such as webhook.failurePolicy=Ignore")
    try:
        read: Any = goyaml.load(value) if value else ""
    except ParseError as error:
        raise ConfigError(f"--set: the value of {quote(keys)} is not YAML: {error}") from error
    for key in reversed(keys.split(".")):
        read = {key: read}
    return mapping(read)


# ---- the schema: the keywords of JSON Schema (draft 7) that it uses ------------------------------------------------------

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
