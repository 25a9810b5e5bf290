"""Messages of Istio's mesh configuration: their fields, as Go structs for templates, and in protobuf's JSON.

As Istio decodes ProxyConfig annotations, names are those of JSON (`statusPort`) or the .proto file (`status_port`); unknown
ones are ignored, null means not set. Values are normalized: durations in seconds with 0, 3, 6 or 9 decimals, enumerations
by name, 64-bit numbers as strings, fields in the message's order.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, shown
from netinit.golang import times
from netinit.golang.gojson import encode
from netinit.golang.sprig.text import unless
from netinit.golang.template.literals import quote
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import Enum, Function, FunctionError, Int32, Int64, NamedInt, Pointer, Struct
from netinit.golang.times import NANOSECONDS, parse_duration
from netinit.inject.adding.schema import SCALARS, LazyMapping, Methods, collection_of, methods_of, read_types

_INITIAL = "(?:^|_|(?<=[0-9]))([a-z])"
_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}
_WHOLE = r"-?(?:0|[1-9][0-9]{0,20})\Z"
_REAL = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?\Z"


_FILE = "mesh-messages.json"
_LONGEST_NAME = 60  # characters of a key to compare with names of fields, of which the longest has 36


class Field(NamedTuple):
    """A field of a message: its name in JSON and in the .proto file, its type, its oneof, and `port` for a port's number."""

    json_name: str
    source_name: str
    kind: str
    mark: str = ""
    format: str = ""


def _messages() -> Mapping[str, list[list[str]]]:
    found: Mapping[str, list[list[str]]] = read_types(_FILE)["messages"]
    return found


@functools.cache
def fields_of(message: str) -> Mapping[str, Field]:
    """Return a message's fields by JSON name."""
    return {told[0]: Field(*told) for told in _messages()[message]}


def is_message(kind: str) -> bool:
    """Whether a field's type is a message."""
    return kind in _messages()


@functools.cache
def _members_of(message: str) -> Mapping[str, Field]:
    """Return a message's fields by Go name."""
    return {go_name(field.source_name): field for field in fields_of(message).values()}


def go_name(proto_name: str) -> str:
    """Return the Go name of a field: mesh_mTLS is MeshMTLS, k8s_path K8SPath."""
    return re.sub(_INITIAL, lambda found: found[1].upper(), proto_name)


def go_type(name: str) -> str:
    """The Go type of a message or an enumeration."""
    return name if "." in name else f"v1alpha1.{name}"


@functools.cache
def enum_names(enum: str) -> Mapping[int, str]:
    """Return an enumeration's names by number; 0 is the default."""
    numbers = read_types(_FILE)["enums"][enum]
    return {number: name for name, number in sorted(numbers.items(), key=lambda pair: pair[1])}


# --- JSON ---


def duration(text: Any) -> int | None:
    """Parse a Go duration (`45s`, `1m30s`, `1.5h`, `-2s`, `0`) into nanoseconds; None for anything else."""
    return unless("", None, parse_duration, text) if isinstance(text, str) else None


def read_message(message: str, tree: Any, path: str = "", *, whole: bool = True) -> Tree:
    """Return the normalized message. Raises ConfigError.

    `whole`: omit default values of fields without presence; otherwise keep them, so that they can replace another
    message's.
    """
    fields = fields_of(message)
    if not isinstance(tree, dict):
        raise ConfigError(f"{path or message}: {shown(tree)} must be a mapping")
    given: dict[str, Any] = {}
    for name, field in fields.items():
        for spelling in (field.source_name, name):
            if tree.get(spelling) is not None:
                given[name] = tree[spelling]
    result: Tree = {}
    chosen: dict[str, str] = {}
    for name, value in given.items():
        field = fields[name]
        read = _read(field.kind, value, f"{path}.{name}" if path else name)
        if oneof := field.mark:
            result.pop(chosen.get(oneof, ""), None)
            chosen[oneof] = name
        default = enum_names(field.kind[5:])[0] if field.kind.startswith("enum:") else None
        if not whole or has_presence(message, name) or (read and read != default):
            result[name] = read
    return result


