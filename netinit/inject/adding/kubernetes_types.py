"""Kubernetes objects as template data: Go structs, whose fields are created on access.

As in Go, an absent field has its type's zero value, and an unknown one is an error. Rendered fields are checked against
the types, before the API server does it; unknown fields, quantities and times are not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from netinit.base.errors import InjectionError
from netinit.base.tree import Tree, mapping, sequence, shown, string, strings
from netinit.golang.gojson import encode
from netinit.golang.sprig.numbers import from_decimal
from netinit.golang.sprig.text import unless
from netinit.golang.template.printing import sprint
from netinit.golang.template.values import (
    Function,
    FunctionError,
    Int32,
    Int64,
    NamedInt,
    NamedString,
    Pointer,
    Shaped,
    Struct,
    TypedMap,
)
from netinit.golang.times import Time, parse_time
from netinit.inject.adding.quantities import ONE, approximate, canonical, compare, format_of, nano_units, scaled
from netinit.inject.adding.schema import (
    SCALARS,
    LazyMapping,
    Methods,
    collection_of,
    methods_of,
    read_types,
    signatures,
    whole,
)

_FILE = "kubernetes-types.json"
_LIST, _MAP = "[]", "map[string]"


@functools.cache
def _names() -> Mapping[str, str]:
    """Return what each named type is made of."""
    return {name: kind.replace(f"[{_RESOURCE}]", "[string]") for name, kind in read_types(_FILE)["names"].items()}


def basic(go_type: str) -> str:
    """Return the type without names: of []v1.Capability, []string."""
    plain = go_type.lstrip("*[]")
    return go_type[: len(go_type) - len(plain)] + _names().get(plain, plain)


@functools.cache
def _structs() -> Mapping[str, list[list[Any]]]:
    """Return the structs that are objects in JSON, with their fields."""
    return {name: fields for name, fields in read_types(_FILE)["structs"].items() if name not in _SPECIAL}


class StructField(NamedTuple):
    """A struct's field: its name in JSON, its type, and that without names. `mark`, `number`: see the data file."""

    json_name: str
    go_type: str
    kind: str
    mark: str = ""
    number: int = 0


@functools.cache
def _fields_of(go_type: str) -> Mapping[str, StructField]:
    """Return a struct's fields by Go's names."""
    return {name: StructField(json_name, kind, basic(kind), *rest) for json_name, name, kind, *rest in _structs()[go_type]}


@functools.cache
def _flat_fields_of(go_type: str) -> Mapping[str, StructField]:
    """Return the fields of a struct's JSON object: with those of an embedded struct instead of it."""
    found: dict[str, StructField] = {}
    for name, field in _fields_of(go_type).items():
        found.update(_flat_fields_of(field.kind) if field.mark == "+" else {name: field})
    return found


@functools.cache
def _promoted(go_type: str) -> Mapping[str, StructField]:
    """Return the embedded structs of a struct by the names of their fields, which are the struct's fields, too."""
    embedded = [field for field in _fields_of(go_type).values() if field.mark in {"+", "@"}]
    return {name: field for field in embedded for name in (*_fields_of(field.kind), *_promoted(field.kind))}


class ObjectStruct(Struct):
    """A struct, or a pointer to one if the type starts with `*`; nil without a tree.

    `has_address`: whether it is no copy, so that it has the methods of pointers, too.
    """

    def __init__(self, go_type: str, tree: Any, *, has_address: bool = True) -> None:
        self.tree, self.has_address = mapping(tree), has_address
        plain = go_type.removeprefix("*")
        make = functools.partial(_field_of, plain, self.tree, has_address)  # not a method: that would be a reference cycle
        super().__init__(
            go_type, LazyMapping(_fields_of(plain), make, _promoted(plain)), nil=go_type.startswith("*") and not isinstance(tree, dict)
        )

    @functools.cached_property
    def go_methods(self) -> Mapping[str, Function]:  # type: ignore[override] # few are asked for
        """The methods of the type."""
        plain, tree = self.go_type.removeprefix("*"), None if self.nil else self.tree
        known = struct_methods(plain, tree, self.fields)
        return methods_of(_FILE, plain, known, has_address=self.has_address, basic=basic)

    def copied(self) -> Struct:
        """Return the struct as functions get it and return it."""
        return self if self.nil or not self.has_address or self.go_type.startswith("*") else self._copy

    @functools.cached_property
    def _copy(self) -> ObjectStruct:
        return ObjectStruct(self.go_type, self.tree, has_address=False)

    def go_json(self) -> Any:
        """Return the object for JSON, its fields in the struct's order."""
        return json_of(self.go_type, None if self.nil else self.tree)

    @functools.cached_property
    def json_text(self) -> str:
        """The object as JSON; templates test it before they print it."""
        return Shaped(encode(self), form="json", tree=self)


