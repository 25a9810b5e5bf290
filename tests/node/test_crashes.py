"""Nodes that lose power, run out of memory, or are off while the release is uninstalled: with a real kubelet, and in bounded time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from control_plane import NAMESPACE
from kubelet import SECONDS, agent_values, agents, is_so, make_pod, state_of, wait_for_agent, wait_until_ready
from netinit.cli.webhook.manifests import objects
from test_kubelet import DAEMON_SETS, OBSTACLE, check_captured, cluster, created, running  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")
AGENT_IMAGE, KEPT = "localhost/netinit-node:latest", "localhost/kept:1"
WAITS = "agent does not answer"


def told(plane, name, namespace="shop"):
    return [one for one in plane.events(namespace, name) if WAITS in one]


def is_restarted(plane, name, namespace="shop"):
    """Ready again, and not still: the kubelet has seen that the containers ended."""
    pod = plane.find_pod(namespace, name)
    counts = [one["restartCount"] for one in pod["status"].get("containerStatuses", ())]
    return bool(counts) and all(counts) and is_so(pod, "Ready")


@contextlib.contextmanager
def outside_of_the_mesh(plane, name, namespace="kube-system", **more):
    """A pod that no agent would capture."""
    plane.until(lambda: plane.ask("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default"), "the account is there")
    with contextlib.suppress(Exception):
        plane.let_pods_mount(namespace)
    tree = make_pod(name)
    tree["spec"] |= more
    plane.pod(namespace, tree, dry_run=False)
    try:
        yield
    finally:
        plane.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")


def test_after_a_reboot_pods_wait_for_the_agent_which_starts_by_itself_and_all_are_captured(cluster, runtime):  # noqa: F811
    names = [f"rebooted-{number}" for number in range(3)]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(running(cluster, name))
        runtime.ctr("-n", "k8s.io", "images", "tag", "--force", AGENT_IMAGE, KEPT)
        runtime.ctr("-n", "k8s.io", "images", "rm", AGENT_IMAGE)  # so that the order is certain: the agent is the last
        cluster.power_off()
        assert not list(Path("/run/netinit").iterdir())
        begun = time.monotonic()
        cluster.power_on()
        for name in names:
            cluster.until(lambda name=name: told(cluster, name), f"the kubelet says why {name} waits", 2 * SECONDS)
            assert not set(runtime.ctr("-n", "k8s.io", "tasks", "ls", "-q").stdout.split()) & containers_of_pod(runtime, cluster.find_pod("shop", name))
        runtime.ctr("-n", "k8s.io", "images", "tag", "--force", KEPT, AGENT_IMAGE)
        for name in names:
            cluster.until(lambda name=name: is_restarted(cluster, name), f"{name} is ready again", 3 * SECONDS)
            pod = cluster.find_pod("shop", name)
            assert state_of(pod, "istio-validation")["terminated"]["exitCode"] == 0
            check_captured(runtime, pod)
        print(f"reboot: {len(names)} of {len(names)} pods captured again {time.monotonic() - begun:.0f} s after the node came back")


def containers_of_pod(runtime, pod):
    said = runtime.ctr("-n", "k8s.io", "containers", "ls", "--quiet", f'labels."io.kubernetes.pod.uid"=={pod["metadata"]["uid"]}')
    return set(said.stdout.split())


def find_agent_group(plane):
    """The control groups of memory of the agent's container."""
    (pod,) = [one for one in agents(plane) if is_so(one, "Ready")]
    uid, container = pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    for group in plane.groups:
        for folder, _, files in os.walk(group):  # other pods' groups end meanwhile, which os.walk passes over
            if folder.endswith(f"/pod{uid}/{container}") and {"memory.limit_in_bytes", "memory.max"}.intersection(files):
                return Path(folder)
    raise AssertionError(f"there is no control group of {container}")


