"""Encode Go values as JSON, byte for byte like Go's encoding/json.

HTML's special characters are escaped. Structs have their non-empty fields in order, in lower camel case; maps are
sorted or in their own order.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

from netinit.golang.template.limits import measure
from netinit.golang.template.literals import format_float
from netinit.golang.template.values import NO_VALUE, FunctionError, Struct, type_name

_BEYOND: Final = "[\u2028\u2029\ud800-\udfff]"
_ESCAPES: Final = {"\u2028": "\\u2028", "\u2029": "\\u2029"}
_LARGE: Final = 1e21
_SMALL: Final = 1e-6
_Put: TypeAlias = "Callable[[str], None]"


def to_json(value: Any, *, indent: str = "", sort: bool = True) -> str:
    """As `encode`, for templates: sorted by default. Raises FunctionError, also if the value is too large."""
    measure(value)
    return encode(value, indent=indent, sort=sort)


def encode(value: Any, *, indent: str = "", sort: bool = False) -> str:
    """Encode a value as JSON. Raises FunctionError if Go cannot encode it.

    `indent`: one element per line, with this indentation. `sort`: sort the keys of maps.
    """
    found: list[str] = []
    _write(found.append, value, indent, "\n", sort=sort)
    return "".join(found)


def json_float(value: float) -> str:
    """Format a float like Go's JSON: only very large or small values have an exponent.

    Raises FunctionError for NaN and infinity.
    """
    if math.isnan(value) or math.isinf(value):
        raise FunctionError(f"json: unsupported value: {format_float(value, 'g')}")
    if value and not _SMALL <= abs(value) < _LARGE:
        return format_float(value, "e").replace("e-0", "e-")
    return format_float(value, "f")


def _quoted(text: str) -> str:
    quoted = encode_basestring(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    if quoted.isascii():
        return quoted
    return re.sub(_BEYOND, lambda found: _ESCAPES.get(found[0], "\\ufffd"), quoted)


def _write(put: _Put, value: Any, indent: str, newline: str, *, sort: bool) -> None:
    if isinstance(value, str):
        put(_quoted(value))
    elif isinstance(value, dict) and not getattr(value, "nil", False):
        colon = ": " if indent else ":"
        pairs = ((_quoted(str(key)) + colon, value[key]) for key in (sorted(value) if sort else value))
        _write_items(put, "{}", pairs, indent, newline, sort=sort)
    elif value is None or value is NO_VALUE or getattr(value, "nil", False):
        put("null")
    elif isinstance(value, bool):
        put("true" if value else "false")
    elif isinstance(value, int):
        put(int.__repr__(value))
    elif isinstance(value, float):
        put(json_float(value))
    elif isinstance(value, bytes):
        put(_quoted(binascii.b2a_base64(value, newline=False).decode()))
    elif isinstance(value, (list, tuple)):
        _write_items(put, "[]", (("", item) for item in value), indent, newline, sort=sort)
    elif isinstance(value, Struct):
        _write(put, value.go_json(), indent, newline, sort=False)
    else:
        raise FunctionError(f"json: unsupported type: {type_name(value)}")


def _write_items(
    put: _Put, brackets: str, items: Iterable[tuple[str, Any]], indent: str, newline: str, *, sort: bool
) -> None:
    inner = newline + indent if indent else ""
    lead = brackets[0] + inner
    for key, item in items:
        put(lead + key)
        _write(put, item, indent, newline + indent, sort=sort)
        lead = "," + inner
    put(brackets if lead[0] == brackets[0] else (newline if indent else "") + brackets[1])


def from_json(text: str, make_map: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Decode JSON, with all numbers as floats, as in Go; `make_map` converts each map. Raises ValueError."""
    try:
        return json.loads(text, parse_int=float, parse_constant=_refuse, object_hook=make_map)
    except RecursionError:
        raise ValueError("exceeded max depth") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"invalid character {name[0]!r} looking for beginning of value")
