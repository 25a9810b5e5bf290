"""Find the setting of a configuration that keeps its pods from being injected: with another value, the problem shows that one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from netinit.base.tree import shown
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.installations import MESH, VALUES
from netinit.inject.adding.values import as_written

_Steps = tuple[str | int, ...]
_READ_VALUE = re.compile(r"at <\$?\.Values\.([A-Za-z0-9_.]+)>")  # of Go's message about a template
_OF_PROXIES = "defaultConfig"
_MOST = 20  # settings to try without: a problem shows few values


class Setting(NamedTuple):
    """A setting, by VALUES or MESH and its path."""

    what: str
    path: str


def find_setting(problem: str, config: InjectionConfig, try_again: Callable[[InjectionConfig], str]) -> Setting | None:
    """Return the setting whose value a problem shows; None if it shows none.

    `try_again` injects with another configuration, and returns what is wrong then.
    """
    if read := _READ_VALUE.search(problem):
        return Setting(VALUES, read[1])
    shows = [(what, steps, value) for what, steps, value in _list_settings(config) if _show(value) in problem]
    for what, steps, value in shows[:_MOST]:
        before, other = _show(value), _change(value)
        then = try_again(_with(config, what, steps, other))
        if any(one.replace(before, _show(other)) in then for one in re.split("; |\n", problem) if before in one):
            return Setting(what, _written(steps))
    return None


def _show(value: Any) -> str:
    return shown(as_written(value))


def _change(value: Any) -> Any:
    """Return another value that is as wrong."""
    return f"{value}!" if isinstance(value, str) else [*value, "!"] if isinstance(value, list) else value - 1


def _list_settings(config: InjectionConfig) -> Iterator[tuple[str, _Steps, Any]]:
    for what, tree in ((MESH, {_OF_PROXIES: config.mesh.proxy.fields}), (MESH, config.mesh.fields), (VALUES, config.values)):
        for steps, value in _walk(tree, ()):
            if value not in (None, "") and not isinstance(value, (bool, dict)):
                yield what, steps, value


def _walk(tree: Any, above: _Steps) -> Iterator[tuple[_Steps, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*above, key), value
        yield from _walk(value, (*above, key))


def _with(config: InjectionConfig, what: str, steps: _Steps, value: Any) -> InjectionConfig:
    if what == VALUES:
        return config.replace(values=_put(config.values, steps, value))
    mesh = config.mesh
    if steps[0] == _OF_PROXIES:
        return config.replace(mesh=mesh.replace(proxy=mesh.proxy.replace(fields=_put(mesh.proxy.fields, steps[1:], value))))
    return config.replace(mesh=mesh.replace(fields=_put(mesh.fields, steps, value)))


def _put(tree: Any, steps: _Steps, value: Any) -> Any:
    """Return the tree with a value there; what it holds beside that is shared."""
    if not steps:
        return value
    changed = tree.copy()
    changed[steps[0]] = _put(tree[steps[0]], steps[1:], value)
    return changed


def _written(steps: _Steps) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