def exhaust_memory(group):
    """Takes the agent's memory away; whether the kernel's killer was at work."""
    if (group / "memory.max").exists():
        count = lambda: int(dict(line.split() for line in (group / "memory.events").read_text().splitlines())["oom_kill"])  # noqa: E731
        before = count()
        (group / "memory.max").write_text(str(8 << 20))
    else:
        count = lambda: int(dict(line.split() for line in (group / "memory.oom_control").read_text().splitlines()).get("oom_kill", 0))  # noqa: E731
        before = count()
        with contextlib.suppress(OSError):  # what is in use cannot be taken back: what is asked for next is refused
            (group / "memory.limit_in_bytes").write_text(str(int((group / "memory.usage_in_bytes").read_text()) // 2))
        (group / "memory.limit_in_bytes").write_text((group / "memory.usage_in_bytes").read_text())
    return lambda: count() > before


@pytest.mark.parametrize("way", ["memory", "kill"])
def test_an_agent_that_is_killed_while_pods_start_leaves_none_of_them_uncaptured(cluster, runtime, way):  # noqa: F811
    names = [f"{way}-{number}" for number in range(5)]
    wait_for_agent(cluster)
    group = find_agent_group(cluster)
    processes = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    assert len(processes) >= 2
    with contextlib.ExitStack() as stack:
        is_killed = exhaust_memory(group) if way == "memory" else None
        for name in names:
            stack.enter_context(created(cluster, name))
        if way == "kill":
            cluster.until(lambda: any(told_of_sandbox(cluster, name) for name in names) or time.sleep(0.3) is None, "pods start")
            for pid in processes:  # of both processes, which no signal handler hears
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        cluster.until(lambda: not is_alive(processes) or (is_killed is not None and is_killed()), "the agent is killed", SECONDS)
        for name in names:
            cluster.until(lambda name=name: is_so(cluster.find_pod("shop", name), "Ready"), f"{name} is ready", 3 * SECONDS)
            pod = cluster.find_pod("shop", name)
            assert state_of(pod, "istio-validation")["terminated"]["exitCode"] == 0
            check_captured(runtime, pod)
        (pod,) = agents(cluster)
        ended = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
        print(f"{way}: the agent ended with {ended['exitCode']} ({ended['reason']}), {sum(map(bool, (told(cluster, name) for name in names)))} pods waited")
        if way == "memory":
            assert ended["reason"] == "OOMKilled", "whatever its first process says, which may have been asked to end meanwhile"
        else:
            assert ended["exitCode"] != 0


def told_of_sandbox(plane, name):
    return [one for one in plane.events("shop", name) if "Sandbox" in one]


def is_alive(processes):
    return all(Path(f"/proc/{pid}").exists() for pid in processes)


def install_another_release(plane, runtime):
    """A release of another name in another namespace; its agent is ready when this returns."""
    plane.namespace("mesh-system")
    args = [word for word in plane.daemon_set["spec"]["template"]["spec"]["containers"][0]["args"] if word.startswith("--monitoringPort")]
    for tree in objects("mesh-system", "mesh", (), (*agent_values(runtime), f"node.monitoringPort={args[0].split('=')[1]}")):
        if "mesh-node" in tree["metadata"]["name"]:
            assert plane.apply(tree)

    def is_there():
        plane.bind("mesh-system")
        return any(is_so(pod, "Ready") for pod in plane.ask("GET", "/api/v1/namespaces/mesh-system/pods")["items"])

    plane.until(is_there, "the new release's agent is ready", SECONDS)


def test_a_node_that_was_off_while_the_release_was_uninstalled_starts_what_is_outside_of_the_mesh_and_a_new_release_heals_it(cluster, runtime):  # noqa: F811
    cluster.power_off()
    cluster.ask("DELETE", f"{DAEMON_SETS}/{cluster.daemon_set['metadata']['name']}?propagationPolicy=Background")
    for pod in agents(cluster):
        cluster.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")
    cluster.until(lambda: not agents(cluster), "the agent's pod is gone", SECONDS)
    cluster.power_on()
    assert "netinit-cni" in "".join(path.read_text() for path in (runtime.folder / "net.d").iterdir()), "nobody was there to take it out"
    with contextlib.ExitStack() as stack:
        stack.enter_context(created(cluster, "stuck"))
        stack.enter_context(outside_of_the_mesh(cluster, "dns"))
        stack.enter_context(outside_of_the_mesh(cluster, "on-host", NAMESPACE, hostNetwork=True))
        wait_until_ready(cluster, "dns", "kube-system")
        wait_until_ready(cluster, "on-host", NAMESPACE)
        cluster.until(lambda: told(cluster, "stuck"), "the kubelet says why the pod waits", SECONDS)
        assert any("netinit node uninstall" in one for one in told(cluster, "stuck")), told(cluster, "stuck")
        cluster.until(cluster.is_ready, "the node is ready")
        assert not is_so(cluster.find_pod("shop", "stuck"), "Ready")
        install_another_release(cluster, runtime)
        check_captured(runtime, wait_until_ready(cluster, "stuck"))
