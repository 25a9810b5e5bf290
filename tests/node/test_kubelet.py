"""A real kubelet: pods of a restricted namespace, injected by our webhook, captured by our agent, which is itself a DaemonSet's pod."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

import kubelet
from control_plane import ADDRESSES, NAMESPACE, ApiError, Replica
from cri import IMAGE, archive_image, compile_static
from kubelet import Cluster
from meeting import check_meets_envoy
from node_agent import NODE
from runtime import V4, bridge
from sidecar import find_envoy, make_bootstrap

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "istio-injection": "enabled"}
SAFE = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}
PROXY = "netinit.test/proxy:1"
# Istio's proxy is told what it is by its arguments; Envoy knows it by its configuration.
LAUNCHER = '#include <unistd.h>\nint main(void)\n{\n    return execl("/envoy", "envoy", "-c", "/envoy.json", "--disable-hot-restart", "--concurrency", "1", (char *)0);\n}\n'
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
SECONDS = 60


def pytest_generate_tests(metafunc):
    if reason := kubelet.find_obstacle():
        metafunc.definition.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def cluster(runtime, tmp_path_factory):
    """A node with our webhook and the chart's DaemonSet, and the namespace `shop`, which is restricted."""
    network = bridge(V4)
    network["plugins"][0]["ipam"]["routes"] = [{"dst": "0.0.0.0/0"}]  # the API's Service is no neighbour of the pods
    runtime.network(network)
    built = Path(os.environ["NETINIT_NODE_IMAGES"])
    folder = tmp_path_factory.mktemp("plane")
    for archive in (built / "netinit.tar", built / "netinit-node.tar", make_proxy(folder)):
        runtime.ctr("-n", "k8s.io", "images", "import", archive)
    with Cluster(folder, runtime) as plane:
        values = folder / "values.json"
        images = {"imagePullPolicy": "Never", "proxy": {"image": PROXY}, "proxy_init": {"image": "localhost/netinit:latest"}}
        values.write_text(json.dumps({"istio_cni": {"enabled": True}, "global": images}))
        _, trees = plane.install(
            "node.enabled=true", "node.image.repository=localhost/netinit-node", "node.image.tag=latest", "node.image.pullPolicy=Never",
            f"node.binFolder={runtime.folder / 'bin'}", f"node.confFolder={runtime.folder / 'net.d'}",
        )  # fmt: skip
        (tree,) = [tree for tree in trees if tree["kind"] == "DaemonSet"]
        with Replica(plane, ADDRESSES[0], trees=trees, folder=folder, more=("--valuesFile", values)) as replica:
            replica.wait()
            plane.endpoints(ADDRESSES[0])
            plane.namespace("shop", **RESTRICTED)
            plane.create("/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "istio-ca-root-cert"}, "data": {"root-cert.pem": ""}})
            plane.until(lambda: plane.ask("GET", "/api/v1/namespaces/shop/serviceaccounts/default"), "the account is there")
            plane.daemon_set = tree
            wait_for_agent(plane)
            yield plane


def make_proxy(folder):
    """The image in the sidecar's place: a real Envoy with the libraries that it wants."""
    config = folder / "envoy.json"
    config.write_text(json.dumps(make_bootstrap(transparent=False, health=[15021])))
    envoy = find_envoy()
    files = {"proxy": compile_static(folder, "proxy", LAUNCHER), "envoy": envoy, "envoy.json": config}
    files |= {str(path).lstrip("/"): path for path in kubelet.libraries_of(envoy)}
    return archive_image(folder / "proxy.tar", PROXY, files)


def make_pod(name, **more):
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": NODE, "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "app", "image": IMAGE, "imagePullPolicy": "Never", "securityContext": SAFE, **more}],
        },
    }  # fmt: skip


