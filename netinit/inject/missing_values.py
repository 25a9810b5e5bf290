"""Reject Go's output for missing or unsuitable values: `<nil>`, `<no value>`, `%!s(<nil>)`.

To Go this is no error, so it would become an image name or a list of ports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from netinit.base.errors import InjectionError
from netinit.base.sanitize import shorten
from netinit.base.tree import Tree, shown
from netinit.golang.template import Rendering

_UNSET = r"<nil>|<no value>|%![a-zA-Z]?\([^()]*\)?"
_REMEDY = "a value is missing or unfit: give it with --set KEY=VALUE or --valuesFile, or correct the template"
_ACTION = 200  # characters of an action that an error shows


def may_hold_unset(text: str) -> bool:
    """Whether a rendered text may contain such output (a quick check)."""
    return "<n" in text or "%!" in text


def refuse_unset(name: str, tree: Any, pod: Tree, trace: Callable[[], Rendering], source: str) -> None:
    """Raise InjectionError with a line for each field that contains such output and not from the pod.

    `trace` renders the template `name` with every action marked; `source`: its text.
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
    """Yield every text with the path of its field, and every key with the path of its map."""
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
    """Yield every key and text of the tree."""
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo += [*item, *item.values()]
        elif isinstance(item, list):
            todo += item
