"""Compile syntax trees into closures: text, actions, control structures and template calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from netinit.golang.errors import TemplateError
from netinit.golang.template import limits
from netinit.golang.template.access import pointed_to
from netinit.golang.template.expressions import compile_pipe
from netinit.golang.template.limits import Rendering
from netinit.golang.template.nodes import ROOT, Action, Block, Invoke, Node, Text
from netinit.golang.template.printing import printable, sprint
from netinit.golang.template.scope import Frame, last_visited
from netinit.golang.template.values import NO_VALUE, Enum, FunctionError, NamedInt, Uint8, kind_of, type_name

Step: TypeAlias = "Callable[[Rendering, Any], None]"


class Body:
    """A list of nodes, compiled on first rendering: most of a template is never rendered.

    Two threads may compile it at once, which is harmless.
    """

    def __init__(self, nodes: Sequence[Node], frame: Frame) -> None:
        self.nodes, self.frame = nodes, frame
        self.compiled: tuple[Step, ...] | None = None if nodes else ()

    def steps(self) -> tuple[Step, ...]:
        """Return the compiled nodes."""
        if self.compiled is None:
            self.compiled = tuple(_compile(self.frame, node) for node in self.nodes)
        return self.compiled


class _LeaveBody(Exception):  # noqa: N818 - a jump, not an error
    """{{break}} or {{continue}}, which the innermost range catches; its argument is the word."""


def enter(run: Rendering, body: Body, dot: Any) -> None:
    """Render a body with this dot, with its own variables."""
    run.vars = {ROOT: dot}
    for step in body.steps():
        step(run, dot)


def _compile(frame: Frame, node: Node) -> Step:
    if isinstance(node, Text):
        text = node.text
        return lambda run, _dot: run.put(text)
    if isinstance(node, Action):
        return _action(frame, node)
    if isinstance(node, Invoke):
        return _invocation(frame, node)
    if isinstance(node, Block):
        return _loop(frame, node) if node.word == "range" else _choice(frame, node)
    word = node.text

    def leave(_run: Rendering, _dot: Any) -> None:
        raise _LeaveBody(word)

    return leave


def _action(frame: Frame, node: Action) -> Step:
    expr = compile_pipe(frame, node.pipe, keep_nil=True)
    if node.pipe.variables:
        return expr

    def show(value: Any) -> str:
        if kind_of(value) == "func":
            raise frame.error(node, f"can't print {node} of type {type_name(value)}")
        try:
            return sprint(printable(value))
        except (FunctionError, TypeError) as problem:
            raise frame.error(node, f"can't print {node}: {problem}") from None

    def print_value(run: Rendering, dot: Any) -> None:
        value = expr(run, dot)
        run.put(value if isinstance(value, str) else show(value))

    if node not in frame.marked:
        return print_value

    def print_marked(run: Rendering, dot: Any) -> None:
        print_value(run, dot)
        run.marks.append((len(run.parts) - 1, node))

    return print_marked


def _choice(frame: Frame, node: Block) -> Step:
    """{{if}} or {{with}}, whose value becomes the dot."""
    narrows = node.word == "with"
    inner = frame.inner(None) if narrows else frame
    branches = [(compile_pipe(frame, pipe, keep_nil=not narrows), Body(body, inner)) for pipe, body in node.branches]
    otherwise = Body(node.otherwise, frame)

    def choose(run: Rendering, dot: Any) -> None:
        chosen = otherwise
        for test, then in branches:
            if value := test(run, dot):
                chosen, dot = then, value if narrows else dot
                break
        for step in chosen.steps():
            step(run, dot)

    return choose


def _loop(frame: Frame, node: Block) -> Step:
    ((pipe, nodes),) = node.branches
    source = compile_pipe(frame, pipe)
    names = [variable.declared for variable in pipe.variables]
    body, otherwise = Body(nodes, frame.inner(node)), Body(node.otherwise, frame)
    cost = len(nodes) + 1

    def fail(value: Any, message: str) -> TemplateError:
        return frame.error(last_visited(pipe), message.format(sprint(value)))

    def repeat(run: Rendering, dot: Any) -> None:
        value = source(run, dot)
        pairs = _pairs(run, value, len(names), fail)
        variables = run.vars
        variables[node] = value  # errors ask for its type
        empty = True
        for key, element in pairs:
            empty = False
            run.spend(cost)
            if names:
                variables[names[0]] = key
                variables[names[-1]] = element
            try:
                for step in body.steps():
                    step(run, element)
            except _LeaveBody as jump:
                if jump.args == ("break",):
                    break
        if empty:
            for step in otherwise.steps():
                step(run, dot)

    return repeat


def _invocation(frame: Frame, node: Invoke) -> Step:
    bodies, name = frame.bodies, node.name
    expr = None if node.pipe is None else compile_pipe(frame, node.pipe)

    def invoke(run: Rendering, dot: Any) -> None:
        body = bodies.get(name)
        if body is None:
            raise frame.error(node, f'template "{name}" not defined')
        if run.depth <= 0:
            raise frame.error(node, f"exceeded maximum template depth ({limits.MAX_DEPTH})")
        value = NO_VALUE if expr is None else expr(run, dot)
        run.spend(len(body.nodes) + 1)
        variables = run.vars
        run.depth -= 1
        enter(run, body, value)
        run.depth += 1
        run.vars = variables

    return invoke


def _pairs(
    run: Rendering, value: Any, variables: int, fail: Callable[[Any, str], TemplateError]
) -> Iterable[tuple[Any, Any]]:
    """Return what a range iterates over: pairs of key or index and element."""
    value = pointed_to(value)
    kind = kind_of(value)
    if kind == "slice":
        return enumerate(map(Uint8, value) if isinstance(value, bytes) else value)
    if kind == "map":
        run.spend(len(value) >> 3)  # all keys are sorted, however few are visited
        return [(key, value[key]) for key in sorted(value)]
    if value is NO_VALUE:
        return ()
    if kind in ("int", "uint"):
        if variables > 1:
            raise fail(value, "can't use {} to iterate over more than one variable")
        is_named = isinstance(value, (Enum, NamedInt))
        return ((NO_VALUE, NamedInt(at, value.go_type) if is_named else type(value)(at)) for at in range(value))
    if kind == "pointer":
        value = sprint(value).removeprefix("&")
    raise fail(value, "range can't iterate over {}")