def agents(plane):
    return [pod for pod in plane.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"] if pod["metadata"]["name"].startswith("netinit-node-")]


def wait_for_agent(plane):
    def ready():
        plane.bind(NAMESPACE)
        return any(is_so(pod, "Ready") for pod in agents(plane))

    try:
        plane.until(ready, "the DaemonSet's pod is ready", SECONDS)
    except AssertionError as error:
        said = [told for pod in agents(plane) for told in (plane.events(NAMESPACE, pod["metadata"]["name"]), plane.logs(NAMESPACE, pod["metadata"]["name"]))]
        raise AssertionError(f"{error}\n{said}") from None


def is_so(pod, kind):
    return any(one["type"] == kind and one["status"] == "True" for one in pod["status"].get("conditions", ()))


@contextlib.contextmanager
def running(plane, name):
    """The pod that the API server keeps, once the kubelet says that it is ready."""
    with created(plane, name):
        yield wait_until_ready(plane, name)


@contextlib.contextmanager
def created(plane, name):
    made = plane.pod("shop", make_pod(name), dry_run=False)
    try:
        yield made
    finally:
        plane.ask("DELETE", f"/api/v1/namespaces/shop/pods/{name}?gracePeriodSeconds=0")


def wait_until_ready(plane, name):
    try:
        plane.until(lambda: is_so(plane.find_pod("shop", name), "Ready"), f"the pod {name} is ready", SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{plane.events('shop', name)}\n{plane.logs('shop', name)}") from None
    return plane.find_pod("shop", name)


def containers_of(pod):
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def state_of(pod, name):
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    return next((one["state"] for one in statuses if one["name"] == name), {})


def check_captured(runtime, pod):
    path = runtime.namespace(runtime.find_sandbox(pod["metadata"]["uid"]))
    check_meets_envoy(path, [one["ip"] for one in pod["status"]["podIPs"]])


def test_a_pod_of_a_restricted_namespace_is_injected_captured_and_passes_its_validation(cluster, runtime):
    with running(cluster, "web") as pod:
        assert [one["name"] for one in containers_of(pod)] == ["istio-validation", "istio-proxy", "app"]
        for one in containers_of(pod):
            context = one["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["runAsUser"] in {1000, 1337}
            assert context["runAsNonRoot"]
            assert not context["allowPrivilegeEscalation"]
        assert state_of(pod, "istio-validation")["terminated"]["exitCode"] == 0
        check_captured(runtime, pod)


def test_the_same_namespace_refuses_the_init_container_that_programs_rules_itself(cluster):
    pod = make_pod("old")
    context = {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}}
    pod["spec"]["initContainers"] = [{"name": "istio-init", "image": "localhost/netinit:latest", "securityContext": context}]
    with pytest.raises(ApiError, match='violates PodSecurity "restricted') as caught:
        cluster.pod("shop", pod)
    assert "NET_ADMIN" in str(caught.value)


def test_without_the_agent_a_pod_waits_and_it_starts_captured_when_the_agent_is_back(cluster, runtime):
    take_the_agent_away(cluster)
    with created(cluster, "late"):
        cluster.until(lambda: any("agent does not answer" in told for told in cluster.events("shop", "late")), "the kubelet says why the pod waits", SECONDS)
        pod = cluster.find_pod("shop", "late")
        assert pod["status"]["phase"] == "Pending"
        assert all(set(state_of(pod, one["name"])) <= {"waiting"} for one in containers_of(pod))
        allow_the_agent(cluster)
        wait_for_agent(cluster)  # its own pod starts by the very plugin that makes the others wait
        check_captured(runtime, wait_until_ready(cluster, "late"))


def take_the_agent_away(plane):
    """No node is the DaemonSet's any more, so its pods go; the DaemonSet stays, and with it the plugin."""
    select(plane, {"nobody": "here"})
    plane.until(lambda: not agents(plane), "the agent's pod is gone", SECONDS)


def allow_the_agent(plane):
    select(plane, {"nobody": None})


def select(plane, labels):
    patch = {"spec": {"template": {"spec": {"nodeSelector": labels}}}}
    plane.ask("PATCH", f"{DAEMON_SETS}/{plane.daemon_set['metadata']['name']}", patch, kind="application/merge-patch+json")


def test_pods_that_start_at_once_are_all_captured(cluster, runtime):
    names = [f"many-{number}" for number in range(6)]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(created(cluster, name))
        for name in names:
            check_captured(runtime, wait_until_ready(cluster, name))
