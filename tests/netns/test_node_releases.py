"""Several releases with an agent on one node, and a release whose namespace is deleted."""

from __future__ import annotations

import signal

import pytest

from netinit.kernel import identify
from netinit.pods.attachments import ATTACHMENTS
from node_agent import AGENT_NAMESPACE, DAEMON_SET, Api, Node, list_plugins, make_network, make_pod

DAEMON_SETS = "/apis/apps/v1/namespaces/{}/daemonsets/" + DAEMON_SET
OTHER = "mesh-2"
RESULT = {"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.77.0.2/24"}]}}


@pytest.fixture
def api():
    with Api() as made:
        for namespace in (AGENT_NAMESPACE, OTHER):
            made.objects[DAEMON_SETS.format(namespace)] = {"metadata": {"name": DAEMON_SET, "namespace": namespace}}
            made.put({"kind": "Namespace", "metadata": {"name": namespace, "labels": {}}})
        yield made


@pytest.fixture
def network(tmp_path):
    return make_network(tmp_path)


def test_a_second_release_is_refused_and_its_end_takes_nothing_from_the_first(api, tmp_path, network, require_netns):
    with Node(tmp_path, api, install=True) as first:
        settings = (tmp_path / "bin" / "netinit-cni.settings").read_text()
        second = Node(tmp_path, api, install=True, wait=False, namespace=OTHER)
        with second:
            assert second.process.wait() == 1
        assert f"the agent of another release, {AGENT_NAMESPACE}/{DAEMON_SET}, answers the plugin on this node" in first.log.read_text()
        del api.objects[DAEMON_SETS.format(OTHER)]
        assert first.get("/readyz")[0] == 200
        assert (list_plugins(network), (tmp_path / "bin" / "netinit-cni.settings").read_text()) == (["bridge", "netinit-cni"], settings)
    assert first.process.returncode == 0


def test_a_release_takes_over_what_another_left_whose_agent_is_gone(api, tmp_path, network, require_netns):
    with Node(tmp_path, api, install=True) as first:
        first.kill()
    with Node(tmp_path, api, install=True, namespace=OTHER):
        assert f"namespace={OTHER}" in (tmp_path / "bin" / "netinit-cni.settings").read_text().splitlines()
        del api.objects[DAEMON_SETS.format(OTHER)]
    assert list_plugins(network) == ["bridge"]


def test_a_release_that_still_completes_requests_leaves_its_successors_socket_and_records_alone(api, tmp_path, network, pod):
    with Api() as later, Node(tmp_path, api, install=True) as first:
        later.objects[DAEMON_SETS.format(OTHER)] = {"metadata": {"name": DAEMON_SET, "namespace": OTHER}}
        later.put({"kind": "Namespace", "metadata": {"name": OTHER, "labels": {}}})
        later.put(make_pod("web"))
        api.drop({"metadata": {"name": DAEMON_SET, "namespace": AGENT_NAMESPACE}}, DAEMON_SETS.format(AGENT_NAMESPACE))
        first.until(lambda: "the DaemonSet is deleted" in first.log.read_text(), "the watch has seen the deletion")
        second = Node(tmp_path, later, install=True, namespace=OTHER)
        api.away.set()
        with first.begin("ADD", netns=pod.path, pod="unknown") as waiting:
            first.until(lambda: "netinit_node_requests_in_flight 1.0" in first.get("/metrics")[1], "a request is in progress")
            first.process.send_signal(signal.SIGTERM)
            first.until(lambda: list_plugins(network) == ["bridge"], "the plugin is removed")
            with second:
                assert second.ask("ADD", netns=pod.path, configuration=RESULT)[0] == 0
                socket, records = identify(str(second.socket)), list((tmp_path / "run" / ATTACHMENTS).iterdir())
                assert records
                assert first.process.poll() is None
                api.away.clear()
                assert first.process.wait() == 0
                waiting.communicate()
                assert (identify(str(second.socket)), list((tmp_path / "run" / ATTACHMENTS).iterdir())) == (socket, records)
                assert second.get("/readyz")[0] == 200
                assert list_plugins(network) == ["bridge", "netinit-cni"]
        assert "another agent has claimed this node since: its socket and its records stay" in first.log.read_text()


@pytest.mark.parametrize("words", [(), ("--outsideNamespaces", "wait")], ids=" ".join)
def test_the_plugin_goes_with_the_agents_namespace_whose_account_is_deleted_first(api, tmp_path, network, require_netns, words):
    with Node(tmp_path, api, *words, install=True) as node:
        ending = {"name": AGENT_NAMESPACE, "labels": {}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        api.put({"kind": "Namespace", "metadata": ending})
        node.until(lambda: f"the namespace {AGENT_NAMESPACE} is deleted" in node.log.read_text(), "the watch has seen the deletion")
        assert list_plugins(network) == ["bridge", "netinit-cni"]  # as long as the agent answers
        api.refusal = 401
        assert node.stop() == 0
    assert list_plugins(network) == ["bridge"]
    assert list((tmp_path / "run").iterdir()) == list((tmp_path / "bin").iterdir()) == []


def test_another_namespace_that_is_deleted_takes_nothing_away(api, tmp_path, network, require_netns):
    with Node(tmp_path, api, install=True) as node:
        api.put({"kind": "Namespace", "metadata": {"name": OTHER, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        node.until(lambda: any(change["object"]["metadata"].get("deletionTimestamp") for _, change in api.changes), "told")
        assert node.stop() == 0
    assert list_plugins(network) == ["bridge", "netinit-cni"]
