"""Split a stream of manifests into documents, find their workloads, and write the stream back.

Unchanged documents are written back byte for byte. Workloads are recognized by kind and API group (template_kinds.py). A pod only
names its direct controller; the Deployment or CronJob is derived from its name.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from netinit.base.errors import ParseError
from netinit.base.records import Record
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, clone, mapping, sequence, string, strings
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.template_kinds import Path, TemplateKind, find_kinds

_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|\Z).*?(?:\n|\Z)", re.MULTILINE)
_DIRECTIVES = r"(?:[ \t]*(?:#[^\n]*)?\n)*%(?:[^\n]*\n)(?:[ \t]*(?:[%#][^\n]*)?\n)*"
"""Lines such as `%YAML 1.1`, which belong to the document after the next separator."""
_INLINE = r"---[ \t]+[^ \t\r\n#]"

BEFORE_JSON = "--- \t"
"""Stands before each object of a JSON stream, on its line; nobody writes a separator so, and a `Document` has a usual one."""
_JSON_OBJECT = re.compile(r"\s*\{")
_BLANKS = " \r\n"  # a tab is left to the parser, which refuses it at the start of a line
_LISTED = 10  # maximum number of workloads in an error


class ManifestFile(Record):
    """A file with its text. `problem`: why it cannot be read; `text` then holds what could be decoded of it."""

    name: str
    text: str
    problem: str = ""


class Document(Record):
    """A document of a stream: its separator line, its text, and how many lines are before it in the stream."""

    separator: str
    text: str
    lines_before: int = 0

    def parse(self) -> tuple[Any, tuple[ParseError, ...]]:
        """Return the tree, and an error for each duplicate key. Raises ParseError; both with the place in the stream.

        A document of blanks has no parser made for it, which takes longer than all else: a stream may hold many.
        """
        if not (self.text.strip(_BLANKS) or self.separator.removeprefix("---").strip(_BLANKS)):
            return None, ()
        return yaml_texts.load_reporting(self.separator + self.text, self.lines_before)


def split(text: str) -> list[Document]:
    """Split a stream into documents; concatenated, they are the stream, but for the separators of a JSON stream's objects.

    These get a line of their own: kubectl refuses an object on the separator's line.
    """
    documents = []
    separator, start, lines = "", 0, 0
    for found in _SEPARATOR.finditer(text):
        before = text[start : found.start()]
        directives = not separator and re.fullmatch(_DIRECTIVES, before) is not None
        if (found.start() > 0 or separator) and not directives:
            documents.append(_make_document(separator, before, lines))
            lines += separator.count("\n") + before.count("\n")
        inline = re.match(_INLINE, found[0]) is not None
        head = before if directives else ""
        length = len(BEFORE_JSON) if found[0].startswith(BEFORE_JSON) else 3
        separator, start = (found[0][:length], found.start() + length) if inline else (found[0], found.end())
        separator = head + separator
    documents.append(_make_document(separator, text[start:], lines))
    return documents


def _make_document(separator: str, text: str, lines_before: int) -> Document:
    own = separator == BEFORE_JSON
    return Document(separator="---\n" if own else separator, text=text, lines_before=lines_before - own)


def separate_objects(text: str) -> str:
    """Return a stream of several JSON objects as one of YAML, with a separator before each; any other text as it is.

    `jq` and `kubectl get -o json` of several commands write such streams. Lines keep their numbers where each object begins one.
    """
    decoder, starts, end = json.JSONDecoder(), list[int](), 0
    while start := _JSON_OBJECT.match(text, end):
        starts.append(start.end() - 1)
        try:
            end = decoder.raw_decode(text, starts[-1])[1]
        except (ValueError, RecursionError):
            return text
    if not starts[1:] or text[end:].strip():
        return text
    pieces = [text[one:other].rstrip(" \t") for one, other in itertools.pairwise((*starts, len(text)))]
    return text[: starts[0]] + "".join([f"{BEFORE_JSON}{piece}" + ("" if piece.endswith("\n") else "\n") for piece in pieces])


class StreamWriter:
    """Concatenates streams, with separators where needed; blank streams are omitted."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._end = ""
        self._blanks: list[str] | None = []

    def begin(self) -> None:
        """Start another stream."""
        self._blanks = []

    def write(self, piece: str) -> None:
        """Write the next piece; a separator must not be split between pieces."""
        if self._blanks is not None:
            self._blanks.append(piece)
            if not piece.strip():
                return
            piece = "".join(self._blanks)
            self._blanks = None
            lead = "\n" if self._end[-1:] not in ("", "\n") else ""
            if self._end and not piece.startswith("---") and not (self._end + lead).endswith(("\n---\n", "\n---\r\n")):
                lead += "---\n"
            piece = lead + piece
        self._write(piece)
        self._end = (self._end + piece[-_SEEN:])[-_SEEN:]


