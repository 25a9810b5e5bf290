"""The CNI plugin and its agent, as a runtime uses them, on pods of bare namespaces: every verb, and what goes wrong."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from laboratory import NetworkNamespace, Pod, start_servers
from netinit.base.net import IPV4
from netinit.library.rule_reading import LIVE, find_known, find_rule_source
from netinit.node.decision import decide, read_pod
from netinit.node.unix_server import open_socket
from netinit.options import Options
from netinit.pods.attachments import ATTACHMENTS
from netinit.pods.verify import verify
from node_agent import Api, Node, make_pod
from programming import add_foreign_rules, apply_in, check_same, differences_in, load, state
from randomness import some
from sweeps import choose

V4, V6 = {"address": "10.77.0.2/24"}, {"address": "fd77::2/64"}
CAPTURE = {"capture": ["-b", "*", "-i", "*", "--ipv6", "on"]}


def previous(*ips):
    return {"prevResult": {"cniVersion": "1.0.0", "ips": list(ips)}}


def options_of(tree, *addresses):
    return decide(read_pod(tree), Options(reconcile=True), addresses).options


@pytest.fixture
def api():
    with Api() as made:
        yield made


@pytest.fixture
def node(api, tmp_path):
    with Node(tmp_path, api) as made:
        yield made


def outcomes(pod, *hosts):
    return [pod.connect(host, 80, uid=1000, gid=1000).server for host in hosts]


@pytest.mark.parametrize(
    ("ips", "captured"), [((V4,), ("proxy", "outside")), ((V6, V4), ("proxy", "proxy"))], ids=["IPv4", "IPv6 first"]
)
def test_add_captures_the_families_that_the_result_before_has(node, api, pod, ips, captured):
    start_servers(pod)
    api.put(make_pod("web"))
    assert outcomes(pod, "198.51.100.7", "2001:db8::7") == ["outside", "outside"]
    status, tree = node.ask("ADD", netns=pod.path, configuration=previous(*ips))
    assert (status, tree["ips"]) == (0, list(ips))
    assert tuple(outcomes(pod, "198.51.100.7", "2001:db8::7")) == captured
    assert pod.client.connect(pod.address, 80).server == "proxy"


def test_with_dual_stack_both_families_are_captured(node, api, pod):
    start_servers(pod)
    api.put(make_pod("web", env=[{"name": "ISTIO_DUAL_STACK", "value": "true"}]))
    assert node.ask("ADD", netns=pod.path, configuration=previous(V4, V6))[0] == 0
    assert outcomes(pod, "198.51.100.7", "2001:db8::7") == ["proxy", "proxy"]


@pytest.mark.parametrize("words", [("--backend", "nftables"), ("--native-nftables",), ("--backend", "iptables-legacy"), ("--backend", "iptables-nft")], ids=" ".join)
def test_the_nodes_configuration_chooses_the_backend(api, tmp_path, pod, words):
    api.put(make_pod("web"))
    with Node(tmp_path, api, *words) as node:
        assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0
        assert node.ask("CHECK", netns=pod.path, configuration=previous(V4)) == (0, None)
    wanted = options_of(make_pod("web"), "10.77.0.2")
    if "nftables" in words[-1]:
        wanted = wanted.replace(ipv6="inet")  # as Istio's nft rules in a pod whose first address is IPv4
    assert differences_in(pod, wanted.replace(**({"native_nftables": True} if len(words) == 1 else {"backend": words[1]}))) == []


def test_add_twice_changes_nothing_and_del_leaves_what_was_there_before(node, api, pod):
    api.put(make_pod("web"))
    add_foreign_rules(pod, "iptables-nft")
    before = state(pod)
    assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0
    programmed = state(pod)
    assert programmed != before
    assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0
    check_same(state(pod), programmed, "the second ADD changed something")
    assert node.ask("DEL", netns=pod.path) == (0, None)
    check_same(state(pod), before, "DEL left something")
    assert node.ask("DEL", netns=pod.path) == (0, None)


def test_two_adds_of_one_pod_at_the_same_time_both_succeed(node, api, pod):
    api.put(make_pod("web"))
    for _ in range(3):
        begun = [node.begin("ADD", netns=pod.path, configuration=previous(V4)) for _ in range(4)]
        assert [(one.communicate()[0][:1], one.returncode) for one in begun] == [(b"{", 0)] * 4
        assert differences_in(pod, options_of(make_pod("web"), "10.77.0.2")) == []
        node.ask("DEL", netns=pod.path)


def test_check_names_the_first_rule_that_differs(node, api, pod):
    api.put(make_pod("web"))
    node.ask("ADD", netns=pod.path, configuration=previous(V4))
    assert node.ask("CHECK", netns=pod.path, configuration=previous(V4)) == (0, None)
    pod.run(["iptables", "-t", "nat", "-D", "ISTIO_INBOUND", "1"], check=True)
    pod.run(["iptables", "-t", "nat", "-F", "ISTIO_IN_REDIRECT"], check=True)
    status, tree = node.ask("CHECK", netns=pod.path, configuration=previous(V4))
    assert (status, tree["code"]) == (1, 102)
    assert "nat ISTIO_INBOUND rule 1" in tree["msg"]
    assert "ISTIO_IN_REDIRECT" in tree["details"]


def test_without_options_a_pod_is_verified_against_those_that_the_agent_recorded(node, api, pod, monkeypatch):
    api.put(make_pod("web"))
    assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0
    monkeypatch.setattr("netinit.pods.attachments.USUAL_FOLDER", node.folder / "run" / ATTACHMENTS)
    asked = Options(netns=str(pod.path))
    found = find_known(asked)[0]
    assert found is not None
    assert verify(found.replace(netns=asked.netns)).differences == ()
    pod.run(["iptables", "-t", "nat", "-D", "ISTIO_INBOUND", "-p", "tcp", "--dport", "15021", "-j", "RETURN"], check=True)
    (missing,) = [one for one in verify(found.replace(netns=asked.netns)).differences if one.table == "nat"]
    assert (missing.kind, missing.rule) == ("missing", "-p tcp -m tcp --dport 15021 -j RETURN")
    source = find_rule_source(asked, LIVE)
    assert [text for text in source.warnings if "the agent's record would make" in text], source.warnings
    assert find_known(Options())[0] is None
    with NetworkNamespace("other") as other:
        assert find_known(Options(netns=str(other.path)))[0] is None


def test_del_without_a_namespace_or_after_it_is_gone_succeeds(node, api):
    api.put(make_pod("web"))
    with NetworkNamespace("short") as short:
        path = Path(short.path)
        assert node.ask("ADD", netns=path, configuration=previous(V4))[0] == 0
    assert node.ask("DEL", netns=path) == (0, None)
    assert node.ask("DEL") == (0, None)
    assert list((node.folder / "run" / "attachments").iterdir()) == []


def test_add_to_a_namespace_that_is_gone_says_so(node, api, tmp_path):
    api.put(make_pod("web"))
    (tmp_path / "file").write_text("no namespace")
    for path in ("/proc/2147483647/ns/net", "/nowhere", tmp_path / "file", "/dev/null", "/proc/self/ns/user"):
        status, tree = node.ask("ADD", netns=path)
        assert (status, tree["code"]) == (1, 3), tree


def test_add_to_a_namespace_that_is_there_and_cannot_be_opened_is_to_be_tried_again(node, api, tmp_path):
    """With CNI's error 3 the runtime would not even delete what other plugins made."""
    api.put(make_pod("web"))
    (tmp_path / "loop").symlink_to("loop")
    for path, word in (
        (tmp_path / "loop", "Too many levels"), ("/" + "x" * 300, "too long"), ("run/netns/web", "No such file"),
    ):  # fmt: skip
        status, tree = node.ask("ADD", netns=path)
        assert (status, tree["code"]) == (1, 11), tree
        assert word in tree["msg"]
    assert node.ask("DEL", netns=tmp_path / "loop") == (0, None)