def _field_of(go_type: str, tree: Tree, has_address: bool, name: str) -> Any:
    field = _fields_of(go_type).get(name)
    if field is None:
        holder = _promoted(go_type)[name]
        return _field_of(holder.kind, tree if holder.mark == "+" else mapping(tree.get(holder.json_name)), has_address, name)
    if field.mark == "+":
        own = {key: tree[key] for key in json_types(field.kind) if key in tree}
        return ObjectStruct(field.go_type, own, has_address=has_address)
    return _value(field.go_type, tree.get(field.json_name), has_address=has_address)


_ZEROS: Mapping[str, Any] = {
    "string": "", "bool": False, "int32": 0, "int64": 0, "intstr.IntOrString": 0, "resource.Quantity": "0",
}  # fmt: skip


def _value(go_type: str, raw: Any, *, has_address: bool = True) -> Any:
    """Return a field's value; the type's zero value if it is absent or of another type."""
    if go_type in SCALARS:
        return SCALARS[go_type](raw)
    if go_type.startswith((_LIST, _MAP)):
        return collection_of(go_type, raw, _value, _structs())
    plain = go_type.removeprefix("*")
    if plain in _structs():
        return ObjectStruct(go_type, raw, has_address=has_address)
    if plain in _SPECIAL:
        if go_type.startswith("*"):
            return _SPECIAL[plain](raw, go_type) if raw is not None else Struct(go_type, {}, nil=True)
        return _SPECIAL[plain](raw, go_type, has_address=has_address)
    if go_type.startswith("*"):
        return Pointer(go_type, None if raw is None else _value(plain, raw))
    made_of = _names()[go_type]
    if made_of.startswith(_MAP):
        return _resource_list(raw, has_address=has_address)
    if made_of == "string":
        return NamedString(string(raw), go_type)
    return NamedInt(whole(raw), go_type)


# --- types with methods of their own ---

_QUANTITY, _RESOURCE, _RESOURCES = "resource.Quantity", "v1.ResourceName", "v1.ResourceList"


class _Leaf(Struct):
    """A struct that is a scalar in JSON; `own`: the functions of its methods."""

    def __init__(
        self, go_type: str, fields: Mapping[str, Any], raw: Any, own: Methods, *, has_address: bool = True
    ) -> None:
        super().__init__(go_type, fields)
        self.raw = self.tree = raw
        self.has_address, self._own = has_address, own

    @functools.cached_property
    def go_methods(self) -> Mapping[str, Function]:  # type: ignore[override] # few are asked for
        """The methods of the type."""
        own = {"MarshalJSON": lambda: encode(self.raw).encode(), **self._own}
        return methods_of(_FILE, self.go_type.removeprefix("*"), own, has_address=self.has_address, basic=basic)

    def copied(self) -> Struct:
        """Return the struct as functions get it and return it."""
        is_copy = self.go_type.startswith("*") or not self.has_address
        return self if is_copy else type(self)(self.go_type, self.fields, self.raw, self._own, has_address=False)

    def go_json(self) -> Any:
        """Return the JSON value."""
        return self.raw


