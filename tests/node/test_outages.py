"""The API server away under a running kubelet, and etcd restarted: running pods stay captured, drift is mended, and what is made afterwards starts captured."""

from __future__ import annotations

import contextlib
import time

import pytest

from control_plane import NAME, NAMESPACE
from kubelet import SECONDS, agents, is_so, state_of, wait_for_agent, wait_until_ready
from runtime import There
from test_kubelet import DAEMON_SETS, OBSTACLE, check_captured, cluster, created, examine_cluster, running  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")
AWAY = 120.0  # seconds
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
MERGE = "application/merge-patch+json"
MISSING = ("iptables", "-w", "-t", "nat", "-D", "ISTIO_OUTPUT", "1")


@pytest.fixture(scope="module")
def mending(cluster):  # noqa: F811
    """The cluster, whose agent repairs what differs, and sweeps each 5 s."""
    (container,) = cluster.daemon_set["spec"]["template"]["spec"]["containers"]
    changed = {"--repair": "program", "--sweepInterval": "5s"}
    args = [f"{flag}={changed[flag]}" if (flag := word.partition("=")[0]) in changed else word for word in container["args"]]
    before = {pod["metadata"]["uid"] for pod in agents(cluster)}
    patch = {"spec": {"template": {"spec": {"containers": [{"name": container["name"], "args": args}]}}}}
    cluster.ask("PATCH", f"{DAEMON_SETS}/{cluster.daemon_set['metadata']['name']}", patch, kind="application/strategic-merge-patch+json")

    def is_replaced():
        cluster.bind(NAMESPACE)
        return [is_so(pod, "Ready") for pod in agents(cluster) if pod["metadata"]["uid"] not in before] == [True] == [True for _ in agents(cluster)]

    cluster.until(is_replaced, "the agent that repairs is there", 2 * SECONDS)
    return cluster


def namespace_of(runtime, pod):
    return runtime.namespace(runtime.find_sandbox(pod["metadata"]["uid"]))


def rules_of(path):
    with There(path) as there:
        return there.run(["iptables-save", "-t", "nat"], check=True).stdout


def break_rules(path):
    """Deletes a rule of the pod's; the rules as they were."""
    before = rules_of(path)
    with There(path) as there:
        there.run([*MISSING], check=True)
    assert rules_of(path) != before
    return before


def strip(rules):
    """Rules without comments and counters."""
    return sorted(line for line in rules.splitlines() if line.startswith("-A"))


def wait_until_mended(path, before):
    end = time.monotonic() + SECONDS
    while strip(rules_of(path)) != strip(before):
        assert time.monotonic() < end, rules_of(path)
        time.sleep(0.2)


def start_sandbox_again(plane, runtime, pod):
    """The pod's sandbox dies, so that the kubelet makes another, which asks the plugin."""
    old = runtime.find_sandbox(pod["metadata"]["uid"])
    runtime.ctr("-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", old)
    end = time.monotonic() + 2 * SECONDS
    while (new := find_sandbox(runtime, pod, old)) is None:
        assert time.monotonic() < end, "the kubelet makes no other sandbox"
        time.sleep(0.5)
    return runtime.namespace(new)


def find_sandbox(runtime, pod, old):
    with contextlib.suppress(Exception):
        new = runtime.find_sandbox(pod["metadata"]["uid"])
        return new if new != old and runtime.namespace(new) else None
    return None


def create_pods(plane, runtime, stack, names):
    """Pods made now start captured, by our webhook and our agent."""
    for name in names:
        stack.enter_context(created(plane, name))
    for name in names:
        pod = wait_until_ready(plane, name)
        assert state_of(pod, "istio-validation")["terminated"]["exitCode"] == 0
        check_captured(runtime, pod)
    return [plane.find_pod("shop", name) for name in names]


def test_while_the_api_server_is_away_for_two_minutes_no_pod_loses_its_capture_and_what_is_made_right_after_is_captured(mending, runtime):
    with contextlib.ExitStack() as stack:
        pods = [stack.enter_context(running(mending, name)) for name in ("steady", "again")]
        paths = [namespace_of(runtime, pod) for pod in pods]
        mending.kill("kube-apiserver")
        begun = time.monotonic()
        try:
            before = break_rules(paths[0])
            wait_until_mended(paths[0], before)
            mended = time.monotonic() - begun
            check_captured(runtime, pods[0])
            fresh = start_sandbox_again(mending, runtime, pods[1])
            assert strip(rules_of(fresh)) == strip(before), "a sandbox that was made while the API server was away is not programmed"
            while time.monotonic() - begun < AWAY:
                check_captured(runtime, pods[0])
                time.sleep(5)
        finally:
            mending.start_again("kube-apiserver")
        mending.until(lambda: mending.ask("GET", "/readyz", raw=True) == "ok", "the API server is ready again", 2 * SECONDS)
        back = time.monotonic()
        create_pods(mending, runtime, stack, [f"after-{number}" for number in range(3)])
        print(f"API server away {back - begun:.0f} s: drift mended after {mended:.1f} s, 3 of 3 new pods captured {time.monotonic() - back:.0f} s after its return")
        check_captured(runtime, mending.find_pod("shop", "steady"))
        wait_for_agent(mending)
        mending.until(mending.replica.ready, "the webhook is ready", SECONDS)
        assert ("ok", "ready") in examine_cluster(mending)


def test_after_etcd_was_killed_watches_come_again_and_nothing_is_lost(mending, runtime):
    with contextlib.ExitStack() as stack:
        pod = stack.enter_context(running(mending, "kept"))
        path = namespace_of(runtime, pod)
        uids = {one["metadata"]["uid"] for one in mending.ask("GET", "/api/v1/pods")["items"]}
        mending.kill("etcd")
        before = break_rules(path)
        wait_until_mended(path, before)
        check_captured(runtime, pod)
        mending.start_again("etcd")
        mending.until(lambda: mending.ask("GET", "/readyz", raw=True) == "ok", "the API server is ready again", 2 * SECONDS)
        assert uids <= {one["metadata"]["uid"] for one in mending.ask("GET", "/api/v1/pods")["items"]}
        (new,) = create_pods(mending, runtime, stack, ["later"])
        before = break_rules(namespace_of(runtime, new))
        wait_until_mended(namespace_of(runtime, new), before)
        check_webhook_watches(mending)


def check_webhook_watches(plane):
    """The webhook hears that its bundle was changed, and puts it right."""
    (hooks,) = [one for one in plane.ask("GET", HOOKS)["items"] if one["metadata"]["name"].startswith(NAME)]
    bundle = [hook["clientConfig"]["caBundle"] for hook in hooks["webhooks"]]
    other = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": ""}} for hook in hooks["webhooks"]]
    plane.ask("PATCH", f"{HOOKS}/{hooks['metadata']['name']}", {"webhooks": other}, kind=MERGE)
    read = lambda: [hook["clientConfig"].get("caBundle") for hook in plane.ask("GET", f"{HOOKS}/{hooks['metadata']['name']}")["webhooks"]]  # noqa: E731
    plane.until(lambda: read() == bundle, "the webhook has put its bundle back", SECONDS)