_SEEN = 8
"""Characters of the output to keep, to find a separator at its end."""


class Workload(Record):
    """A pod, or an object that creates pods. `tree`: the object, a part of its document's tree.

    `template_path`: of the pod template in the object; empty for a pod. `metadata_path`: of the metadata's holder in manual
    injection. `part`: the template, of an object that has several.
    """

    kind: str
    name: str
    namespace: str
    owner: PodOwner
    tree: Tree
    template_path: Path
    metadata_path: Path
    part: str = ""

    @property
    def bare(self) -> bool:
        """Whether it has no pod spec, such as a patch."""
        return _at(self.tree, self.template_path).get("spec") is None

    @property
    def title(self) -> str:
        """The name for messages: kind, namespace and name."""
        full = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {quote(full)}{self.part}"

    def pod(self) -> Tree:
        """Return a copy of the pod for manual injection; as in Istio, a CronJob's has the job's metadata."""
        return self._pod(self.metadata_path)

    def created_pod(self) -> Tree:
        """Return a copy of the pod as the API server receives it."""
        return self._pod(self.template_path)

    @property
    def template(self) -> Tree:
        """The pod as the API server receives it, to read: its parts are those of `tree`."""
        return self._parts(self.template_path)

    def _pod(self, metadata_path: Path) -> Tree:
        return {key: clone(value) for key, value in self._parts(metadata_path).items()}

    def _parts(self, metadata_path: Path) -> Tree:
        metadata, spec = _at(self.tree, metadata_path).get("metadata"), _at(self.tree, self.template_path).get("spec")
        return {"metadata": metadata or {}, "spec": spec or {}}

    def set_pod(self, pod: Tree) -> None:
        """Make this pod the object's template, in place."""
        _place(self.tree, self.metadata_path, "metadata", pod["metadata"])
        _place(self.tree, self.template_path, "spec", pod["spec"])


def _at(tree: Tree, path: Path) -> Tree:
    found: Any = tree
    for step in path:
        found = found[step] if isinstance(step, int) else mapping(found).get(step)
    return mapping(found)


def _place(tree: Any, path: Path, key: str, value: Tree) -> None:
    for step in path:
        if not isinstance(step, int) and not isinstance(tree.get(step), dict | list):
            tree[step] = {}
        tree = tree[step]
    if value or key in tree:
        if key == "metadata" and "metadata" not in tree:
            others = dict(tree)
            tree.clear()
            tree["metadata"] = value
            tree.update(others)
        else:
            tree[key] = value


def workload(tree: Any) -> Workload | None:
    """Return the workload of a tree; None for another object. Raises ParseError if its pod spec is not a mapping."""
    return next(_workloads(tree, ()), None)


def _workloads(tree: Any, kinds: Iterable[TemplateKind]) -> Iterator[Workload]:
    if not isinstance(tree, dict):
        return
    version, metadata = string(tree.get("apiVersion")), mapping(tree.get("metadata"))
    if not (made := find_kinds(tree.get("kind"), version.rpartition("/")[0], kinds)):
        return
    kind = made[0].kind
    paths = {path: one.metadata for one in reversed(made) for path in one.templates(tree)}
    if len(made) > 1:  # of several, those that the object has
        paths = {path: holder for path, holder in paths.items() if "spec" in _at(tree, path)}
    name, namespace = string(metadata.get("name") or metadata.get("generateName")), string(metadata.get("namespace"))
    if kind == "Pod":
        owner = PodOwner.of_pod(tree)
    else:
        # generateName: the API server has not chosen a name yet.
        owner = PodOwner(name=string(metadata.get("name")), namespace=namespace, kind=kind, api_version=version)
    for path, holder in paths.items():
        where = ".".join(map(str, (*path, "spec")))
        if not isinstance(_at(tree, path).get("spec"), dict | None):
            raise ParseError(f'{kind} "{name}": {where} is not a mapping; without it there is no pod to inject')
        yield Workload(
            kind=kind, name=name, namespace=namespace, owner=owner, tree=tree, template_path=path,
            metadata_path=path if holder is None else holder, part=f", {where}" if len(paths) > 1 else "",
        )  # fmt: skip


