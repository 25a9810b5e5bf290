"""Template values as in Helm: merging, and settings (`--set a.b[0]=c`, and `--set-string`, whose values are texts).

The syntax is that of Helm's package strvals: `a=1,b=2` are two settings, `a.b` is a key in a map, `a[0]` a list item,
`{x,y}` a list; a backslash escapes the next character. `null` removes a key; `true`, `false` and whole numbers without
leading zeros are typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, clone, mapping, shown, string

_MAX_DEPTH = 30  # levels of keys
_MAX_INDEX = 65536
_NUMBER = r"[+-][0-9]{1,400}\Z|[1-9][0-9]{0,400}\Z|0\Z"
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_END = ""
TEXT_VALUES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("global",): (
        "caAddress", "caName", "hub", "imagePullPolicy", "istioNamespace", "meshID", "network", "pilotCertProvider", "platform",
        "priorityClassName", "remotePilotAddress", "revision", "trustBundleName", "variant",
    ),
    ("global", "proxy"): (
        "autoInject", "clusterDomain", "componentLogLevel", "excludeIPRanges", "excludeInboundPorts", "excludeOutboundPorts", "image",
        "includeIPRanges", "includeInboundPorts", "includeOutboundPorts", "logLevel", "outlierLogPath",
    ),
    ("global", "proxy_init"): ("image",),
}  # fmt: skip
"""The values of Istio's charts that must be strings, by their map."""


class TextSetting(str):
    """A setting of `--set-string`: its values are texts, whatever they look like."""

    __slots__ = ()


def merge_values(base: Tree, over: Tree) -> Tree:
    """Merge `over` over `base`; null removes a key. Neither is modified."""
    result: Tree = {}
    for key in [*base, *(key for key in over if key not in base)]:
        if key not in over:
            result[key] = clone(base[key])
        elif isinstance(over[key], dict):
            below = base.get(key)
            result[key] = merge_values(below if isinstance(below, dict) else {}, over[key])
        elif over[key] is not None:
            result[key] = clone(over[key])
    return result


def set_values(base: Tree, settings: tuple[str, ...]) -> Tree:
    """Apply `--set` settings for Istio's charts in order; `base` is not modified.

    Raises OptionError with a line for each invalid setting.
    """
    result = apply_settings(base, settings)
    for holder, name, _ in _misfits(result):
        holder[name] = string(holder[name])  # `--set global.proxy.includeInboundPorts=80` means the text
    return merge_values({}, result)


def apply_settings(base: Tree, settings: Iterable[str]) -> Tree:
    """Apply settings in order; `base` is not modified, and a key that is set to null stays, with null.

    Raises OptionError with a line for each invalid setting.
    """
    result: Tree = clone(base)
    problems = []
    for setting in settings:
        made: Tree = clone(result)
        try:
            _Setting(setting, made).make()
        except ValueError as error:
            option = "--set-string" if isinstance(setting, TextSetting) else "--set"
            problems.append(f"{option}: {quote(setting)}: {error}")
            continue
        result = made
    if problems:
        raise OptionError(*problems)
    return result


def overlay_values(base: Tree, over: Tree) -> Tree:
    """Lay values over values that are themselves for the defaults of a chart: null stays, and removes the chart's."""
    both = base.keys() & over.keys()
    merged = {key: overlay_values(base[key], over[key]) for key in both if isinstance(base[key], dict) and isinstance(over[key], dict)}
    return {**base, **over, **merged}


def misfit_texts(values: Tree) -> tuple[tuple[str, str], ...]:
    """Return path and problem of each of Istio's values that must be a string and is not."""
    found = [(path, as_written(holder[name])) for holder, name, path in _misfits(values)]
    return tuple((path, f"{shown(value)} must be a text: put it in quotes") for path, value in found)