class _PrivateFields(Mapping[str, Any]):
    """The fields of a quantity: others, which Go prints with a copy, depend on what was done with it before."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[str]:
        raise FunctionError("Go prints the private fields of this copy of a quantity; print it with toJson")


def _quantity(raw: Any, go_type: str = _QUANTITY, *, has_address: bool = True, of: str = "DecimalSI") -> Struct:
    """Return a quantity; `of`: the suffixes of an absent one."""
    text = string(canonical("0" if raw is None else raw))
    number = nano_units(text)
    fields = {"Format": NamedString(of if raw is None else format_of(raw), "resource.Format")}
    own: Methods = {
        "AsApproximateFloat64": lambda: approximate("0" if raw is None else raw), "AsFloat64Slow": lambda: number / ONE,
        "Cmp": lambda other: compare(number, nano_units(other.raw)), "CmpInt64": lambda other: compare(number, other * ONE),
        "DeepCopy": lambda: _quantity(raw, has_address=False, of=of), "Equal": lambda other: number == nano_units(other.raw),
        "IsZero": lambda: number == 0, "MilliValue": lambda: Int64(scaled(number, -3)),
        "ScaledValue": lambda scale: Int64(scaled(number, scale)), "Sign": lambda: compare(number, 0), "String": lambda: text,
        "ToDec": lambda: _quantity(raw, f"*{_QUANTITY}", of=of), "ToUnstructured": lambda: text,
        "Value": lambda: Int64(scaled(number, 0)),
    }  # fmt: skip
    return _Leaf(go_type, _PrivateFields(fields), text, own, has_address=has_address)


def _naming(name: str) -> Methods:
    return {"String": lambda: name}


def _resource_list(raw: Any, *, has_address: bool = True) -> TypedMap:
    given = mapping(raw)

    def named(name: str, of: str = "DecimalSI") -> Struct:
        return _quantity(given.get(name), f"*{_QUANTITY}", of=of)

    own: Methods = {
        "Cpu": lambda: named("cpu"), "DeepCopy": lambda: _resource_list(raw, has_address=False),
        "Memory": lambda: named("memory", "BinarySI"), "Name": named, "Pods": lambda: named("pods"),
        "Storage": lambda: named("storage", "BinarySI"), "StorageEphemeral": lambda: named("ephemeral-storage", "BinarySI"),
    }  # fmt: skip
    names = {name: NamedString(name, _RESOURCE, _naming(name)) for name in given}
    return TypedMap(
        {names[name]: _quantity(item, has_address=False) for name, item in given.items()}, go_type=_RESOURCES, key_type=_RESOURCE,
        zero=_quantity(None, has_address=False), nil=not isinstance(raw, dict),
        methods=methods_of(_FILE, _RESOURCES, own, has_address=has_address, basic=basic),
    )  # fmt: skip


def _number_or_text(raw: Any, go_type: str = "intstr.IntOrString", *, has_address: bool = True) -> Struct:
    is_text = isinstance(raw, str)
    fields = {"Type": NamedInt(is_text, "intstr.Type"), "IntVal": Int32(whole(raw)), "StrVal": raw if is_text else ""}
    number = from_decimal(raw) if is_text else whole(raw)
    own: Methods = {"String": lambda: raw if is_text else str(number), "IntValue": lambda: number}
    return _Leaf(go_type, fields, 0 if raw is None else raw, own, has_address=has_address)


def _time(raw: Any, go_type: str, *, has_address: bool = True) -> Struct:
    moment = unless("", Time(), parse_time, "2006-01-02T15:04:05Z07:00", string(raw))
    methods: dict[str, Callable[..., Any]] = {name: Function.of(one).call for name, one in moment.go_methods.items()}
    methods["Before"] = lambda other: moment.absolute < other.fields["Time"].absolute
    methods["Equal"] = lambda other: moment.absolute == other.fields["Time"].absolute
    methods["Rfc3339Copy"] = lambda: _time(raw, go_type.removeprefix("*"), has_address=False)
    methods["DeepCopy"] = lambda: _time(raw, "*" + go_type.removeprefix("*"))
    methods["ToUnstructured"] = lambda: raw
    return _Leaf(go_type, {"Time": moment}, raw, methods, has_address=has_address)


_SPECIAL: Mapping[str, Callable[..., Any]] = {
    _QUANTITY: _quantity,
    "intstr.IntOrString": _number_or_text,
    "v1.FieldsV1": lambda raw, go_type, *, has_address=True: _Leaf(go_type, {}, raw, {}, has_address=has_address),
    "v1.Time": _time,
    "time.Time": _time,
}


# --- methods of objects ---


def struct_methods(go_type: str, tree: Any, fields: Mapping[str, Any]) -> Methods:
    """Return the functions of an object's methods."""
    own: dict[str, Callable[..., Any]] = {
        "DeepCopy": functools.cache(lambda: ObjectStruct(f"*{go_type}", tree)),
        "String": functools.cache(lambda: text_of(go_type, tree)),  # a loop of a template may ask again and again
        "GetObjectMeta": lambda: ObjectStruct("*v1.ObjectMeta", fields["ObjectMeta"].tree if "ObjectMeta" in fields else tree),
        "GetObjectKind": lambda: ObjectStruct(f"*{go_type}", tree),
    }  # fmt: skip
    for name in signatures(_FILE, go_type):
        if name.startswith("Get") and name[3:] in fields:
            own[name] = functools.partial(fields.__getitem__, name[3:])
    if go_type == "v1.Toleration":
        compared = ("Key", "Effect", "Operator", "Value")
        own["MatchToleration"] = lambda other: all(fields[name] == other.fields[name] for name in compared)
    return {**own, **_naming_methods(go_type, mapping(tree))}


