"""Protobuf messages as template data: Go fields, getters that accept nil, text and JSON formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, sequence, strings
from netinit.golang.durations import NANOSECONDS
from netinit.golang.template.literals import quote
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    Enum,
    FunctionError,
    Int32,
    Int64,
    StringMap,
    Struct,
    TypedList,
    TypedMap,
)
from netinit.inject.protojson import duration, read_message
from netinit.inject.schema import SCALARS, LazyMapping, MessageField, enum_names, fields_of, go_name, go_type


class Message(Struct):
    """A pointer to a message; nil without a tree. `given`: values of Go fields that replace the tree's."""

    def __init__(self, name: str, tree: Tree | None, given: Mapping[str, Any] | None = None) -> None:
        self.name, self.tree = name, mapping(tree)
        self._given = given or {}
        described = fields_of(name) or {}
        self._by_go_name = {field.go_name: (json_name, field) for json_name, field in described.items()}
        oneofs = {go_name(field.oneof): field.oneof for field in described.values() if field.oneof}
        self._oneofs = oneofs
        names = {go_name(field.oneof) if field.oneof else field.go_name: None for field in described.values()}
        getters = {f"Get{member}": None for member in (*self._by_go_name, *oneofs)}
        super().__init__(
            f"*{go_type(name)}",
            LazyMapping({**names, **self._given}, self._field),
            LazyMapping({**getters, "String": None}, self._method),
            nil=tree is None,
        )

    def go_json(self) -> Any:
        """Return the message in protobuf's JSON."""
        try:
            return None if self.nil else read_message(self.name, self.tree)
        except ConfigError as error:
            raise FunctionError(f"json: {error}") from None

    def _field(self, name: str) -> Any:
        if name in self._given:
            return self._given[name]
        if name in self._oneofs:
            return self._chosen(self._oneofs[name])
        json_name, field = self._by_go_name[name]
        return _value(field.kind, self.tree.get(json_name, self.tree.get(field.proto_name)))

    def _method(self, name: str) -> Callable[[], Any]:
        if name == "String":
            return self._text
        member = name.removeprefix("Get")
        value = self.fields[member] if member in self.fields else self._field(member)
        return lambda: value

    def _chosen(self, oneof: str) -> Any:
        for name, (json_name, field) in self._by_go_name.items():
            if field.oneof == oneof and self.tree.get(json_name) is not None:
                return Struct(f"*{go_type(self.name)}_{name}", {name: self._field(name)})
        return None

    def _text(self) -> str:
        if self.nil:
            return "<nil>"
        written = (self._entry(name, field) for name, (_, field) in self._by_go_name.items())
        return " ".join(entry for entry in written if entry)

    def _entry(self, name: str, field: MessageField) -> str:
        if field.oneof and self.fields[go_name(field.oneof)] is None:
            return ""
        value = self._field(name)
        if isinstance(value, dict):
            pairs = sorted(value.items())
            return " ".join(f"{field.proto_name}:{{key:{quote(key)} value:{_scalar(item)}}}" for key, item in pairs)
        if isinstance(value, list):
            return " ".join(f"{field.proto_name}:{_scalar(item)}" for item in value)
        return f"{field.proto_name}:{_scalar(value)}" if value or field.oneof else ""


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    return f"{{{sprint(value)}}}" if isinstance(value, Struct) else sprint(value)


def _value(kind: str, raw: Any) -> Any:
    """Return a field's value; the type's zero value if it is absent or of another type."""
    if kind in SCALARS:
        return SCALARS[kind](raw)
    if kind == "Duration":
        return _duration(raw)
    if kind.endswith("Value"):  # a wrapper, such as Int32Value
        scalar = SCALARS[kind.removesuffix("Value").lower()]
        return _well_known(f"wrapperspb.{kind}", {"Value": scalar(raw)}, nil=raw is None)
    if kind.startswith("enum:"):
        return _enum(kind[5:], raw)
    if kind.startswith("[]"):
        items = (_value(kind[2:], item) for item in sequence(raw))
        return TypedList(items, go_type=f"[]{_go_kind(kind[2:])}", nil=raw is None)
    if kind == "map:string":
        return StringMap(strings(raw), nil=raw is None)
    if kind.startswith("map:"):
        entries = {key: _value(kind[4:], item) for key, item in mapping(raw).items()}
        return TypedMap(
            entries, go_type=f"map[string]{_go_kind(kind[4:])}", zero=_value(kind[4:], None), nil=raw is None
        )
    if fields_of(kind) is not None:
        return Message(kind, raw if isinstance(raw, dict) else None)
    return Struct("*structpb.Struct", {"Fields": mapping(raw)}, nil=not isinstance(raw, dict))


def _go_kind(kind: str) -> str:
    if kind.startswith("enum:"):
        return go_type(kind[5:])
    return {"double": "float64"}.get(kind, kind) if kind in SCALARS else f"*{go_type(kind)}"


def _enum(name: str, raw: Any) -> Enum:
    names = enum_names(name)
    if isinstance(raw, int):  # a number without a name is printed as it is
        return Enum(raw, names.get(raw, str(raw)), go_type(name))
    number = next((number for number, label in names.items() if label == raw), 0)
    return Enum(number, names[number], go_type(name))


def _well_known(name: str, fields: Mapping[str, Any], *, nil: bool) -> Struct:
    methods: dict[str, Callable[[], Any]] = {f"Get{field}": _constant(value) for field, value in fields.items()}
    text = " ".join(f"{field.lower()}:{sprint(value)}" for field, value in fields.items() if value)
    methods["String"] = lambda: "<nil>" if nil else text
    return Struct(f"*{name}", fields, methods, nil=nil)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _duration(raw: Any) -> Struct:
    total = duration(raw)
    seconds, nanoseconds = divmod(abs(total or 0), NANOSECONDS)
    sign = -1 if (total or 0) < 0 else 1
    fields = {"Seconds": Int64(sign * seconds), "Nanos": Int32(sign * nanoseconds)}
    return _well_known("durationpb.Duration", fields, nil=total is None)
