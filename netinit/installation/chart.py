"""Render the Helm chart with netinit's own template engine, and validate values against its schema. Pure.

The chart uses only what both engines support: sprig, `template` instead of `include`, flow-style maps.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.sanitize import quote, shorten
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.golang import goyaml
from netinit.golang.errors import TemplateError, YamlError
from netinit.golang.sprig import FUNCTIONS
from netinit.golang.template import Struct, Template
from netinit.inject.adding.config import with_floats

_ORDER = (  # webhooks last, after their server
    "quota.yaml", "rbac.yaml", "certificate.yaml", "service.yaml", "availability.yaml", "dashboard.yaml",
    "monitoring.yaml", "injection.yaml", "deployment.yaml", "node.yaml", "policies.yaml", "webhooks.yaml",
)  # fmt: skip


def render(files: Mapping[str, str], values: Tree, *, name: str, namespace: str, service: str = "netinit") -> list[Tree]:
    """Return the chart's objects. `files`: content by path in the chart. Raises ConfigError."""
    chart = mapping(goyaml.load(files["Chart.yaml"]))
    own = {name: string(chart.get(key)) for name, key in (("Name", "name"), ("Version", "version"), ("AppVersion", "appVersion"))}
    data = {
        "Values": with_floats(values),
        "Release": {"Name": name, "Namespace": namespace, "Service": service},
        "Chart": own,
        "Capabilities": {"APIVersions": Struct("chartutil.VersionSet", {}, {"Has": lambda _: False})},  # no cluster is asked
        "Files": Struct("engine.files", {}, {"Get": lambda path: files.get(path, "")}),
    }
    helpers = "".join(text for path, text in sorted(files.items()) if path.startswith("templates/_"))
    objects: list[Tree] = []
    for path in _ORDER:
        text = helpers + files[f"templates/{path}"]
        try:
            rendered = _parse(f"{own['Name']}/templates/{path}", text).render(data)
            objects += [tree for tree in goyaml.load_all(rendered) if isinstance(tree, dict)]
        except (TemplateError, YamlError) as error:
            raise ConfigError(f"the chart's {path} cannot be rendered with these values: {error}") from error
    return objects


def to_yaml(objects: Iterable[Tree]) -> str:
    """Format objects as a stream of YAML documents."""
    return "---\n".join(map(goyaml.dump, objects))


@functools.lru_cache(maxsize=32)  # more than the chart has files
def _parse(name: str, text: str) -> Template:
    return Template(name, text, functions=FUNCTIONS)


# ---- the schema: the keywords of JSON Schema (draft 7) that it uses ------------------------------------------------------

_ANNOTATIONS = ("$schema", "title", "description", "default", "definitions")
_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("a mapping", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("a text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "number": ("a number", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)),
    "integer": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
}
_LIMITS: Mapping[str, tuple[type, Callable[[Any, Any], bool], str]] = {  # keyword: what it is for, what holds, and else the problem
    "enum": (object, lambda value, known: json.dumps(value) in map(json.dumps, known), "{value} is not one of {limit}"),
    "minLength": (str, lambda value, least: len(value) >= least, "it must not be empty"),
    "pattern": (str, lambda value, pattern: bool(_compile(pattern).search(value)), "{value} does not match {limit}"),
    "minimum": (int, lambda value, least: value >= least, "{number} must be from {limit} to {maximum}"),
    "maximum": (int, lambda value, most: value <= most, "{number} must be from {minimum} to {limit}"),
    "uniqueItems": (list, lambda value, _: not any(value.count(one) > 1 for one in value), "{value} has one of them twice"),
}
KEYWORDS = frozenset((*_ANNOTATIONS, *_LIMITS, "$ref", "anyOf", "type", "items", "properties", "additionalProperties", "required"))
"""The supported keywords of JSON Schema."""


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern whose `$` means the end of the text, as for Helm; Python's also matches before a last newline."""
    return re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern)


def _inline(schema: Any, definitions: Tree) -> Any:
    """Return the schema with its definitions in place of the references to them."""
    if isinstance(schema, list):
        return [_inline(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return definitions[str(schema["$ref"]).removeprefix("#/definitions/")]
    return {key: _inline(one, definitions) for key, one in schema.items() if key != "definitions"}


def find_problems(value: Any, schema: Tree, path: Sequence[str] = (), *, whole: bool = True) -> Iterator[str]:
    """Yield a message for each value that violates the schema, with its path. `whole`: values that are missing too."""
    if "definitions" in schema:
        schema = _inline(schema, mapping(schema["definitions"]))
    name = quote(".".join(path)) if path else "the values"
    shown = quote(value) if isinstance(value, str) else shorten(json.dumps(value, default=str))
    if "anyOf" in schema:
        if all(any(True for _ in find_problems(value, one, path, whole=whole)) for one in schema["anyOf"]):
            yield f"{name}: {shown} must be {schema['title']}" if "title" in schema else f"{name}: {shown} is not of an allowed type"
        return
    words, is_type = _TYPES.get(str(schema.get("type")), ("", lambda _: True))
    if not is_type(value):
        yield f"{name}: {shown} must be {words}"
        return
    for keyword, (kind, holds, problem) in _LIMITS.items():
        if keyword in schema and isinstance(value, kind) and not holds(value, schema[keyword]):
            limit = ", ".join([str(one) or '""' for one in schema[keyword]]) if keyword == "enum" else schema[keyword]
            given = {"minimum": "any", "maximum": "any", **schema, "value": shown, "number": value, "limit": limit}
            yield f"{name}: {problem.format(**given)}"
            return
    if whole and isinstance(value, dict):
        missing = [key for key in schema.get("required", ()) if key not in value]
        yield from (f"{quote('.'.join((*path, key)))} has no value; give one, for null removes the chart's default" for key in missing)
    known, others = mapping(schema.get("properties")), schema.get("additionalProperties", {})
    for key, one in mapping(value).items():
        if key not in known and others is False:
            near = get_close_matches(key, list(known))
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            yield f"{quote('.'.join((*path, key)))} is not a value of the chart; {hint}"
        else:
            yield from find_problems(one, known.get(key, mapping(others)), (*path, key), whole=whole)
    for at, one in enumerate(sequence(value)):
        yield from find_problems(one, mapping(schema.get("items")), (*path, str(at)), whole=whole)
