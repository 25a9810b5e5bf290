"""The agent's first process: it outlives the other, bounds what both may take, and ends where only a new container helps."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from laboratory import start_servers
from node_agent import AGENT_NAMESPACE, LISTS, Api, Node, make_network, make_pod

MIB = 1 << 20
RESULT = {"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.77.0.2/24"}]}}
DATA = "Max data size"


@pytest.fixture
def api():
    with Api() as made:
        yield made


def answering(node):
    return int(node.children()[0])


def kill_answering(node):
    pid = answering(node)
    os.kill(pid, signal.SIGKILL)
    node.until(lambda: str(pid) not in node.children(), "it is gone")
    return pid


def limits(pid):
    (line,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith(DATA)]
    return tuple(line.removeprefix(DATA).split()[:2])


def test_a_process_that_answers_and_is_killed_is_replaced_and_a_pod_that_starts_meanwhile_waits_and_is_captured(api, tmp_path, pod):
    start_servers(pod)
    api.put(make_pod("web"))
    with Node(tmp_path, api) as node:
        first = node.process.pid
        killed = kill_answering(node)
        status, _ = node.ask("ADD", netns=pod.path, configuration=RESULT)
        assert status == 0
        assert pod.connect("198.51.100.7", 80, uid=1000, gid=1000).server == "proxy"
        node.until(lambda: node.get("/readyz")[0] == 200, "the agent is ready again")
        assert node.process.pid == first
        assert answering(node) != killed
        assert "the process that answers was killed by signal 9; starting another in 1 s" in node.log.read_text()
        assert node.ask("DEL", netns=pod.path)[0] == 0
    assert node.process.returncode == 0


def test_one_that_dies_again_and_again_is_started_more_slowly_and_a_request_to_end_is_heard_meanwhile(api, tmp_path, require_netns):
    with Node(tmp_path, api) as node:
        for seconds in (1, 3, 7):
            node.until(node.children, "another is there")
            kill_answering(node)
            node.until(lambda: f"starting another in {seconds} s" in node.log.read_text(), "the pause is said")  # noqa: B023
        assert node.stop() == 0
        assert node.log.read_text().count("answering at") == 3, "in the pause, not after it"


def test_a_request_to_end_is_heard_while_the_agent_waits_for_the_plugin_of_another_release(api, tmp_path, require_netns):
    make_network(tmp_path)
    with Node(tmp_path, api, install=True) as first:
        first.kill()
    (tmp_path / "run" / "install.lock").unlink()
    with Node(tmp_path, api, install=True, wait=False, namespace="mesh-2") as second:
        second.until((tmp_path / "run" / "install.lock").exists, "it asks whose the plugin is")
        assert second.stop() == 0
        assert second.log.read_text().count("answering at") == 1, "the first one's line: this one has ended while it waited"
    assert f"namespace={AGENT_NAMESPACE}" in (tmp_path / "bin" / "netinit-cni.settings").read_text().splitlines()


def test_the_processes_are_bounded_below_the_containers_memory_limit(api, tmp_path, require_netns):
    with Node(tmp_path, api, in_full=True, prefix=in_container(tmp_path, 512 * MIB)) as node:
        assert limits(node.process.pid) == (str(128 * MIB), str(256 * MIB))
        assert limits(answering(node)) == (str(256 * MIB), str(256 * MIB))


def in_container(folder, limit):
    """What starts a program that sees this memory limit, as in a container with cgroup v2."""
    seen = folder / "cgroup"
    seen.mkdir()
    (seen / "memory.max").write_text(f"{limit}\n")
    return ("unshare", "--mount", "sh", "-c", f'mount --bind "{seen}" /sys/fs/cgroup && exec "$@"', "sh")


def test_without_a_memory_limit_nothing_is_bounded(api, tmp_path, require_netns):
    with Node(tmp_path, api, in_full=True, prefix=in_container(tmp_path, "max")) as node:
        assert limits(answering(node)) == ("unlimited", "unlimited")


def test_a_process_that_needs_more_than_its_bound_is_restarted_and_recovers(api, tmp_path, require_netns):
    """The container's limit would be met by the kernel's OOM killer, which ends both."""
    with Node(tmp_path, api, in_full=True, prefix=in_container(tmp_path, 64 * MIB)) as node:
        first, killed = node.process.pid, answering(node)
        labels = {f"label-{number}": "x" * 63 for number in range(100)}
        crowd = [{"kind": "Namespace", "metadata": {"name": f"n{number}", "labels": labels}} for number in range(9000)]
        api.written[LISTS["Namespace"]] = json.dumps({"metadata": {"resourceVersion": "0"}, "items": crowd}).encode()
        os.kill(killed, signal.SIGKILL)
        node.until(lambda: "out of memory; ending, to be restarted" in node.log.read_text(), "it has met its bound")
        api.written.clear()
        node.until(lambda: node.get("/readyz")[0] == 200, "the agent is ready again")
        assert node.process.pid == first
        assert node.process.poll() is None
