"""Warnings for the author of a pod: annotations of the mesh without effect, and contradictory ones."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from netinit.base.errors import OptionError
from netinit.base.net import Ports, find_common_ports
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, strings
from netinit.inject.annotations import known_keys
from netinit.inject.config import InjectionConfig
from netinit.inject.decision import INJECT
from netinit.inject.initcontainer import find_init, options_of
from netinit.inject.manifests import Workload
from netinit.inject.warnings import WARNING, PodFinding, pod_findings
from netinit.options import Options

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


_OF_THE_OPERATOR = ("no-init-container", "arguments", "missing-capability")  # the template's: the author cannot fix them


def advise(pod: Tree, injected: Tree, known: frozenset[str], workload: Workload | None = None) -> list[str]:
    """Return warnings for the author of an injected pod.

    `known`: the annotations that have an effect. `workload`: the controller of the pod, if known.
    """
    found = [finding for finding in pod_findings(injected) if finding.kind not in _OF_THE_OPERATOR]
    found += unknown_annotations(strings(mapping(pod.get("metadata")).get("annotations")), known)
    found += misplaced_annotations(workload, known) if workload else ()
    return [*map(str, found), *_contradictions(injected)]


def _contradictions(injected: Tree) -> Iterator[str]:
    """Yield ports that are both included and excluded.

    Outbound, exclusion wins; inbound, it only applies to all ports (*).
    """
    init = find_init(mapping(injected.get("spec")))
    if init is None:
        return
    try:
        options = options_of(init)
    except OptionError:
        return
    for direction, included, excluded, what in _port_lists(options):
        both = [] if isinstance(included, str) else find_common_ports(included, excluded)
        if both:
            listed = ", ".join(map(str, both))
            yield f"{direction} port {listed} is included and excluded at once: {what}; remove one of the two"


def _port_lists(options: Options) -> Iterator[tuple[str, Ports | str, Ports, str]]:
    captured = "it is captured, since exclusions count beside all ports (*) alone"
    yield "inbound", options.inbound_ports, options.exclude_inbound_ports, captured
    yield "outbound", options.outbound_ports, options.exclude_outbound_ports, "it is not captured"
