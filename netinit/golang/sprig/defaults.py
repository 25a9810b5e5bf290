"""Sprig's functions for values that may be missing, and for stopping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.values import Function, FunctionError, typed


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


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "all": all_given,
    "any": any_given,
    "coalesce": coalesce,
    "default": default,
    "empty": empty,
    "fail": typed(fail, "string"),
    "ternary": typed(ternary, "interface {}", "interface {}", "bool"),
}
