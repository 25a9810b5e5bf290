"""Find annotations and labels of a pod's manifest without effect: misspelt, misplaced, or no texts."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from netinit.base.findings import FindingKind
from netinit.base.sanitize import quote, shorten
from netinit.base.tree import mapping, shown, string, strings
from netinit.inject.deciding.annotations import STATUS, known_keys
from netinit.inject.deciding.manifests import Workload
from netinit.inject.deciding.option_findings import NO_EFFECT
from netinit.inject.deciding.warnings import ERROR, INVALID_VALUE, PodFinding
from netinit.inject.deciding.webhooks import DATAPLANE_LABEL, INJECT, INJECTION_LABEL, REVISION_LABEL
from netinit.options import Options

UNKNOWN_ANNOTATION = FindingKind(
    "NI106", "unknown-annotation",
    "An annotation or a label of the mesh that nothing reads: it is misspelt, an annotation as a label or the other way round, or "
    "the Namespace's label on a pod.",
)
MISPLACED_ANNOTATION = FindingKind(
    "NI107", "misplaced-annotation",
    "An annotation, or the label of injection, on a workload instead of its pod template.",
)

_OF_PODS_LABELS = (
    REVISION_LABEL, DATAPLANE_LABEL, "istio.io/use-waypoint", "networking.istio.io/tunnel", "security.istio.io/tlsMode",
    "service.istio.io/canonical-name", "service.istio.io/canonical-revision", "topology.istio.io/network",
)  # fmt: skip
"""What Istio reads as a label of a pod alone."""

_MAX_UNKNOWN = 5  # maximum number of unknown annotations to compare
_MAX_LENGTH = 120  # characters per annotation
_KINDS = {bool: "a switch", dict: "a map", list: "a list"}
_SHORT = 12  # characters: shorter names may be in use elsewhere


def annotation_findings(
    annotations: Mapping[str, str], known: frozenset[str], workload: Workload | None = None
) -> Iterator[PodFinding]:
    """Yield a finding for each annotation without effect, and for what the workload has that belongs on its pod template.

    `known`: the annotations that have an effect. `workload`: the pod's controller, if known.
    """
    domains, names = _domains_and_names(known)
    unknown = [
        key
        for key in annotations
        if key not in known and (key.partition("/")[0].lower() in domains or key.rpartition("/")[2].lower() in names)
    ]
    for key in unknown[:_MAX_UNKNOWN]:
        near = names.get(key.rpartition("/")[2].lower()) or _nearest(key[:_MAX_LENGTH], known)
        remedy = f"did you mean {near}?" if near else "remove it"
        yield PodFinding(
            kind=UNKNOWN_ANNOTATION, path=("annotations", key),
            text=f"annotation {quote(key)} has no effect: nothing reads it; {remedy}",
        )  # fmt: skip
    for flag in Options.flags:
        first, *others = [name for name in (flag.annotation, *flag.istio_annotations) if name in annotations] or [""]
        for name in others:
            if annotations[name].strip() != annotations[first].strip():
                where = ("annotations", name)
                yield PodFinding(
                    kind=NO_EFFECT, path=where,
                    text=f"annotation {quote(name)} has no effect: {quote(first)} is there too and comes first, for the "
                    f"same option {flag.label}; remove one of the two",
                )  # fmt: skip
    if workload is not None:
        yield from _no_texts(workload)
        yield from _mistaken_fields(workload)
        yield from _contradictory_requests(workload)
        yield from _misplaced_annotations(workload, known) if workload.kind != "Pod" else ()


def _no_texts(workload: Workload) -> Iterator[PodFinding]:
    """Yield a finding for each annotation and label of the pod that is no text: a port without quotes, a switch."""
    metadata = mapping(workload.template["metadata"])
    for field in ("annotations", "labels"):
        wrong = [(key, value) for key, value in mapping(metadata.get(field)).items() if not isinstance(value, (str, type(None)))]
        for key, value in wrong[:_MAX_UNKNOWN]:
            kind = _KINDS.get(type(value), "a number")
            text = shown(value) if isinstance(value, dict | list) else shorten(string(value))  # as the API server gets it
            items = value if isinstance(value, list) and all(isinstance(one, (str, int)) for one in value) else ()
            remedy = f"write {quote(','.join(map(string, items)))}" if items else "put it in quotes"
            yield PodFinding(
                kind=INVALID_VALUE, severity=ERROR, path=(field, key),
                text=f"{field[:-1]} {quote(key)} is {text}, which YAML reads as {kind}; the API server takes texts alone "
                f"and refuses the pod: {remedy}",
            )  # fmt: skip


def _mistaken_fields(workload: Workload) -> Iterator[PodFinding]:
    """Yield a finding for each annotation that is a label, and each label that is an annotation or a Namespace's.

    An injected pod's own are left alone: the injection writes `istio.io/rev` as an annotation too. So are labels that only a template
    names, which may read them as such.
    """
    metadata = mapping(workload.template["metadata"])
    labels, annotations = strings(metadata.get("labels")), strings(metadata.get("annotations"))
    if STATUS in annotations:
        return
    known = known_keys()
    mistaken = [("labels", key, "an annotation") for key in labels if key in known and key != INJECT and key not in annotations]
    mistaken += [("annotations", key, "a label") for key in _OF_PODS_LABELS if key in annotations and key not in labels]
    for field, key, wanted in mistaken[:_MAX_UNKNOWN]:
        yield PodFinding(
            kind=UNKNOWN_ANNOTATION, path=(field, key),
            text=f"{field[:-1]} {quote(key)} has no effect: it is read as {wanted} only; make it one",
        )  # fmt: skip
    for field in [field for field, there in (("labels", labels), ("annotations", annotations)) if INJECTION_LABEL in there]:
        yield PodFinding(
            kind=UNKNOWN_ANNOTATION, path=(field, INJECTION_LABEL),
            text=f"{field[:-1]} {quote(INJECTION_LABEL)} has no effect on a pod: it is the Namespace's label; use the pod's own label "
            f'{INJECT}: "true" or "false"',
        )  # fmt: skip


def _contradictory_requests(workload: Workload) -> Iterator[PodFinding]:
    """Yield a finding if the pod asks for injection by a label and by an annotation that contradict each other."""
    metadata = mapping(workload.template["metadata"])
    labels, annotations = strings(metadata.get("labels")), strings(metadata.get("annotations"))
    label, annotation = labels.get(INJECT), annotations.get(INJECT)
    if label is not None and annotation and annotation != label:
        yield PodFinding(
            kind=NO_EFFECT, path=("annotations", INJECT),
            text=f"annotation {INJECT}: {quote(annotation)} has no effect: the pod's label of that name decides, "
            f"and says {quote(label)}; remove one of the two",
        )  # fmt: skip


def request_findings(workload: Workload) -> Iterator[PodFinding]:
    """Yield a finding if the pod asks for injection in words that not all injectors know.

    An injector says this itself (`decision`), for the words of its release; this is for manifests whose injector is not known.
    """
    metadata = mapping(workload.template["metadata"])
    labels, annotations = strings(metadata.get("labels")), strings(metadata.get("annotations"))
    field, there = ("labels", labels) if INJECT in labels else ("annotations", annotations)
    asked = there.get(INJECT)
    if asked and asked not in {"true", "false"}:
        yield PodFinding(
            kind=NO_EFFECT, path=(field, INJECT),
            text=f"{field[:-1]} {INJECT}: {quote(asked)} is neither true nor false: current injectors ignore it, and older ones take "
            'y, yes, true and on in any case for "true" and all else for "false"; write "true" or "false"',
        )  # fmt: skip


def unread_by_hand(workload: Workload, known: frozenset[str]) -> Iterator[PodFinding]:
    """Yield a finding for what manual injection does not read of a CronJob: as in Istio, it reads the Job's metadata."""
    if workload.metadata_path == workload.template_path:
        return
    holder, template = ".".join(map(str, workload.metadata_path)), ".".join(map(str, workload.template_path))
    read = mapping(workload.pod()["metadata"])
    for field, keys in (("annotations", known), ("labels", frozenset((INJECT,)))):
        there, here = strings(mapping(workload.template["metadata"]).get(field)), strings(read.get(field))
        for key in [key for key in there if key in keys and there[key] != here.get(key)][:_MAX_UNKNOWN]:
            yield PodFinding(
                kind=MISPLACED_ANNOTATION, path=(field, key),
                text=f"{field[:-1]} {key}: {quote(there[key])} of {template} has no effect on manual injection, which reads "
                f"{holder}.metadata; give it there too",
            )  # fmt: skip


