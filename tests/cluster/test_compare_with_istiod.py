"""`netinit webhook compare` beside istiod's own webhook: the cluster's workloads, and reviews as the API server sends them.

What is watched decides on both sides: ProxyConfig resources of every level, and the nodes' versions for native sidecars.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import control_plane
import istiod
from control_plane import ADDRESSES, ControlPlane
from istiod import ISTIOD, ROOT, WithIstiod
from netinit.golang import goyaml
from netinit.webhook.certificates import make_pair
from pod_shapes import varied_pods
from schemas import check_schema

TESTS = Path(__file__).parents[1]
URL = f"https://{ISTIOD}:15017/inject"
WORKLOADS = ("shop", "statefulset", "cronjob", "list")
VALUES = {"global": {"proxy": {"resources": {"requests": {"cpu": "10m"}}}}, "meshConfig": {"defaultConfig": {"proxyMetadata": {"OF_THE_MESH": "1"}}}}


class Plane(WithIstiod, ControlPlane):
    """The control plane with istiod, a node, workloads in the namespace `bench`, and ProxyConfig resources."""

    def bring_up(self):
        super().bring_up()
        for namespace in (ROOT, "bench"):
            self.namespace(namespace)
        make_node(self, "first", "v1.33.4")
        self.install_istiod(VALUES)
        workloads = [tree for name in WORKLOADS for tree in read_workloads(name)]
        workloads += map(as_deployment, varied_pods(200, seed=7))
        placed = [{**tree, "metadata": {**tree["metadata"], "namespace": "bench"}} for tree in workloads]
        self.count = len({(tree["kind"], tree["metadata"]["name"]) for tree in placed if self.apply(tree)})  # some APIs are gone
        write(self, ROOT, "all", concurrency=3, environmentVariables={"LEVEL": "root", "ROOT": "1"})
        write(self, "bench", "own", environmentVariables={"LEVEL": "namespace"}, image={"imageType": "distroless"})
        write(self, "bench", "some", selector={"matchLabels": {"tier": "a"}}, concurrency=1, environmentVariables={"LEVEL": "selector"})


def read_workloads(name):
    """The workloads of a golden's manifests."""
    text = (TESTS / "golden" / "inject" / name / "input.yaml").read_text()
    trees = [tree for tree in goyaml.load_all(text) if isinstance(tree, dict)]
    trees = [one for tree in trees for one in (tree["items"] if tree["kind"] == "List" else [tree])]
    return [tree for tree in trees if tree["kind"] in {"Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job"} and "/" in tree["apiVersion"]]


