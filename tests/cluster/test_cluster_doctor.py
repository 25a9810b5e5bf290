"""`kubectl netinit doctor --cluster` with a real API server: a release with replicas that serve, agents by their objects, and users with fewer rights."""

from __future__ import annotations

import json

import pytest

from control_plane import ADDRESSES, ADMIN, NAMESPACE
from installation import fresh, installed
from test_kubectl_netinit import ask

GIVEN = (
    "image.repository=registry.example/netinit-webhook", "node.enabled=true", "node.image.repository=registry.example/netinit-node",
    "node.startupTaint=mesh.example/wait", "replicas=2",
)  # fmt: skip
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
NODES = ("doctor-1", "doctor-2", "doctor-3")


def patch(plane, path, body, kind=STRATEGIC):
    return plane.ask("PATCH", path, body, kind=kind)


def add_node(plane, name):
    plane.create("/api/v1/nodes", {"metadata": {"name": name}, "spec": {"taints": [{"key": "mesh.example/wait", "effect": "NoSchedule"}] if name == NODES[1] else []}})
    info = dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeletVersion", "kubeProxyVersion", "containerRuntimeVersion", "architecture"), "")
    status = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {**info, "operatingSystem": "linux", "kernelVersion": "6.1.0"}}
    patch(plane, f"/api/v1/nodes/{name}/status", {"status": status})


def add_agent(plane, daemon_set, name, *, ready):
    """A pod of the DaemonSet's, as its controller creates it, and the kubelet tells of it."""
    template = daemon_set["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon_set["metadata"]["name"], "uid": daemon_set["metadata"]["uid"], "controller": True}
    metadata = {"name": f"netinit-node-{name}", "labels": template["metadata"]["labels"], "ownerReferences": [owner]}
    plane.pod(NAMESPACE, {"metadata": metadata, "spec": {**template["spec"], "nodeName": name}}, dry_run=False)
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if ready else waits
    container = {"name": "agent", "image": "x", "imageID": "", "ready": ready, "restartCount": 0, "state": state}
    status = {"phase": "Running" if ready else "Pending", "conditions": [{"type": "Ready", "status": str(ready)}], "containerStatuses": [container]}
    patch(plane, f"/api/v1/namespaces/{NAMESPACE}/pods/{metadata['name']}/status", {"status": status})


@pytest.fixture
def release(clean, tmp_path):
    """The chart's release with two replicas that serve, three nodes, an agent on two of them, of which one is not ready."""
    fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path, *GIVEN, replicas=2):
        daemon_set = clean.ask("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/netinit-node")
        for name in NODES:
            add_node(clean, name)
        for name, ready in zip(NODES[:2], (True, False), strict=True):
            add_agent(clean, daemon_set, name, ready=ready)
        pod = {"metadata": {"name": "doctor-web"}, "spec": {"nodeName": NODES[2], "containers": [{"name": "istio-proxy", "image": "p"}]}}
        clean.pod("default", pod, dry_run=False)
        patch(clean, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/netinit-webhook/status", {"status": {"readyReplicas": 2, "replicas": 2}})
        patch(clean, f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/netinit-node/status", {"status": dict.fromkeys(("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"), 2)})
        yield clean
        for name in NODES:
            clean.ask("DELETE", f"/api/v1/nodes/{name}")
            clean.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/name=netinit-node&gracePeriodSeconds=0")
        clean.ask("DELETE", "/api/v1/namespaces/default/pods/doctor-web?gracePeriodSeconds=0")


def examine(plane, tmp_path, kubeconfig=None):
    """Exit code, and the checks by kind."""
    done = ask(plane, tmp_path, "doctor", "--cluster", "-o", "json", namespace="", kubeconfig=kubeconfig)
    assert done.stdout, done.stderr
    return done.returncode, {(one["state"], one["kind"]): one for one in json.loads(done.stdout)["checks"]}


def list_lacking(plane, tmp_path, kubeconfig):
    """The commands that give the rights which are missing."""
    done = ask(plane, tmp_path, "doctor", "--cluster", "-o", "json", namespace="", kubeconfig=kubeconfig)
    return [one["remedy"] for one in json.loads(done.stdout)["checks"] if one["kind"] == "no-right"]


def test_a_release_is_judged_by_what_the_api_server_has_of_it(release, tmp_path):
    code, checks = examine(release, tmp_path)
    assert code == 1
    assert checks["ok", "ready"]["subjects"] == ["node doctor-1"], checks
    assert (checks["error", "not-ready"]["subjects"], checks["error", "not-ready"]["message"]) == (["node doctor-2"], "agent not ready: ImagePullBackOff")
    assert (checks["error", "no-agent-for-pods"]["subjects"], checks["error", "no-agent-for-pods"]["detail"]) == (["node doctor-3"], "default/doctor-web")
    assert checks["warning", "tainted"]["subjects"] == ["node doctor-2"]
    told = checks["ok", "configuration"]["message"]
    assert told.startswith("4 webhooks, failurePolicy Fail, caBundle valid until 20")
    assert told.endswith(f"{len(ADDRESSES[:2])} ready endpoints")
    assert checks["ok", "replicas"]["message"].startswith("2 of 2 replicas ready, 0.")
    assert checks["ok", "version"]["subjects"] == [f"release {NAMESPACE}/netinit"]
    assert not any(state == "unknown" for state, _ in checks), checks
    text = ask(release, tmp_path, "doctor", "--cluster", namespace="").stdout
    assert len(text.splitlines()) < 50, text


def test_the_remedies_that_change_something_do(release, tmp_path):
    _, checks = examine(release, tmp_path)
    code, _, errors = release.kubectl(*checks["warning", "tainted"]["remedy"].split()[1:])
    assert (code, errors) == (0, "")
    assert ("warning", "tainted") not in examine(release, tmp_path)[1]


def test_what_a_user_may_not_read_is_named_with_its_right_and_the_role_that_is_proposed_gives_it(release, tmp_path):
    config = tmp_path / "ann.kubeconfig"
    config.write_text(json.dumps(release.kubeconfig(ADMIN, "ann")))
    code, checks = examine(release, tmp_path, config)
    assert (code, {state for state, _ in checks}) == (1, {"unknown"})
    granted = []
    while lacking := list_lacking(release, tmp_path, config):  # what lies beside a webhook is asked for when that is known
        assert not {*lacking} & {*granted}
        for told in lacking:
            role = told.partition(", and have")[0].split()[1:]
            kind, name = role[role.index("create") + 1 :][:2]
            where = ("-n", NAMESPACE) if kind == "role" else ()
            assert release.kubectl(*role)[0::2] == (0, ""), told
            assert release.kubectl(*where, "create", f"{kind}binding", name, f"--{kind}={name}", "--user=ann")[0::2] == (0, ""), told
        release.until(lambda lacking=lacking: not {*lacking} & {*list_lacking(release, tmp_path, config)}, "the rights are there")
        granted += lacking
    assert len(granted) == 3
    assert "--verb=get --resource=secrets --resource-name=netinit-webhook-tls" in "".join(granted)
    assert examine(release, tmp_path, config)[1].keys() == examine(release, tmp_path)[1].keys()
