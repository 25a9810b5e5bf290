"""Render the Helm chart with netinit's own template engine. Pure.

The chart uses only what both engines support: sprig, `template` instead of `include`, flow-style maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    "rbac.yaml",
    "certificate.yaml",
    "service.yaml",
    "availability.yaml",
    "dashboard.yaml",
    "injection.yaml",
    "deployment.yaml",
    "node.yaml",
    "webhooks.yaml",
)


def render(
    files: Mapping[str, str], values: Tree, *, name: str, namespace: str, service: str = "netinit"
) -> list[Tree]:
    """Return the chart's objects. `files`: content by path in the chart. Raises ConfigError."""
    chart = mapping(goyaml.load(files["Chart.yaml"]))
    own = {
        "Name": string(chart.get("name")),
        "Version": string(chart.get("version")),
        "AppVersion": string(chart.get("appVersion")),
    }
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
            rendered = Template.parse(f"{own['Name']}/templates/{path}", text, functions=FUNCTIONS).render(data)
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
