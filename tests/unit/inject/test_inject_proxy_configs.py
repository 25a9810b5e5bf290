"""ProxyConfig resources: what reaches a pod's proxy, by the cases of Istio's own tests (pilot/pkg/model/proxy_config_test.go) and more."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ConfigError
from netinit.inject import Namespace, Settings, inject_pod, load_config
from netinit.inject.adding.meshconfig import ProxyConfigResource, ProxyConfigs
from sweeps import together

TEMPLATES = {"templates": {"sidecar": "metadata: {annotations: {out: {{ protoToJSON .ProxyConfig | quote }}, image: {{ .ProxyImage | quote }}}}"}}
SELECTED = {"selector": {"matchLabels": {"test": "selector"}}}


def resource(namespace, name="one", *, created="2026-01-01T00:00:00Z", labels=None, **spec):
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created, "labels": labels or {}}
    return {"apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig", "metadata": metadata, "spec": spec}


def annotations(resources, *, mesh=None, labels=None, annotation=None, namespace="test-ns", revision=""):
    """The annotations of a pod with this label and annotation, injected with these resources."""
    config = load_config(TEMPLATES, mesh=mesh, values={"global": {"hub": "h", "tag": "t"}})
    metadata = {"name": "p", "labels": labels or {}, "annotations": {"proxy.istio.io/config": annotation} if annotation else {}}
    configs = ProxyConfigs.of(map(ProxyConfigResource.parse, resources), revision)
    settings = Settings(proxy_configs=configs, revision=revision)
    pod = inject_pod({"metadata": metadata, "spec": {"containers": []}}, config, namespace=Namespace(name=namespace), settings=settings)
    return pod["metadata"]["annotations"]


def effective(*resources, **more):
    return json.loads(annotations(resources, **more)["out"])


LABELLED = {"labels": {"test": "selector"}}
CASES = {
    "of the namespace": ([resource("test-ns", concurrency=3, image={"imageType": "debug"})], {}, {"concurrency": 3, "image": {"imageType": "debug"}}),
    "before the mesh's": ([resource("istio-system", concurrency=3)], {"mesh": {"defaultConfig": {"concurrency": 2}}}, {"concurrency": 3}),
    "the selector before the namespace": ([resource("test-ns", "w", **SELECTED, concurrency=3), resource("test-ns", concurrency=2)], LABELLED, {"concurrency": 3}),
    "the selector before the annotation": ([resource("test-ns", **SELECTED, concurrency=3)], {**LABELLED, "annotation": "concurrency: 5"}, {"concurrency": 3}),
    "the annotation before the namespace": ([resource("test-ns", concurrency=3)], {"annotation": "concurrency: 5"}, {"concurrency": 5}),
    "the namespace before the root namespace": ([resource("istio-system", concurrency=4), resource("test-ns", concurrency=3)], {}, {"concurrency": 3}),
    "other namespaces": ([resource("wrong-ns", concurrency=1), resource("wrong-ns", "w", **SELECTED, concurrency=2), resource("istio-system", concurrency=3)], LABELLED, {"concurrency": 3}),
    "a selector in the root namespace is not for other namespaces": ([resource("istio-system", **SELECTED, concurrency=3)], LABELLED, {}),
    "a pod of the root namespace": ([resource("istio-system", **SELECTED, concurrency=3), resource("istio-system", "n", concurrency=1)], {**LABELLED, "namespace": "istio-system"}, {"concurrency": 3}),
    "another root namespace": ([resource("root", concurrency=3), resource("istio-system", concurrency=1)], {"mesh": {"rootNamespace": "root"}}, {"concurrency": 3}),
    "the oldest": ([resource("test-ns", "a", created="2026-01-02T00:00:00Z", environmentVariables={"A": "1"}), resource("test-ns", "b", environmentVariables={"B": "2"})], {}, {"proxyMetadata": {"B": "2"}}),
    "the first by name of two of one second": ([resource("test-ns", "b", concurrency=4), resource("test-ns", "a", concurrency=3)], {}, {"concurrency": 3}),
    "variables are merged": (
        [resource("istio-system", environmentVariables={"A": "root", "B": "root"}), resource("test-ns", environmentVariables={"B": "ns"}), resource("test-ns", "w", **SELECTED, environmentVariables={"C": "w"})],
        {**LABELLED, "mesh": {"defaultConfig": {"proxyMetadata": {"M": "mesh"}}}}, {"proxyMetadata": {"A": "root", "B": "ns", "C": "w", "M": "mesh"}},
    ),
    "zero is a value": ([resource("test-ns", concurrency=0)], {"mesh": {"defaultConfig": {"concurrency": 2}}}, {"concurrency": 0}),
    "null is none": ([resource("test-ns", concurrency=None)], {"mesh": {"defaultConfig": {"concurrency": 2}}}, {"concurrency": 2}),
    "a selector without labels is for nobody": ([resource("test-ns", selector={}, concurrency=3)], {}, {}),
    "all labels of a selector": ([resource("test-ns", selector={"matchLabels": {"test": "selector", "b": "c"}}, concurrency=3)], LABELLED, {}),
}  # fmt: skip


@together(("resources", "more", "wanted"), CASES.values(), ids=CASES)
def test_what_applies_to_a_pod(resources, more, wanted):
    assert effective(*resources, **more) == wanted


def test_the_image_type_chooses_the_proxys_image():
    assert annotations([resource("test-ns", image={"imageType": "debug"})])["image"] == "h/proxyv2:t-debug"
    assert annotations([resource("test-ns", image={"imageType": "debug"})], annotation="image: {imageType: distroless}")["image"] == "h/proxyv2:t-distroless"


@pytest.mark.parametrize(("revision", "label", "applies"), [("", "canary", True), ("default", None, True), ("default", "canary", False), ("canary", "canary", True)])
def test_a_revisions_resources_are_those_of_its_label_and_those_without(revision, label, applies):
    one = resource("test-ns", concurrency=3, labels={"istio.io/rev": label} if label else {})
    assert effective(one, revision=revision) == ({"concurrency": 3} if applies else {})


@pytest.mark.parametrize(("spec", "said"), [
    ({"concurrency": "many"}, "ProxyConfig shop/one: concurrency"), ({"environmentVariables": {"A": 1}}, "ProxyConfig shop/one: proxyMetadata"),
    ({"enviromentVariables": {}}, "spec.enviromentVariables is not one of its fields; it has selector, concurrency, environmentVariables, image"),
    ({"selector": {"matchLabels": {"a": 1}}}, "must be matchLabels with a text for each label"), ({"selector": []}, "must be matchLabels"),
])  # fmt: skip
def test_what_the_api_server_refuses_is_refused_with_the_resources_name(spec, said):
    with pytest.raises(ConfigError) as raised:
        ProxyConfigResource.parse(resource("shop", **spec))
    assert said in str(raised.value)
