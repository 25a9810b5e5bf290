"""Objects that make pods in ways that are not read: each is named, with what to ask instead."""

from __future__ import annotations

import json

import pytest

from netinit.base.tree import clone
from netinit.inject.deciding.manifests import workloads
from netinit.inject.deciding.other_makers import describe_other_maker
from netinit.inject.deciding.template_kinds import TemplateKind

POD = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": {"template": POD}}


def make(kind, version, **more):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "m"}, **more}


@pytest.mark.parametrize(("tree", "said"), [
    (make("CloneSet", "apps.kruise.io/v1alpha1", spec={"template": POD}), ['CloneSet "m" makes pods of spec.template, ', "--crd CloneSet.apps.kruise.io=spec.template"]),
    (make("Job", "batch.volcano.sh/v1alpha1", spec={"tasks": [{"name": "x"}, {"template": POD}]}), ["--crd Job.batch.volcano.sh=spec.tasks[].template"]),
    (make("Template", "template.openshift.io/v1", objects=[{"kind": "Service"}, DEPLOYMENT]), ['Template "m" of OpenShift', "oc process -f FILE"]),
    (make("Template", "v1", objects=[DEPLOYMENT]), ["oc process"]),
    (make("VirtualMachine", "kubevirt.io/v1", spec={}), ['VirtualMachine "m" runs in a pod that KubeVirt makes', "kubevirt.io=virt-launcher"]),
    (make("RayCluster", "ray.io/v1", spec={"headGroupSpec": {"template": POD}, "workerGroupSpecs": [{"template": POD}, {"template": POD}]}), [
        "makes pods of spec.headGroupSpec.template and spec.workerGroupSpecs[].template, ",
        "with --crd RayCluster.ray.io=spec.headGroupSpec.template --crd RayCluster.ray.io=spec.workerGroupSpecs[].template",
    ]),
    (make("Workflow", "argoproj.io/v1alpha1", spec={"templates": [{"container": {"image": "i"}}]}), ['Workflow "m" makes pods', "-l workflows.argoproj.io/workflow "]),
    (make("TaskRun", "tekton.dev/v1", spec={}), ["-l tekton.dev/taskRun "]),
    (make("SparkApplication", "sparkoperator.k8s.io/v1beta2", spec={"driver": {"cores": 1}}), ["-l spark-role "]),
    (make("InferenceService", "serving.kserve.io/v1beta1", spec={"predictor": {"model": {}}}), ["-l serving.kserve.io/inferenceservice "]),
    (make("Kafka", "kafka.strimzi.io/v1", spec={"kafka": {}}), ["-l strimzi.io/cluster "]),
    (make("VirtualMachinePool", "pool.kubevirt.io/v1beta1"), ["virt-launcher"]),
])  # fmt: skip
def test_what_makes_pods_is_named_with_what_to_ask(tree, said):
    told = describe_other_maker(tree)
    assert all(text in told for text in said), told


def test_a_kind_is_declared_with_all_its_templates():
    ray = make("RayCluster", "ray.io/v1", spec={"headGroupSpec": {"template": POD}, "workerGroupSpecs": [{"template": POD}, {"group": 2}]})
    kinds = [TemplateKind.parse(f"RayCluster.ray.io={path}") for path in ("spec.headGroupSpec.template", "spec.workerGroupSpecs[].template")]
    found = [(one.template_path, one.part) for one in workloads(ray, kinds)]
    paths = [("spec", "headGroupSpec", "template"), ("spec", "workerGroupSpecs", 0, "template")]
    assert sorted(found) == [(path, f", {'.'.join(map(str, path))}.spec") for path in paths]
    (own,) = workloads(make("Job", "batch/v1", spec={"template": POD, "other": POD}), [TemplateKind.parse("Job.batch=spec.other")])
    assert own.template_path == ("spec", "other")


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_items_of_a_typed_list_are_of_its_kind(kind):
    """The API server leaves kind and version of the items out: `kubectl get --raw`, clients in Go."""
    spec = POD["spec"] if kind == "Pod" else {"template": POD}
    listed = {"kind": f"{kind}List", "apiVersion": "v1" if kind == "Pod" else "apps/v1", "items": [{"metadata": {"name": "w"}, "spec": spec}]}
    assert [(one.kind, one.name) for one in workloads(clone(listed))] == [(kind, "w")]
    assert not list(workloads(clone(listed) | {"kind": "List"}))


def nested(levels):
    tree = POD
    for _ in range(levels):
        tree = {"a": tree}
    return make("Odd", "x.io/v1", **tree)


@pytest.mark.parametrize("tree", [
    None, [], "text", {}, make("Service", "v1", spec={"ports": [{"port": 80}]}), make("VirtualMachine", "other.io/v1", spec={}),
    make("Template", "v1", objects=[{"kind": "Service"}]), make("ConfigMap", "v1", data={"template": POD}), make("Task", "tekton.dev/v1", spec={"steps": [{"name": "a", "image": "i"}]}),
    make("CustomResourceDefinition", "apiextensions.k8s.io/v1", spec={"x": POD}), make("Odd", "x.io/v1", spec={"template": {"spec": {"containers": "none"}}}), nested(40),
])  # fmt: skip
def test_what_makes_no_pods_or_is_read_otherwise_is_not_mentioned(tree):
    assert describe_other_maker(tree) == ""


def test_lint_and_check_inject_say_it_and_fail_nothing(run, tmp_path):
    file = tmp_path / "all.json"
    file.write_text("\n".join(map(json.dumps, (make("CloneSet", "apps.kruise.io/v1alpha1", spec={"template": POD}), DEPLOYMENT))))
    linted = run(["netinit", "lint", "--strict", "--assume", "none", str(file)])
    assert (linted.code, linted.out.count("note NI129: CloneSet ")) == (0, 1)
    assert run(["netinit", "check-inject", "-f", str(file)]).err.startswith('note: CloneSet "m" makes pods')
    known = run(["netinit", "check-inject", "-f", str(file), "--crd", "CloneSet.apps.kruise.io=spec.template"])
    assert (known.err, known.out.count("CloneSet default/m")) == ("", 2)
