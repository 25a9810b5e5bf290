"""Reads the pods of manifests, and sorts the files of a repository: pods, what cannot be read, templates of Helm, files without pods.

No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.findings import FindingKind
from netinit.base.sanitize import shorten
from netinit.base.tables import count
from netinit.base.tree import mapping, string, strings
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.annotations import known_keys
from netinit.inject.deciding.containers import LISTS, named
from netinit.inject.deciding.manifest_places import UNKNOWN, FilePlaces, ObjectPlace, PodPlace, Position
from netinit.inject.deciding.manifests import ManifestFile, Selection, Workload, located_objects, workload
from netinit.inject.deciding.metadata_findings import annotation_findings, request_findings
from netinit.inject.deciding.other_makers import UNREAD_PODS, describe_other_maker
from netinit.inject.deciding.podfile import (
    Foresee,
    ForeseeBy,
    PodFacts,
    accepted_findings,
    deciding_objects,
    read_facts,
)
from netinit.inject.deciding.warnings import (
    ARGUMENTS,
    ERROR,
    INVALID_VALUE,
    NOT_PROGRAMMED,
    NOTE,
    PodFinding,
    pod_findings,
)
from netinit.options import Options

UNREADABLE_MANIFEST = FindingKind(
    "NI110", "unreadable-manifest",
    "A file has the keys of a Kubernetes object and cannot be read, so its pods are not checked. Files that are "
    "neither are passed over.",
)
HELM_TEMPLATE = FindingKind(
    "NI111", "helm-template",
    "A file is a template of Helm, whose pods exist only when it is rendered. Check the output of `helm template`.",
)
_API_VERSION, _KIND = (re.compile(rf"""\b{key}["']?[ \t]*:""") for key in ("apiVersion", "kind"))
_OPEN, _CLOSE = "{{", "}}"
_STAND_IN = "x"  # for an action in the middle of a line


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding about a file, or about a pod whose options are not known. `at`: line and column. `accepted`: by the pod."""

    finding: PodFinding
    file: str
    at: Position = UNKNOWN
    pod: str = ""
    accepted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """What files hold. `without`: how many files have no pod; `left_out`: how many --exclude names; `files`: all that were read."""

    pods: tuple[PodFacts, ...] = ()
    findings: tuple[PlacedFinding, ...] = ()
    without: int = 0
    left_out: int = 0
    files: tuple[str, ...] = ()

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


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object of a file, and where it stands."""

    tree: Any
    at: ObjectPlace


def read_pods(
    manifests: Sequence[tuple[str, str]], select: str = "", label: str = "--pod", foresee_by: ForeseeBy | None = None
) -> tuple[PodFacts, ...]:
    """Return the facts of all pods and pod templates in manifests, given as (name, text).

    `select`: only `NAME`, `NAMESPACE/NAME` or `KIND/NAME`. Raises ParseError for an invalid manifest or if none
    contains a pod, which names the option `label`, and OptionError with a line for each pod with invalid options.
    """
    trees = [(name, one) for name, text in manifests for one in _objects(name, text)]
    found = [(name, made, one.at) for name, one in trees if (made := _workload(name, one.tree)) is not None]
    foresee = foresee_by(deciding_objects([one.tree for _, one in trees])) if foresee_by else None
    names = shorten(", ".join([name for name, _ in manifests]))
    if not found:
        raise ParseError(without_pods(label, names))
    selection = Selection(select)
    facts: list[PodFacts] = []
    problems: list[str] = []
    for name, one, at in found:
        if not selection.takes(one):
            continue
        try:
            facts.append(replace(read_facts(one, Options(), foresee), file=name, place=PodPlace(at, one)))
        except OptionError as error:
            where = f"{name}: " if len(manifests) > 1 else ""
            problems += [f"{where}{one.title}: {problem}" for problem in error.problems]
    selection.check(names)
    if problems:
        raise OptionError(*problems)
    return tuple(facts)


def without_pods(label: str, names: str) -> str:
    """Return the error for files without a pod; `label`: the option that names them, empty for arguments."""
    where = f"{label}: " if label else ""
    return f"{where}no pod, and nothing that makes pods, is in {names}; give `kubectl get pod NAME -o yaml`"


def _objects(name: str, text: str) -> list[FoundObject]:
    try:
        return _find_objects(text)
    except ParseError as error:
        raise ParseError(error.in_file(shorten(name))) from None


def _find_objects(text: str) -> list[FoundObject]:
    places = FilePlaces(text)
    documents = enumerate(yaml_texts.load_all(text))
    return [FoundObject(one, ObjectPlace(places, number, path)) for number, tree in documents for path, one in located_objects(tree)]


def _workload(name: str, tree: Any) -> Workload | None:
    try:
        one = workload(tree)
    except ParseError as error:
        raise ParseError(f"{shorten(name)}: {error}") from None
    return None if one is None or one.bare else one


