"""The base class of netinit's immutable records.

Importing dataclasses takes 15 ms at each start of an init container, and generates code per class; here one constructor
serves all classes. Type checkers treat records as frozen, keyword-only dataclasses (PEP 681).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from abc import ABCMeta
    from typing import Any, NoReturn, Self, dataclass_transform
else:
    ABCMeta = type  # for the type checker; creating classes with the real ABCMeta takes twice as long

    def dataclass_transform(**_: object):  # noqa: ANN201 - a stand-in that type checkers never see
        """Return a decorator that changes nothing."""
        return lambda decorated: decorated


class RecordType(ABCMeta):
    """Collects a class's annotations as its fields; those with a value are optional."""

    _fields: tuple[str, ...]
    _names: frozenset[str]
    _required: frozenset[str]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RecordType:  # noqa: PYI034 - a metaclass
        """Create a class with its fields, inherited ones first."""
        base: Any = bases[-1] if bases else None  # records have at most one base, a record
        own = tuple([field for field in namespace.get("__annotations__", ()) if field[0] != "_"])
        fields = base._fields + own if base else own
        required = (*base._required, *own) if base else own  # noqa: SLF001 - a record too
        namespace["_fields"] = fields
        namespace["_names"] = frozenset(fields)
        namespace["_required"] = frozenset([field for field in required if field not in namespace])
        return super().__new__(mcs, name, bases, namespace)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record(metaclass=RecordType):
    """A record with fields set once, by keyword; equal to another of its class with equal fields."""

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        if not cls._required <= values.keys() <= cls._names:
            _complain(cls, values)
        self.__dict__.update(values)

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {field} cannot be set")

    def __delattr__(self, field: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {field} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._values()))

    def __repr__(self) -> str:
        pairs = (f"{field}={getattr(self, field)!r}" for field in type(self)._fields)
        return f"{type(self).__name__}({', '.join(pairs)})"

    def __getstate__(self) -> dict[str, object]:
        return {field: getattr(self, field) for field in type(self)._fields}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def _values(self) -> tuple[object, ...]:
        return tuple([getattr(self, field) for field in type(self)._fields])

    def replace(self, **changes: Any) -> Self:
        """A copy with new values for the given fields."""
        return type(self)(**{**self.__getstate__(), **changes})


def _complain(cls: RecordType, given: dict[str, Any]) -> NoReturn:
    unknown = [field for field in given if field not in cls._names]
    if unknown:
        raise TypeError(f"{cls.__name__} has no field {', '.join(unknown)}")
    missing = [field for field in cls._fields if field in cls._required and field not in given]
    raise TypeError(f"{cls.__name__}: {', '.join(missing)} is missing")
