"""Where a setting stands in its file: the line of a key, so that a message can name file, line and key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.sanitize import shorten, split_message
from netinit.base.tree import mapping
from netinit.golang import goyaml
from netinit.golang.errors import YamlError

if TYPE_CHECKING:
    from netinit.golang.goyaml.places import TextPlace

Path = tuple[str, ...]
MESH: tuple[Path, ...] = ((), ("meshConfig",), ("spec", "meshConfig"), ("spec", "values", "meshConfig"), ("data", "mesh"))
"""Below which keys a file may hold the mesh's configuration."""
VALUES: tuple[Path, ...] = ((), ("spec", "values"), ("data", "values"))
"""Below which keys a file may hold the values of a chart."""
TEMPLATES: tuple[Path, ...] = ((), ("data", "config"))
"""Below which keys a file may hold the configuration of an injector."""
_PART = r"[^.\[\]]+"


class SettingError(ConfigError):
    """Settings of a file are invalid; `problems`: for each its path, such as `defaultConfig.statusPort`, and what is wrong."""

    def __init__(self, what: str, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        lines = [f"{what}: {path}: {problem}" if what else f"{path}: {problem}" for path, problem in self.problems]
        super().__init__(("\n" if what else "; ").join(lines))


def split_problem(error: ConfigError, path: str = "") -> tuple[str, str]:
    """Return the path that begins an error's message, below another path, and the rest."""
    named, _, problem = str(error).partition(": ")
    return f"{path}.{named}" if path else named, problem


class SettingsText(Record):
    """A text of a configuration and its file's name, empty if unknown; `what`: what it holds, and below which keys."""

    what: str
    text: Any = None
    file: str = ""
    places: tuple[Path, ...] = ()


class Files(Record):
    """The names of a configuration's files, for messages; empty if unknown."""

    templates: str = ""
    values: str = ""
    mesh: str = ""


@contextmanager
def errors_of(source: SettingsText) -> Iterator[None]:
    """Let errors begin with the file, and settings' with their line."""
    try:
        yield
    except SettingError as error:
        raise ConfigError("\n".join(_locate(error, source))) from error
    except ConfigError as error:
        named = f"{shorten(source.file)}: " if source.file else ""
        raise ConfigError("\n".join(f"{named}{line}" for line in split_message(str(error)))) from error


def _locate(error: SettingError, source: SettingsText) -> Iterator[str]:
    trees = list(_find_trees(source)) if isinstance(source.text, str) else []
    file = shorten(source.file)
    for path, problem in error.problems:
        line = _line_of(trees, [int(step) if step.isdecimal() else step for step in re.findall(_PART, path)])
        if file:
            where = f"{file}:{line}" if line else file
        else:
            where = f"{source.what}: line {line}" if line else source.what
        yield f"{where}: {path}: {problem}"


class _Tree(NamedTuple):
    """Below which settings may stand. `before`: lines of the file before the text that counts the tree's; `line`: of all of them."""

    place: TextPlace
    before: int = 0
    line: int = 0


def _line_of(trees: Iterable[_Tree], path: Sequence[str | int]) -> int:
    """Return the line of the path, or of the nearest key above it; 0 if no tree has it."""
    found, line = 0, 0
    for tree in trees:
        place, steps = tree.place.find(path)
        if steps > found:
            found, line = steps, tree.line or tree.before + place.line
    return line


def _find_trees(source: SettingsText) -> Iterator[_Tree]:
    from netinit.golang.goyaml.places import read_places  # slow to import, and only needed for errors

    with suppress(YamlError):
        for document in read_places(source.text):
            items = document.below.get("items")
            for top in (document, *(items.below.values() if items else ())):
                for keys in source.places:
                    place, steps = top.find(keys)
                    if steps == len(keys):
                        yield _Tree(place)
                        yield from _read_embedded(source.text, place) if keys and not place.below else ()


def _read_embedded(text: str, place: TextPlace) -> Iterator[_Tree]:
    """Yield the documents of a text of a ConfigMap that is YAML or JSON itself."""
    from netinit.golang.goyaml.places import read_places

    written = text[place.value : place.end]
    inner = mapping(goyaml.load(f"text: {written}")).get("text")
    line = text.count("\n", 0, place.value) + 1
    is_block = written.startswith(("|", ">"))
    for document in read_places(inner) if isinstance(inner, str) else ():
        yield _Tree(document, line if is_block else 0, 0 if is_block else line)