def unknown_fields(message: str, tree: Tree, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each key that is no field of the message, and so ignored, and the most similar field, or ""."""
    fields = fields_of(message)
    kinds = {spelling: field.kind for field in fields.values() for spelling in (field.json_name, field.source_name)}
    for name, value in tree.items():
        here = f"{path}.{name}" if path else str(name)
        kind = kinds.get(name)
        if kind is None:
            from difflib import get_close_matches  # rarely needed

            yield here, next(iter(get_close_matches(str(name)[:_LONGEST_NAME], fields, 1)), "")
        elif is_message(kind.removeprefix("[]")):
            for one in value if isinstance(value, list) else [value]:
                yield from unknown_fields(kind.removeprefix("[]"), mapping(one), here)


def has_presence(message: str, name: str) -> bool:
    """Whether the field distinguishes its default value from no value."""
    field = fields_of(message)[name]
    return bool(field.mark) or field.kind.endswith("Value") or field.kind == "Duration" or is_message(field.kind)


def _read(kind: str, value: Any, path: str) -> Any:
    if kind.startswith("[]"):
        if not isinstance(value, list):
            raise ConfigError(f"{path}: {shown(value)} must be a list")
        return [_read_item(kind[2:], item, f"{path}[{number}]") for number, item in enumerate(value)]
    if kind.startswith("map["):
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: {shown(value)} must be a map")
        return {key: _read_item(kind.partition("]")[2], value[key], f"{path}.{key}") for key in sorted(value)}
    if kind.startswith("enum:"):
        return _read_enum(enum_names(kind[5:]), value, path)
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
    if is_message(kind):
        return read_message(kind, value, path)
    if kind == "Struct" and isinstance(value, dict):
        return value
    wanted = "a text: put it in quotes" if kind == "string" else "true or false"
    raise ConfigError(f"{path}: {shown(value)} must be {wanted}")


def _read_item(kind: str, value: Any, path: str) -> Any:
    """Read an item of a list or map, where null is the type's zero value."""
    zero: Any = "" if kind == "string" else {} if is_message(kind) else 0 if kind in _RANGES or kind.startswith("enum:") else None
    return _read(kind, zero if value is None else value, path)


def _read_enum(names: Any, value: Any, path: str) -> Any:
    if isinstance(value, str) and value in names.values():
        return value
    if isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31:
        return names.get(value, value)
    raise ConfigError(f"{path}: {shown(value)} must be one of {', '.join(names.values())}")


def whole_number(kind: str, value: Any, path: str) -> Any:
    """Return a number of this kind, a text for one of 64 bits. Raises ConfigError."""
    low, high = _RANGES[kind]
    is_number_text = isinstance(value, str) and re.match(_WHOLE, value.strip(" \t\r\n")) is not None
    number = int(value) if is_number_text or (isinstance(value, float) and value.is_integer()) else value
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
        raise ConfigError(f"{path}: {shown(value)} is not a duration such as 1m30s")
    seconds, rest = divmod(abs(total), NANOSECONDS)
    sign = "-" if total < 0 else ""
    digits = f"{rest:09d}"
    length = next(length for length in (0, 3, 6, 9) if not digits[length:].strip("0"))
    return f"{sign}{seconds}{'.' if length else ''}{digits[:length]}s"


# --- Go structs ---


class _Shape(NamedTuple):
    """What all messages of a type have in common: the names of the Go struct's fields, and oneofs and getters by Go names."""

    names: Mapping[str, None]
    oneofs: Mapping[str, str]
    getters: Mapping[str, str]


@functools.cache
def _shape_of(message: str) -> _Shape:
    members = _members_of(message)
    oneofs = {go_name(field.mark): field.mark for field in members.values() if field.mark}
    names = {go_name(field.mark) if field.mark else member: None for member, field in members.items()}
    return _Shape(names, oneofs, {f"Get{member}": member for member in (*members, *oneofs)})


class Message(Struct):
    """A pointer to a message; nil without a tree. `given`: values of Go fields that replace the tree's.

    `changed`: the fields that differ from the defaults, if known.
    """

    def __init__(self, name: str, tree: Tree | None, given: Mapping[str, Any] | None = None) -> None:
        self.name, self.tree, self._given = name, mapping(tree), given or {}
        self.changed: Tree | None = None
        self._members, self._shape = _members_of(name), _shape_of(name)
        super().__init__(f"*{go_type(name)}", LazyMapping({**self._shape.names, **self._given}, self._field), nil=tree is None)

    @functools.cached_property
    def go_methods(self) -> Mapping[str, Function]:  # type: ignore[override] # few are asked for
        """The getters and the other methods of the type."""
        own: Methods = {
            "DeepCopy": functools.cache(self._copy), "DeepCopyInterface": self._copy, "MarshalJSON": functools.cache(self._encoded),
            "String": functools.cache(self._text),  # a loop of a template may ask again and again
        }  # fmt: skip
        known = methods_of(_FILE, go_type(self.name), own)
        getters = self._shape.getters
        names = {**getters, **dict.fromkeys(known)}
        return LazyMapping(names, lambda name: self._getter(getters[name]) if name in getters else known[name])

    def go_json(self) -> Any:
        """Return the message in protobuf's JSON."""
        try:
            return None if self.nil else read_message(self.name, self.tree)
        except ConfigError as error:
            raise FunctionError(f"json: {error}") from None

    def _encoded(self) -> bytes:
        if self.nil:
            raise FunctionError("Marshal called with nil")
        return encode(self.go_json()).encode()

    def _copy(self) -> Message:
        return Message(self.name, None if self.nil else self.tree, self._given)

    def _field(self, name: str) -> Any:
        if name in self._given:
            return self._given[name]
        if name in self._shape.oneofs:
            member = self._chosen(self._shape.oneofs[name])
            return _OneOf(go_type(self.name), name, member, self._field(member)) if member else None
        return _value(self._members[name].kind, self._raw(self._members[name]))

    def _raw(self, field: Field) -> Any:
        return self.tree.get(field.json_name, self.tree.get(field.source_name))

    def _getter(self, member: str) -> Function:
        value = self.fields[member] if member in self.fields else self._field(member)
        return Function(lambda: value)

    def _chosen(self, oneof: str) -> str:
        """Return the Go name of the field that is set in the oneof; "" without one."""
        return next((name for name, field in self._members.items() if field.mark == oneof and self._raw(field) is not None), "")

    def _text(self) -> str:
        if self.nil:
            return "<nil>"
        written = (self._entry(name, field) for name, field in self._members.items())
        return " ".join(entry for entry in written if entry)

    def _entry(self, name: str, field: Field) -> str:
        if field.mark and self._chosen(field.mark) != name:
            return ""
        value = self._given[name] if name in self._given else self._field(name)
        if isinstance(value, dict):
            pairs = sorted(value.items())
            return " ".join(f"{field.source_name}:{{key:{quote(key)} value:{_scalar(item)}}}" for key, item in pairs)
        if isinstance(value, list):
            return " ".join(f"{field.source_name}:{_scalar(item)}" for item in value)
        return f"{field.source_name}:{_scalar(value)}" if value or field.mark else ""


class _OneOf(Struct):
    """The field that is set in a oneof of a message."""

    def __init__(self, message: str, oneof: str, member: str, value: Any) -> None:
        super().__init__(f"*{message}_{member}", {member: value})
        package, _, name = message.rpartition(".")
        self.interface = f"{package}.is{name}_{oneof}"


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
    if kind.endswith("Value") and kind != "Value":  # a wrapper, such as Int32Value
        scalar = SCALARS[kind.removesuffix("Value").lower()]
        return _well_known(f"wrapperspb.{kind}", {"Value": scalar(raw)}, nil=raw is None)
    if kind.startswith("enum:"):
        names = enum_names(kind[5:])
        number = raw if isinstance(raw, int) else next((number for number, label in names.items() if label == raw), 0)
        return _enum(number, names.get(number, str(number)), go_type(kind[5:]))  # a number without a name is printed as it is
    if kind.startswith(("[]", "map[")):
        return collection_of(kind, raw, _value, _messages(), _go_kind)
    if is_message(kind):
        return Message(kind, raw if isinstance(raw, dict) else None)
    return _well_known(f"structpb.{kind}", {"Fields": mapping(raw)}, {"AsMap": lambda: mapping(raw)}, nil=not isinstance(raw, dict))


def _enum(number: int, name: str, of: str) -> Enum:
    own: Methods = {
        "Enum": lambda: Pointer(f"*{of}", _enum(number, name, of)), "Number": lambda: NamedInt(number, "protoreflect.EnumNumber"),
        "String": lambda: name,
    }  # fmt: skip
    return Enum(number, name, of, methods_of(_FILE, of, own))


def _go_kind(kind: str) -> str:
    if kind.startswith("enum:"):
        return go_type(kind[5:])
    return {"double": "float64"}.get(kind, kind) if kind in SCALARS else f"*{go_type(kind)}"


def _well_known(name: str, fields: Mapping[str, Any], more: Methods | None = None, *, nil: bool) -> Struct:
    """Return a pointer to a message of protobuf's own; `more`: functions of methods that are not getters."""

    def text() -> str:
        return "<nil>" if nil else " ".join(f"{field.lower()}:{sprint(value)}" for field, value in fields.items() if value)

    getters = {f"Get{field}": functools.partial(fields.__getitem__, field) for field in fields}
    return Struct(f"*{name}", fields, methods_of(_FILE, name, {**getters, "String": text, **(more or {})}), nil=nil)


def _duration(raw: Any) -> Struct:
    total = duration(raw)
    seconds, nanoseconds = divmod(abs(total or 0), NANOSECONDS)
    sign = -1 if (total or 0) < 0 else 1
    fields = {"Seconds": Int64(sign * seconds), "Nanos": Int32(sign * nanoseconds)}
    own: Methods = {
        "AsDuration": lambda: times.Duration(total or 0), "IsValid": lambda: total is not None,
        "CheckValid": lambda: Struct("*errors.Error", {}, {"Error": lambda: "proto: invalid nil Duration"}) if total is None else None,
    }  # fmt: skip
    return _well_known("durationpb.Duration", fields, own, nil=total is None)
