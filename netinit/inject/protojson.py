"""Decode a tree as protobuf's JSON, as Istio decodes ProxyConfig annotations.

Names are those of JSON (`statusPort`) or the .proto file (`status_port`); unknown ones are ignored, null means not set.
Values are normalized: durations in seconds with 0, 3, 6 or 9 decimals, enumerations by name, 64-bit numbers as strings,
fields in the message's order.
"""

from __future__ import annotations

import re
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, shown
from netinit.golang.template import FunctionError
from netinit.golang.times import NANOSECONDS, parse_duration
from netinit.inject.schema import enum_names, fields_of

_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}
_WHOLE = r"-?(?:0|[1-9][0-9]{0,20})\Z"
_REAL = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?\Z"
_DEFAULTS: tuple[Any, ...] = ("", 0, False)


def duration(text: Any) -> int | None:
    """Parse a Go duration (`45s`, `1m30s`, `1.5h`, `-2s`, `0`) into nanoseconds; None for anything else."""
    try:
        return parse_duration(text) if isinstance(text, str) else None
    except FunctionError:
        return None


def read_message(message: str, tree: Any, path: str = "", *, whole: bool = True) -> Tree:
    """Return the normalized message. Raises ConfigError.

    `whole`: omit default values of fields without presence; otherwise keep them, so that they can replace another
    message's.
    """
    fields = fields_of(message)
    if not isinstance(tree, dict) or fields is None:
        raise ConfigError(f"{path or message}: {shown(tree)} must be a mapping")
    given: dict[str, Any] = {}
    for name, field in fields.items():
        for spelling in (field.proto_name, name):
            if tree.get(spelling) is not None:
                given[name] = tree[spelling]
    result: Tree = {}
    chosen: dict[str, str] = {}
    for name, value in given.items():
        kind, oneof = fields[name][:2]
        where = f"{path}.{name}" if path else name
        read = _read(kind, value, where)
        if oneof:
            result.pop(chosen.get(oneof, ""), None)
            chosen[oneof] = name
        if not whole or has_presence(message, name) or not _is_default(kind, read):
            result[name] = read
    return result


def has_presence(message: str, name: str) -> bool:
    """Whether the field distinguishes its default value from no value."""
    kind, oneof = (fields_of(message) or {})[name][:2]
    return bool(oneof) or kind.endswith("Value") or kind == "Duration" or fields_of(kind) is not None


def _is_default(kind: str, value: Any) -> bool:
    if kind.startswith("enum:"):
        return bool(value == enum_names(kind[5:])[0])
    return value in _DEFAULTS if isinstance(value, (str, int, float)) else not value


def _read(kind: str, value: Any, path: str) -> Any:
    if kind.startswith("[]"):
        if not isinstance(value, list):
            raise ConfigError(f"{path}: {shown(value)} must be a list")
        return [_read(kind[2:], item, f"{path}[{number}]") for number, item in enumerate(value)]
    if kind.startswith("map:"):
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: {shown(value)} must be a map")
        given = {key: "" if value[key] is None and kind == "map:string" else value[key] for key in sorted(value)}
        return {key: _read(kind[4:], item, f"{path}.{key}") for key, item in given.items()}
    if kind.startswith("enum:"):
        return _enum(enum_names(kind[5:]), value, path)
    if (number := kind.removesuffix("Value").lower()) in _RANGES:
        return whole_number(number, value, path)
    if kind == "string" and isinstance(value, str):
        return value
    if kind in {"bool", "BoolValue"} and isinstance(value, bool):
        return value
    if kind == "double":
        return _real_number(value, path)
    if kind == "Duration":
        return _canonical_duration(value, path)
    if fields_of(kind) is not None:
        return read_message(kind, value, path)
    if kind == "Struct" and isinstance(value, dict):
        return value
    wanted = "a text: put it in quotes" if kind == "string" else "true or false"
    raise ConfigError(f"{path}: {shown(value)} must be {wanted}")


def _enum(names: Any, value: Any, path: str) -> Any:
    if isinstance(value, str) and value in names.values():
        return value
    if isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31:
        return names.get(value, value)
    raise ConfigError(f"{path}: {shown(value)} must be one of {', '.join(names.values())}")


def whole_number(kind: str, value: Any, path: str) -> Any:
    """Return a number of this kind, a text for one of 64 bits. Raises ConfigError."""
    low, high = _RANGES[kind]
    spelled = isinstance(value, str) and re.match(_WHOLE, value) is not None
    number = int(value) if spelled or (isinstance(value, float) and value.is_integer()) else value
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise ConfigError(f"{path}: {shown(value)} must be a whole number from {low} to {high}")
    return str(number) if "64" in kind else number


def _real_number(value: Any, path: str) -> int | float:
    number = value
    if isinstance(value, str) and re.match(_REAL, value):
        number = float(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ConfigError(f"{path}: {shown(value)} must be a number")
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _canonical_duration(value: Any, path: str) -> str:
    total = duration(value)
    if total is None:
        raise ConfigError(f"{path}: {shown(value)} is no duration such as 1m30s")
    seconds, rest = divmod(abs(total), NANOSECONDS)
    sign = "-" if total < 0 else ""
    digits = f"{rest:09d}"
    for length in (0, 3, 6, 9):
        if not digits[length:].strip("0"):
            return f"{sign}{seconds}{'.' if length else ''}{digits[:length]}s"
    raise AssertionError(digits)
