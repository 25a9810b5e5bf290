"""What Go's templates print in the place of a missing or unfit value: `<nil>`, `<no value>`, `%!s(<nil>)`.

Go calls that no error, so that it would end in a pod as the name of an image or a list of ports. Here a rendered field
that holds it is refused. A text that the pod itself brings may look like that, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, shown
from netinit.golang.template import Rendering

__all__ = ["may_hold_unset", "refuse_unset", "texts_in"]

_UNSET = r"<nil>|<no value>|%![a-zA-Z]?\([^()]*\)?"
_REMEDY = "a value is missing or unfit: give it with --set KEY=VALUE or --valuesFile, or correct the template"
_ACTION = 200  # characters of an action that an error shows


def may_hold_unset(text: str) -> bool:
    """Whether it is worth looking closer at a rendered text."""
    return "<n" in text or "%!" in text


def refuse_unset(name: str, tree: Any, pod: Tree, trace: Callable[[], Rendering], source: str) -> None:
    """Nothing; raises InjectionError with a line for every field of the tree that holds what stands for no value.

    `trace` renders the template of that name again with every action marked; `source` is the template's text, in which
    lines are counted.
    """
    found = [(path, text, words) for path, text in _fields(tree, "") if (words := re.findall(_UNSET, text))]
    if not found:
        return
    own = "\n".join(texts_in(pod))
    rendering = trace()
    printed = [
        (action, len(words)) for place, action in rendering.marks if (words := re.findall(_UNSET, rendering.parts[place]))
    ]
    actions = iter([action for action, times in printed for _ in range(times)])  # in the order of the fields
    problems = []
    for path, text, words in found:
        culprits = [next(actions, None) for _ in words]
        if all(word in own for word in words):
            continue
        where = "".join(f"line {source.count(chr(10), 0, one.pos) + 1}, {shorten(str(one), _ACTION)}: " for one in culprits[:1] if one)
        problems.append(f"template {name!r}: {where}{path} is {shown(text)}; {_REMEDY}")
    if problems:
        raise InjectionError("\n".join(dict.fromkeys(problems)))


def _fields(tree: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text of the tree with the path of its field, and every key with that of its map."""
    if isinstance(tree, str):
        yield path or "the whole", tree
    elif isinstance(tree, dict):
        for key, item in tree.items():
            here = f"{path}.{key}" if path else str(key)
            yield f"a key of {path or 'the whole'}", str(key)
            yield from _fields(item, here)
    elif isinstance(tree, list):
        for position, item in enumerate(tree):
            yield from _fields(item, f"{path}[{position}]")


def texts_in(tree: Any) -> Iterator[str]:
    """Every key and text of the tree."""
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo += [*item, *item.values()]
        elif isinstance(item, list):
            todo += item