def test_pods_that_are_nobodys_business_are_let_through_untouched(node, api, pod):
    before = state(pod)
    api.put(make_pod("plain", annotations={"sidecar.istio.io/inject": "false"}))
    for who in ({"pod": "plain"}, {"pod": ""}, {"pod": "any", "namespace": "kube-system"}, {"pod": "netinit-node-ab3de", "namespace": "netinit-system"}):
        assert node.ask("ADD", netns=pod.path, configuration=previous(V4), **who)[1]["ips"] == [V4]
    check_same(state(pod), before, "a pod was touched")


def test_a_bad_annotation_fails_the_pod_and_names_it(node, api, pod):
    api.put(make_pod("web", annotations={"traffic.sidecar.istio.io/includeInboundPorts": "http"}))
    status, tree = node.ask("ADD", netns=pod.path)
    assert (status, tree["code"]) == (1, 101)
    assert "includeInboundPorts" in tree["msg"]


def test_a_pod_that_the_cache_does_not_know_yet_is_asked_for_and_another_of_its_name_is_another(node, api, pod):
    api.put(make_pod("late", uid="new"), told=False)
    assert node.ask("ADD", netns=pod.path, pod="late", uid="new")[0] == 0
    api.put(make_pod("web", uid="old"))
    api.put(make_pod("web", uid="new", annotations={"traffic.sidecar.istio.io/includeInboundPorts": "7"}), told=False)
    assert node.ask("ADD", netns=pod.path, uid="new")[0] == 0
    assert "--dport 7 " in pod.run(["iptables-save", "-t", "nat"]).stdout
    api.put(make_pod("static", uid="mirror", annotations={"kubernetes.io/config.mirror": "static"}), told=False)
    assert node.ask("ADD", netns=pod.path, pod="static", uid="static")[0] == 0
    status, tree = node.ask("ADD", netns=pod.path, uid="third")
    assert (status, tree["code"]) == (1, 11)
    assert node.ask("ADD", netns=pod.path, pod="nobody")[1]["code"] == 11


