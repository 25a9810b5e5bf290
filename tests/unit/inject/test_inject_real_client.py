"""The commands ask an API server on a real socket; the answers are what the API's documentation says."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("httpx2", reason="the HTTP client is not installed: pip install httpx2")

TOKEN = "for-tests"
TEMPLATE = "metadata: {annotations: {mesh: '{{ .MeshConfig.TrustDomain }} {{ .Values.v }}'}}"
INJECTOR = {"config": json.dumps({"policy": "enabled", "templates": {"sidecar": TEMPLATE}}), "values": '{"v": "w"}'}
WEBHOOK = {
    "metadata": {"name": "istio-sidecar-injector"},
    "webhooks": [
        {
            "name": "namespace.sidecar-injector.istio.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "istiod", "namespace": "istio-system", "path": "/inject"}},
            "sideEffects": "None",
            "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}},
        }
    ],
}
ANSWERS = {
    "/api/v1/namespaces/istio-system/configmaps/istio-sidecar-injector": {"kind": "ConfigMap", "apiVersion": "v1", "data": INJECTOR},
    "/api/v1/namespaces/istio-system/configmaps/istio": {"kind": "ConfigMap", "apiVersion": "v1", "data": {"mesh": "trustDomain: td"}},
    "/api/v1/namespaces/shop": {"kind": "Namespace", "apiVersion": "v1", "metadata": {"labels": {"istio-injection": "enabled"}}},
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": {
        "kind": "MutatingWebhookConfigurationList",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {},
        "items": [WEBHOOK],
    },
}
CONTROLLED = {"name": "store-x-y", "namespace": "shop", "ownerReferences": [{"kind": "ReplicaSet", "name": "store-x", "controller": True}]}
SPEC = {"containers": [{"name": "c", "image": "i"}]}
WORKLOADS = {
    "/apis/apps/v1/deployments": [{"metadata": {"name": "store", "namespace": "shop"}, "spec": {"template": {"metadata": {}, "spec": SPEC}}}],
    "/apis/apps/v1/statefulsets": [],
    "/apis/apps/v1/daemonsets": [],
    "/apis/batch/v1/cronjobs": [],
    "/apis/batch/v1/jobs": [],
    "/api/v1/pods": [{"metadata": CONTROLLED, "spec": SPEC}, {"metadata": {"name": "web", "namespace": "shop"}, "spec": SPEC}],
}
ANSWERS |= {path: {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items} for path, items in WORKLOADS.items()}
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: c, image: i}]}\n"


class Api(http.server.BaseHTTPRequestHandler):
    """Answers those who have the token, and tells others and about what is not there as Kubernetes does."""

    def do_GET(self):
        status, body = 200, ANSWERS.get(self.path.partition("?")[0])
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, body = 401, {"kind": "Status", "reason": "Unauthorized"}
        elif body is None:
            status, body = 404, {"kind": "Status", "reason": "NotFound"}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serve(path, token=TOKEN) -> Iterator[str]:
    """The name of a kubeconfig for a server that answers as long as the block lasts."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "prod",
    }
    path.write_text(json.dumps(config))
    try:
        yield str(path)
    finally:
        server.shutdown()
        server.server_close()


def netinit(*words):
    return subprocess.run(
        [sys.executable, "-m", "netinit", *words], input=POD, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_configuration_comes_from_the_cluster(tmp_path):
    with serve(tmp_path / "config") as kubeconfig:
        done = netinit("inject", "-f", "-", "--kubeconfig", kubeconfig, "--context", "prod")
    assert done.returncode == 0, done.stderr
    assert "mesh: td w\n" in done.stdout


def test_check_inject_asks_for_namespaces_and_webhooks(tmp_path):
    with serve(tmp_path / "config") as kubeconfig:
        done = netinit("check-inject", "-f", "-", "--kubeconfig", kubeconfig, "--json")
    (verdict,) = json.loads(done.stdout)["objects"]
    assert (verdict["injected"], verdict["webhook"]) == (True, "namespace"), done.stdout


def test_compare_asks_about_the_clusters_workloads_with_the_clusters_configuration(tmp_path):
    pytest.importorskip("cryptography", reason="a webhook is served over TLS")
    from webhook_server import Server

    mesh = tmp_path / "mesh"
    mesh.write_text("trustDomain: td")
    config = json.loads(INJECTOR["config"])
    with serve(tmp_path / "kube") as kubeconfig, Server(tmp_path, "--meshConfig", mesh, config=config, values='{"v": "w"}') as server:
        words = ["--url", f"https://localhost:{server.port}/inject", "--ca", str(tmp_path / "ca.crt"), "--kubeconfig", kubeconfig, "--json"]
        alike, changed = [netinit("webhook", "compare", *words, *more) for more in ([], ["--set", "v=new"])]
    assert alike.returncode == 0, alike.stderr
    assert json.loads(alike.stdout)["pods"] == 2  # the pod of a ReplicaSet is asked about as its Deployment's
    assert changed.returncode == 3, changed.stderr
    (group,) = json.loads(changed.stdout)["groups"]
    assert [one["subject"] for one in group["examples"]] == ["Deployment shop/store"]
    assert (group["pods"], group["examples"][0]["left"], group["examples"][0]["right"]) == (2, "td w", "td new")


@pytest.mark.parametrize(
    ("words", "token", "said"),
    [
        (["--injectConfigMapName", "none"], TOKEN, "does not give the ConfigMap istio-system/none: 404"),
        ([], "wrong", "does not give the ConfigMap istio-system/istio-sidecar-injector: 401"),
        (["--context", "nowhere"], TOKEN, 'has no context "nowhere"'),
    ],
)
def test_what_the_cluster_refuses_is_one_clear_error(tmp_path, words, token, said):
    with serve(tmp_path / "config", token) as kubeconfig:
        done = netinit("inject", "-f", "-", "--kubeconfig", kubeconfig, *words)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not done.stdout


def test_a_cluster_that_is_away_is_one_clear_error(tmp_path):
    with serve(tmp_path / "config") as kubeconfig:
        pass
    done = netinit("inject", "-f", "-", "--kubeconfig", kubeconfig)
    assert done.returncode == 1
    assert "the cluster cannot be asked for the ConfigMap istio-system/istio-sidecar-injector" in done.stderr
    assert "Traceback" not in done.stderr
