"""Calls of functions: arguments are evaluated, checked and handed over; what fails becomes the template's error."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

from netinit.base.errors import TemplateError
from netinit.golang.template.limits import LARGE, Run
from netinit.golang.template.values import NO_VALUE

__all__ = ["CONSTANT_KINDS", "PYTHON_TYPES", "Argument", "Checked", "make_call"]

CONSTANT_KINDS: Final = {
    "bool": "bool",
    "string": "string",
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "uint8": "unsigned integer",
    "uint32": "unsigned integer",
    "uint64": "unsigned integer",
    "float64": "float",
}
"""What Go calls the constant that a parameter of this type wants."""

PYTHON_TYPES: Final[dict[str, type]] = {
    "bool": bool,
    "string": str,
    "int": int,
    "float64": float,
    "map[string]interface {}": dict,
}
"""The Python type whose values are always right for a parameter of this type."""


_SIZED: Final = frozenset((str, list, dict))


class Checked:
    """The type of no value: stands for parameters whose every argument has to be checked."""


class Argument:
    """How to get an argument, the Python type that is right as it is (None: every type), and the check for others.

    A constant is known without asking: it stands in `value`, and nothing needs checking.
    """

    __slots__ = ("admit", "constant", "expr", "python_type", "value")

    def __init__(
        self,
        expr: Callable[[Run, Any], Any],
        python_type: type | None,
        admit: Callable[[Any], Any],
        *,
        constant: bool = False,
        value: Any = None,
    ) -> None:
        self.expr, self.python_type, self.admit = expr, python_type, admit
        self.constant, self.value = constant, value


def make_call(
    call: Callable[..., Any],
    arguments: list[Argument],
    fail: Callable[[Exception], TemplateError],
    *,
    piped: bool,
) -> Callable[[Run, Any], Any]:
    """The function that calls with these arguments; when `piped`, the last argument is evaluated before the others.

    One and two arguments, and constants, which nearly every call has, get code of their own: it halves the time.
    """
    leading = list(itertools.takewhile(lambda argument: argument.constant, arguments))
    if leading:
        call = functools.partial(call, *(argument.value for argument in leading))
        arguments = arguments[len(leading) :]
    if len(arguments) == 1:
        return _call_one(call, arguments[0], fail)
    if len(arguments) == 2:  # noqa: PLR2004 - as said above
        first, second = arguments
        if second.constant:
            return _call_with_constant(call, first, second.value, fail)
        return _call_two(call, first, second, fail, piped=piped)
    return _call_many(call, arguments, fail, piped=piped)


def _call_one(
    call: Callable[..., Any], argument: Argument, fail: Callable[[Exception], TemplateError]
) -> Callable[[Run, Any], Any]:
    expr, python_type, admit = argument.expr, argument.python_type, argument.admit

    def call_one(run: Run, dot: Any) -> Any:
        value = expr(run, dot)
        if value is NO_VALUE or (python_type is not None and type(value) is not python_type):
            value = admit(value)
        try:
            result = call(value)
            if type(value) is str and len(value) > LARGE:
                run.account(value, read=True)
            if type(result) in _SIZED and len(result) > LARGE:
                run.account(result)
        except Exception as problem:
            raise fail(problem) from problem
        return result

    return call_one


def _call_with_constant(
    call: Callable[..., Any], argument: Argument, constant: Any, fail: Callable[[Exception], TemplateError]
) -> Callable[[Run, Any], Any]:
    expr, python_type, admit = argument.expr, argument.python_type, argument.admit

    def call_with_constant(run: Run, dot: Any) -> Any:
        value = expr(run, dot)
        if value is NO_VALUE or (python_type is not None and type(value) is not python_type):
            value = admit(value)
        try:
            result = call(value, constant)
            if type(value) is str and len(value) > LARGE:
                run.account(value, read=True)
            if type(result) in _SIZED and len(result) > LARGE:
                run.account(result)
        except Exception as problem:
            raise fail(problem) from problem
        return result

    return call_with_constant


def _call_two(
    call: Callable[..., Any],
    first: Argument,
    second: Argument,
    fail: Callable[[Exception], TemplateError],
    *,
    piped: bool,
) -> Callable[[Run, Any], Any]:
    left, left_type, admit_left = first.expr, first.python_type, first.admit
    right, right_type, admit_right = second.expr, second.python_type, second.admit

    def call_two(run: Run, dot: Any) -> Any:
        other = right(run, dot) if piped else None
        value = left(run, dot)
        if value is NO_VALUE or (left_type is not None and type(value) is not left_type):
            value = admit_left(value)
        if not piped:
            other = right(run, dot)
        if other is NO_VALUE or (right_type is not None and type(other) is not right_type):
            other = admit_right(other)
        try:
            result = call(value, other)
            if type(value) is str and len(value) > LARGE:
                run.account(value, read=True)
            if type(other) is str and len(other) > LARGE:
                run.account(other, read=True)
            if type(result) in _SIZED and len(result) > LARGE:
                run.account(result)
        except Exception as problem:
            raise fail(problem) from problem
        return result

    return call_two


def _call_many(
    call: Callable[..., Any],
    arguments: list[Argument],
    fail: Callable[[Exception], TemplateError],
    *,
    piped: bool,
) -> Callable[[Run, Any], Any]:
    own = arguments[:-1] if piped else arguments
    plain = [(argument.expr, argument.python_type, argument.admit) for argument in own]
    final = arguments[-1] if piped else None

    def call_many(run: Run, dot: Any) -> Any:
        last = None if final is None else final.expr(run, dot)
        values: list[Any] = []
        for expr, python_type, admit in plain:
            value = expr(run, dot)
            if value is NO_VALUE or (python_type is not None and type(value) is not python_type):
                value = admit(value)
            values.append(value)
        if final is not None:
            values.append(final.admit(last))
        try:
            result = call(*values)
            for value in values:
                if type(value) is str and len(value) > LARGE:
                    run.account(value, read=True)
            if type(result) in _SIZED and len(result) > LARGE:
                run.account(result)
        except Exception as problem:
            raise fail(problem) from problem
        return result

    return call_many
