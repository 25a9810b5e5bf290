"""Where a setting stands in its file: the line of a key, so that a message can name file, line and key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class SettingError(ConfigError):
    """Settings of a file are invalid; `problems`: for each its path, such as `defaultConfig.statusPort`, and what is wrong."""

    def __init__(self, what: str, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        lines = [f"{what}: {path}: {problem}" if what else f"{path}: {problem}" for path, problem in self.problems]
        super().__init__(("\n" if what else "; ").join(lines))


class TextError(ConfigError):
    """A text of `what` is not YAML. It may be one that a file holds as a value."""

    def __init__(self, what: str, text: str, error: YamlError) -> None:
        super().__init__(f"{what}: {error}")
        self.text, self.error = text, error


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
    except TextError as error:
        raise ConfigError(_locate_text(error, source)) from error
    except ConfigError as error:
        named = f"{shorten(source.file)}: " if source.file else ""
        raise ConfigError("\n".join(f"{named}{line}" for line in split_message(str(error)))) from error


def _locate(error: SettingError, source: SettingsText) -> Iterator[str]:
    trees = list(_find_trees(source))
    file = shorten(source.file)
    for path, problem in error.problems:
        line = _line_of(trees, path)
        if file:
            where = f"{file}:{line}" if line else file
        else:
            where = f"{source.what}: line {line}" if line else source.what
        yield f"{where}: {path}: {problem}"


def _locate_text(found: TextError, source: SettingsText) -> str:
    """Return the error with the file and, unless the text is in quotes in there, its line and column in it."""
    error, file = found.error, shorten(source.file)
    if not file:
        return str(found)
    if found.text == source.text and error.line:
        return f"{file}:{error.line}:{error.column}: {error.problem}"
    for line, written, inner in _list_embedded(source):
        if inner == found.text:
            if written.startswith("|"):
                column = error.column + _indentation(written.partition("\n")[2]) - _indentation(inner)
                return f"{file}:{line + error.line}:{column}: {error.problem}"
            return f"{file}:{line}: {found}"
    return f"{file}: {found}"


def _indentation(block: str) -> int:
    text = block.lstrip("\n")
    return len(text) - len(text.lstrip(" "))


class _Tree(NamedTuple):
    """Below which settings may stand. `before`: lines of the file before the text that counts the tree's; `line`: of all of them."""

    place: TextPlace
    before: int = 0
    line: int = 0


def _line_of(trees: Iterable[_Tree], path: str) -> int:
    """Return the line of the path, or of the nearest key above it; 0 if no tree has it."""
    longest, line = 0, 0
    for tree in trees:
        place, length = _follow(tree.place, path)
        if length > longest:
            longest, line = length, tree.line or tree.before + place.line
    return line


def _follow(place: TextPlace, path: str) -> tuple[TextPlace, int]:
    """Return the place of a path such as `a.b[0]`, as far as it is there, and how long that part is. Keys may have dots."""
    length = 0
    while True:
        steps = {f"[{key}]" if isinstance(key, int) else f".{key}" if length else f"{key}": key for key in place.below}
        fitting = [step for step in steps if path.startswith(step, length) and path[length + len(step) :][:1] in {"", ".", "["}]
        if not fitting:
            return place, length
        step = max(fitting, key=len)
        place, length = place.below[steps[step]], length + len(step)


def _find_trees(source: SettingsText) -> Iterator[_Tree]:
    from netinit.golang.goyaml.places import read_places  # slow to import, and only needed for errors

    for place in _list_places(source):
        yield _Tree(place)
    for line, written, inner in _list_embedded(source):
        is_block = written.startswith(("|", ">"))
        with suppress(YamlError):
            for document in read_places(inner):
                yield _Tree(document, line if is_block else 0, 0 if is_block else line)


def _list_places(source: SettingsText) -> Iterator[TextPlace]:
    """Yield where the file has something below one of the source's keys."""
    from netinit.golang.goyaml.places import read_places

    with suppress(YamlError):
        for document in read_places(source.text) if isinstance(source.text, str) else ():
            items = document.below.get("items")
            for top in (document, *(items.below.values() if items else ())):
                found = [top.find(keys) for keys in source.places]
                yield from [place for (place, steps), keys in zip(found, source.places, strict=True) if steps == len(keys)]


def _list_embedded(source: SettingsText) -> Iterator[tuple[int, str, str]]:
    """Yield the texts that are values in the file, such as those of a ConfigMap: the line, as it is written, and what it is."""
    for place in _list_places(source):
        if place.below or not place.value:  # the text itself
            continue
        written = source.text[place.value : place.end]
        with suppress(YamlError):
            inner = mapping(goyaml.load(f"text: {written}")).get("text")
            if isinstance(inner, str):
                yield source.text.count("\n", 0, place.value) + 1, written, inner
