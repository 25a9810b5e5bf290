"""Says of objects that make pods in ways netinit does not read what to ask instead, so that nobody takes silence for an answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
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
_COMPOSED = {  # by kind: the API group, and the label of the pods that a controller composes of fields of its own
    **dict.fromkeys(("Workflow", "CronWorkflow"), ("argoproj.io", "workflows.argoproj.io/workflow")),
    **dict.fromkeys(("TaskRun", "PipelineRun"), ("tekton.dev", "tekton.dev/taskRun")),
    **dict.fromkeys(("SparkApplication", "ScheduledSparkApplication"), ("sparkoperator.k8s.io", "spark-role")),
    "InferenceService": ("serving.kserve.io", "serving.kserve.io/inferenceservice"),
    **dict.fromkeys(
        ("Kafka", "KafkaBridge", "KafkaConnect", "KafkaMirrorMaker2", "KafkaNodePool"), ("kafka.strimzi.io", "strimzi.io/cluster")
    ),
}
_MACHINES = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet", "VirtualMachinePool")
_OF_KUBEVIRT = "kubevirt.io"
_PASSED_OVER = ("ConfigMap", "CustomResourceDefinition", "Secret")
_MOST = 20  # templates of an object that are looked at; a RayCluster has one for each group of workers
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
    of_group, label = _COMPOSED.get(kind, ("", ""))
    if label and group == of_group:
        pods = f"kubectl get pod -l {label} -o yaml | netinit lint -"
        return f"{title} makes pods that its controller composes, which are not checked; ask about those: {pods}"
    found = list(islice(_templates(tree), _MOST))
    if not found:
        return ""
    if kind == _OPENSHIFT:
        return f"{title} of OpenShift holds workloads that are not checked; process it: oc process -f FILE -o yaml | netinit lint -"
    places = list(dict.fromkeys([".".join(path).replace(f".{EACH}", EACH) for path in found]))
    declared = [f"--crd {shorten(f'{kind}.{group}={where}' if group else f'{kind}={where}')}" for where in places]
    return (
        f"{title} makes pods of {' and '.join(map(shorten, places))}, which are not checked, since its kind is not known; give one of "
        f"the pods (kubectl get pod NAME -o yaml); inject and check-inject take the object with {' '.join(declared)}"
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