def objects(tree: Any) -> Iterator[Any]:
    """Yield the objects of a document: the object itself, or the items of a List, also nested."""
    yield from [one for _, one in located_objects(tree)]


def located_objects(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the objects of a document, each with its path in the document."""
    if isinstance(tree, dict) and string(tree.get("kind")).endswith("List") and isinstance(tree.get("items"), list):
        for number, item in enumerate(tree["items"]):
            _complete_item(item, tree)
            yield from located_objects(item, (*path, "items", number))
    else:
        yield path, tree


def _complete_item(item: Any, listed: Tree) -> None:
    """Name the kind of an item of a PodList or the like: the API server leaves it out, and clients add it, in place."""
    kind = string(listed.get("kind")).removesuffix("List")
    if kind and isinstance(item, dict) and not item.get("kind"):
        item["kind"] = kind
        item.setdefault("apiVersion", listed.get("apiVersion"))


def workloads(tree: Any, kinds: Iterable[TemplateKind] = ()) -> Iterator[Workload]:
    """Yield the workloads of a document, also those of these `kinds`, of which an object may have several."""
    for one in objects(tree):
        yield from _workloads(one, tuple(kinds))


class Selection:
    """A selection of workloads by `NAME`, `NAMESPACE/NAME` or `KIND/NAME`; "" selects all.

    It counts the selected ones, and keeps some titles of others for the error message.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.chosen = 0
        self.others = 0
        self.titles: list[str] = []

    def takes(self, one: Workload) -> bool:
        """Whether the workload is selected."""
        names = (one.name, f"{one.namespace}/{one.name}", f"{one.kind}/{one.name}")
        taken = not self.name or self.name.lower() in [name.lower() for name in names]
        self.chosen += taken
        self.others += not taken
        if not taken and len(self.titles) < _LISTED:
            self.titles.append(one.title)
        return taken

    def check(self, label: str) -> None:
        """Raise ParseError if the name selected nothing; `label`: where the workloads are from."""
        if self.name and not self.chosen:
            more = f" and {self.others - _LISTED} more" if self.others > _LISTED else ""
            listed = ", ".join(self.titles) or "none"
            raise ParseError(f"--select: {label} has no workload {quote(self.name)}; it has {listed}{more}")


_CRON_JOB = r"(?s)(.+)-[0-9]{8,10}\Z"


class PodOwner(Record):
    """A workload; `api_version` is as in manifests, `apps/v1`."""

    name: str
    namespace: str = ""
    kind: str = "Pod"
    api_version: str = "v1"

    @classmethod
    def of_pod(cls, pod: Tree, namespace: str = "") -> PodOwner:
        """Return the workload of a pod: the pod itself if it has no controller or no generateName."""
        metadata = mapping(pod.get("metadata"))
        namespace = string(metadata.get("namespace")) or namespace
        itself = cls(name=string(metadata.get("name")), namespace=namespace)
        if not metadata.get("generateName"):
            return itself
        for reference in sequence(metadata.get("ownerReferences")):
            if isinstance(reference, dict) and reference.get("controller") is True:
                return cls._behind(reference, strings(metadata.get("labels")), namespace)
        return itself

    @classmethod
    def _behind(cls, reference: Tree, labels: dict[str, str], namespace: str) -> PodOwner:
        name, kind = string(reference.get("name")), string(reference.get("kind"))
        version = string(reference.get("apiVersion"))
        if kind == "ReplicaSet":
            for label, parent, parent_version in (
                ("pod-template-hash", "Deployment", version),
                ("rollouts-pod-template-hash", "Rollout", "v1alpha1"),
            ):
                hashed = labels.get(label)
                if hashed and name.endswith(hashed):
                    base = name.removesuffix(f"-{hashed}")
                    return cls(name=base, namespace=namespace, kind=parent, api_version=parent_version)
        elif kind == "ReplicationController" and labels.get("deploymentconfig"):
            config = labels["deploymentconfig"]
            return cls(name=config, namespace=namespace, kind="DeploymentConfig", api_version=version)
        elif kind == "Job" and (found := re.match(_CRON_JOB, name)):
            return cls(name=found[1], namespace=namespace, kind="CronJob", api_version="batch/v1")
        return cls(name=name, namespace=namespace, kind=kind, api_version=version)