def test_while_the_api_is_away_known_pods_start_and_unknown_ones_wait(node, api, pod):
    api.put(make_pod("web"))
    node.until(lambda: json.loads((node.folder / "run" / "status.json").read_text())["pods"] == 1, "it is known")
    api.put(make_pod("late"), told=False)
    api.away.set()
    assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0
    node.set_plugin(seconds=2)
    status, tree = node.ask("ADD", netns=pod.path, pod="late")
    assert (status, tree["code"]) == (1, 11)
    node.set_plugin()
    waiting = node.begin("ADD", netns=pod.path, pod="late", configuration=previous(V4))
    time.sleep(0.5)
    api.away.clear()
    assert waiting.communicate()[0][:1] == b"{"
    assert waiting.returncode == 0


def test_a_loopback_that_a_runtime_brings_up_at_the_same_time_fails_no_pod_and_one_that_stays_down_is_an_error_of_check(node, api, pod):
    api.put(make_pod("web"))
    pod.run(["ip", "link", "set", "lo", "down"], check=True)
    assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0
    status, tree = node.ask("CHECK", netns=pod.path, configuration=previous(V4))
    assert (status, tree["code"]) == (1, 102)
    assert "inactive: devices: the loopback device is down" in tree["msg"]
    pod.run(["ip", "link", "set", "lo", "up"], check=True)
    assert node.ask("CHECK", netns=pod.path, configuration=previous(V4)) == (0, None)


@pytest.mark.parametrize(("version", "former"), [("0.1.0", {"ip4": {"ip": "10.77.0.2/24"}}), ("0.2.0", {"ip6": {"ip": "fd77::2/64"}}),
                                                 ("0.3.0", {"ips": [{"version": "4", **V4}]})])
def test_a_list_of_an_older_version_captures_and_its_result_is_printed_as_it_came(node, api, pod, version, former):
    api.put(make_pod("web"))
    configuration = {"cniVersion": version, "prevResult": {"cniVersion": version, **former}}
    assert node.ask("ADD", netns=pod.path, configuration=configuration) == (0, configuration["prevResult"])
    start_servers(pod)
    assert outcomes(pod, "198.51.100.7", "2001:db8::7") == ["proxy", "proxy" if "ip6" in former else "outside"]


