"""Annotations that look like the mesh's and that nothing reads, misspelt or misplaced: they would have no effect in silence."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from netinit.base.sanitize import quote
from netinit.base.tree import mapping, strings
from netinit.inject.annotations import known_keys
from netinit.inject.config import InjectionConfig
from netinit.inject.decision import INJECT
from netinit.inject.manifests import Workload
from netinit.inject.warnings import WARNING, PodFinding

__all__ = ["known_to", "misplaced_annotations", "unknown_annotations"]

_KEY = re.compile(r"""(?<=["'`])[a-z0-9.-]+/[A-Za-z0-9._-]+(?=["'`])""")
_MOST = 5  # unknown annotations that are looked up
_LONGEST = 120  # characters of one
_SHORT = 12  # characters of a name that others may use too


def known_to(config: InjectionConfig) -> frozenset[str]:
    """The annotations that something reads: the injection, the proxy's agent, or these templates, as far as they quote them."""
    named = frozenset(word for text in config.sources.values() for word in _KEY.findall(text))
    return frozenset(known_keys()) | named


def unknown_annotations(annotations: Mapping[str, str], known: frozenset[str]) -> Iterator[PodFinding]:
    """A finding for each annotation in the domains of the mesh that nothing reads, with the nearest that is read."""
    domains, names = _domains(known), _names(known)
    strange = [
        key
        for key in annotations
        if key not in known and (key.partition("/")[0].lower() in domains or key.rpartition("/")[2].lower() in names)
    ]
    for key in strange[:_MOST]:
        near = names.get(key.rpartition("/")[2].lower()) or _nearest(key[:_LONGEST], known)
        yield PodFinding(
            severity=WARNING,
            kind="unknown-annotation",
            what=f"annotation {quote(key)} has no effect",
            why="nothing reads it",
            remedy=f"did you mean {near}?" if near else "remove it",
        )


def misplaced_annotations(workload: Workload, known: frozenset[str]) -> Iterator[PodFinding]:
    """A finding for each annotation, and the label of injection, that stands on a workload instead of its pod template."""
    if workload.kind == "Pod":
        return
    on_workload, on_pod = mapping(workload.tree.get("metadata")), mapping(workload.created_pod()["metadata"])
    for field, keys in (("annotations", known), ("labels", frozenset((INJECT,)))):
        there, here = strings(on_workload.get(field)), strings(on_pod.get(field))
        for key in [key for key in there if key in keys and key not in here][:_MOST]:
            yield PodFinding(
                severity=WARNING,
                kind="misplaced-annotation",
                what=f"{field[:-1]} {quote(key)} of the {workload.kind} has no effect",
                why="only the pod's own are read",
                remedy=f"move it to {'.'.join(workload.template_path)}.metadata.{field}",
            )


@functools.lru_cache(maxsize=1024)
def _nearest(key: str, known: frozenset[str]) -> str:
    """The known annotation that is most like this one; pods of one workload have the same mistake, so it is kept."""
    from difflib import get_close_matches  # seldom

    return next(iter(get_close_matches(key, sorted(known), 1)), "")


@functools.lru_cache(maxsize=2)
def _names(known: frozenset[str]) -> Mapping[str, str]:
    """The known annotations of the rules by their name in lower case, without the domain; none of a name that is short."""
    found = {key.rpartition("/")[2].lower(): key for key in sorted(known) if key.startswith("traffic.")}
    return {name: key for name, key in found.items() if len(name) > _SHORT}


@functools.lru_cache(maxsize=2)
def _domains(known: frozenset[str]) -> frozenset[str]:
    """The domains of the mesh's annotations, but for the one that workloads' own are in too."""
    found = {key.partition("/")[0] for key in known}
    return frozenset(domain for domain in found if domain.endswith(("istio.io", "netinit.io"))) - {"istio.io"}
