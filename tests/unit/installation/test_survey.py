"""What `webhook lint` and `webhook compare` read from a cluster, and what they do about kinds that may not be read."""

from __future__ import annotations

import http.server
import json
import threading
from urllib.parse import urlsplit

import pytest

from netinit.base.errors import ClusterError, ConfigError
from netinit.installation.survey import find_workloads, survey

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
HOOK = {
    "metadata": {"name": "injector"},
    "webhooks": [{
        "name": "namespace.sidecar-injector.istio.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"name": "istiod", "namespace": "mesh", "path": "/inject"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }],
}  # fmt: skip


def named(name, **more):
    return {"metadata": {"name": name, **more}}


@pytest.fixture
def cluster(tmp_path):
    """`cluster.lists`: a path's objects, or the status that it is refused with; other lists are empty. `cluster.asked`: the paths."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlsplit(self.path).path
            self.server.asked.append(self.path)
            found = self.server.lists.get(path, [])
            tree = {"metadata": {"resourceVersion": "1"}, "items": found} if isinstance(found, list) else {"message": "no"}
            text = json.dumps(tree).encode()
            self.send_response(200 if isinstance(found, list) else found)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.lists, server.asked, server.kubeconfig = {}, [], str(tmp_path / "kubeconfig")
    (tmp_path / "kubeconfig").write_text(json.dumps({
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}], "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
    }))  # fmt: skip
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def read(cluster):
    return [f"{tree['kind']}/{tree['metadata']['name']}" for tree in survey("", cluster.kubeconfig)[0]]


def test_secrets_and_config_maps_are_read_in_the_namespaces_of_the_webhooks_alone(cluster):
    cluster.lists = {
        WEBHOOKS: [HOOK],
        "/api/v1/namespaces/mesh/secrets": [named("cert")],
        "/api/v1/namespaces/mesh/configmaps": [named("istio")],
        "/api/v1/configmaps": [named("istio-ca-root-cert")],
    }
    assert read(cluster) == ["MutatingWebhookConfiguration/injector", "ConfigMap/istio-ca-root-cert", "Secret/cert", "ConfigMap/istio"]
    assert not [path for path in cluster.asked if urlsplit(path).path == "/api/v1/secrets"]
    (all_namespaces,) = [path for path in cluster.asked if urlsplit(path).path == "/api/v1/configmaps"]
    assert "fieldSelector=metadata.name%3D" in all_namespaces


def test_kinds_that_may_not_be_read_are_left_out_and_named(cluster):
    refused = ["/api/v1/services", "/api/v1/configmaps", "/api/v1/namespaces/mesh/secrets", "/apis/networking.istio.io/v1beta1/proxyconfigs"]
    cluster.lists = {**dict.fromkeys(refused, 403), WEBHOOKS: [HOOK], "/api/v1/namespaces": [named("mesh")]}
    assert read(cluster) == ["MutatingWebhookConfiguration/injector", "Namespace/mesh"]
    _, unread = survey("", cluster.kubeconfig)
    assert {*unread} == {"Service", "ConfigMap", "Secret", "ProxyConfig"}
    assert all("403" in why for why in unread.values())


def test_kinds_that_this_cluster_does_not_have_are_not_called_unread(cluster):
    cluster.lists = {WEBHOOKS: [HOOK], "/apis/networking.istio.io/v1beta1/proxyconfigs": 404}
    assert survey("", cluster.kubeconfig)[1] == {}


def test_lint_concludes_nothing_from_kinds_that_may_not_be_read_and_says_which(cluster, run):
    refused = ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/apis/policy/v1/poddisruptionbudgets"]
    cluster.lists = {**dict.fromkeys(refused, 403), WEBHOOKS: [HOOK], "/api/v1/namespaces": [named("mesh")]}
    done = run(f"netinit webhook lint --kubeconfig {cluster.kubeconfig}".split())
    assert "there is no Service" not in done.out
    assert "note: Services are not judged: " in done.err


@pytest.mark.parametrize("status", [401, 403, 500])
def test_without_the_webhooks_there_is_nothing_to_lint(cluster, status):
    cluster.lists = {WEBHOOKS: status}
    with pytest.raises(ClusterError, match=str(status)):
        survey("", cluster.kubeconfig)


def test_a_cluster_that_does_not_answer_is_an_error(cluster):
    cluster.shutdown()
    cluster.server_close()
    with pytest.raises(ClusterError, match="cannot be asked"):
        survey("x", cluster.kubeconfig)
    with pytest.raises(ConfigError, match='no context "other"'):
        survey("other", cluster.kubeconfig)


def test_workloads_are_compared_once_and_not_again_for_what_they_own(cluster):
    def owner(kind):
        return [{"kind": kind, "name": "x"}]

    cluster.lists = {
        "/apis/apps/v1/namespaces/shop/deployments": [named("web"), named("of-an-operator", ownerReferences=owner("Rollout"))],
        "/apis/batch/v1/namespaces/shop/jobs": [named("nightly-1", ownerReferences=owner("CronJob")), named("once")],
        "/api/v1/namespaces/shop/pods": [named("web-1", ownerReferences=owner("ReplicaSet")), named("kube-proxy", ownerReferences=owner("Node")), named("alone")],
    }  # fmt: skip
    found = find_workloads("", cluster.kubeconfig, "shop")
    assert [f"{tree['kind']}/{tree['metadata']['name']}" for tree in found] == ["Deployment/web", "Deployment/of-an-operator", "Job/once", "Pod/alone"]