def test_gc_forgets_what_the_runtime_does_not_know(node, api, pod):
    for name in ("web", "shop"):
        api.put(make_pod(name))
        node.ask("ADD", netns=pod.path, pod=name)
    known = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": [{"containerID": "c-web", "ifname": "eth0"}]}
    assert node.ask("GC", configuration=known) == (0, None)
    assert [path.name for path in (node.folder / "run" / "attachments").iterdir()] == ["c-web@eth0.json"]
    assert node.ask("GC", configuration={"cniVersion": "1.1.0"})[1]["code"] == 7


def test_the_agent_is_not_ready_until_the_pods_are_known_and_status_succeeds_all_the_same(api, tmp_path):
    api.away.set()
    with Node(tmp_path, api, wait=False) as node:
        node.until(lambda: node.get("/livez")[0] == 200, "alive")
        assert node.ask("STATUS", configuration={"cniVersion": "1.1.0"}) == (0, None)
        code, text = node.get("/readyz")
        assert code == 503
        assert "[-]pods" in text
        api.away.clear()
        node.until(lambda: node.get("/readyz")[0] == 200, "ready")
        assert node.ask("STATUS", configuration={"cniVersion": "1.1.0"}) == (0, None)


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n", b"POST /livez HTTP/1.1\r\nContent-Length: 1000\r\n\r\nx"])
def test_strangers_who_hold_300_connections_open_do_not_starve_the_probes(node, sent):
    """Pods can reach the agent's port of metrics and health; the kubelet's probes come to the same one."""
    with contextlib.ExitStack() as held:
        for number in range(300):
            own = (f"127.0.1.{number % 3}", 0)  # pods have addresses of their own, other than the kubelet's
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", node.monitoring), timeout=10, source_address=own))
            with contextlib.suppress(OSError):  # it gave way already
                stranger.sendall(sent)
            if number % 25 == 24:
                assert node.get("/livez")[0] == 200
        assert [node.get(path)[0] for path in ("/livez", "/readyz") * 5] == [200] * 10


@pytest.mark.users
def test_a_pod_of_another_user_namespace_is_programmed_as_its_root(node, api, require_netns):
    with Pod(user_namespace=True) as pod:
        start_servers(pod)
        api.put(make_pod("web"))
        assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0
        assert pod.connect("198.51.100.7", 80, uid=pod.first_uid + 1000, gid=pod.first_uid + 1000).server == "proxy"
        assert node.ask("DEL", netns=pod.path) == (0, None)
        assert pod.connect("198.51.100.7", 80, uid=pod.first_uid + 1000, gid=pod.first_uid + 1000).server == "outside"


