"""Objects that make pods in ways that are not read: each is named, with what to ask instead."""

from __future__ import annotations

import json

import pytest

from netinit.inject.deciding.other_makers import describe_other_maker

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
    (make("VirtualMachinePool", "pool.kubevirt.io/v1beta1"), ["virt-launcher"]),
])  # fmt: skip
def test_what_makes_pods_is_named_with_what_to_ask(tree, said):
    told = describe_other_maker(tree)
    assert all(text in told for text in said), told


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
