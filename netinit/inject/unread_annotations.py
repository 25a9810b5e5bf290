"""Find annotations in the mesh's domains that have no effect."""

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

_KEY = re.compile(r"""(?<=["'`])[a-z0-9.-]+/[A-Za-z0-9._-]+(?=["'`])""")
_MAX_UNKNOWN = 5  # maximum number of unknown annotations to compare
_MAX_LENGTH = 120  # characters per annotation
_SHORT = 12  # characters: shorter names may be in use elsewhere


def known_to(config: InjectionConfig) -> frozenset[str]:
    """Return the annotations read by injection, by the proxy's agent, or by these templates."""
    named = frozenset(word for text in config.sources.values() for word in _KEY.findall(text))
    return frozenset(known_keys()) | named


def unknown_annotations(annotations: Mapping[str, str], known: frozenset[str]) -> Iterator[PodFinding]:
    """Yield a finding for each annotation without effect, with the most similar known one."""
    domains, names = _domains(known), _names(known)
    strange = [
        key
        for key in annotations
        if key not in known and (key.partition("/")[0].lower() in domains or key.rpartition("/")[2].lower() in names)
    ]
    for key in strange[:_MAX_UNKNOWN]:
        near = names.get(key.rpartition("/")[2].lower()) or _nearest(key[:_MAX_LENGTH], known)
        yield PodFinding(
            severity=WARNING,
            kind="unknown-annotation",
            what=f"annotation {quote(key)} has no effect",
            why="nothing reads it",
            remedy=f"did you mean {near}?" if near else "remove it",
        )


def misplaced_annotations(workload: Workload, known: frozenset[str]) -> Iterator[PodFinding]:
    """Yield a finding for each annotation or injection label that belongs on the workload's pod template."""
    if workload.kind == "Pod":
        return
    on_workload, on_pod = mapping(workload.tree.get("metadata")), mapping(workload.created_pod()["metadata"])
    for field, keys in (("annotations", known), ("labels", frozenset((INJECT,)))):
        there, here = strings(on_workload.get(field)), strings(on_pod.get(field))
        for key in [key for key in there if key in keys and key not in here][:_MAX_UNKNOWN]:
            yield PodFinding(
                severity=WARNING,
                kind="misplaced-annotation",
                what=f"{field[:-1]} {quote(key)} of the {workload.kind} has no effect",
                why="only the pod's own are read",
                remedy=f"move it to {'.'.join(workload.template_path)}.metadata.{field}",
            )


@functools.lru_cache(maxsize=1024)
def _nearest(key: str, known: frozenset[str]) -> str:
    """Return the most similar known annotation; cached, since pods of a workload repeat a mistake."""
    from difflib import get_close_matches  # rarely needed

    return next(iter(get_close_matches(key, sorted(known), 1)), "")


@functools.lru_cache(maxsize=2)
def _names(known: frozenset[str]) -> Mapping[str, str]:
    """Return the known annotations of interception by lower-case name; short names are left out."""
    found = {key.rpartition("/")[2].lower(): key for key in sorted(known) if key.startswith("traffic.")}
    return {name: key for name, key in found.items() if len(name) > _SHORT}


@functools.lru_cache(maxsize=2)
def _domains(known: frozenset[str]) -> frozenset[str]:
    found = {key.partition("/")[0] for key in known}
    return frozenset(domain for domain in found if domain.endswith(("istio.io", "netinit.io"))) - {"istio.io"}