def test_metrics_count_requests_and_what_answers_has_no_capability(node, api, pod):
    api.put(make_pod("web"))
    node.ask("ADD", netns=pod.path)
    text = node.get("/metrics")[1]
    assert 'netinit_node_requests_total{outcome="programmed",verb="ADD"} 1.0' in text
    child, *_ = node.children()
    sets = {line.split(":")[0]: int(line.split()[1], 16) for line in Path(f"/proc/{child}/status").read_text().splitlines() if line.startswith("Cap")}
    assert sets == {"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0}


# ---- the agent's own namespace, and the machine's


def test_nothing_makes_the_agent_touch_its_own_namespace_or_that_of_process_1(api, tmp_path, require_netns):
    """The agent's namespace by path, by descriptor, by links, by a bind mount, and those of its children."""
    with NetworkNamespace("agent") as own, Node(tmp_path, api, wait=False, inside=own.entered) as node:
        node.until(node.socket.exists, "the socket")
        load(own, "iptables-nft", IPV4, "*nat\n-A OUTPUT -p udp -j RETURN\nCOMMIT\n")
        before, machine = state(own), subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
        link = tmp_path / "link"
        link.symlink_to(f"/proc/{node.process.pid}/ns/net")
        bound = tmp_path / "bound"
        bound.touch()
        subprocess.run(["mount", "--bind", f"/proc/{node.process.pid}/ns/net", bound], check=True)
        codes = [{100}, {100, 11}]  # not every machine lets root open that of process 1
        try:
            for path in (own.path, f"/proc/{node.process.pid}/ns/net", link, bound, "/proc/1/ns/net", "/proc/self/ns/net"):
                for verb in ("ADD", "DEL"):
                    status, tree = node.ask(verb, netns=path, pod="", configuration=CAPTURE)
                    assert verb == "DEL" or (status == 1 and tree["code"] in codes[path == "/proc/1/ns/net"]), (path, tree)
        finally:
            subprocess.run(["umount", bound], check=True)
        with NetworkNamespace("pod") as pod:  # the same agent does program others
            assert node.ask("ADD", netns=pod.path, pod="", configuration=CAPTURE)[0] == 0
            assert "ISTIO_OUTPUT" in state(pod)
        check_same(state(own), before, "the agent's own namespace was changed")
        assert subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout == machine


# ---- reliability


def test_a_node_that_comes_back_starts_all_its_pods_at_once(node, api, require_netns):
    pods = [NetworkNamespace(f"pod-{number}") for number in range(choose(40, 110))]
    try:
        for pod in pods:
            pod.__enter__()
            api.put(make_pod(pod.name), told=int(pod.name[4:]) % 2 == 0)
        begun = time.monotonic()
        asked = [node.begin("ADD", netns=pod.path, pod=pod.name, configuration=previous(V4)) for pod in pods]
        codes = [(one.communicate()[0][:40], one.returncode) for one in asked]
        print(f"{len(pods)} pods in {time.monotonic() - begun:.2f} s")
        assert [code for _, code in codes] == [0] * len(pods), codes
        wanted = options_of(make_pod("x"), "10.77.0.2")
        assert all(differences_in(pod, wanted) == [] for pod in pods[::10])
    finally:
        for pod in pods:
            pod.__exit__(None, None, None)


def test_kill_9_at_random_moments_leaves_every_pod_captured_or_waiting(api, tmp_path, require_netns):
    source = random.Random(7)
    pods = [NetworkNamespace(f"pod-{number}") for number in range(min(some(12), 24))]
    over = threading.Event()
    answers, kills = [], []

    with Node(tmp_path, api) as node:

        def kill_again_and_again():
            while not over.is_set():
                node.until(lambda: node.get("/readyz")[0] == 200, "ready")
                time.sleep(source.uniform(0, 0.6))
                node.kill()
                kills.append(1)
                node.start()

        def insist(pod):
            """As the kubelet does: again and again. A success must be a whole plan at that moment."""
            for _ in range(2000):
                status, tree = node.ask("ADD", netns=pod.path, pod=pod.name, configuration=previous(V4))
                answers.append(status and tree["code"])
                if not status:
                    return differences_in(pod, wanted)
                assert tree["code"] in {11, 100}, tree
                time.sleep(0.05)
            return ["it waits"]

        wanted = options_of(make_pod("x"), "10.77.0.2")
        node.wait = False
        try:
            for pod in pods:
                pod.__enter__()
                api.put(make_pod(pod.name))
            killer = threading.Thread(target=kill_again_and_again)
            killer.start()
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(insist, pods))
            over.set()
            killer.join()
            waiting = found.count(["it waits"])
            print(f"{len(kills)} kills, {len(answers)} requests, {answers.count(0)} captured, {waiting} pods wait")
            assert kills
            assert answers.count(0) >= len(pods) // 2
            assert all(one in ([], ["it waits"]) for one in found), found
            node.until(lambda: node.get("/readyz")[0] == 200, "ready")
            for pod in pods:  # those that wait are captured at the next attempt; those that are captured stay so
                assert node.ask("ADD", netns=pod.path, pod=pod.name, configuration=previous(V4))[0] == 0
                assert differences_in(pod, wanted) == []
        finally:
            over.set()
            for pod in pods:
                pod.__exit__(None, None, None)


