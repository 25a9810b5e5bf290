"""Pods that run without their rules: found by reading, told, labelled, deleted or programmed; and the node's installation."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bpf import attached, cgroup, rewrite_port
from conversations import converse, track
from laboratory import NetworkNamespace
from netinit.lab import PROXY_ID
from netinit.node.decision import decide, read_pod
from netinit.options import Options
from node_agent import DAEMON_SET, NETWORK, NODE, Api, Node, list_plugins, make_network, make_validated_pod, record
from programming import apply_in, check_same, differences_in, state
from randomness import some
from sweeps import choose

V4 = {"address": "10.77.0.2/24"}
DAEMON_SET_PATH = f"/apis/apps/v1/namespaces/netinit-system/daemonsets/{DAEMON_SET}"
OWN = ("--sweepInterval", "1s")


def options_of(tree):
    return decide(read_pod(tree), Options(reconcile=True), ("10.77.0.2",)).options


@pytest.fixture
def api():
    with Api() as made:
        yield made


@pytest.fixture
def runtime(tmp_path, pod):
    """The pod's namespace in the runtime's folder, as a file that is mounted."""
    folder = tmp_path / "netns"
    folder.mkdir()
    (folder / "cni-1234").touch()
    (folder / "cni-other").touch()
    with NetworkNamespace("other") as other:
        subprocess.run(["mount", "--bind", other.path, folder / "cni-other"], check=True)
        subprocess.run(["mount", "--bind", pod.path, folder / "cni-1234"], check=True)
        record(tmp_path, folder / "cni-1234", uid="uid-shop-web")
        try:
            yield folder / "cni-1234"
        finally:
            subprocess.run(["umount", "--lazy", folder / "cni-1234", folder / "cni-other"], check=True)


def reasons(api):
    return [event["reason"] for event in api.events()]


def test_a_pod_that_started_without_the_plugin_is_found_by_the_runtimes_record_and_told_once(api, tmp_path, pod, runtime):
    before = state(pod)
    api.put(make_validated_pod("web", "10.77.0.2"))
    with Node(tmp_path, api, *OWN) as node:
        node.until(lambda: reasons(api), "the event")
        node.until(lambda: 'netinit_node_pods{state="without-rules"} 1.0' in node.get("/metrics")[1], "the metric")
        time.sleep(3)
        assert reasons(api) == ["InterceptionMissing"]
        (event,) = api.events()
        about = {key: event["involvedObject"].get(key) for key in ("kind", "namespace", "name")}
        assert (about, event["type"]) == ({"kind": "Pod", "namespace": "shop", "name": "web"}, "Warning")
        assert "without its interception rules: missing" in event["message"]
    check_same(state(pod), before, "the pod was touched")


def test_two_pods_that_trade_their_addresses_fool_nobody(api, tmp_path, pod, runtime):
    """One has the other's address, and its rules; the other has none. By addresses each would be taken for the other."""
    with NetworkNamespace("friend") as friend:
        friend.run(["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other"], check=True)
        for words in (["link", "set", "lo", "up"], ["link", "set", "eth0", "up"], ["address", "add", "10.77.0.2/24", "dev", "eth0"]):
            friend.run(["ip", *words], check=True)
        path = runtime.parent / "cni-0-friend"
        path.touch()
        subprocess.run(["mount", "--bind", friend.path, path], check=True)
        record(tmp_path, path, uid="uid-shop-friend", said=True)
        tree = make_validated_pod("friend", "10.77.0.9")
        apply_in(friend, options_of(tree))
        pod.run(["ip", "address", "del", "10.77.0.2/24", "dev", "eth0"], check=True)
        pod.run(["ip", "address", "add", "10.77.0.9/24", "dev", "eth0"], check=True)
        try:
            api.put(make_validated_pod("web", "10.77.0.2"))
            api.put(tree)
            with Node(tmp_path, api, *OWN) as node:
                node.until(lambda: 'netinit_node_pods{state="without-rules"} 1.0' in node.get("/metrics")[1], "the metric")
                assert 'netinit_node_pods{state="captured"} 1.0' in node.get("/metrics")[1]
            (event,) = api.events()
            assert (event["reason"], event["involvedObject"]["name"]) == ("InterceptionMissing", "web")
        finally:
            subprocess.run(["umount", path], check=True)


