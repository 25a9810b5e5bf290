"""The JSON schema of the file of options (--config), derived from the declarations: netinit/data/config.schema.json."""

from __future__ import annotations

from typing import Any

from netinit.options import kinds
from netinit.options.file import OF_LISTS, known_flags
from netinit.options.kinds import Flag


def make_schema() -> dict[str, Any]:
    """Return the JSON schema of the file, derived from the declarations."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Options of netinit apply",
        "type": "object", "additionalProperties": False,
        "properties": {"$schema": {"type": "string"}, **{name: _describe(flag) for name, flag in known_flags().items()}},
    }  # fmt: skip


def _describe(flag: Flag) -> dict[str, Any]:
    scalars: dict[str, Any] = {"type": ["string", "integer"]}
    if flag.kind is kinds.SWITCH:
        return {"type": "boolean", "description": flag.help}
    if flag.kind.words:
        words: list[Any] = [word for word in flag.kind.words if word]
        return {"enum": words + ([True, False] if "on" in words else []), "description": flag.help}
    if flag.kind.write in OF_LISTS:
        return {"anyOf": [scalars, {"type": "array", "items": scalars}], "description": flag.help}
    return {**scalars, "description": flag.help}
