"""Annotations and labels that nobody hears: one in place of the other, the Namespace's on a pod, two that contradict each other."""

from __future__ import annotations

import pytest

from netinit.golang import goyaml
from netinit.inject.deciding.annotations import STATUS, known_keys
from netinit.inject.deciding.manifests import workload
from netinit.inject.deciding.metadata_findings import annotation_findings, request_findings

INJECT, PORTS, REVISION = "sidecar.istio.io/inject", "traffic.sidecar.istio.io/excludeOutboundPorts", "istio.io/rev"


def make(labels=None, annotations=None, *, kind="Deployment"):
    metadata = {"name": "p", "labels": labels or {}, "annotations": annotations or {}}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "app"}]}}
    made = {"apiVersion": "v1", "kind": "Pod", **pod} if kind == "Pod" else None
    return workload(made or {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "p"}, "spec": {"template": pod}})


def found(one):
    annotations = one.template["metadata"]["annotations"]
    return [*annotation_findings(annotations, frozenset(known_keys()), one), *request_findings(one)]


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
@pytest.mark.parametrize(("labels", "annotations", "code", "path", "said"), [
    ({PORTS: "5432"}, {}, "NI106", ("labels", PORTS), "it is read as an annotation only"),
    ({"inject.istio.io/templates": "gateway"}, {}, "NI106", ("labels", "inject.istio.io/templates"), "as an annotation only"),
    ({}, {REVISION: "canary"}, "NI106", ("annotations", REVISION), "it is read as a label only"),
    ({}, {"istio.io/dataplane-mode": "ambient"}, "NI106", ("annotations", "istio.io/dataplane-mode"), "as a label only"),
    ({"istio-injection": "enabled"}, {}, "NI106", ("labels", "istio-injection"), "it is the Namespace's label; use the pod's own"),
    ({}, {"istio-injection": "enabled"}, "NI106", ("annotations", "istio-injection"), "it is the Namespace's label"),
    ({INJECT: "false"}, {INJECT: "true"}, "NI002", ("annotations", INJECT), 'the pod\'s label of that name decides, and says "false"'),
    ({}, {INJECT: "True"}, "NI002", ("annotations", INJECT), "current injectors ignore it"),
    ({INJECT: "enabled"}, {}, "NI002", ("labels", INJECT), 'write "true" or "false"'),
])  # fmt: skip
def test_what_nobody_hears_is_said_at_its_place(kind, labels, annotations, code, path, said):
    (one,) = found(make(labels, annotations, kind=kind))
    assert (one.kind.code, one.path) == (code, path)
    assert said in str(one)


@pytest.mark.parametrize(("labels", "annotations"), [
    ({INJECT: "true", REVISION: "canary", "istio.io/dataplane-mode": "none", "app": "x"}, {PORTS: "5432", INJECT: "true"}),
    ({PORTS: "5432"}, {PORTS: "5432"}), ({REVISION: "a"}, {REVISION: "a"}),
    ({"security.istio.io/tlsMode": "istio"}, {STATUS: "{}", REVISION: "default"}),
    ({INJECT: ""}, {INJECT: ""}), ({INJECT: "false"}, {}), ({}, {INJECT: "false"}),
])  # fmt: skip
def test_what_is_heard_or_was_written_by_the_injection_is_not_mentioned(labels, annotations):
    assert found(make(labels, annotations)) == []


@pytest.mark.parametrize(("value", "told"), [
    ("8200", "is 8200, which YAML reads as a number; the API server takes texts alone and refuses the pod: put it in quotes"),
    ("1e3", "is 1000, which YAML reads as a number"), ("8200.5", "is 8200.5, which YAML reads as a number"), ("yes", "is true, which YAML reads as a switch"),
    ("[8200, 8201]", 'is [8200, 8201], which YAML reads as a list; the API server takes texts alone and refuses the pod: write "8200,8201"'),
    ("{a: 1}", "which YAML reads as a map; the API server takes texts alone and refuses the pod: put it in quotes"),
])  # fmt: skip
def test_an_annotation_that_is_no_text_is_shown_as_it_is_read_and_how_to_write_it(value, told):
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web, annotations: {{x: {value}}}}}\nspec: {{containers: [{{name: app}}]}}\n"
    (line,) = [one.text for one in annotation_findings({}, frozenset(), workload(goyaml.load(text))) if "which YAML reads" in one.text]
    assert told in line