def _misplaced_annotations(workload: Workload, known: frozenset[str]) -> Iterator[PodFinding]:
    """Yield a finding for each annotation or injection label that belongs on the workload's pod template."""
    on_workload, on_pod = mapping(workload.tree.get("metadata")), mapping(workload.template["metadata"])
    for field, keys in (("annotations", known), ("labels", frozenset((INJECT,)))):
        there, here = strings(on_workload.get(field)), strings(on_pod.get(field))
        for key in [key for key in there if key in keys and key not in here][:_MAX_UNKNOWN]:
            where, template = (field, key), ".".join(map(str, workload.template_path))
            yield PodFinding(
                kind=MISPLACED_ANNOTATION, path=where,
                text=f"{field[:-1]} {quote(key)} of the {workload.kind} has no effect: only the pod's own are read; move "
                f"it to {template}.metadata.{field[:-1]}s",
            )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _nearest(key: str, known: frozenset[str]) -> str:
    """Return the most similar known annotation; cached, since pods of a workload repeat a mistake."""
    from difflib import get_close_matches  # rarely needed

    return next(iter(get_close_matches(key, sorted(known), 1)), "")


@functools.lru_cache(maxsize=2)
def _domains_and_names(known: frozenset[str]) -> tuple[frozenset[str], Mapping[str, str]]:
    """Return the domains of known annotations, and those of interception by lower-case name, without short ones."""
    found = {key.partition("/")[0] for key in known}
    domains = frozenset(domain for domain in found if domain.endswith(("istio.io", "netinit.io"))) - {"istio.io"}
    names = {key.rpartition("/")[2].lower(): key for key in sorted(known) if key.startswith("traffic.")}
    return domains, {name: key for name, key in names.items() if len(name) > _SHORT}