def test_a_pod_that_the_runtime_has_no_record_of_is_unknown_and_nothing_is_done_to_it(api, tmp_path, pod, runtime):
    for path in (tmp_path / "results").iterdir():
        path.write_text("{")
    api.put(make_validated_pod("web", "10.77.0.2"))
    before = state(pod)
    with Node(tmp_path, api, *OWN, "--repair", "program") as node:
        node.until(lambda: 'netinit_node_pods{state="unknown"} 1.0' in node.get("/metrics")[1], "the metric")
        node.until(lambda: reasons(api), "the event")
        time.sleep(2)
        assert reasons(api) == ["InterceptionUnknown"]
        assert api.events()[0]["message"] == "whether the pod is captured is unknown: its namespace is not found"
    check_same(state(pod), before, "the pod was touched")


def test_drift_is_told_with_the_first_rule_and_again_when_it_is_another(api, tmp_path, pod, runtime):
    api.put(make_validated_pod("web", "10.77.0.2"))
    with Node(tmp_path, api, *OWN) as node:
        assert node.ask("ADD", netns=runtime, configuration={"prevResult": {"ips": [V4]}})[0] == 0
        pod.run(["iptables", "-t", "nat", "-D", "ISTIO_INBOUND", "1"], check=True)
        node.until(lambda: "InterceptionDrift" in reasons(api), "the event")
        pod.run(["iptables", "-t", "nat", "-D", "ISTIO_INBOUND", "1"], check=True)
        pod.run(["iptables", "-t", "nat", "-I", "PREROUTING", "-p", "tcp", "-j", "ACCEPT"], check=True)
        time.sleep(3)
        messages = [event["message"] for event in api.events() if event["reason"] == "InterceptionDrift"]
        assert "nat ISTIO_INBOUND rule 1" in messages[0]
        assert 'state="drifted"} 1.0' in node.get("/metrics")[1]


