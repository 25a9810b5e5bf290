"""Pods with `hostUsers: false` under a real kubelet: injected by our webhook, captured by the plugin or by the init container."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet import SECONDS, make_pod, state_of, wait_until_ready
from meeting import check_meets_envoy
from node_agent import NODE
from runtime import There
from test_kubelet import OBSTACLE, cluster  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")
INIT = {
    "name": "istio-init", "image": "localhost/netinit:latest", "imagePullPolicy": "Never", "args": ["apply", "-b", "*", "-i", "*", "-d", "15090,15021,15020"],
    "securityContext": {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False, "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}},
}  # fmt: skip


@pytest.fixture(scope="module")
def with_users(cluster):  # noqa: F811
    """The cluster, if its runtime gives pods users of their own."""
    cluster.until(cluster.is_ready, "the node is ready", 2 * SECONDS)
    handlers = cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"].get("runtimeHandlers", [])
    if not any(one.get("features", {}).get("userNamespaces") for one in handlers):
        pytest.skip("the runtime has no user namespaces: containerd 2 and runc 1.2 or newer have (CONTAINERD_ASSETS)")
    return cluster


def run(plane, name, namespace="shop", **more):
    pod = make_pod(name)
    pod["spec"] |= {"hostUsers": False, **more}
    plane.pod(namespace, pod, dry_run=False)
    return wait_until_ready(plane, name, namespace)


def find_first_user(runtime, pod):
    """What the pod's user 0 is on the node."""
    process = runtime.cri.status(runtime.find_sandbox(pod["metadata"]["uid"]))["pid"]
    return int(Path(f"/proc/{process}/uid_map").read_text(encoding="ascii").split()[1])


def test_a_pod_with_users_of_its_own_is_injected_and_captured_by_the_plugin(with_users, runtime):
    try:
        pod = run(with_users, "own-users")
        assert pod["spec"]["hostUsers"] is False
        assert [one["name"] for one in pod["spec"]["initContainers"]] == ["istio-validation", "istio-proxy"]
        assert state_of(pod, "istio-validation")["terminated"]["exitCode"] == 0
        first = find_first_user(runtime, pod)
        assert first >= 1 << 16
        path = runtime.namespace(runtime.find_sandbox(pod["metadata"]["uid"]))
        check_meets_envoy(path, [one["ip"] for one in pod["status"]["podIPs"]], first_user=first)
    finally:
        with_users.ask("DELETE", "/api/v1/namespaces/shop/pods/own-users?gracePeriodSeconds=0")


def test_the_init_container_of_such_a_pod_programs_it_without_the_node_s_agent(with_users, runtime):
    with_users.namespace("users")
    with_users.until(lambda: with_users.ask("GET", "/api/v1/namespaces/users/serviceaccounts/default"), "the account is there")
    try:
        pod = run(with_users, "own-init", "users", initContainers=[INIT])
        assert state_of(pod, "istio-init")["terminated"]["exitCode"] == 0
        assert find_first_user(runtime, pod) >= 1 << 16
        with There(runtime.namespace(runtime.find_sandbox(pod["metadata"]["uid"]))) as there:
            rules = there.run(["iptables-save", "-t", "nat"], check=True).stdout
        assert "-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006" in rules
        assert "-A OUTPUT -p tcp -j ISTIO_OUTPUT" in rules or "-A OUTPUT -j ISTIO_OUTPUT" in rules
    finally:
        with_users.ask("DELETE", "/api/v1/namespaces/users/pods/own-init?gracePeriodSeconds=0")
