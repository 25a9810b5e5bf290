"""Warnings for the author of an injected pod."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.errors import OptionError
from netinit.base.net import Ports, find_common_ports
from netinit.base.tree import Tree, mapping, strings
from netinit.inject.initcontainer import find_init, options_of
from netinit.inject.manifests import Workload
from netinit.inject.unread_annotations import misplaced_annotations, unknown_annotations
from netinit.inject.warnings import pod_findings
from netinit.options import Options

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
