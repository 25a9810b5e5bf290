"""Pods of namespaces outside of the mesh start while the agent is down, and no others."""

from __future__ import annotations

import pytest

from netinit.node.settings import OUTSIDE_FILE
from node_agent import HOOKS, Api, Node, make_pod

INJECTOR = {
    "kind": HOOKS, "metadata": {"name": "injector", "resourceVersion": "1"},
    "webhooks": [{
        "name": "namespace.sidecar-injector.istio.io",
        "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}},
        "clientConfig": {"service": {"name": "istiod", "namespace": "istio-system", "path": "/inject"}},
    }],
}  # fmt: skip


def make_namespace(name, **labels):
    return {"kind": "Namespace", "metadata": {"name": name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}, "resourceVersion": "1"}}


@pytest.fixture
def api():
    with Api() as made:
        for tree in (INJECTOR, make_namespace("shop", istio_injection="enabled"), make_namespace("batch"), make_namespace("tools")):
            made.put(tree)
        yield made


def start(node, namespace):
    """0, or the code of the plugin's error."""
    status, tree = node.ask("ADD", netns="/proc/self/ns/net", namespace=namespace)
    return tree["code"] if status else 0


def test_without_the_agent_pods_outside_of_the_mesh_start_and_all_others_wait(api, tmp_path):
    with Node(tmp_path, api) as node:
        path = node.socket.with_name(OUTSIDE_FILE)
        node.until(path.exists, "the list is written")
        assert path.read_text() == "batch\ntools\n"
        assert path.stat().st_mode & 0o777 == 0o600
        written = path.stat().st_ino
        api.put(make_pod("web", "tools"))  # injected by hand
        api.put(make_namespace("new"))
        node.until(lambda: path.read_text() == "batch\nnew\n", "the list follows pods and namespaces")
        assert path.stat().st_ino != written, "it is replaced by rename"
        node.kill()
        assert {name: start(node, name) for name in ("batch", "new", "tools", "shop", "unknown")} == {"batch": 0, "new": 0, "tools": 11, "shop": 11, "unknown": 11}
        node.start()
        api.put(make_namespace("batch", istio_injection="enabled"))
        node.until(lambda: path.read_text() == "new\n", "the list follows labels")
        api.drop(INJECTOR)
        node.until(lambda: path.read_text() == "", "without an injector nothing is known")
        node.kill()
        assert {start(node, name) for name in ("batch", "new")} == {11}
        path.unlink()  # as after a reboot
        assert start(node, "new") == 11


def test_with_wait_there_is_no_list(api, tmp_path):
    with Node(tmp_path, api) as node:
        path = node.socket.with_name(OUTSIDE_FILE)
        node.until(path.exists, "the list is written")
    assert path.exists(), "an agent that ends leaves it to the plugin"
    with Node(tmp_path, api, "--outsideNamespaces=wait"):
        assert not path.exists()


def test_a_list_that_cannot_be_renewed_is_told_and_stays(api, tmp_path):
    with Node(tmp_path, api) as node:
        path = node.socket.with_name(OUTSIDE_FILE)
        node.until(path.exists, "the list is written")
        node.stop()
        api.refusal = 403
        node.wait = False
        node.start()
        node.until(lambda: "which namespaces are outside of the mesh is not known" in node.log.read_text(), "the log says so")
        assert path.read_text() == "batch\ntools\n"
