"""Encode the answers of child processes as JSON: plain values, and netinit's own records by name.

A pod can take over a child inside it, so decoding runs nothing but constructors of netinit's records. Tuples are arrays;
what JSON lacks is an object with one member named after its kind: `{"bytes": "..."}`, `{"dict": [[key, value], ...]}`,
`{"netinit.rules.model:Rule": {field: value}}`.
"""

from __future__ import annotations

import sys

from netinit.base.errors import NetinitError
from netinit.base.net import FAMILIES, Family
from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PLAIN = (bool, int, float, str, type(None))
_COLLECTIONS = {"list": list, "set": set, "frozenset": frozenset}
_PACKAGE = "netinit."


def encode(value: object) -> bytes:
    """Return the value as JSON. Raises TypeError for a value that answers cannot hold."""
    import json

    return json.dumps(_spread(value), separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """Return the value that `encode` wrote. Raises NetinitError for anything else."""
    import json

    try:
        return _gather(json.loads(data))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, ImportError, RecursionError, StopIteration) as error:
        raise NetinitError(f"a child's answer cannot be read: {type(error).__name__}") from None


def _spread(value: object) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return [_spread(one) for one in value]  # type: ignore[attr-defined]
    if kind.__name__ in _COLLECTIONS and kind is _COLLECTIONS[kind.__name__]:
        return {kind.__name__: [_spread(one) for one in value]}  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {"dict": [[_spread(key), _spread(one)] for key, one in value.items()]}
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, Family):
        return {"family": value.version}
    if not kind.__module__.startswith(_PACKAGE):
        raise TypeError(f"a child cannot answer with a {kind.__module__}.{kind.__qualname__}")
    name = f"{kind.__module__}:{kind.__name__}"
    if isinstance(value, tuple):
        return {name: [_spread(one) for one in value]}
    return {name: {field: _spread(getattr(value, field)) for field in _fields(kind)}}


def _gather(tree: Any) -> Any:
    if isinstance(tree, list):
        return tuple([_gather(one) for one in tree])
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind in _COLLECTIONS:
        return _COLLECTIONS[kind](_gather(value))
    if kind == "dict":
        return {_gather(key): _gather(one) for key, one in value}
    if kind == "bytes":
        return value.encode("latin-1")
    if kind == "family":
        return next(family for family in FAMILIES if family.version == value)
    found = _find_class(kind)
    if issubclass(found, tuple):
        return tuple.__new__(found, _gather(value))
    fields = {field: _gather(one) for field, one in value.items()}
    if fields.keys() != set(_fields(found)):
        raise TypeError(kind)
    return found(**fields)


def _find_class(name: str) -> type:
    """Return a record, dataclass or named tuple of netinit. Raises TypeError for anything else."""
    module, _, name = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise TypeError(name)
    __import__(module)
    found = getattr(sys.modules[module], name, None)
    plain = isinstance(found, type) and found.__module__ == module
    if plain and (issubclass(found, (Record, tuple)) or hasattr(found, "__dataclass_fields__")):  # type: ignore[arg-type]
        return found  # type: ignore[return-value]
    raise TypeError(name)


def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(kind._fields if issubclass(kind, Record) else kind.__dataclass_fields__)
