"""ProxyConfig resources and nodes in a real API server, and the pods that it keeps after they changed."""

from __future__ import annotations

import json
import re

import pytest

from control_plane import ADDRESSES, NAME, NAMESPACE, ApiError, Replica
from installation import bare, fresh, installed, reaches
from webhook_server import CONFIG

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "proxyconfigs.networking.istio.io"},
    "spec": {
        "group": "networking.istio.io", "scope": "Namespaced", "names": {"kind": "ProxyConfig", "plural": "proxyconfigs", "singular": "proxyconfig"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }}}],
    },
}  # fmt: skip
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROOT = "istio-system"


def path_of(namespace, name=""):
    return f"/apis/networking.istio.io/v1beta1/namespaces/{namespace}/proxyconfigs{f'/{name}' if name else ''}"


def write(plane, namespace, name, **spec):
    tree = {"apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    plane.until(lambda: plane.apply(tree), "the kind ProxyConfig is known")


def proxy_of(pod):
    """The container of the proxy; whether it is a native sidecar."""
    for key in ("initContainers", "containers"):
        for one in pod["spec"].get(key, ()):
            if one["name"] == "istio-proxy":
                return one, key == "initContainers"
    raise AssertionError(pod)


def threads(pod):
    (text,) = [one["value"] for one in proxy_of(pod)[0]["env"] if one["name"] == "PROXY_CONFIG"]
    return json.loads(text).get("concurrency")


@pytest.fixture
def without_kind(clean):
    """The control plane, which does not know ProxyConfig yet, nor afterwards."""
    if ROOT not in {one["metadata"]["name"] for one in clean.ask("GET", "/api/v1/namespaces")["items"]}:
        clean.namespace(ROOT)
    yield clean
    try:
        clean.ask("DELETE", f"{CRDS}/{CRD['metadata']['name']}")
    except ApiError as error:
        assert error.status == 404, error
    clean.until(lambda: not clean.apply({"apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig", "metadata": {"name": "x", "namespace": ROOT}}), "the kind is gone")


def test_resources_of_every_level_take_effect_and_stop_to(without_kind, tmp_path):
    plane = without_kind
    plane.create(CRDS, CRD)
    namespace = fresh(plane, **{"istio-injection": "enabled"})
    write(plane, ROOT, "all", concurrency=1)
    with installed(plane, tmp_path) as (replica,):
        reaches(plane, namespace)
        selected = bare(labels={"tier": "fast"}, annotations={"proxy.istio.io/config": "concurrency: 4"})
        assert threads(plane.pod(namespace, bare())) == 1
        write(plane, namespace, "own", concurrency=2, environmentVariables={"SEEN": "yes"})
        plane.until(lambda: threads(plane.pod(namespace, bare())) == 2, "the namespace's resource is in use")
        assert {"name": "SEEN", "value": "yes"} in proxy_of(plane.pod(namespace, bare()))[0]["env"]
        assert threads(plane.pod(namespace, selected)) == 4, "the annotation is stronger"
        write(plane, namespace, "fast", selector={"matchLabels": {"tier": "fast"}}, concurrency=8)
        plane.until(lambda: threads(plane.pod(namespace, selected)) == 8, "the selector is stronger still")
        write(plane, namespace, "fast", selector={"matchLabels": {"tier": "fast"}}, concurrency=9)
        plane.until(lambda: threads(plane.pod(namespace, selected)) == 9, "an update takes effect")
        write(plane, namespace, "own", concurrency="many")
        plane.until(lambda: threads(plane.pod(namespace, bare())) == 1, "one that cannot be read is left out")
        assert f"ProxyConfig {namespace}/own: concurrency: 'many'" in replica.health()
        for name in ("own", "fast"):
            plane.ask("DELETE", path_of(namespace, name))
        plane.until(lambda: threads(plane.pod(namespace, selected)) == 4, "what is deleted has no effect")


def test_a_cluster_without_the_kind_is_no_error_and_makes_no_noise(without_kind, tmp_path):
    namespace = fresh(without_kind, **{"istio-injection": "enabled"})
    with installed(without_kind, tmp_path) as (replica,):
        reaches(without_kind, namespace)
        assert threads(without_kind.pod(namespace, bare())) is None
        assert "[!]" not in replica.health()
        assert re.findall(".{2}ProxyConfig.*", replica.log.read_text()) == ["0 ProxyConfig resources"]


def test_a_right_that_is_missing_keeps_the_replica_from_injecting_without_the_resources(without_kind, tmp_path):
    plane = without_kind
    _, trees = plane.install("injection.proxyConfigs=false")
    with Replica(plane, ADDRESSES[0], trees=trees, folder=tmp_path, more=["--watchProxyConfigs=true"]) as replica:
        plane.until(lambda: "forbidden" in replica.health(), "the API server refuses")
        assert "[-]cluster: waiting for ProxyConfig resources" in replica.health()
        assert not replica.ready()


def make_node(plane, name, version):
    plane.create("/api/v1/nodes", {"metadata": {"name": name}})
    status = {"status": {"nodeInfo": {"kubeletVersion": version}}}
    plane.ask("PATCH", f"/api/v1/nodes/{name}/status", status, kind="application/strategic-merge-patch+json")


def test_the_nodes_decide_about_native_sidecars(clean, tmp_path):
    if clean.minor() < 29:
        pytest.skip("this API server knows no native sidecars")
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    is_native = lambda **more: proxy_of(clean.pod(namespace, bare(**more)))[1]  # noqa: E731
    make_node(clean, "new", "v1.33.1")
    try:
        with installed(clean, tmp_path, "injection.nativeSidecars=auto") as (replica,):
            reaches(clean, namespace)
            assert is_native()
            make_node(clean, "old", "v1.32.9")
            clean.until(lambda: not is_native(), "an older node is seen")
            assert is_native(annotations={"sidecar.istio.io/nativeSidecar": "true"})
            assert "regular sidecars" in replica.log.read_text()
            clean.ask("DELETE", "/api/v1/nodes/old")
            clean.until(is_native, "it is gone")
            assert not is_native(annotations={"sidecar.istio.io/nativeSidecar": "false"})
    finally:
        clean.ask("DELETE", "/api/v1/nodes")


def test_after_a_restart_with_an_invalid_configuration_the_last_good_one_is_in_use(clean, tmp_path):
    def put(**data):
        clean.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio-sidecar-injector", "namespace": NAMESPACE}, "data": data})

    def release():
        return clean.pod(namespace, bare())["metadata"]["annotations"]["release"]

    def metric(replica):
        return re.search("(?m)^netinit_webhook_configuration_restored (.*)", replica.metrics())[1]

    last_good = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}-last-good"
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    put(config=json.dumps(CONFIG), values='{"release": "one"}')
    _, trees = clean.install("injection.configMap=istio-sidecar-injector")
    clean.endpoints(ADDRESSES[0])
    with Replica(clean, ADDRESSES[0], trees=trees, folder=tmp_path) as replica:
        replica.wait()
        reaches(clean, namespace)
        assert release() == "one"
        clean.until(lambda: clean.ask("GET", last_good).get("data"), "it is kept")
        assert metric(replica) == "0.0"
    put(config='{"policy": "enabled", "templates": {"sidecar": "{{ bad"}}', values='{"release": "two"}')
    (own,) = [tree for tree in trees if tree["kind"] == "ConfigMap" and tree["metadata"]["name"].endswith("-last-good")]
    for _ in range(2):  # an upgrade leaves it alone
        code, _, said = clean.kubectl("apply", "--validate=false", "-f", "-", text=json.dumps(own))
        assert code == 0, said
    with Replica(clean, ADDRESSES[0], trees=trees, folder=tmp_path) as replica:
        replica.wait()
        clean.until(lambda: release() == "one", "the webhook answers")
        assert metric(replica) == "1.0"
        said = replica.health()
        assert f"of ConfigMap {NAMESPACE}/{NAME}-last-good, the last good one of ConfigMap {NAMESPACE}/istio-sidecar-injector" in said
        assert "[!]configuration: ConfigMap" in said
        assert "template 'sidecar' cannot be parsed" in said
        events = [one["message"] for one in clean.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]]
        assert any("the webhook was restarted, and uses ConfigMap" in one for one in events), events
        put(config=json.dumps(CONFIG), values='{"release": "three"}')
        clean.until(lambda: release() == "three", "a valid one replaces it")
        assert metric(replica) == "0.0"
        clean.until(lambda: "three" in clean.ask("GET", last_good)["data"]["values"], "and is kept")
