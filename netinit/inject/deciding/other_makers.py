"""Says of objects that make pods in ways netinit does not read what to ask instead, so that nobody takes silence for an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netinit.base.findings import FindingKind
from netinit.base.sanitize import quote, shorten
from netinit.base.tree import Tree, mapping, string
from netinit.inject.deciding.containers import named
from netinit.inject.deciding.template_kinds import EACH

UNREAD_PODS = FindingKind(
    "NI129", "unread-pods",
    "An object makes pods in a way that is not read: a template of OpenShift, a virtual machine of KubeVirt, or a custom resource "
    "with a pod template. Check its pods themselves, or what the template is processed to.",
)
_OPENSHIFT = "Template"
_MACHINES = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet", "VirtualMachinePool")
_OF_KUBEVIRT = "kubevirt.io"
_PASSED_OVER = ("ConfigMap", "CustomResourceDefinition", "Secret")
_DEPTH = 8  # keys from an object to its pod template: Spark's and Argo's need five


def describe_other_maker(tree: Any) -> str:
    """Return what an object that is no workload makes pods of, and what to ask about them; empty if it makes none."""
    kind, group = string(mapping(tree).get("kind")), string(mapping(tree).get("apiVersion")).rpartition("/")[0]
    if not kind or kind in _PASSED_OVER:
        return ""
    title = f"{shorten(kind)} {quote(string(mapping(tree.get('metadata')).get('name')))}"
    if kind in _MACHINES and group.endswith(_OF_KUBEVIRT):
        pods = "kubectl get pod -l kubevirt.io=virt-launcher -o yaml | netinit lint -"
        return f"{title} runs in a pod that KubeVirt makes, virt-launcher, which is not checked; ask about that: {pods}"
    found = next(_templates(tree), None)
    if found is None:
        return ""
    if kind == _OPENSHIFT:
        return f"{title} of OpenShift holds workloads that are not checked; process it: oc process -f FILE -o yaml | netinit lint -"
    where = ".".join(found).replace(f".{EACH}", EACH)
    crd = f"{kind}.{group}={where}" if group else f"{kind}={where}"
    return (
        f"{title} makes pods of {where}, which are not checked, since its kind is not known; give one of the pods "
        f"(kubectl get pod NAME -o yaml); inject and check-inject take the object with --crd {shorten(crd)}"
    )


def _templates(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of what has a pod's spec with containers, as far down as pod templates are."""
    if len(path) > _DEPTH:
        return
    if isinstance(tree, list):
        for one in tree:
            yield from _templates(one, (*path, EACH))
    elif isinstance(tree, dict):
        if path and _has_containers(mapping(tree.get("spec"))):
            yield path
        for key, value in tree.items():
            if isinstance(value, dict | list):
                yield from _templates(value, (*path, str(key)))


def _has_containers(spec: Tree) -> bool:
    return any("name" in one and "image" in one for one in named(spec.get("containers")))
