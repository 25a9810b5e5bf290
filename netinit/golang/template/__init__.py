"""Go's text/template in Python.

    template = Template("hello", "Hello {{ .Name | upper }}", functions={"upper": lambda text: text.upper()})
    template.render({"Name": "mesh"})

A template is parsed once and rendered any number of times, from any thread. Results and error messages are those of Go's
text/template, with which the tests compare them. `values` describes the data model. The functions of the language are in
`builtins`; the caller adds others, such as `netinit.golang.sprig.FUNCTIONS`. Complex numbers, channels and ranges over
functions are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from netinit.golang.errors import TemplateError
from netinit.golang.template.builtins import BUILTINS
from netinit.golang.template.compiler import Body, enter
from netinit.golang.template.limits import Rendering
from netinit.golang.template.nodes import Action
from netinit.golang.template.origins import Trusted, find_dependent, foreign_actions, statement_at
from netinit.golang.template.parser import parse
from netinit.golang.template.scope import Frame
from netinit.golang.template.values import NO_VALUE, Function, FunctionError, StringMap, Struct, TypedList, TypedMap

__all__ = [
    "NO_VALUE", "Function", "FunctionError", "Rendering", "StringMap", "Struct", "Template", "TemplateError", "TypedList", "TypedMap",
]  # fmt: skip


class Template:
    """A parsed text with the templates that it defines; immutable.

    `name`: for messages. `called`: the functions that the text names, with the position of the first use. The first rendering
    compiles it: most templates of a configuration are not used.
    """

    def __init__(
        self,
        name: str,
        text: str,
        functions: Mapping[str, Callable[..., Any] | Function] | None = None,
        delimiters: tuple[str, str] = ("{{", "}}"),
        trusted: Trusted | None = None,
        *,
        constants: Iterable[str] = (),
    ) -> None:
        """Parse a template, which may call these functions and Go's own. An empty delimiter is the default one.

        `trusted`: the fields of the data that are not foreign (see `origins`); None: mark nothing. `constants`: those
        that are the same object in most renderings (see `scope`). Raises TemplateError with Go's message.
        """
        self.name = name
        self._functions = {**BUILTINS, **{name: Function.of(call) for name, call in (functions or {}).items()}}
        self._trusted = trusted
        self._constants = frozenset(constants)
        self._first: Mapping[str, Any] | None = None
        """The constants' objects in the first rendering."""
        self._compiled: dict[str, Body] | None = None
        try:
            self._trees, self.called = parse(name, text, (delimiters[0] or "{{", delimiters[1] or "}}"), self._functions)
        except RecursionError:
            raise TemplateError(f"template: {name}: the text is nested too deeply") from None

    def render(self, data: Any) -> str:
        """Return the text of `render_marked`."""
        return self.render_marked(data).text

    def render_marked(self, data: Any) -> Rendering:
        """Render the template, and record the output of foreign actions.

        `data`: see `values`. Raises TemplateError with Go's message, also when a limit is exceeded.
        """
        run = Rendering(self.name)
        if self._constants and isinstance(data, Struct):
            if self._first is None:
                self._first = {name: data.fields.get(name) for name in self._constants}
            run.root = data
            run.different = frozenset([name for name, value in self._first.items() if data.fields.get(name) is not value])
        try:
            enter(run, self._bodies()[self.name], NO_VALUE if data is None else data)
        except RecursionError:
            raise TemplateError(f"template: {self.name}: templates or values are nested too deeply") from None
        return run

    def depends_on_data(self, position: int, trusted: Trusted, *, is_certain: bool = False) -> bool:
        """Whether a failure at this position of the text depends on data in fields that are not `trusted`.

        With `is_certain` it does only if such data chooses the branch.
        """
        statement = statement_at(self._trees.values(), position)
        chosen, reading = find_dependent(self._trees, self.name, trusted)
        return statement in chosen or (statement in reading and not is_certain)

    def _bodies(self) -> dict[str, Body]:
        """Return the compiled templates. Two threads may compile at once, which is harmless."""
        bodies = self._compiled
        if bodies is None:
            marked = frozenset[Action]()
            if self._trusted is not None:
                marked = foreign_actions(self._trees, self.name, self._trusted)
            bodies = {}
            for name, tree in self._trees.items():
                bodies[name] = Body(tree.body, Frame(tree, self._functions, self._constants, marked, bodies))
            self._compiled = bodies
        return bodies