def survey_files(files: Iterable[ManifestFile], select: str = "", foresee_by: ForeseeBy | None = None) -> FileSurvey:
    """Read every pod that can be read, and say what is wrong with the rest. Raises ParseError if `select` names no pod."""
    read = [(file.name, list(_read(file))) for file in files]
    trees = [one.tree for _, found in read for one in found if isinstance(one, FoundObject)]
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
    return FileSurvey(tuple(pods), tuple(findings), without, files=tuple([name for name, _ in read]))


def _read(file: ManifestFile) -> Iterator[FoundObject | PlacedFinding]:
    """Yield the objects of a file, or the finding about it; nothing if it is no manifest."""
    if file.problem:
        if not file.text or looks_like_manifest(file.text):
            yield _unreadable(file.name, file.problem)
        return
    try:
        found = _find_objects(file.text)
        finished = [one for one in found if not _has_actions(one.tree)] if _OPEN in file.text else found
        if len(finished) < len(found):
            yield _unrendered(file)
        yield from finished
    except ParseError as error:
        if is_template(file.text, error):
            yield _unrendered(file)
        elif looks_like_manifest(file.text):
            yield _unreadable(file.name, error.problem, (error.line, error.column))


def _unrendered(file: ManifestFile) -> PlacedFinding:
    text = "a template of Helm, which is not checked; render it: helm template … | netinit lint -"
    return PlacedFinding(PodFinding(kind=HELM_TEMPLATE, severity=NOTE, text=text), file.name, _position_of(file.text, _OPEN))


def _has_actions(tree: Any) -> bool:
    """Whether a name or an image of what makes pods is an action of Helm in quotes; in other texts of a pod it may be meant so."""
    try:
        one = workload(tree)
    except ParseError:
        return False
    if one is None or one.bare:
        return False
    spec = mapping(one.template.get("spec"))
    parts = [mapping(mapping(tree).get("metadata")), *[part for key in LISTS for part in named(spec.get(key))]]
    texts = [string(part.get(key)) for part in parts for key in ("name", "namespace", "image")]
    return any(_OPEN in text and _CLOSE in text for text in texts)


def _judge(
    found: FoundObject | PlacedFinding, file: str, selection: Selection, foresee: Foresee | None
) -> Iterator[PodFacts | PlacedFinding]:
    """Yield the pod of an object or the findings about it; nothing if it makes no pods."""
    if isinstance(found, PlacedFinding):
        yield found
        return
    try:
        one = workload(found.tree)
    except ParseError as error:
        yield _unreadable(file, str(error), found.at.find(("spec",)))
        return
    if one is None and (text := describe_other_maker(found.tree)):
        at = found.at.find(("metadata", "name"))
        yield PlacedFinding(PodFinding(kind=UNREAD_PODS, severity=NOTE, text=text), file, at)
    if one is None or one.bare or not selection.takes(one):
        return
    place = PodPlace(found.at, one)
    try:
        yield replace(read_facts(one, Options(), foresee), file=file, place=place)
    except OptionError as error:
        yield from _refused(one, place, file, error)


def _refused(one: Workload, place: PodPlace, file: str, error: OptionError) -> Iterator[PlacedFinding]:
    """Yield what is wrong with a pod whose options cannot be read."""
    pod = one.pod()
    annotations = strings(mapping(pod["metadata"]).get("annotations"))
    found = [*pod_findings(pod), *annotation_findings(annotations, frozenset(known_keys()), one), *request_findings(one)]
    if not any(finding.kind == ARGUMENTS for finding in found):
        found += [PodFinding(kind=INVALID_VALUE, severity=ERROR, text=text) for text in error.problems]
    accepted = accepted_findings(annotations)
    for finding in sorted(found, key=lambda finding: finding.severity != ERROR):
        if finding.kind != NOT_PROGRAMMED:
            yield PlacedFinding(finding, file, place.of_finding(finding), one.title, accepted)


def _unreadable(file: str, problem: str, at: Position = UNKNOWN) -> PlacedFinding:
    text = f"cannot be read: {problem.removeprefix('cannot be read: ')}; correct it, or remove it with --exclude"
    return PlacedFinding(PodFinding(kind=UNREADABLE_MANIFEST, severity=ERROR, text=text), file, at)


def _position_of(text: str, sign: str) -> Position:
    before = text[: text.index(sign)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def looks_like_manifest(text: str) -> bool:
    """Whether a text that cannot be read has the keys of a Kubernetes object."""
    return bool(_API_VERSION.search(text) and _KIND.search(text))


def is_template(text: str, error: ParseError) -> bool:
    """Whether actions of Helm, and nothing else, are why a text is no YAML; `error` is the reader's.

    It is tried without them: then the text can be read, or what is wrong with it stands elsewhere.
    """
    if _OPEN not in text or _CLOSE not in text:
        return False
    lines = text.split("\n")
    if 0 < error.line <= len(lines) and _OPEN in lines[error.line - 1].partition("#")[0]:
        return True
    try:
        yaml_texts.load_all(_without_actions(text))
    except ParseError as after:
        return 0 < error.line != after.line > 0
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
