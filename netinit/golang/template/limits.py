"""Limits of one rendering: neither a template nor a pod's data may hang the injector.

They are at least a hundred times what real templates use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from netinit.golang.errors import TemplateError
from netinit.golang.template.nodes import Action, Block, Variable
from netinit.golang.template.values import NO_VALUE, FunctionError, from_bytes, to_bytes

MAX_DEPTH = 100
"""Nested templates."""
MAX_OUTPUT = 4 << 20
"""Characters of the output."""
MAX_STEPS = 1_000_000
"""Iterations, template calls, and the work of functions on large values: one or two seconds."""
MAX_VALUE_SIZE: Final = 1 << 20
"""Characters or elements that one function may build."""
LARGE: Final = 2048
"""Values longer than this cost steps in proportion to their length, whatever is done with them."""

_MAX_VALUE_DEPTH: Final = 200
_NOWHERE: Final = object()
_LEAVES: Final = (int, float, type(None), type(NO_VALUE))


class Rendering:
    """One rendering: its output in parts, which of them foreign actions printed, variables, remaining limits."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[str] = []
        self.marks: list[tuple[int, Action]] = []
        """Which parts foreign actions printed, and which actions those are."""
        self.room, self.steps, self.depth = MAX_OUTPUT, MAX_STEPS, MAX_DEPTH
        self.vars: dict[Variable | Block | None, Any] = {}
        """Variables by their declarations, and what each range iterates over."""
        self.root: Any = _NOWHERE
        """The rendering's data, if it may have constants (see `scope`)."""
        self.different: frozenset[str] = frozenset()
        """The constants that are other objects than in the template's first rendering."""

    @property
    def text(self) -> str:
        """The rendered text."""
        text = "".join(self.parts)
        # halves of a character may have come together again
        return text if text.isascii() else from_bytes(to_bytes(text))

    def spend(self, steps: int) -> None:
        """Consume steps. Raises TemplateError if none are left."""
        self.steps -= steps
        if self.steps < 0:
            raise TemplateError(f"template: {self.name}: rendering takes more than {MAX_STEPS} steps")

    def put(self, text: str) -> None:
        """Append to the output. Raises TemplateError if it becomes too large."""
        self.room -= len(text)
        if self.room < 0:
            raise TemplateError(f"template: {self.name}: the output is longer than {MAX_OUTPUT} characters")
        self.parts.append(text)

    def charge(self, arguments: Iterable[Any], result: Any) -> None:
        """Consume steps in proportion to the length of a call's large texts and large result."""
        for value in arguments:
            if isinstance(value, str) and len(value) > LARGE:
                self._account(len(value), 256)
        if isinstance(result, (str, list, dict)) and len(result) > LARGE:
            self._account(len(result), 8)

    def _account(self, size: int, per_step: int) -> None:
        check_size(size)
        self.spend(size // per_step)


def check_size(size: int) -> None:
    """Raise FunctionError if a value of this size is too large; call it before building the value."""
    if size > MAX_VALUE_SIZE:
        raise FunctionError(f"the value would be longer than {MAX_VALUE_SIZE} characters")


def measure(value: Any) -> int:
    """Return the size of a tree in elements and characters. Raises FunctionError if it is too large.

    For functions that walk their argument: a list that contains another one twice, twenty levels deep, has a million
    elements.
    """
    size = 0
    todo: list[tuple[Sequence[Any], int]] = [([value], 0)]
    while todo:
        items, depth = todo.pop()
        size += len(items)
        for item in items:
            if item.__class__ is str or isinstance(item, (str, bytes)):
                size += len(item)
            elif not isinstance(item, _LEAVES):
                children = _children(item)
                if children:
                    if depth >= _MAX_VALUE_DEPTH:
                        raise FunctionError(f"the value is nested deeper than {_MAX_VALUE_DEPTH} levels")
                    size += len(children)
                    todo.append((children, depth + 1))
        check_size(size)
    return size


def measure_all(*values: Any) -> int:
    """Return the steps of a function that walks all its arguments. Raises FunctionError if they are too large."""
    return measure(values) >> 2


def text_cost(*texts: Any) -> int:
    """Return the steps of a function that does more than copy texts: one for 16 characters, rounded down."""
    return sum(len(text) for text in texts if isinstance(text, str)) >> 4


def character_cost(*texts: Any) -> int:
    """Return the steps of a function that handles characters one by one, at least those beyond ASCII."""
    return sum(len(text) >> (6 if text.isascii() else 3) for text in texts if isinstance(text, str))


def _children(item: Any) -> Sequence[Any]:
    if isinstance(item, (list, tuple)):
        return item
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    tree = getattr(item, "tree", None)  # what a struct was made of, where its fields are made when they are asked for
    return [tree] if tree is not None else list(getattr(item, "fields", {}).values())
