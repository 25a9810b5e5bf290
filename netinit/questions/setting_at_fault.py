"""Find the setting of a configuration that keeps its pods from being injected: with another value, the problem shows that one.

It is a value, a key, or a text that stands in a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from netinit.base.errors import ConfigError
from netinit.base.sanitize import quote
from netinit.base.tree import shown
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.installations import MESH, TEMPLATES, VALUES
from netinit.inject.adding.values import as_written

_Steps = tuple[str | int, ...]
_READ_VALUE = re.compile(r"at <\$?\.Values\.([A-Za-z0-9_.]+)>")  # of Go's message about a template
_OF_PROXIES = "defaultConfig"
_QUOTED = re.compile(r"""'([^'\n]+)'|"([^"\n]+)\"""")
_MOST = 20  # settings to try without: a problem shows few values
_OTHER = "!"  # behind a text: another one, which is as wrong


class Setting(NamedTuple):
    """A setting, by VALUES, MESH or TEMPLATES and its path; `line`: in the text of a template."""

    what: str
    path: str
    line: int = 0


def find_setting(problem: str, config: InjectionConfig, try_again: Callable[[InjectionConfig], str]) -> Setting | None:
    """Return the setting whose value a problem shows; None if it shows none.

    `try_again` injects with another configuration, and returns what is wrong then.
    """
    if read := _READ_VALUE.search(problem):
        return Setting(VALUES, read[1])
    for change in islice(_list_changes(problem, config), _MOST):
        try:
            then = try_again(change.apply())
        except ConfigError:  # of a template that cannot be parsed then
            continue
        if any(one.replace(change.before, change.after) in then for one in re.split("; |\n", problem) if change.before in one):
            return change.setting
    return None


class _Change(NamedTuple):
    """Another configuration to try, and how a problem shows what differs, before and after."""

    setting: Setting
    before: str
    after: str
    apply: Callable[[], InjectionConfig]


def _list_changes(problem: str, config: InjectionConfig) -> Iterator[_Change]:
    for what, steps, value in _list_settings(config):
        key, setting = steps[-1], Setting(what, _written(steps))
        if value not in (None, "") and not isinstance(value, (bool, dict)) and _show(value) in problem:
            other = f"{value}{_OTHER}" if isinstance(value, str) else [*value, _OTHER] if isinstance(value, list) else value - 1
            yield _Change(setting, _show(value), _show(other), partial(_with, config, what, steps, partial(_replaced, by=other)))
        if isinstance(key, str) and (before := next((one for one in (shown(key), quote(key)) if one in problem), "")):
            after = before[:-1] + _OTHER + before[-1]
            yield _Change(setting, before, after, partial(_with, config, what, steps[:-1], partial(_renamed, key=key)))
    texts = dict.fromkeys([one[1] or one[2] for one in _QUOTED.finditer(problem)])
    for name, source in config.sources.items():
        for text in texts:
            for found in re.finditer(re.escape(text), source):
                changed = source[: found.end()] + _OTHER + source[found.end() :]
                path = f"templates.{name}" if config.renders_pods else "template"
                setting = Setting(TEMPLATES, path, source.count("\n", 0, found.start()) + 1)
                yield _Change(setting, text, text + _OTHER, partial(config.with_template, name, changed))


def _replaced(_: Any, by: Any) -> Any:
    return by


def _renamed(tree: Any, key: str) -> Any:
    return {name + _OTHER if name == key else name: value for name, value in tree.items()}


def _show(value: Any) -> str:
    return shown(as_written(value))


def _list_settings(config: InjectionConfig) -> Iterator[tuple[str, _Steps, Any]]:
    for what, tree in ((MESH, {_OF_PROXIES: config.mesh.proxy.fields}), (MESH, config.mesh.fields), (VALUES, config.values)):
        for steps, value in _walk(tree, ()):
            yield what, steps, value


def _walk(tree: Any, above: _Steps) -> Iterator[tuple[_Steps, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*above, key), value
        yield from _walk(value, (*above, key))


def _with(config: InjectionConfig, what: str, steps: _Steps, change: Callable[[Any], Any]) -> InjectionConfig:
    if what == VALUES:
        return config.replace(values=_put(config.values, steps, change))
    mesh = config.mesh
    if steps[:1] == (_OF_PROXIES,):
        return config.replace(mesh=mesh.replace(proxy=mesh.proxy.replace(fields=_put(mesh.proxy.fields, steps[1:], change))))
    return config.replace(mesh=mesh.replace(fields=_put(mesh.fields, steps, change)))


def _put(tree: Any, steps: _Steps, change: Callable[[Any], Any]) -> Any:
    """Return the tree with what is there changed; what it holds beside that is shared."""
    if not steps:
        return change(tree)
    changed = tree.copy()
    changed[steps[0]] = _put(tree[steps[0]], steps[1:], change)
    return changed


def _written(steps: _Steps) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
