"""Both of Istio's golden suites: what manual injection makes of its manifests, and what the webhook makes of the pods.

Rows whose wanted output is given are compared as values; the others are run and must succeed. Every result is injected
again, which must not change it.
"""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

from inject_data import (
    CLASSIC,
    CURRENT,
    assert_same,
    cases,
    classic_config,
    current_config,
    documents,
    needs_data,
)
from netinit.base.errors import InjectionError
from netinit.base.tree import clone
from netinit.inject import Namespace, Settings, apply_patch, decide, decide_manually, inject_pod, json_patch
from netinit.inject.deciding.containers import find
from netinit.inject.deciding.injection_status import read_status
from netinit.inject.deciding.manifests import workloads
from netinit.installation.comparison import PodComparison, ReviewOutcome, make_reviews
from sweeps import together

pytestmark = [needs_data, pytest.mark.usefixtures("templates_parsed_once")]

OPENSHIFT = {
    "openshift.io/sa.scc.uid-range": "1000620000/10000",
    "openshift.io/sa.scc.supplemental-groups": "1000620000/10000",
}


def parameters(folder):
    return [pytest.param(case, id=case["name"]) for case in cases(folder)]


def assert_idempotent(pod, result, inject):
    """Injecting the result changes nothing.

    There is one exception by Istio's own wanted output: a pod that an earlier release injected with the proxy among
    its containers keeps that proxy's settings when it becomes a native sidecar, as if the user had made them, but
    nothing in the result tells so. From then on it must stay as it is.
    """
    before = read_status(pod)
    again = inject(result)
    if before and "istio-proxy" in before["containers"] and find(result["spec"].get("initContainers"), "istio-proxy"):
        result, again = again, inject(again)
    assert_same(again, result)


def injected(tree, config, settings):
    """A document after manual injection."""
    tree = clone(tree)
    for workload in workloads(tree):
        pod = workload.pod()
        if decide_manually(pod, workload.namespace, config).inject:
            inject = partial(inject_pod, config=config, settings=settings, owner=workload.owner)
            result = inject(pod)
            assert_idempotent(pod, result, inject)
            workload.set_pod(result)
    return tree


def manual(case, folder, config):
    settings = Settings(
        native_sidecars=case.get("native_sidecars", True), compliance_policy=case.get("compliance_policy", "")
    )
    return [injected(tree, config, settings) for tree in documents(folder / "cases" / case["input"]) if tree]


def wanted(case, folder):
    return [tree for tree in documents(folder / "cases" / case["want"]) if tree]


def with_version(trees, case):
    """The wanted documents with the version of the row's template, where the file has another row's."""
    given = case["golden_version"]
    if given is None:
        return trees
    return json.loads(re.sub(r'(\\"version\\":\\")[0-9a-f]{64}', rf"\g<1>{given}", json.dumps(trees)))


@together("case", parameters(CLASSIC))
def test_classic_manual_injection_gives_istios_output(case):
    config = classic_config(case)
    if case.get("expected_error"):
        with pytest.raises(InjectionError, match=_annotation(case)):
            manual(case, CLASSIC, config)
        return
    result = manual(case, CLASSIC, config)
    if case["want_given"]:
        for ours, theirs in zip(result, with_version(wanted(case, CLASSIC), case), strict=True):
            assert_same(ours, theirs)


def _annotation(case):
    """The annotation that a bad case is named after."""
    word = case["expected_error"].replace("ipranges", "OutboundIPRanges")
    return f"(?i)traffic.sidecar.istio.io/{word}"


@together("case", [p for p in parameters(CURRENT) if not p.values[0]["skip_kube_inject"]])
def test_current_manual_injection_gives_istios_output(case):
    config = current_config(case)
    if case["expected_error"]:
        with pytest.raises(InjectionError, match=_annotation(case)):
            manual(case, CURRENT, config)
        return
    result = manual(case, CURRENT, config)
    if case["want_given"]:
        for ours, theirs in zip(result, wanted(case, CURRENT), strict=True):
            assert_same(ours, theirs)


def pod_of(workload):
    """The pod that the API server would get from the workload's controller."""
    pod = workload.pod()
    if workload.kind == "Pod":
        return pod
    metadata = pod["metadata"]
    name, kind, version = workload.name, workload.kind, workload.owner.api_version
    if kind == "Deployment":
        metadata["labels"] = {**metadata.get("labels", {}), "pod-template-hash": "fake"}
        name, kind = f"{name}-fake", "ReplicaSet"
    elif kind == "DeploymentConfig":
        metadata["labels"] = {**metadata.get("labels", {}), "deploymentconfig": name}
        name, kind, version = f"{name}-fake", "ReplicationController", "v1"
    metadata["generateName"] = f"{name}-"
    metadata["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": name, "controller": True}]
    return pod


def as_template(pod):
    """The pod without what its controller gave it."""
    metadata = dict(pod["metadata"])
    for key in ("generateName", "ownerReferences"):
        metadata.pop(key, None)
    labels = {
        key: value
        for key, value in metadata.get("labels", {}).items()
        if key not in {"pod-template-hash", "deploymentconfig"}
    }
    return {"metadata": {**metadata, "labels": labels}, "spec": pod["spec"]}


@together("case", [p for p in parameters(CURRENT) if not p.values[0]["skip_webhook"]])
def test_the_webhook_gives_the_pod_of_istios_output(case):
    config = current_config(case)
    annotations = OPENSHIFT if case["platform"] == "openshift" else {}
    settings = Settings(
        revision="default", native_sidecars=case["native_sidecars"], compliance_policy=case["compliance_policy"]
    )
    inputs = [w for tree in documents(CURRENT / "cases" / case["input"]) for w in workloads(tree)]
    outputs = (
        [w for tree in wanted(case, CURRENT) for w in workloads(tree)]
        if case["want_given"] and not case["expected_error"]
        else []
    )
    for number, workload in enumerate(inputs):
        pod = pod_of(workload)
        namespace = Namespace(name=workload.namespace or "default", annotations=annotations)
        if not decide(pod, namespace.name, config).inject:
            continue
        if case["expected_error"]:
            with pytest.raises(InjectionError, match=_annotation(case)):
                inject_pod(pod, config, namespace=namespace, settings=settings)
            continue
        namespace = Namespace(name=workload.namespace, annotations=annotations)
        inject = partial(inject_pod, config=config, namespace=namespace, settings=settings)
        result = inject(pod)
        assert apply_patch(pod, json_patch(pod, result)) == result
        assert_idempotent(pod, result, inject)
        if outputs:
            assert_same(as_template(result), as_template(outputs[number].pod()))


RECORDED = [p for folder in (CLASSIC, CURRENT) for p in parameters(folder) if p.values[0]["want_given"] and not p.values[0].get("expected_error")]


@together("case", [p for p in RECORDED if not p.values[0].get("skip_kube_inject")])
def test_webhook_compare_finds_istios_pods_equal_to_ours(case):
    folder, config = (CLASSIC, classic_config(case)) if "template" in case else (CURRENT, current_config(case))
    theirs = with_version(wanted(case, folder), case) if folder is CLASSIC else wanted(case, folder)
    compared = PodComparison()
    documents_of = [tree for tree in documents(folder / "cases" / case["input"]) if tree]
    for before, left, right in zip(documents_of, manual(case, folder, config), theirs, strict=True):
        for review, *pods in zip(make_reviews(before, "default"), workloads(left), workloads(right), strict=True):
            compared.add(review, *[ReviewOutcome(pod=one.created_pod()) for one in pods])
    assert [(group.path, group.examples) for group in compared.groups()] == []
