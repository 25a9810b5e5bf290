"""Compile function calls: evaluate and check the arguments, call, and convert exceptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from netinit.base.errors import TemplateError
from netinit.golang.template.limits import Run
from netinit.golang.template.values import NO_VALUE

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
"""Go's name for a constant of each parameter type."""

PYTHON_TYPES: Final[dict[str, type]] = {
    "bool": bool,
    "string": str,
    "int": int,
    "float64": float,
    "map[string]interface {}": dict,
}
"""The Python type whose values need no check for a parameter type."""


class Checked:
    """A type without instances, for parameters whose every argument is checked."""


Argument: TypeAlias = "tuple[Callable[[Run, Any], Any], type | None, Callable[[Any], Any]]"
"""How to evaluate an argument, the Python type that needs no check (None: any), and the check for others."""


def make_call(
    call: Callable[..., Any],
    arguments: Sequence[Argument],
    piped: Argument | None,
    fail: Callable[[Exception], TemplateError],
    cost: Callable[..., int] | None = None,
) -> Callable[[Run, Any], Any]:
    """Return a function that makes this call. `piped` is evaluated first and passed last.

    `cost` returns the steps to charge for these arguments; `fail` converts an exception.
    """
    fixed = [getattr(argument[0], "literal", None) for argument in arguments] + ([] if piped is None else [None])
    is_fixed = [right is None and hasattr(expr, "literal") for expr, right, _ in arguments]
    computed = [(place, *argument) for place, argument in enumerate(arguments) if not is_fixed[place]]
    end = len(arguments)

    def call_function(run: Run, dot: Any) -> Any:
        last = None if piped is None else piped[0](run, dot)
        values = fixed.copy()
        for place, expr, right, admit in computed:
            value = expr(run, dot)
            fits = value is not NO_VALUE and (right is None or type(value) is right)
            values[place] = value if fits else admit(value)
        if piped is not None:
            fits = last is not NO_VALUE and (piped[1] is None or type(last) is piped[1])
            values[end] = last if fits else piped[2](last)
        try:
            if cost is not None:
                run.spend(cost(*values))
            result = call(*values)
            run.charge(values, result)
        except Exception as problem:
            raise fail(problem) from problem
        return result

    return call_function
