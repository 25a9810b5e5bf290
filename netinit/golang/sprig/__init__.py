"""The functions of the sprig library that charts and injection templates use.

Arguments stand in sprig's order (the subject last, for pipelines), and every count of characters that sprig does on
bytes is done on bytes here. What a function may build is limited. The functions that change their argument (set, merge)
are left out: templates never change the data, which several threads may share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.sprig import collections, numbers, text
from netinit.golang.template.limits import measure_all, size_of, text_cost
from netinit.golang.template.values import Function, FunctionError, typed

__all__ = ["FUNCTIONS"]


def default(fallback: Any, *given: Any) -> Any:
    """The given value, or the fallback where it is empty: nil, false, 0, "", or a map or list without elements."""
    return given[0] if given and given[0] else fallback


def empty(value: Any) -> bool:
    """Whether the value is nil, false, 0, "", or a map or list without elements."""
    return not value


def coalesce(*values: Any) -> Any:
    """The first value that is not empty, or nil."""
    return next((value for value in values if value), None)


def all_given(*values: Any) -> bool:
    """Whether no value is empty."""
    return all(bool(value) for value in values)


def any_given(*values: Any) -> bool:
    """Whether one value at least is not empty."""
    return any(bool(value) for value in values)


def ternary(yes: Any, no: Any, test: bool) -> Any:
    """The first value where the test holds, else the second."""
    return yes if test else no


def fail(message: str) -> Any:
    """Never returns: the template fails with the message."""
    raise FunctionError(message)


_ANY: Final = "interface {}"
_TEXT: Final = "string"
_MAP: Final = "map[string]interface {}"

_CALLS: Final[dict[str, Callable[..., Any] | Function]] = {
    "add": numbers.add,
    "add1": numbers.add1,
    "all": all_given,
    "any": any_given,
    "append": collections.append,
    "b64dec": typed(text.decode_base64, _TEXT),
    "b64enc": typed(text.encode_base64, _TEXT),
    "cat": text.cat,
    "ceil": numbers.ceil,
    "coalesce": coalesce,
    "compact": typed(collections.compact, _ANY, cost=size_of),
    "concat": collections.concat,
    "contains": typed(lambda needle, text: needle in text, _TEXT, _TEXT),
    "default": default,
    "dict": collections.make_dict,
    "dig": collections.dig,
    "div": numbers.div,
    "empty": empty,
    "fail": typed(fail, _TEXT),
    "first": collections.first,
    "float64": numbers.to_float64,
    "floor": numbers.floor,
    "fromJson": typed(collections.parse_json, _TEXT, cost=text_cost),
    "get": typed(collections.get, _MAP, _TEXT),
    "has": typed(collections.has, _ANY, _ANY, cost=collections.has_cost),
    "hasKey": typed(collections.has_key, _MAP, _TEXT),
    "hasPrefix": typed(lambda prefix, text: text.startswith(prefix), _TEXT, _TEXT),
    "hasSuffix": typed(lambda suffix, text: text.endswith(suffix), _TEXT, _TEXT),
    "indent": typed(text.indent, "int", _TEXT),
    "initial": collections.initial,
    "int": numbers.to_int,
    "int64": numbers.to_int64,
    "join": typed(text.join, _TEXT, _ANY, cost=measure_all),
    "keys": typed(collections.keys, variadic=_MAP, cost=collections.keys_cost),
    "kindIs": typed(collections.kind_is, _TEXT, "interface {}"),
    "kindOf": collections.go_kind,
    "last": collections.last,
    "list": collections.make_list,
    "lower": typed(text.lower, _TEXT),
    "max": numbers.largest,
    "min": numbers.smallest,
    "mod": numbers.mod,
    "mul": numbers.mul,
    "nindent": typed(text.nindent, "int", _TEXT),
    "omit": typed(collections.omit, _MAP, variadic=_TEXT),
    "pick": typed(collections.pick, _MAP, variadic=_TEXT),
    "prepend": collections.prepend,
    "push": collections.append,
    "quote": text.quote,
    "repeat": typed(text.repeat, "int", _TEXT),
    "replace": typed(text.replace, _TEXT, _TEXT, _TEXT),
    "rest": collections.rest,
    "reverse": collections.reverse,
    "sha1sum": typed(text.sha1sum, _TEXT),
    "sha256sum": typed(text.sha256sum, _TEXT),
    "sortAlpha": typed(collections.sort_alpha, _ANY, cost=measure_all),
    "split": typed(text.split, _TEXT, _TEXT),
    "splitList": typed(text.split_list, _TEXT, _TEXT),
    "splitn": typed(text.splitn, _TEXT, "int", _TEXT),
    "squote": text.squote,
    "sub": numbers.sub,
    "substr": typed(text.substr, "int", "int", _TEXT),
    "ternary": typed(ternary, "interface {}", "interface {}", "bool"),
    "title": typed(text.title, _TEXT),
    "toJson": typed(collections.compact_json, _ANY, cost=measure_all),
    "toPrettyJson": typed(collections.pretty_json, _ANY, cost=measure_all),
    "toString": text.text_of,
    "toStrings": typed(collections.to_strings, _ANY, cost=measure_all),
    "trim": typed(text.trim, _TEXT),
    "trimAll": typed(text.trim_all, _TEXT, _TEXT, cost=text.trim_all_cost),
    "trimPrefix": typed(lambda prefix, text: text.removeprefix(prefix), _TEXT, _TEXT),
    "trimSuffix": typed(text.trim_suffix, _TEXT, _TEXT),
    "trunc": typed(text.trunc, "int", _TEXT),
    "typeOf": collections.type_of,
    "uniq": typed(collections.uniq, _ANY, cost=collections.uniq_cost),
    "until": typed(numbers.until, "int"),
    "untitle": typed(text.untitle, _TEXT),
    "upper": typed(text.upper, _TEXT),
    "values": typed(collections.values_of, _MAP, cost=collections.keys_cost),
    "without": typed(collections.without, _ANY, variadic=_ANY, cost=collections.without_cost),
}
FUNCTIONS: Final = {name: Function.of(call) for name, call in _CALLS.items()}
"""sprig's functions by name."""
