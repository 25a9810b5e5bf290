"""What is generated from the chart: from the schema its values.yaml and a table, from its alerts their descriptions."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHART = Path(__file__).parents[1] / "netinit" / "data" / "chart"
VALUES = "netinit/data/chart/values.yaml"
HEAD = """\
# The values of the chart netinit: an admission webhook that injects sidecars, and an agent that programs pods from their node.
# `netinit webhook manifests` prints the same objects without Helm; every value can be set there with --set.
# Generated from values.schema.json, which says what each value may be.
"""
_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9./_-]*|[0-9]+[A-Za-z]+[A-Za-z0-9]*")
_TYPED = {"true", "false", "null", "on", "off", "yes", "no", "y", "n"}  # what YAML 1.1 does not read as a text
_MARKUP = str.maketrans({"|": "\\|", "\n": " "})


def render_alerts() -> str:
    """A section for each alert: when it fires, how severe it is, and what to do."""
    groups = json.loads((CHART / "alerts.json").read_text("utf-8"))["groups"]
    return "\n".join(f"### {one['alert']}\n\n{_describe_alert(one)}\n" for group in groups for one in group["rules"])


def _describe_alert(alert: dict[str, Any]) -> str:
    text = alert["annotations"]["description"].replace("@NAMESPACE@", "NAMESPACE").replace("@NODE@", "RELEASE-node")
    expression = alert["expr"].replace("@NAMESPACE@", "NAMESPACE").replace("@NODE@", "RELEASE-node")
    return f"{alert['labels']['severity'].capitalize()}, after {alert['for']}. {text}\n\n```text\n{expression}\n```"


def read_schema() -> dict[str, Any]:
    """The schema of the chart's values."""
    return json.loads((CHART / "values.schema.json").read_text("utf-8"))


def flow(value: Any) -> str:
    """A value in YAML's flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _TYPED:
        return value
    return json.dumps(value)


def is_group(schema: dict[str, Any]) -> bool:
    """Whether this is a group of values with names of their own, and not one value."""
    return "default" not in schema and "properties" in schema


def render_values() -> str:
    """The chart's values.yaml: each value with its default, under its description."""
    return HEAD + "".join(_render_group(read_schema(), ""))


def _render_group(schema: dict[str, Any], indent: str) -> Iterator[str]:
    for name, one in schema["properties"].items():
        if not is_group(one) and "default" not in one:
            continue
        if not indent:
            yield "\n"
        yield "".join(f"{indent}# {line}\n" for line in textwrap.wrap(_describe(one).replace("`", ""), _WIDTH - len(indent)))
        if is_group(one):
            yield f"{indent}{name}:\n"
            yield from _render_group(one, f"{indent}  ")
        else:
            yield f"{indent}{name}: {flow(one['default'])}\n"


def _describe(schema: dict[str, Any]) -> str:
    names = [flow(one) for one in schema.get("enum", ()) if one != ""]
    told = schema["description"]
    return f"{told} One of {', '.join(names)}." if names and not all(f"`{name}`" in told for name in names) else told


def render_table() -> str:
    """A table of all values: name, default, meaning."""
    rows = "".join(f"| `{name}` | {default} | {text} |\n" for name, default, text in _list_values(read_schema(), ()))
    return f"| value | default | what it is |\n| --- | --- | --- |\n{rows}"


def _list_values(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for name, one in schema["properties"].items():
        told = _describe(one).translate(_MARKUP)
        if is_group(one):
            yield ".".join((*path, name)), "", told
            yield from _list_values(one, (*path, name))
        else:
            default = one.get("default")
            yield ".".join((*path, name)), "" if default in ("", {}, [], None) else f"`{flow(default)}`", told
