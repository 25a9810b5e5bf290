"""Says at which line and column of a manifest stands what a finding is about: an annotation, an argument, a field of a container."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from netinit.base.findings import FindingKind
from netinit.base.tree import Tree, mapping, sequence, string, strings
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject.deciding.containers import LISTS
from netinit.inject.deciding.init_container import find_init
from netinit.inject.deciding.manifests import BEFORE_JSON, Workload
from netinit.inject.deciding.metadata_findings import MISPLACED_ANNOTATION
from netinit.inject.deciding.option_findings import PROXY_OWNER
from netinit.inject.deciding.pod_options import find_annotation
from netinit.inject.deciding.warnings import (
    ARGUMENTS,
    HOST_NETWORK,
    MISSING_CAPABILITY,
    RULE_CHANGER,
    PodFinding,
)
from netinit.options import Options
from netinit.options.kinds import Flag

if TYPE_CHECKING:
    from netinit.golang.goyaml.places import TextPlace

Path = tuple[str | int, ...]
Position = tuple[int, int]
"""A line and a column, from 1; UNKNOWN if they are not known."""
UNKNOWN: Position = (0, 0)
_NAME: Path = ("metadata", "name")
_SECURITY = "securityContext"
# kind of a finding about a container -> fields of it or of its pod; the first that is there
_FIELDS: dict[FindingKind, tuple[Path, ...]] = {
    HOST_NETWORK: (("hostNetwork",),),
    MISSING_CAPABILITY: ((_SECURITY, "capabilities"),),
    PROXY_OWNER: ((_SECURITY, "runAsUser"), (_SECURITY, "runAsGroup")),
    RULE_CHANGER: ((_SECURITY, "privileged"), (_SECURITY, "capabilities", "add"), (_SECURITY,)),
    ARGUMENTS: (("args",), ("command",)),
}
_ANNOTATION, _OPTION = re.compile(r"\bannotation (\S+):"), re.compile(r"(?<=[ '])(-{1,2}[a-zA-Z][a-zA-Z0-9-]*)")


class FilePlaces:
    """The places in a file, which are read when the first one is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text

    @functools.cached_property
    def documents(self) -> list[TextPlace]:
        """The place of each document; none if the text cannot be read."""
        with contextlib.suppress(YamlError):
            return goyaml.read_places(self._text)
        return []

    def count_inserted(self, line: int) -> int:
        """How many characters of a line, from 1, are not in the file itself but before an object of a JSON stream."""
        return len(BEFORE_JSON) if line in self._begins_object else 0

    @functools.cached_property
    def _begins_object(self) -> frozenset[int]:
        return frozenset([number for number, line in enumerate(self._text.split("\n"), 1) if line.startswith(BEFORE_JSON)])


class ObjectPlace:
    """The place of an object in a document of a file; `path`: to an item of a List."""

    def __init__(self, file: FilePlaces, document: int, path: Path) -> None:
        self._file, self._document, self._path = file, document, path

    def find(self, *paths: Path) -> Position:
        """Return where the first of these paths is that the object has, else where the last one would be."""
        if self._document >= len(self._file.documents):
            return UNKNOWN
        start = self._file.documents[self._document].find(self._path)[0]
        found = [(start.find(path), path) for path in paths]
        place = next((place for (place, steps), path in found if steps == len(path)), found[-1][0][0] if found else start)
        return place.line, place.column - self._file.count_inserted(place.line)


class PodPlace:
    """Where the parts of a workload's pod stand in a file."""

    def __init__(self, at: ObjectPlace, workload: Workload) -> None:
        self._at, self._workload = at, workload

    @property
    def own(self) -> Position:
        """The name of the workload."""
        return self._at.find(_NAME)

    def of_finding(self, finding: PodFinding) -> Position:
        """Return the place of the annotation or label, of the container's field, or of the name of the workload."""
        if finding.path:
            is_of_workload = finding.kind == MISPLACED_ANNOTATION
            return self._at.find(("metadata", *finding.path)) if is_of_workload else self._of_metadata(finding.path)
        if found := _ANNOTATION.search(finding.text):
            return self._of_metadata(("annotations", found[1].strip("\"'")))
        fields = _FIELDS.get(finding.kind, ())
        if finding.kind == ARGUMENTS and (found := _OPTION.search(finding.text)) and (at := self.of_setting(found[1])) != UNKNOWN:
            return at
        if finding.subject:
            return self._of_container(finding.subject, fields)
        return self._at.find(*[self._spec(path) for path in fields]) if fields else self.own

    def of_option(self, name: str) -> Position:
        """Return the place of what sets an option, or else of the init container, or else of the name of the workload."""
        if (found := self.of_setting(name)) != UNKNOWN:
            return found
        init = self._find_init()
        return self._at.find(self._spec(init[0])) if init else self.own

    def of_setting(self, name: str) -> Position:
        """Return the place of what sets an option, given by a name or a field: an annotation, an argument, or a variable."""
        if (flag := _find_flag(name)) is None:
            return UNKNOWN
        metadata = mapping(self._workload.template["metadata"])
        if annotation := find_annotation(flag, strings(metadata.get("annotations"))):
            return self._of_metadata(("annotations", annotation))
        here, init = self._find_init() or ((), {})
        way = next(_ways_to_set(flag, init), None)
        return self._at.find(self._spec((*here, *way))) if way else UNKNOWN

    def of_user(self, container: str) -> Position:
        """Return the place of a container's user or group."""
        return self._of_container(container, _FIELDS[PROXY_OWNER])

    def _find_init(self) -> tuple[Path, Tree] | None:
        spec = mapping(self._workload.template["spec"])
        init = find_init(spec)
        return None if init is None else (("initContainers", sequence(spec.get("initContainers")).index(init)), init)

    def _of_metadata(self, path: Path) -> Position:
        """A CronJob's pods have metadata of the pod template, or, where injection is manual, of the job's."""
        template = self._workload.template_path
        return self._at.find((*template[:2], "metadata", *path), (*template, "metadata", *path))

    def _spec(self, path: Path) -> Path:
        return (*self._workload.template_path, "spec", *path)

    def _of_container(self, name: str, fields: tuple[Path, ...]) -> Position:
        """Return the place of the first of these fields that the container or else its pod has, or of the container."""
        spec = mapping(self._workload.template["spec"])
        for field in LISTS:
            for number, one in enumerate(sequence(spec.get(field))):
                if mapping(one).get("name") == name:
                    here: Path = (field, number)
                    paths = [*[(*here, *path) for path in fields], *[path for path in fields if path[0] == _SECURITY], here]
                    return self._at.find(*map(self._spec, paths))
        return self.own  # the container is not in the file: injection will add it


def _find_flag(name: str) -> Flag | None:
    """Return the flag of a name as in messages, or of a field."""
    return next((flag for flag in Options.flags if name in (flag.label, flag.field, *flag.names.split(), *flag.variables)), None)


def _ways_to_set(flag: Flag, init: Tree) -> Iterator[Path]:
    """Yield the arguments and variables of an init container that set an option; the last argument, which takes effect, first."""
    names = flag.names.split()
    for field in ("args", "command"):
        words = [string(word) for word in sequence(init.get(field))]
        for number in reversed(range(len(words))):
            word = words[number]
            is_joined = bool(flag.short) and word.startswith(f"-{flag.short}")
            if is_joined or word.partition("=")[0] in names:
                yield (field, number)
    variables = [string(mapping(one).get("name")) for one in sequence(init.get("env"))]
    yield from [("env", number) for number in reversed(range(len(variables))) if variables[number] in flag.variables]
