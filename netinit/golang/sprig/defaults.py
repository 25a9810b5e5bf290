"""Sprig's functions for values that may be missing, and for stopping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.values import ANY, Function, FunctionError, typed


def fail(message: str) -> Any:
    """Raise FunctionError with the message, which stops the template."""
    raise FunctionError(message)


# "Empty" means nil, false, 0, "", or a map or list without elements: Python's falsehood.
FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "all": lambda *values: all(values),
    "any": lambda *values: any(values),
    "coalesce": lambda *values: next(filter(None, values), None),
    "default": lambda fallback, *given: given[0] if given and given[0] else fallback,
    "empty": lambda value: not value,
    "fail": fail,
    "ternary": typed(lambda yes, no, test: yes if test else no, ANY, ANY, "bool"),
}
