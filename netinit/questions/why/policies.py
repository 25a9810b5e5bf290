"""The step "network policy": the NetworkPolicies that select a pod are named; whether they let a connection pass, the CNI decides."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.tree import Tree, sequence
from netinit.questions.why.objects import MAX_LISTED, POLICY, ClusterObjects, name_of, selects, spec_of
from netinit.questions.why.pods import PodInQuestion
from netinit.questions.why.steps import Step, name_object, passed, unknown

NAME = "network policy"
INGRESS, EGRESS = "Ingress", "Egress"


def examine_policies(pod: PodInQuestion, direction: str, objects: ClusterObjects) -> Iterator[Step]:
    """Name the policies that may drop what a pod sends (EGRESS) or gets (INGRESS)."""
    there = [one for one in objects.list(POLICY, pod.namespace) if direction in _types(one)]
    found = [one for one in there if selects(spec_of(one).get("podSelector"), pod.labels) is not False]
    for one in found[:MAX_LISTED]:
        what = "sends" if direction == EGRESS else "gets"
        text = f"restricts what {pod.title} {what}: what it does not name is dropped, and the client sees a timeout"
        show = f"kubectl describe networkpolicy {name_of(one)} -n {pod.namespace}"
        yield unknown(NAME, text, name_object(POLICY, pod.namespace, name_of(one)), shown_by=show)
    if len(found) > MAX_LISTED:
        yield unknown(NAME, f"{len(found) - MAX_LISTED} more select it", pod.title)
    if not found:
        why = objects.why_unknown(POLICY)
        if why:
            show = f"kubectl get networkpolicy -n {pod.namespace}"
            yield unknown(NAME, f"whether one drops it is not known: {why}", pod.title, shown_by=show)
        else:
            yield passed(NAME, f"none restricts what it {'sends' if direction == EGRESS else 'gets'}", pod.title)


def _types(policy: Tree) -> list[object]:
    """The directions that a policy is about: as the API server completes them."""
    spec = spec_of(policy)
    return sequence(spec.get("policyTypes")) or [INGRESS, *([EGRESS] if spec.get("egress") else [])]
