"""JSON-like trees, which YAML and JSON documents become: dict with string keys, list, str, int, float, bool, None.

Unknown fields are kept, so that objects of newer Kubernetes versions pass through unchanged.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from netinit.base.sanitize import MAX_TEXT_LENGTH, shorten

Tree: TypeAlias = "dict[str, Any]"


def clone(value: Any) -> Any:
    """A deep copy; five times as fast as copy.deepcopy on trees."""
    if isinstance(value, dict):
        return {key: clone(item) if isinstance(item, (dict, list)) else item for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def same(left: Any, right: Any) -> bool:
    """Equality of JSON values: unlike Python's, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


def mapping(value: Any) -> Tree:
    """The value if it is a dict, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def string(value: Any) -> str:
    """A scalar as Go's YAML reader gives it to a string field: `true`, `80`, `1.5`; null is ""."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:  # noqa: PLR2004 - exact in a float
        return str(int(value))
    return str(value)


def shown(value: Any, longest: int = MAX_TEXT_LENGTH) -> str:
    """The value in Python's notation for an error message, cut if long."""
    return repr(shorten(value, longest)) if isinstance(value, str) else shorten(repr(value), longest)


def explain_json_error(error: Exception) -> str:
    """Why json.loads refused a text, with its place; of an integer without Python's remedy, which is none for an author."""
    if "set_int_max_str_digits" in str(error):
        return "an integer has more digits than any field takes"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def strings(value: Any) -> dict[str, str]:
    """A map of strings such as labels: scalars become strings, null ""; lists and maps in it are left out; {} if no map."""
    return {key: string(item) for key, item in mapping(value).items() if not isinstance(item, (dict, list))}
