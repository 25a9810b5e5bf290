"""Sorts the files of a repository: the pods in them, what cannot be read, templates of Helm, and files that hold no pod. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.sanitize import shorten
from netinit.base.tables import count
from netinit.base.tree import mapping, strings
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.annotations import known_keys
from netinit.inject.deciding.manifests import ManifestFile, Selection, Workload, objects, workload
from netinit.inject.deciding.podfile import (
    Foresee,
    ForeseeBy,
    PodFacts,
    accepted_findings,
    deciding_objects,
    read_facts,
)
from netinit.inject.deciding.warnings import (
    ERROR,
    NOT_PROGRAMMED,
    PodFinding,
    annotation_findings,
    make_finding,
    pod_findings,
)
from netinit.options import Options

_LINE = re.compile(r"line ([0-9]{1,9})\b")
_API_VERSION, _KIND = (re.compile(rf"""\b{key}["']?[ \t]*:""") for key in ("apiVersion", "kind"))
_OPEN, _CLOSE = "{{", "}}"
_STAND_IN = "x"  # for an action in the middle of a line


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding about a file, or about a pod whose options are not known. `line`: from 1, 0 if unknown. `accepted`: by the pod."""

    finding: PodFinding
    file: str
    line: int = 0
    pod: str = ""
    accepted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """What files hold. `without`: how many files have no pod; `left_out`: how many --exclude names."""

    pods: tuple[PodFacts, ...] = ()
    findings: tuple[PlacedFinding, ...] = ()
    without: int = 0
    left_out: int = 0

    @property
    def summary(self) -> str:
        """How many files had nothing to check; empty if all had something."""
        passed = [f"no pod in {count(self.without, 'file')}"] if self.without else []
        passed += [f"{count(self.left_out, 'file')} excluded"] if self.left_out else []
        return ", ".join(passed)

    @property
    def says_nothing(self) -> bool:
        """Whether there was neither a pod nor a finding."""
        return not (self.pods or self.findings)


def survey_files(files: Iterable[ManifestFile], select: str = "", foresee_by: ForeseeBy | None = None) -> FileSurvey:
    """Read every pod that can be read, and say what is wrong with the rest. Raises ParseError if `select` names no pod."""
    read = [(file.name, list(_read(file))) for file in files]
    trees = [one for _, found in read for one in found if not isinstance(one, PlacedFinding)]
    foresee = foresee_by(deciding_objects(trees)) if foresee_by else None
    selection = Selection(select)
    pods: list[PodFacts] = []
    findings: list[PlacedFinding] = []
    without = 0
    for name, found in read:
        placed = [done for one in found for done in _judge(one, name, selection, foresee)]
        without += not placed
        pods += [one for one in placed if isinstance(one, PodFacts)]
        findings += [one for one in placed if isinstance(one, PlacedFinding)]
    if not findings:  # the pod may be in a file that cannot be read
        selection.check(shorten(", ".join([name for name, _ in read])))
    findings.sort(key=lambda one: (one.finding.is_note, bool(one.pod)))  # stable: those of a pod stay together
    return FileSurvey(tuple(pods), tuple(findings), without)


def _read(file: ManifestFile) -> Iterator[Any]:
    """Yield the objects of a file, or the finding about it; nothing if it is no manifest."""
    if file.problem:
        if not file.text or looks_like_manifest(file.text):
            yield _unreadable(file.name, file.problem)
        return
    try:
        yield from [one for document in yaml_texts.load_all(file.text) for one in objects(document)]
    except ParseError as error:
        if is_template(file.text, str(error)):
            yield PlacedFinding(make_finding("helm-template"), file.name, _line_of(file.text, _OPEN))
        elif looks_like_manifest(file.text):
            yield _unreadable(file.name, str(error))


def _judge(found: Any, file: str, selection: Selection, foresee: Foresee | None) -> Iterator[PodFacts | PlacedFinding]:
    """Yield the pod of an object or the findings about it; nothing if it makes no pods."""
    if isinstance(found, PlacedFinding):
        yield found
        return
    try:
        one = workload(found)
    except ParseError as error:
        yield _unreadable(file, str(error))
        return
    if one is None or one.bare or not selection.takes(one):
        return
    try:
        yield replace(read_facts(one, Options(), foresee), file=file)
    except OptionError as error:
        yield from _refused(one, file, error)


def _refused(one: Workload, file: str, error: OptionError) -> Iterator[PlacedFinding]:
    """Yield what is wrong with a pod whose options cannot be read."""
    pod = one.pod()
    annotations = strings(mapping(pod["metadata"]).get("annotations"))
    found = [*pod_findings(pod), *annotation_findings(annotations, frozenset(known_keys()), one)]
    if not any(finding.kind == "arguments" for finding in found):
        found += [make_finding("invalid-value", problem=text) for text in error.problems]
    accepted = accepted_findings(annotations)
    for finding in sorted(found, key=lambda finding: finding.severity != ERROR):
        if finding.kind != NOT_PROGRAMMED:
            yield PlacedFinding(finding, file, pod=one.title, accepted=accepted)


def _unreadable(file: str, problem: str) -> PlacedFinding:
    found = _LINE.search(problem)
    return PlacedFinding(make_finding("unreadable-manifest", problem=problem), file, int(found[1]) if found else 0)


def _line_of(text: str, sign: str) -> int:
    return text.count("\n", 0, text.index(sign)) + 1


def looks_like_manifest(text: str) -> bool:
    """Whether a text that cannot be read has the keys of a Kubernetes object."""
    return bool(_API_VERSION.search(text) and _KIND.search(text))


def is_template(text: str, problem: str) -> bool:
    """Whether actions of Helm, and nothing else, are why a text is no YAML; `problem` is the reader's.

    It is tried without them: then the text can be read, or what is wrong with it stands elsewhere.
    """
    if _OPEN not in text or _CLOSE not in text:
        return False
    lines = text.split("\n")
    found = _LINE.search(problem)
    if found and int(found[1]) <= len(lines) and _OPEN in lines[int(found[1]) - 1].partition("#")[0]:
        return True
    try:
        yaml_texts.load_all(_without_actions(text))
    except ParseError as error:
        after = _LINE.search(str(error))
        return bool(found and after and found[1] != after[1])
    return True


def _without_actions(text: str) -> str:
    """Replace each action; lines that held nothing else are empty, so that lines keep their numbers."""
    kept: list[str] = []
    end = 0
    while (start := text.find(_OPEN, end)) >= 0 and (close := text.find(_CLOSE, start)) >= 0:
        kept += [text[end:start], "\0", "\n" * text.count("\n", start, close)]
        end = close + len(_CLOSE)
    rest = "".join([*kept, text[end:]]).split("\n")
    return "\n".join(["" if not line.strip(" \t\r\0") and "\0" in line else line.replace("\0", _STAND_IN) for line in rest])
