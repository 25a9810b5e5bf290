"""Kubernetes objects as template data: Go structs, whose fields are created on access.

As in Go, an absent field has its type's zero value, and an unknown one is an error. Rendered fields are checked against
the types, before the API server does it; unknown fields, quantities and times are not. Quantities (`100m`, `1.5Gi`) are
read in the canonical form of the API server.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, mapping, shown, string
from netinit.golang.gojson import encode
from netinit.golang.sprig.text import unless
from netinit.golang.template.values import FunctionError, Int32, Int64, Shaped, Struct
from netinit.golang.times import Time, parse_time
from netinit.inject.adding.schema import SCALARS, Field, LazyMapping, collection_of, read_fields, read_types, whole

_QUANTITY = r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?\Z"
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_EXPONENTS = ("e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18")
_KIBI, _KILO, _DIGITS = 1024, 1000, 9
_ONE: int = 10**_DIGITS
"""Numbers are in nano units: quantities have at most nine decimals."""


def canonical(value: Any) -> Any:
    """Return the canonical form: a whole number with the largest possible suffix of its kind.

    `3000m` is `3`, `1024Mi` is `1Gi`, `0.5` is `500m`; as in Go, decimals after the ninth are rounded up. An invalid
    quantity is returned unchanged.
    """
    found = re.match(_QUANTITY, string(value)) if isinstance(value, (str, int, float)) else None
    if found is None:
        return value
    suffix, (number, power) = found[3] or "", _nano_units(found)
    if suffix.endswith("i") and number >= _KIBI * _ONE and number % _ONE == 0:  # as in Go, fractions of a byte are decimal
        written = _shortest(number // _ONE, _KIBI, _BINARY)
    elif suffix[-1:] != "i" and power >= -_DIGITS and power % 3 == 0 and not re.match("0|[0-9]*000$", found[2].replace(".", "")):
        return string(value)  # Go keeps a text that counts thousands, as no fewer digits would do
    else:
        written = _shortest(number, _KILO, _EXPONENTS if suffix[:1] in {"e", "E"} and suffix[1:] else _DECIMAL)
    return f"-{written}" if found[1] == "-" and number else written


def round_up(value: Any) -> int | None:
    """Round a quantity up to a whole number (`500m` is 1); None if it is invalid."""
    found = re.match(_QUANTITY, string(value))
    if found is None:
        return None
    number, _ = _nano_units(found)
    return -(number // _ONE) if found[1] == "-" else -(-number // _ONE)


def _nano_units(found: re.Match[str]) -> tuple[int, int]:
    """Return a quantity's absolute number in nano units, rounded up, and the power of ten of its last digit."""
    suffix, factor = found[3] or "", 1
    before, _, after = found[2].partition(".")
    power = -len(after)
    if suffix.endswith("i"):
        factor = _KIBI ** _BINARY.index(suffix)
    else:
        power += int(suffix[1:]) if suffix[1:] else 3 * _DECIMAL.index(suffix) - _DIGITS
    number, scale = int(before + after) * factor, 10 ** abs(power + _DIGITS)
    return (number * scale if power >= -_DIGITS else -(-number // scale)), power


def _shortest(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    """Format with the suffix of the largest power of the base that divides the number."""
    place = 0
    while number and number % base == 0 and place + 1 < len(suffixes):
        number //= base
        place += 1
    return f"{number}{suffixes[place]}" if number else "0"


_structs = functools.partial(read_types, "kubernetes-types.txt")


@functools.cache
def _fields_of(go_type: str) -> Mapping[str, Field]:
    """Return a struct's fields by Go's names."""
    fields = read_fields(_structs()[go_type], lambda name: name[:1].upper() + name[1:])
    return {field.source_name: field for field in fields}


@functools.cache
def _flat_fields_of(go_type: str) -> Mapping[str, Field]:
    """Return a struct's fields, with those of an embedded struct instead of it."""
    found: dict[str, Field] = {}
    for name, field in _fields_of(go_type).items():
        found.update(_flat_fields_of(field.kind) if field.mark == "+" else {name: field})
    return found


class ObjectStruct(Struct):
    """A struct, or a pointer to one if the type starts with `*`; nil without a tree."""

    def __init__(self, go_type: str, tree: Any) -> None:
        self.tree = mapping(tree)
        plain = go_type.removeprefix("*")
        make = functools.partial(_field_of, plain, self.tree)  # not a method: that would be a reference cycle
        fields = LazyMapping(_fields_of(plain), make, _flat_fields_of(plain))
        super().__init__(go_type, fields, nil=go_type.startswith("*") and not isinstance(tree, dict))

    def go_json(self) -> Any:
        """Return the object for JSON, its fields in the struct's order."""
        return json_of(self.go_type, None if self.nil else self.tree)

    @functools.cached_property
    def json_text(self) -> str:
        """The object as JSON; templates test it before they print it."""
        return Shaped(encode(self), form="json", tree=self)


def _field_of(go_type: str, tree: Tree, name: str) -> Any:
    field = _fields_of(go_type).get(name) or _flat_fields_of(go_type)[name]
    return _value(field.kind, tree if field.mark == "+" else tree.get(field.json_name))


_ZEROS: Mapping[str, Any] = {
    "string": "", "bool": False, "int32": 0, "int64": 0, "intstr.IntOrString": 0, "resource.Quantity": "0",
}  # fmt: skip


def _value(go_type: str, raw: Any) -> Any:
    """Return a field's value; the type's zero value if it is absent or of another type."""
    if go_type in SCALARS:
        return SCALARS[go_type](raw)
    if go_type.startswith(("[]", "map[")):
        return collection_of(go_type, raw, _value, _structs())
    plain = go_type.removeprefix("*")
    if plain in _structs():
        return ObjectStruct(go_type, raw)
    if go_type.startswith("*") and raw is None:
        return Struct(go_type, {}, nil=True) if plain in _SPECIAL else None
    return _SPECIAL[plain](raw) if plain in _SPECIAL else SCALARS[plain](raw)


class _Leaf(Struct):
    def __init__(self, go_type: str, fields: Mapping[str, Any], raw: Any, text: str) -> None:
        super().__init__(go_type, fields, {"String": lambda: text})
        self.raw = raw

    def go_json(self) -> Any:
        """Return the JSON value."""
        return self.raw


def _quantity(raw: Any) -> Struct:
    text = string(canonical("0" if raw is None else raw))
    return _Leaf("resource.Quantity", {}, text, text)


def _number_or_text(raw: Any) -> Struct:
    is_text = isinstance(raw, str)
    fields = {"Type": Int64(is_text), "IntVal": Int32(whole(raw)), "StrVal": raw if is_text else ""}
    return _Leaf("intstr.IntOrString", fields, 0 if raw is None else raw, raw if is_text else str(whole(raw)))


def _time(raw: Any) -> Struct:
    moment = unless("", Time(), parse_time, "2006-01-02T15:04:05Z07:00", string(raw))
    found = _Leaf("v1.Time", {"Time": moment}, raw, "")
    found.go_methods = moment.go_methods
    return found


_SPECIAL: Mapping[str, Callable[[Any], Any]] = {
    "resource.Quantity": _quantity,
    "intstr.IntOrString": _number_or_text,
    "v1.FieldsV1": lambda raw: _Leaf("v1.FieldsV1", {}, raw, ""),
    "v1.MicroTime": _time,
    "v1.Time": _time,
}


def json_of(go_type: str, raw: Any) -> Any:
    """Return the value as Go encodes it: known fields in the struct's order, then the others, sorted.

    A value of a wrong type is kept.
    """
    if raw is None:
        return _object_json(go_type, {}) if go_type in _structs() else _ZEROS.get(go_type)
    plain = go_type.removeprefix("*")
    if plain in _structs():
        return _object_json(plain, raw) if isinstance(raw, dict) else raw
    if plain.startswith("[]"):
        return [json_of(plain[2:], item) for item in raw] if isinstance(raw, list) else raw
    if plain.startswith("map["):
        of_items = plain.partition("]")[2]
        return {key: json_of(of_items, raw[key]) for key in sorted(raw)} if isinstance(raw, dict) else raw
    return canonical(raw) if plain == "resource.Quantity" else raw


def _object_json(go_type: str, tree: Tree) -> Tree:
    found: Tree = {}
    for field in _flat_fields_of(go_type).values():
        raw = tree.get(field.json_name)
        is_struct = field.kind in _structs() or field.kind in _SPECIAL
        is_empty = raw is None or (raw in ("", 0, False, [], {}) and not field.kind.startswith("*"))
        if not is_empty or field.mark == "!" or (is_struct and not field.mark):
            found[field.json_name] = json_of(field.kind, raw)
    known = json_types(go_type)
    found.update((name, tree[name]) for name in sorted(tree) if name not in known and tree[name] is not None)
    return found


@functools.cache
def json_types(go_type: str) -> Mapping[str, str]:
    """Return the types of a struct's fields, embedded ones included, by JSON name, without `*`."""
    return {field.json_name: field.kind.removeprefix("*") for field in _flat_fields_of(go_type).values()}


def encode_json(value: Any) -> str:
    """Encode the value as Go's JSON, keys in their order. Raises InjectionError if JSON cannot represent it."""
    try:
        return encode(value)
    except FunctionError as problem:
        raise InjectionError(f"the pod holds a value that JSON cannot: {problem}; write another one") from None


def ordered(go_type: str, tree: Tree) -> Tree:
    """Sort an object's fields like its Go struct, with those that Go never omits and without other empty ones."""
    return mapping(json_of(go_type, tree))


_POD: Mapping[str, str] = {"metadata": "v1.ObjectMeta", "spec": "v1.PodSpec"}
_MAP = "map[string]"
_RANGES = {"int32": 2**31, "int64": 2**63, "intstr.IntOrString": 2**31}
_CHECKED = frozenset(("string", "bool", *_RANGES))


def misfits(tree: Any) -> list[str]:
    """Return a sentence for each value of a partial pod with the wrong type; null is always valid."""
    return [f"{field}{rest}" for field, go_type in _POD.items() for rest in _misfits(tree.get(field), go_type)]


def _misfits(tree: Any, go_type: str) -> list[str]:
    """Return, for each value with the wrong type, its place in the tree and the rest of its sentence."""
    if tree is None or (go_type == "string" and tree.__class__ is str):  # what most values are
        return []
    found: list[str] = []
    wanted = ""
    if go_type.startswith("[]"):
        if isinstance(tree, list):
            for place, item in enumerate(tree):
                if rests := _misfits(item, go_type[2:]):  # rare
                    found += [f"[{place}]{rest}" for rest in rests]
            return found
        wanted = "a list"
    elif go_type in _CHECKED:
        wanted = _expected(tree, go_type)
    elif go_type.startswith(_MAP) or go_type in _structs():
        if isinstance(tree, dict):
            known = dict.fromkeys(tree, go_type[len(_MAP) :]) if go_type.startswith(_MAP) else json_types(go_type)
            for key, item in tree.items():
                if key in known and not (item.__class__ is str and known[key] == "string") and (rests := _misfits(item, known[key])):
                    found += [f".{key}{rest}" for rest in rests]
            return found
        wanted = "a mapping"
    return [f" is {shown(tree)} and must be {wanted}"] if wanted else []


def _expected(value: Any, go_type: str) -> str:
    """Return what a value of this scalar type must be, if this one is not; else ""."""
    if go_type == "string":
        return "" if isinstance(value, str) else "a text: put it in quotes"
    if go_type == "bool":
        return "" if isinstance(value, bool) else "true or false"
    if go_type == "intstr.IntOrString" and isinstance(value, str):
        return ""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    limit = _RANGES[go_type]
    if isinstance(number, int) and not isinstance(number, bool) and -limit <= number < limit:
        return ""
    return f"a whole number from {-limit} to {limit - 1}"
