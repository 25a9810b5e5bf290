"""Pods of namespaces outside of the mesh start while the agent is down, and no others."""

from __future__ import annotations

import subprocess

import pytest

from netinit.node.outside_namespaces import is_listed
from netinit.node.settings import OUTSIDE_FILE
from node_agent import HOOKS, Api, Node, build_plugin, copy_plugin, make_pod, write_settings

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


def test_while_the_api_is_away_the_living_agent_decides_as_the_plugin_does_without_it(api, tmp_path):
    with Node(tmp_path, api) as node:
        path = node.socket.with_name(OUTSIDE_FILE)
        node.until(path.exists, "the list is written")
        node.set_plugin(seconds=3)
        names = ("batch", "tools", "shop", "unknown")
        api.away.set()
        alive = {name: start(node, name) for name in names}
        code, text = node.get("/readyz?verbose")
        assert (code, "[!]API: the API at http://127.0.0.1:" in text) == (200, True)
        node.until(lambda: "netinit_node_api_error 1.0" in node.get("/metrics")[1], "the metric")
        node.kill()
        dead = {name: start(node, name) for name in names}
        node.wait = False
        node.start()  # it has never seen the API
        node.until(lambda: node.get("/livez")[0] == 200, "it answers")
        again = {name: start(node, name) for name in names}
        assert alive == dead == again == {"batch": 0, "tools": 0, "shop": 11, "unknown": 11}
        api.away.clear()
        node.until(lambda: node.get("/readyz")[0] == 200, "it is ready")
        node.until(lambda: "netinit_node_api_error 0.0" in node.get("/metrics")[1], "the metric")
        api.put(make_pod("web", "batch"), told=False)  # injected by its own label: the API is asked
        assert node.ask("ADD", netns="/nowhere", namespace="batch")[1]["code"] != 0


def test_with_wait_pods_outside_of_the_mesh_wait_for_the_api_too(api, tmp_path):
    with Node(tmp_path, api, "--outsideNamespaces=wait") as node:
        node.socket.with_name(OUTSIDE_FILE).write_text("batch\n")
        node.set_plugin(seconds=2)
        api.away.set()
        assert start(node, "batch") == 11


LISTS = ["batch\n", "batch\ntools\n", "", "batch", "batch\n\n", "batch\nA\n", "-\nbatch\n", "batch\r\n", "batch\n" + "x" * 64 + "\n", "batch\n\xe9\n", "x\n" * (1 << 19), "batch\n" + "x\n" * ((1 << 19) - 4)]


@pytest.mark.parametrize("text", LISTS, ids=range(len(LISTS)))
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o622])
def test_agent_and_plugin_read_the_list_alike(tmp_path, text, mode):
    path = tmp_path / "outside"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(mode)
    plugin = copy_plugin(tmp_path / "plugin", build_plugin())
    write_settings(plugin, socket=tmp_path / "nobody", outside=path)
    for name in ("batch", "tools", "-"):
        environ = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0", "CNI_NETNS": "/n", "CNI_ARGS": f"K8S_POD_NAMESPACE={name};K8S_POD_NAME=p"}
        done = subprocess.run([plugin], env=environ, input=b'{"cniVersion": "1.0.0", "name": "n"}', capture_output=True, check=False)
        assert (done.returncode == 0) == is_listed(path, name), (name, done.stdout)