def _naming_methods(go_type: str, tree: Tree) -> Methods:
    """Return the functions of the types that name kinds and objects."""
    if go_type == "types.NamespacedName":
        return {"String": lambda: f"{tree['Namespace']}/{tree['Name']}"}
    if go_type == "v1.TypeMeta":
        return {"GroupVersionKind": lambda: _group_version_kind(string(tree.get("apiVersion")), string(tree.get("kind")))}
    if not go_type.startswith("schema."):
        return {}
    group, version, kind = (string(tree.get(part)) for part in ("Group", "Version", "Kind"))
    of_version, of_kind = f"{group}/{version}" if group else version, f"{kind}.{group}" if group else kind
    whole_name = f"{group}/{version}, Kind={kind}"
    texts = {"schema.GroupVersion": of_version, "schema.GroupKind": of_kind, "schema.GroupVersionKind": whole_name}
    return {
        "Empty": lambda: not (group or version or kind), "String": lambda: texts[go_type], "Identifier": lambda: of_version,
        "GroupKind": lambda: ObjectStruct("schema.GroupKind", {"Group": group, "Kind": kind}),
        "GroupVersion": lambda: ObjectStruct("schema.GroupVersion", {"Group": group, "Version": version}),
        "WithKind": lambda kind: ObjectStruct("schema.GroupVersionKind", {**tree, "Kind": kind}),
        "WithVersion": lambda version: ObjectStruct("schema.GroupVersionKind", {**tree, "Version": version}),
    }  # fmt: skip


def _group_version_kind(api_version: str, kind: str) -> Struct:
    parts = {0: ["", api_version], 1: api_version.split("/")}.get(api_version.count("/"), ["", ""])
    return ObjectStruct("schema.GroupVersionKind", {"Group": parts[0], "Version": parts[1], "Kind": kind})


_OF_META = frozenset(("v1.LabelSelector", "v1.ObjectMeta"))
"""Types of meta/v1, whose package Go names where an object of another one has them."""


def text_of(go_type: str, tree: Any) -> str:
    """Return the text of an object's String method. Raises FunctionError for what depends on private fields."""
    if tree is None:
        return "<nil>"
    fields = sorted(_fields_of(go_type).items(), key=lambda item: item[1].number)
    given = mapping(tree)
    parts = (f"{name}:{_part_text(field, given if field.mark == '+' else given.get(field.json_name))}," for name, field in fields)
    return f"&{go_type.partition('.')[2]}{{{''.join(parts)}}}"


def _part_text(field: StructField, raw: Any) -> str:
    plain = field.go_type.lstrip("*[]")
    if field.go_type.startswith(_LIST) and plain in _structs():
        items = "".join(text_of(plain, item)[1:] + "," for item in sequence(raw) if isinstance(item, dict))
        return f"[]{plain.partition('.')[2]}{{{items}}}"
    if plain in _structs():
        if field.go_type.startswith("*"):
            text = text_of(plain, raw) if isinstance(raw, dict) else "nil"
            return text.replace("&", "&v1.", 1) if plain in _OF_META else text
        return text_of(plain, mapping(raw))[1:]
    if field.kind.startswith(_MAP):
        if plain == _RESOURCES and raw:
            raise FunctionError("the text of an object with quantities has their private fields; print the fields that are needed")
        name = "ResourceList" if plain == _RESOURCES else plain
        return f"{name}{{{''.join(f'{key}: {value},' for key, value in sorted(strings(raw).items()))}}}"
    value = _value(field.go_type, raw)
    if isinstance(value, Pointer):
        return f"*{sprint(value.target)}" if value else "nil"
    return sprint(value.copied() if isinstance(value, Struct) else value)


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
        if not is_empty or field.mark == "!" or (is_struct and field.mark in {"", "@"}):
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
