"""Compile pipelines into closures of the run and the dot that return a value.

Names, constants, functions and variable slots are bound once. Evaluation order and error positions are Go's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeAlias

from netinit.golang.errors import TemplateError
from netinit.golang.template import access, builtins
from netinit.golang.template import nodes as syntax
from netinit.golang.template.access import (
    MethodError,
    NoFieldError,
    UnknownFieldError,
    check_argument,
    field,
    word_missing_field,
)
from netinit.golang.template.limits import Rendering
from netinit.golang.template.literals import Number
from netinit.golang.template.scope import Frame, fold, last_visited
from netinit.golang.template.values import ANY, NO_VALUE, VALUE, Function, FunctionError, kind_of, type_name

Expr: TypeAlias = "Callable[[Rendering, Any], Any]"


def compile_pipe(frame: Frame, pipe: syntax.Pipe, *, keep_nil: bool = False) -> Expr:
    """Compile a pipeline, and the variables that it declares or assigns.

    The result is never None: nil from a pipeline has lost its interface in Go, so it becomes `NO_VALUE`. `keep_nil`
    omits this conversion for callers that treat both alike.
    """
    expr = compile_command(frame, pipe.commands[0], None, pipe)
    for before, command in zip(pipe.commands, pipe.commands[1:], strict=False):
        expr = compile_command(frame, command, _without_nil(expr), last_visited(before))
    if pipe.variables or not keep_nil:
        expr = _without_nil(expr)
    expr = fold(expr, pipe, frame.constants)
    for variable in pipe.variables:
        if variable.declared is None:
            return _failing(frame, last_visited(pipe), f"undefined variable: {variable}", expr)
        expr = _storing(expr, variable.declared)
    return expr


def _without_nil(expr: Expr) -> Expr:
    if getattr(expr, "never_nil", False):
        return expr

    def value(run: Rendering, dot: Any) -> Any:
        found = expr(run, dot)
        return NO_VALUE if found is None else found

    value.never_nil = True  # type: ignore[attr-defined]
    return value


def _storing(expr: Expr, variable: syntax.Variable) -> Expr:
    def store(run: Rendering, dot: Any) -> Any:
        run.vars[variable] = value = expr(run, dot)
        return value

    return store


def _failing(
    frame: Frame, node: syntax.Expression | syntax.Command, message: str, first: Expr | None = None
) -> Expr:
    """Return an expression that fails, after `first` has been evaluated for errors of its own."""

    def fail(run: Rendering, dot: Any) -> NoReturn:
        if first is not None:
            first(run, dot)
        raise frame.error(node, message)

    return fail


def compile_command(frame: Frame, command: syntax.Command, final: Expr | None, previous: syntax.Expression) -> Expr:
    """Compile a command; `final`: the piped value, `previous`: the node that Go visited before."""
    first = command.args[0]
    arguments = command.args[1:]
    if isinstance(first, syntax.Identifier):
        return compile_call(frame, first, command, arguments, final)
    given = bool(arguments) or final is not None
    if given and isinstance(first, syntax.Fields):
        return _method_call(frame, first, arguments, final)
    if given:
        blamed = previous if isinstance(first, syntax.Pipe) else first
        return _failing(frame, blamed, f"can't give argument to non-function {first}", final)
    if isinstance(first, syntax.Literal) and first.value is None:
        return _failing(frame, first, "nil is not a command")
    return compile_operand(frame, first)


def compile_operand(frame: Frame, node: syntax.Expression) -> Expr:
    """Compile an operand without arguments."""
    if isinstance(node, syntax.Dot):
        return _dot
    if isinstance(node, syntax.Fields):
        expr = _chain(frame, node)
        return fold(expr, node, frame.constants) if isinstance(node.base, syntax.Dot) else expr
    if isinstance(node, syntax.Pipe):
        return compile_pipe(frame, node)
    if isinstance(node, syntax.Identifier):
        return compile_call(frame, node, node, [], None)
    if isinstance(node, syntax.Variable):
        return _variable(frame, node, node)
    return _literal(frame, node, ANY)


def _literal(frame: Frame, node: syntax.Literal, go_type: str) -> Expr:
    try:
        value = literal(node, go_type)
    except FunctionError as problem:
        return _failing(frame, node, str(problem))

    def constant(_run: Rendering, _dot: Any) -> Any:
        return value

    constant.never_nil = value is not None  # type: ignore[attr-defined]
    constant.literal = value  # type: ignore[attr-defined]
    return constant


def _dot(_run: Rendering, dot: Any) -> Any:
    return dot


def _variable(frame: Frame, node: syntax.Variable, blamed: syntax.Variable | syntax.Fields) -> Expr:
    declared = node.declared
    if declared is None:
        # visible to the parser, as in {{if}}{{$x := 1}}{{else}}{{$x}}{{end}}, but never set
        return _failing(frame, blamed, f"undefined variable: {node}")

    def variable(run: Rendering, _dot: Any) -> Any:
        return run.vars.get(declared, NO_VALUE)

    return variable


def _walk(value: Any, names: Iterable[str], holder: Any) -> tuple[Any, Any]:
    """Follow a chain of fields; return its value and the container of the last field."""
    for name in names:
        try:
            found = field(value, name)
        except NoFieldError as problem:
            kind = FunctionError if problem.nil else UnknownFieldError
            raise kind(word_missing_field(problem, name, value, holder)) from None
        holder, value = value, found
    return value, holder


def _chain(frame: Frame, node: syntax.Fields) -> Expr:
    (base, loop), names, blamed = _base(frame, node), node.names, last_visited(node)

    def explain(run: Rendering, value: Any) -> TemplateError:
        try:
            _walk(value, names, run.vars.get(loop))
        except MethodError as problem:
            return frame.error(node, str(problem))
        except FunctionError as problem:
            return frame.error(blamed, str(problem), is_certain=isinstance(problem, UnknownFieldError))
        return frame.error(node, "the fields changed while they were read")

    def fields(run: Rendering, dot: Any) -> Any:
        value = start = base(run, dot)
        try:
            for name in names:
                value = value.get(name, NO_VALUE) if type(value) is dict else field(value, name)
        except (NoFieldError, FunctionError):
            raise explain(run, start) from None
        return value

    return fields


def _method_call(frame: Frame, node: syntax.Fields, arguments: list[syntax.Expression], final: Expr | None) -> Expr:
    *names, last = node.names
    base, loop = _base(frame, node)
    place = last_visited(node)

    def fail(problem: Exception) -> TemplateError:
        return problem if isinstance(problem, TemplateError) else frame.error(node, f"error calling {last}: {problem}")

    def call_method(run: Rendering, dot: Any) -> Any:
        piped = None if final is None else final(run, dot)
        try:
            value, within = _walk(base(run, dot), names, run.vars.get(loop))
            if value is NO_VALUE:
                return NO_VALUE
            found = access.method(value, last)
            if found is None:
                raise FunctionError(_word_no_method(value, last, within))  # noqa: TRY301 - worded and placed below
            function = Function.of(found)
            access.check_count(function, last, len(arguments), int(final is not None))
        except FunctionError as problem:
            at = node if isinstance(problem, MethodError) else place
            raise frame.error(at, str(problem), is_certain=isinstance(problem, UnknownFieldError)) from problem
        given = None if final is None else lambda _run, _dot: piped
        return _compile_arguments(frame, function, function.call, arguments, final=given, place=place, fail=fail)(run, dot)

    return call_method


def _base(frame: Frame, node: syntax.Fields) -> tuple[Expr, syntax.Block | None]:
    """Return the start of the chain, and the range whose element it is, or None."""
    if isinstance(node.base, syntax.Variable):
        return _variable(frame, node.base, node), node.base.declared.loop if node.base.declared else None
    return compile_operand(frame, node.base), frame.loop if isinstance(node.base, syntax.Dot) else None


def _word_no_method(value: Any, name: str, holder: Any) -> str:
    kind = kind_of(value)
    if kind in ("struct", "pointer") and value and name in value.fields:
        return f"{name} has arguments but cannot be invoked as function"
    if kind == "map" and access.key_type(value) == "string":
        return f"{name} is not a method but has arguments"
    nil = value is None or (kind == "pointer" and not value and name in value.fields)
    return word_missing_field(NoFieldError(nil=nil), name, value, holder)


def literal(node: syntax.Literal, go_type: str) -> Any:
    """Return the constant as a value of this type. Raises FunctionError if Go rejects it."""
    value = node.value
    if value is None:
        if access.can_be_nil(go_type):
            return NO_VALUE if go_type == VALUE else None
        raise FunctionError(f"cannot assign nil to {go_type}")
    if go_type in (ANY, VALUE):
        if not isinstance(value, Number):
            return value
        if value.ideal is None:
            raise FunctionError(f"{node} overflows int")
        return value.ideal
    wanted = access.CONSTANT_KINDS.get(access.basic_type(go_type))
    if wanted is None:
        raise FunctionError(f"can't handle {node} for arg of type {go_type}")
    found: Any = value if wanted == type_name(value) else None
    if isinstance(value, Number):
        found = {"integer": value.as_int, "unsigned integer": value.as_uint, "float": value.as_float}.get(wanted)
    if found is None:
        raise FunctionError(f"expected {wanted}; found {node}")
    return found


def compile_call(
    frame: Frame,
    name: syntax.Identifier,
    blamed: syntax.Command | syntax.Identifier,
    arguments: list[syntax.Expression],
    final: Expr | None,
) -> Expr:
    """Compile a function call; `blamed`: the node at which failures of the function are reported."""
    function = frame.functions[name.text]
    piped = 0 if final is None else 1
    if function.call is builtins.decided_elsewhere:
        return _short_circuit(frame, name, arguments, final)
    try:
        access.check_count(function, name.text, len(arguments), piped)
    except FunctionError as problem:
        return _failing(frame, name, str(problem), final)
    called = function.call
    if function is builtins.BUILTINS["call"]:
        called = functools.partial(builtins.call, str(arguments[0]) if arguments else None)

    def fail(problem: Exception) -> TemplateError:
        return problem if isinstance(problem, TemplateError) else frame.error(blamed, f"error calling {name}: {problem}")

    return _compile_arguments(frame, function, called, arguments, final=final, place=name, fail=fail)


def _compile_arguments(
    frame: Frame, function: Function, called: Callable[..., Any], arguments: list[syntax.Expression], *, final: Expr | None,
    place: syntax.Expression, fail: Callable[[Exception], TemplateError],
) -> Expr:  # fmt: skip
    """Compile the call of a function with these arguments; an unfit piped value is reported at the last one, or at `place`."""
    prepared = [_argument(frame, node, function.type_of(number)) for number, node in enumerate(arguments)]
    piped: access.Argument | None = None
    if final is not None:
        piped = (final, *_admission(frame, function.type_of(len(arguments)), last_visited(arguments[-1]) if arguments else place))
    return access.make_call(called, prepared, piped, fail, function)


def _argument(frame: Frame, node: syntax.Expression, go_type: str) -> access.Argument:
    if isinstance(node, syntax.Literal):
        return _literal(frame, node, go_type), None, lambda value: value
    expr = (
        compile_pipe(frame, node, keep_nil=go_type == ANY)
        if isinstance(node, syntax.Pipe)
        else compile_operand(frame, node)
    )
    return expr, *_admission(frame, go_type, last_visited(node))


def _admission(frame: Frame, go_type: str, at: syntax.Expression) -> tuple[type | None, Callable[[Any], Any]]:
    """Return the Python type that needs no check for this parameter, and the check for others."""

    def admit(value: Any) -> Any:
        if getattr(value, "go_type", "") == go_type:  # most arguments of a type of their own fit
            return value
        try:
            return check_argument(value, go_type)
        except FunctionError as problem:
            raise frame.error(at, str(problem)) from None

    return access.unchecked_type(go_type), admit


def _short_circuit(
    frame: Frame, name: syntax.Identifier, arguments: list[syntax.Expression], final: Expr | None
) -> Expr:
    """Compile and/or, which stop at the first deciding argument."""
    if not arguments and final is None:
        return _failing(frame, name, f"wrong number of args for {name}: want at least 1 got 0")
    exprs = [_argument(frame, node, VALUE)[0] for node in arguments]
    stops = name.text == "or"

    def decide(run: Rendering, dot: Any) -> Any:
        piped = None if final is None else final(run, dot)
        value: Any = None
        for expr in exprs:
            value = expr(run, dot)
            if (not value) is not stops:
                return value
        return value if final is None else piped

    return decide