def as_deployment(pod):
    """A Deployment whose pods are like this one."""
    metadata = pod["metadata"]
    labels = {**metadata["labels"], "instance": metadata["name"]}
    template = {"metadata": {"labels": labels, "annotations": metadata["annotations"]}, "spec": pod["spec"]}
    spec = {"selector": {"matchLabels": {"instance": metadata["name"]}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": metadata["name"]}, "spec": spec}


def make_node(plane, name, version):
    plane.create("/api/v1/nodes", {"metadata": {"name": name}})
    status = {"status": {"nodeInfo": {"kubeletVersion": version}}}
    plane.ask("PATCH", f"/api/v1/nodes/{name}/status", status, kind="application/strategic-merge-patch+json")


def write(plane, namespace, name, **spec):
    plane.apply({"apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig", "metadata": {"name": name, "namespace": namespace}, "spec": spec})


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if os.environ.get("NETINIT_NODE_TEST") == "isolated":
        for address in ADDRESSES:
            subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
    if reason := control_plane.find_obstacle() or istiod.find_obstacle():
        pytest.skip(reason)
    with Plane(tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
def compare(plane, tmp_path):
    """Runs the command beside istiod: its exit code and its answer."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-sidecar-injector"
    authority = base64.b64decode(plane.ask("GET", path)["webhooks"][0]["clientConfig"]["caBundle"])
    (tmp_path / "root.pem").write_bytes(authority)

    def run(*words):
        side = ("--url", URL, "--ca", tmp_path / "root.pem", "--server-name", f"istiod.{ROOT}.svc")
        cluster = ("--kubeconfig", plane.folder / "admin.kubeconfig", "--native-sidecars", "auto")
        command = [sys.executable, "-m", "netinit", "webhook", "compare", *side, *cluster, *words]
        done = [subprocess.run([str(word) for word in (*command, *more)], capture_output=True, text=True, timeout=300, check=False) for more in ((), ("--json",))]
        assert done[0].returncode in (0, 3), done[0].stderr
        print(done[0].stdout)
        tree = json.loads(done[1].stdout)
        check_schema(tree, "compare")
        return done[0].returncode, tree

    return run


class Recorder:
    """A webhook that keeps the reviews that the API server sends it, and allows every pod as it is; by `with`."""

    def __init__(self, plane, folder):
        self.plane, self.folder, self.count = plane, folder, 0
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["content-length"])))
                recorder.count += 1
                (folder / f"{recorder.count}.json").write_text(json.dumps(review))
                answer = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": {"uid": review["request"]["uid"], "allowed": True}}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                return

        self.server = ThreadingHTTPServer(("localhost", 15443), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        pair = make_pair(("localhost",), now=time.time(), seconds=3600)
        (folder.parent / "recorder.pem").write_text(pair.key + pair.certificate)
        context.load_cert_chain(folder.parent / "recorder.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.authority = base64.b64encode(pair.authority.encode()).decode()

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        self.plane.apply({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "recorder"},
            "webhooks": [{
                "name": "recorder.netinit.test", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://localhost:15443/", "caBundle": self.authority},
            }],
        })  # fmt: skip
        return self

    def __exit__(self, *_):
        self.plane.ask("DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/recorder")
        self.server.shutdown()
        self.server.server_close()


def check_equal(code, tree, pods):
    assert tree["pods"] == pods
    assert tree["undocumented"] == 0, tree["groups"]
    assert code == (3 if tree["different"] else 0)


def test_the_clusters_workloads(plane, compare):
    code, tree = compare("-n", "bench")
    check_equal(code, tree, plane.count)


def test_reviews_as_the_api_server_sends_them(plane, compare, tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    pods = varied_pods(200, seed=11)
    with Recorder(plane, folder) as recorder:
        plane.until(lambda: send(plane, pods[0]) and recorder.count, "the API server has heard of the recorder")
        for path in folder.iterdir():
            path.unlink()
        for pod in pods:
            send(plane, pod)
    code, tree = compare("-f", folder)
    check_equal(code, tree, len(pods))


def send(plane, pod):
    """Creates a pod as a dry run, as a ReplicaSet's controller does."""
    tree = copy.deepcopy(pod)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{tree['metadata']['name']}-5d8c9", "uid": "u", "controller": True}
    tree["metadata"] |= {"ownerReferences": [owner], "generateName": f"{owner['name']}-"}
    tree["spec"]["serviceAccountName"] = "default"
    del tree["metadata"]["name"]
    return plane.pod("bench", tree)


def test_what_is_watched_changes_both_sides_alike(plane, compare):
    make_node(plane, "older", "v1.32.9")
    with contextlib.ExitStack() as stack:
        stack.callback(plane.ask, "DELETE", "/api/v1/nodes/older")
        stack.callback(write, plane, ROOT, "all", concurrency=3)
        write(plane, ROOT, "all", concurrency=0, environmentVariables={"LEVEL": "root", "SECOND": "2"})
        plane.until(lambda: compare("-n", "bench", "--select", "Deployment/pod-1")[1]["different"] == 0, "istiod has read them")
        check_equal(*compare("-n", "bench"), plane.count)


def test_settings_that_one_side_does_not_have_are_found(plane, compare, tmp_path):
    (tmp_path / "none.yaml").write_text(json.dumps({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig", "metadata": {"name": "x", "namespace": "elsewhere"}, "spec": {},
    }))  # fmt: skip
    code, tree = compare("-n", "bench", "--proxyConfigFile", tmp_path / "none.yaml")
    assert code == 3
    assert tree["undocumented"] > 200
    assert any(group["path"].endswith("env[LEVEL]") for group in tree["groups"]), [group["path"] for group in tree["groups"]]
