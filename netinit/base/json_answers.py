"""The JSON that commands print and the library's results give: one version, one form."""

from __future__ import annotations

import json
from typing import Any

ANSWER_VERSION = 1  # netinit/data/*.schema.json describes each answer


def with_version(tree: dict[str, Any]) -> dict[str, Any]:
    """Add `version`, which increases when a field is removed or changes its meaning."""
    return {"version": ANSWER_VERSION, **tree}


def to_json(value: Any) -> str:
    """Indented JSON in ASCII, so that foreign text cannot control a terminal."""
    return json.dumps(value, indent=2) + "\n"