def test_a_pod_that_goes_away_meanwhile_fails_alone(node, api, pod, require_netns):
    api.put(make_pod("web"))
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
        with NetworkNamespace("going") as going:
            begun = node.begin("ADD", netns=going.path, pod="web", configuration=previous(V4))
            time.sleep(delay)
        out, _ = begun.communicate()
        assert json.loads(out).get("code", 0) in {0, 3, 100}, out
    assert node.ask("ADD", netns=pod.path, configuration=previous(V4))[0] == 0


def test_a_restart_under_load_answers_what_was_begun(node, api, require_netns):
    pods = [NetworkNamespace(f"pod-{number}") for number in range(12)]
    try:
        for pod in pods:
            pod.__enter__()
            api.put(make_pod(pod.name))
        begun = [node.begin("ADD", netns=pod.path, pod=pod.name, configuration=previous(V4)) for pod in pods]
        time.sleep(0.05)
        assert node.stop() == 0
        found = [json.loads(one.communicate()[0]) for one in begun]
        for pod, tree in zip(pods, found, strict=True):
            if "code" in tree:
                assert tree["code"] == 11
            else:
                assert differences_in(pod, options_of(make_pod("x"), "10.77.0.2")) == []
    finally:
        for pod in pods:
            pod.__exit__(None, None, None)


@pytest.mark.parametrize("how", ["the file", "the folder", "a dead agent's"])
def test_an_agent_whose_socket_was_taken_away_ends_to_be_started_anew(api, tmp_path, pod, how):
    api.put(make_pod("web"))
    with Node(tmp_path, api) as node:
        if how == "the file":
            node.socket.unlink()
        elif how == "the folder":
            node.socket.parent.rename(tmp_path / "aside")
        else:
            open_socket(str(node.socket)).close()
        assert node.process.wait() == 1
        assert "was removed; ending, to be restarted" in node.log.read_text()
        node.start()
        assert node.ask("ADD", netns=pod.path)[0] == 0


def test_an_agent_answers_for_its_own_readiness_and_for_no_other_agent_s(api, tmp_path):
    with Node(tmp_path, api, "--instance", "newer", wait=False) as node:
        node.until(lambda: node.get("/readyz/newer")[0] == 200, "ready")
        assert [node.get(path)[0] for path in ("/readyz/newer", "/readyz/older", "/readyz", "/livez")] == [200, 404, 404, 200]


def test_the_next_version_takes_the_place_of_the_one_before_and_no_pod_waits(api, tmp_path, pod):
    """As in an upgrade: both are there for a while, and share the port of metrics and health until the older one leaves it."""
    api.put(make_pod("web"))
    with Node(tmp_path, api) as old:
        newer = Node(tmp_path, api)
        newer.monitoring = old.monitoring
        with newer:
            old.until(lambda: "is left to it" in old.log.read_text(), "the older one leaves the port")
            assert old.process.poll() is None, "it goes on with what it has begun"
            newer.until(lambda: newer.get("/readyz")[0] == 200, "the newer one is ready")  # the older one has answered for it
            assert newer.ask("ADD", netns=pod.path, configuration={"prevResult": {"ips": [V4]}})[0] == 0
            assert old.stop() == 0
            assert newer.ask("CHECK", netns=pod.path)[0] == 0
            assert newer.get("/readyz")[0] == 200


def test_an_agent_whose_process_with_the_rights_dies_is_gone_as_a_whole(api, tmp_path, require_netns):
    with Node(tmp_path, api) as node:
        child, *_ = node.children()
        node.kill()
        while Path(f"/proc/{child}").exists():
            time.sleep(0.02)
        assert node.ask("ADD", netns="/nowhere")[1]["code"] == 11


def test_a_pod_with_many_networks_in_its_annotation_is_programmed(node, api, pod):
    networks = ",".join(f"10.{number // 250}.{number % 250}.0/24" for number in range(5000))
    api.put(make_pod("web", annotations={"traffic.sidecar.istio.io/excludeOutboundIPRanges": networks}))
    status, tree = node.ask("ADD", netns=pod.path, configuration=previous(V4))
    assert status == 0, tree
    assert apply_in(pod, options_of(api.objects["/api/v1/namespaces/shop/pods/web"], "10.77.0.2")).changed is False