FORMS = ("kubepods/burstable/pod{uid}", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{name}.slice")


@pytest.mark.parametrize("form", FORMS)
def test_a_program_at_the_pods_cgroup_that_rewrites_connections_is_told(api, tmp_path, pod, runtime, form):
    """The agent sees no process of the pod, but the node's cgroups, named by the kubelet with either driver."""
    api.put(make_validated_pod("web", "10.77.0.2"))
    path = form.format(uid="uid-shop-web", name="uid_shop_web")
    with cgroup(f"netinit-sweep-{os.getpid()}/{path}/c1") as container:
        folder = container.parents[len(Path(path).parts)]
        with Node(tmp_path, api, *OWN, "--cgroupFolder", folder) as node:
            assert node.ask("ADD", netns=runtime, configuration={"prevResult": {"ips": [V4]}})[0] == 0
            node.until(lambda: 'state="captured"} 1.0' in node.get("/metrics")[1], "the metric")
            with attached(container, "connect4", rewrite_port(80, 443)):
                node.until(lambda: "InterceptionDrift" in reasons(api), "the event")
                node.until(lambda: 'state="drifted"} 1.0' in node.get("/metrics")[1], "the metric")
            node.until(lambda: 'state="captured"} 1.0' in node.get("/metrics")[1], "the metric")
    messages = [event["message"] for event in api.events() if event["reason"] == "InterceptionDrift"]  # a busy node's sweeps repeat it
    assert messages
    assert all(f"(connect4 of the cgroup /{path}/c1)" in message for message in messages), messages


def test_a_pod_is_programmed_in_place(api, tmp_path, pod, runtime):
    tree = make_validated_pod("web", "10.77.0.2", 126)
    api.put(tree)
    with Node(tmp_path, api, "--repair", "program", "--sweep=false", "--watch=false") as node:  # the failed validation alone is reason to look
        node.until(lambda: "InterceptionRepaired" in reasons(api), "the event")
        assert differences_in(pod, options_of(tree)) == []
        assert 'istio_cni_repair_pods_repaired_total{result="success",type="repair"} 1.0' in node.get("/metrics")[1]


@pytest.mark.parametrize("resets", [False, True])
def test_a_pod_that_is_repaired_has_its_older_connections_counted_or_ended_as_its_annotation_says(api, tmp_path, pod, runtime, resets):
    track(pod)
    tree = make_validated_pod("web", "10.77.0.2", 126)
    if resets:
        tree["metadata"]["annotations"]["netinit.io/reset-existing"] = "true"
    api.put(tree)
    with contextlib.ExitStack() as stack:
        out, coming = converse(stack, pod.client, "10.77.0.1", 8000, pod), converse(stack, pod, "10.77.0.2", 9000, pod.client)
        own = converse(stack, pod.client, "10.77.0.1", 8002, pod, user=PROXY_ID)
        with Node(tmp_path, api, "--repair", "program", "--sweep=false") as node:
            node.until(lambda: "InterceptionRepaired" in reasons(api), "the event")
            log = node.log.read_text()
        ((message, kind),) = [(event["message"], event["type"]) for event in api.events() if event["reason"] == "InterceptionRepaired"]
        assert kind == "Normal"
        said = "ended 2 connections older than the rules" if resets else "2 connections older than the rules bypass the proxy"
        assert (said in message, said in log) == (True, True), message
        alive = ("ok", "ok")
        aborted, reset = "ConnectionAbortedError", "ConnectionResetError"
        assert (out.fate, coming.fate, own.fate) == (((aborted, reset), (reset, aborted), alive) if resets else (alive, alive, alive))


def test_a_pod_is_deleted_with_preconditions_and_labelled(api, tmp_path, pod, runtime):
    api.put(make_validated_pod("web", "10.77.0.2", 126))
    with Node(tmp_path, api, "--repair", "delete") as node:
        node.until(lambda: any(method == "DELETE" for method, _, _ in api.asked), "the deletion")
    (_, path, body), *again = [one for one in api.asked if one[0] == "DELETE"]
    assert all(one == ("DELETE", path, body) for one in again), "the pod stays, so it may be asked for more than once"
    assert path == "/api/v1/namespaces/shop/pods/web"
    assert body["preconditions"] == {"uid": "uid-shop-web", "resourceVersion": "1"}
    api.asked.clear()
    with Node(tmp_path, api, "--repair", "label") as node:
        node.until(lambda: any(method == "PATCH" for method, _, _ in api.asked), "the label")
    (_, path, body), *again = [one for one in api.asked if one[0] == "PATCH"]
    assert all(one == ("PATCH", path, body) for one in again)
    assert path == "/api/v1/namespaces/shop/pods/web/status"
    assert body["metadata"] == {"labels": {"cni.istio.io/uninitialized": "true"}, "resourceVersion": "1"}


def test_a_pod_whose_validation_failed_and_whose_rules_are_there_now_is_left_alone(api, tmp_path, pod, runtime):
    tree = make_validated_pod("web", "10.77.0.2", 126)
    apply_in(pod, options_of(tree))
    api.put(tree)
    with Node(tmp_path, api, "--repair", "delete", *OWN) as node:
        node.until(lambda: 'state="captured"} 1.0' in node.get("/metrics")[1], "the sweep")
        assert api.asked == []


# ---- the node's installation


@pytest.fixture
def folders(tmp_path):
    return make_network(tmp_path)


@pytest.mark.parametrize(("there", "left"), [(True, ["bridge", "netinit-cni"]), (False, ["bridge"])], ids=["upgraded", "deleted"])
def test_the_plugin_stays_on_an_upgrade_and_goes_with_the_daemonset(api, tmp_path, folders, require_netns, there, left):
    api.objects[DAEMON_SET_PATH] = {"metadata": {"name": DAEMON_SET, "namespace": "netinit-system"}}
    with Node(tmp_path, api, install=True) as node:
        assert list_plugins(folders) == ["bridge", "netinit-cni"]
        settings = (tmp_path / "bin" / "netinit-cni.settings").read_text().splitlines()
        assert {f"socket={node.socket}", f"daemon-set={DAEMON_SET}"} < set(settings)
        folders.write_text(json.dumps(NETWORK))  # the cluster's CNI writes its file anew
        node.until(lambda: "netinit-cni" in list_plugins(folders), "the entry is back")
        if not there:
            del api.objects[DAEMON_SET_PATH]
        assert node.stop() == 0
    assert list_plugins(folders) == left
    assert (tmp_path / "bin" / "netinit-cni").exists() is there
    if not there:
        assert list((tmp_path / "run").iterdir()) == list((tmp_path / "bin").iterdir()) == []


def test_the_plugin_stays_where_the_api_does_not_answer(api, tmp_path, folders, require_netns):
    api.objects[DAEMON_SET_PATH] = {"metadata": {"name": DAEMON_SET, "namespace": "netinit-system"}}
    with Node(tmp_path, api, install=True) as node:
        api.away.set()
        assert node.stop() == 0
    assert list_plugins(folders) == ["bridge", "netinit-cni"]


@pytest.mark.parametrize("status", [401, 403, 500])
def test_the_plugin_stays_where_the_api_refuses_the_agent(api, tmp_path, folders, require_netns, status):
    """An expired token or a role that somebody changed is no deletion; all pods of the node would start uncaptured."""
    api.objects[DAEMON_SET_PATH] = {"metadata": {"name": DAEMON_SET, "namespace": "netinit-system"}}
    with Node(tmp_path, api, install=True) as node:
        api.refusal = status
        assert node.stop() == 0
    assert list_plugins(folders) == ["bridge", "netinit-cni"]


def test_a_deletion_that_was_seen_counts_although_the_agents_rights_went_with_it(api, tmp_path, folders, require_netns):
    tree = {"metadata": {"name": DAEMON_SET, "namespace": "netinit-system", "resourceVersion": "7"}}
    api.objects[DAEMON_SET_PATH] = tree
    with Node(tmp_path, api, install=True) as node:
        assert list_plugins(folders) == ["bridge", "netinit-cni"]
        api.drop(tree, DAEMON_SET_PATH)
        node.until(lambda: "the DaemonSet is deleted" in node.log.read_text(), "the watch has seen the deletion")
        api.refusal = 403
        assert node.stop() == 0
    assert list_plugins(folders) == ["bridge"]


def test_it_is_not_ready_before_the_plugin_is_in_place_and_says_why(api, tmp_path, folders, require_netns):
    folders.write_text("{")
    with Node(tmp_path, api, install=True, wait=False) as node:
        node.until(lambda: "is left as it is" in node.get("/readyz")[1], "the reason")
        code, text = node.get("/readyz")
        assert code == 503
        assert text.startswith("not ready: plugin: ")
        node.until(lambda: "not ready: plugin: " in node.log.read_text(), "the reason in the log")
        node.until(lambda: [one["involvedObject"]["kind"] for one in api.events() if one["reason"] == "NotReady"] == ["Node"], "an event on the node")
        status = subprocess.run(
            [*node_command(node, "status")], capture_output=True, text=True, check=False
        )
        assert status.returncode == 1
        assert "it is not JSON" in status.stdout
        folders.write_text(json.dumps(NETWORK))
        node.until(lambda: node.get("/readyz")[0] == 200, "ready")
        time.sleep(2.5)
        done = subprocess.run([*node_command(node, "status")], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "✔ agent" in done.stdout
        node.kill()
        assert subprocess.run([*node_command(node, "uninstall")], check=False, capture_output=True).returncode == 0
        assert list_plugins(folders) == ["bridge"]


def node_command(node, name):
    return [
        sys.executable, "-m", "netinit", "node", name, "--socket", str(node.socket), "--cniBinFolder", str(node.folder / "bin"),
        "--cniConfFolder", str(node.folder / "net.d"), "--pluginFile", str(node.plugin),
    ]  # fmt: skip


@pytest.mark.parametrize("taint", ["netinit.io/not-ready", "netinit.io/not-ready=yes:NoSchedule"])
def test_the_startup_taint_is_taken_off_once_all_is_in_place(api, tmp_path, folders, require_netns, taint):
    other = {"key": "other", "effect": "NoSchedule"}
    taints = [other, {"key": "netinit.io/not-ready", "value": "yes", "effect": "NoSchedule"}]
    api.objects[f"/api/v1/nodes/{NODE}"] = {"metadata": {"name": NODE}, "spec": {"taints": taints}}
    folders.write_text("{")
    with Node(tmp_path, api, "--startupTaint", taint, install=True, wait=False) as node:
        node.until(lambda: node.get("/readyz")[0] == 503, "not ready")
        time.sleep(1.5)
        assert not any(method == "PATCH" for method, _, _ in api.asked)
        folders.write_text(json.dumps(NETWORK))
        node.until(lambda: any(method == "PATCH" for method, _, _ in api.asked), "the patch")
    (body,) = {json.dumps(body) for method, _, body in api.asked if method == "PATCH"}
    path = "/spec/taints"
    assert json.loads(body) == [{"op": "test", "path": path, "value": taints}, {"op": "replace", "path": path, "value": [other]}]


MANY = min(some(20), 100)


def test_a_sweep_of_many_pods_is_cheap(api, tmp_path, require_netns):
    folder = tmp_path / "netns"
    folder.mkdir()
    pods = [NetworkNamespace(f"pod-{number}") for number in range(MANY)]
    with contextlib.ExitStack() as stack, Node(tmp_path, api, "--sweepInterval", "2s") as node:
        for number, one in enumerate(pods):
            stack.enter_context(one)
            path = folder / one.name
            path.touch()
            subprocess.run(["mount", "--bind", one.path, path], check=True)
            stack.callback(subprocess.run, ["umount", path], check=True)
            api.put(make_validated_pod(one.name, f"10.0.0.{number}"))
            assert node.ask("ADD", netns=path, pod=one.name, configuration={"prevResult": {"ips": [V4]}})[0] == 0
        node.until(lambda: f'state="captured"}} {MANY}.0' in node.get("/metrics")[1], "the sweep")
        line = next(line for line in node.get("/metrics")[1].splitlines() if line.startswith("netinit_node_sweep_seconds"))
        print(line)
        assert float(line.split()[1]) < 60


# ---- pods that a mesh's ambient agent programmed


@pytest.mark.parametrize(("words", "annotation"), [((), "true"), *choose([], [(("--redirect-dns",), "")]), ((), "")])
def test_a_pod_of_an_ambient_mesh_is_known_by_its_annotation_and_its_rules_are_looked_after(api, tmp_path, pod, runtime, words, annotation):
    """Whether the mesh captures DNS and IPv6 stands nowhere in the pod: what is there counts, if it is whole."""
    words = ["--redirect-dns"] if annotation else words
    apply_in(pod, Options.from_argv(["--layout", "ambient", *words], {}))
    tree = make_validated_pod("web", "10.77.0.2")
    tree["spec"]["containers"] = [{"name": "app"}]
    tree["metadata"]["annotations"] = {"ambient.istio.io/redirection": "enabled", **({"ambient.istio.io/dns-capture": annotation} if annotation else {})}
    api.put(tree)
    with Node(tmp_path, api, *OWN, "--hostProbes", "none") as node:  # this node has no agent of a mesh
        node.until(lambda: 'netinit_node_pods{state="captured"} 1.0' in node.get("/metrics")[1], "the sweep")
        assert not reasons(api)
        pod.run(["iptables", "-t", "nat", "-D", "ISTIO_OUTPUT", "1"], check=True)
        node.until(lambda: reasons(api), "the event")
    assert reasons(api) == ["InterceptionDrift"]


def test_a_pod_of_an_ambient_mesh_without_its_rules_is_programmed_as_configured(api, tmp_path, pod, runtime):
    tree = make_validated_pod("web", "10.77.0.2")
    tree["spec"]["containers"] = [{"name": "app"}]
    tree["metadata"]["annotations"] = {"ambient.istio.io/redirection": "enabled"}
    api.put(tree)
    with Node(tmp_path, api, *OWN, "--repair", "program") as node:
        node.until(lambda: "InterceptionRepaired" in reasons(api), "the repair")
        node.until(lambda: 'netinit_node_pods{state="captured"} 1.0' in node.get("/metrics")[1], "the sweep")
    assert "ISTIO_PRERT" in pod.run(["iptables-save"], check=True).stdout
