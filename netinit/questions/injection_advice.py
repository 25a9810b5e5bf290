"""Warn the author of a pod that is injected: what its injection ignores, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netinit.base.net import PortRange, bounds_of, join_ranges
from netinit.base.tree import Tree, mapping, strings
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.ignored_settings import injection_warnings
from netinit.inject.deciding.init_container import find_init
from netinit.inject.deciding.manifests import Workload
from netinit.inject.deciding.metadata_findings import annotation_findings
from netinit.inject.deciding.warnings import (
    ARGUMENTS,
    MISSING_CAPABILITY,
    NOT_PROGRAMMED,
    PodFinding,
    pod_findings,
    readable_options,
)

_OF_THE_OPERATOR = (NOT_PROGRAMMED, ARGUMENTS, MISSING_CAPABILITY)  # the template's: the author cannot fix them


def advise(pod: Tree, injected: Tree, config: InjectionConfig, workload: Workload | None = None) -> list[PodFinding | str]:
    """Return warnings for the author of an injected pod; `workload`: the controller of the pod, if known.

    Rights that the author gave containers on purpose are for `lint`, not for each creation.
    """
    found = [finding for finding in pod_findings(injected, with_rights=False) if finding.kind not in _OF_THE_OPERATOR]
    annotations = strings(mapping(pod.get("metadata")).get("annotations"))
    found += annotation_findings(annotations, config.known_annotations, workload)
    return [*injection_warnings(pod), *found, *_contradictions(injected)]


def _contradictions(injected: Tree) -> Iterator[str]:
    """Yield ports that are both included and excluded.

    Outbound, exclusion wins; inbound, it only applies to all ports (*).
    """
    init = find_init(mapping(injected.get("spec")))
    options = readable_options(init) if init is not None else None
    if options is None:
        return
    captured = "it is captured, since exclusions only count with all ports (*)"
    for direction, included, excluded, what in (
        ("inbound", options.inbound_ports, options.exclude_inbound_ports, captured),
        ("outbound", options.outbound_ports, options.exclude_outbound_ports, "it is not captured"),
    ):
        both = [] if isinstance(included, str) else find_common_ports(included, excluded)
        if both:
            listed = ", ".join(map(str, both))
            yield f"{direction} port {listed} is included and excluded at once: {what}; remove one of the two"


def find_common_ports(one: Iterable[int | PortRange], other: Iterable[int | PortRange]) -> list[int | PortRange]:
    """The ports in both lists, ascending."""
    ours, theirs = [join_ranges(sorted(map(bounds_of, ports)))[::-1] for ports in (one, other)]
    found: list[int | PortRange] = []
    while ours and theirs:
        lowest, highest = max(ours[-1][0], theirs[-1][0]), min(ours[-1][1], theirs[-1][1])
        if lowest <= highest:
            found.append(lowest if lowest == highest else PortRange((lowest, highest)))
        (ours if ours[-1][1] == highest else theirs).pop()
    return found