def as_written(value: Any) -> Any:
    """Return the numbers of JSON as they were written, also in lists and maps: values are floats."""
    if isinstance(value, list):
        return [as_written(one) for one in value]
    if isinstance(value, dict):
        return {key: as_written(one) for key, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _misfits(values: Tree) -> list[tuple[Tree, str, str]]:
    found = []
    for path, names in TEXT_VALUES.items():
        holder: Any = values
        for key in path:
            holder = mapping(mapping(holder).get(key))
        wrong = [name for name in names if isinstance(holder.get(name), (bool, int, float))]
        found += [(holder, name, ".".join((*path, name))) for name in wrong]
    return found


class _Setting:

    def __init__(self, text: str, tree: Tree) -> None:
        self.text = text
        self.read: Callable[[str], Any] = str if isinstance(text, TextSetting) else _typed
        self.tree = tree
        self.at = 0

    def make(self) -> None:
        if not self.text:
            raise ValueError("is empty; write KEY=VALUE, such as global.tag=1.26.2")
        while self.at < len(self.text):
            self.key(self.tree, "", 0)

    def until(self, stops: str) -> tuple[str, str]:
        """Return the text up to one of these characters, and that character; `_END` at the end."""
        found: list[str] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            self.at += 1
            if letter in stops:
                return "".join(found), letter
            if letter == "\\":
                if self.at == len(self.text):
                    raise ValueError("ends with a backslash, which takes the next character as it is")
                letter = self.text[self.at]
                self.at += 1
            found.append(letter)
        return "".join(found), _END

    def key(self, tree: Tree, path: str, depth: int) -> None:
        """Parse one key and the rest, and set it in the map at `path`."""
        name, stop = self.until("=[,.")
        where = f"{path}.{name}" if path else name
        if stop in {_END, ","}:
            raise ValueError(f"the key {quote(where)} has no value; write {_example(where)}=VALUE")
        if not name:
            raise ValueError(f"a key is empty{f' below {quote(path)}' if path else ''}; write KEY=VALUE, such as a.b=c")
        if depth >= _MAX_DEPTH:
            raise ValueError(f"has more than {_MAX_DEPTH} keys inside each other")
        tree[name] = self.behind(stop, tree.get(name), where, depth)

    def behind(self, stop: str, before: Any, where: str, depth: int, items: int = 0) -> Any:
        """Return what is set at `where`: a value, or the map or list there (`before`) with the following key or item set."""
        if stop == "=":
            return self.value()
        if stop == "[":
            return self.item(before, where, depth + items)
        if before is not None and not isinstance(before, dict) and not items:
            raise ValueError(f"{quote(where)} is {_kind(before)}, not a map: there is no key below it")
        below: Tree = before if isinstance(before, dict) else {}  # an item that is no map is replaced
        self.key(below, where, depth + 1)
        return below

    def item(self, before: Any, where: str, depth: int) -> list[Any]:
        """Return the list at `where`, with the item of the following index set in it."""
        if before is not None and not isinstance(before, list):
            raise ValueError(f"{quote(where)} is {_kind(before)}, not a list: there is no item below it")
        if depth >= _MAX_DEPTH:
            raise ValueError(f"has more than {_MAX_DEPTH} keys inside each other")
        digits, stop = self.until("]")
        if stop == _END:
            raise ValueError(f"the index of {quote(where)} does not end with ]")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(_MAX_INDEX)):
            raise ValueError(f"{quote(digits)} is not a list index: write a whole number, such as {_example(where)}[0]=VALUE")
        number = int(digits)
        if number > _MAX_INDEX:
            raise ValueError(f"the index {number} of {quote(where)} is greater than {_MAX_INDEX}")
        items: list[Any] = before if before is not None else []
        items += [None] * (number + 1 - len(items))
        here = f"{where}[{number}]"
        rest, stop = self.until("=[.")
        if rest:
            raise ValueError(f"{quote(rest)} follows the index of {quote(here)}; write = or . or [ there")
        if stop == _END:
            raise ValueError(f"the key {quote(here)} has no value; write {_example(here)}=VALUE")
        items[number] = self.behind(stop, items[number], here, depth, 1)
        return items

    def value(self) -> Any:
        """Parse a value, and consume the following comma."""
        if not self.text.startswith("{", self.at):
            return self.read(self.until(",")[0])
        self.at += 1
        found = []
        while True:
            text, stop = self.until(",}")
            if stop == _END:
                raise ValueError("a list does not end with }")
            found.append(self.read(text))
            if stop == "}":
                break
        if self.text.startswith(",", self.at):
            self.at += 1
        return found


def _example(where: str) -> str:
    return where if len(where) <= 40 else "KEY"  # noqa: PLR2004 - one line of a message


def _typed(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if re.match(_NUMBER, text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    return text


def _kind(value: Any) -> str:
    return "a map" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"
