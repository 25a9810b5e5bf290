"""Reverse path filtering (rp_filter): what the kernel drops for its source, explain, verify and audit say to be dropped."""

from __future__ import annotations

import json
from itertools import product

import pytest

from lab_probes import Probe
from laboratory import Pod, start_servers
from programming import needs, run_tool
from sweeps import in_turn, together

FAR, SECOND, BEYOND = "203.0.113.9", "10.78.0.2", "203.0.113.80"
OPTIONS = ("-b", "*", "-i", "*", "-o", "9000")
BACKENDS = ("iptables-nft", "nftables", "iptables-legacy")
COUNT_FORWARDED = (
    "table ip seen {\n counter arrived { }\n chain c {\n type filter hook forward priority -200; policy accept;\n"
    " tcp dport 9000 tcp flags syn / syn,ack counter name arrived\n }\n}"
)
COUNT = (  # what is routed to this pod; the mark does not matter there any more
    "table ip seen {\n counter arrived { }\n chain c {\n type filter hook input priority -200; policy accept;\n"
    " tcp dport { 8080, 15006 } tcp flags syn / syn,ack iifname != lo counter name arrived\n }\n}"
)
INPUT_MARKS = ("iptables", "-w", "-t", "mangle", "-A", "INPUT", "-j", "MARK", "--set-xmark")
SETTINGS = [(0, 0, False), (1, 0, True), (0, 1, True), (2, 0, False), (1, 2, False), (2, 1, False), (0, 2, False)]


def configure(pod, name, value, *devices):
    for device in devices:
        pod.set_sysctl(f"net/ipv4/conf/{device}/{name}", value)


def arrives(pod, sender, probe, count=COUNT):
    """Whether the first packet of a connection is delivered to the pod, or comes where `count` counts, whoever answers."""
    pod.run(["nft", "delete", "table", "ip", "seen"])
    pod.run(["nft", "-f", "-"], stdin=count, check=True)
    sender.probe([probe])
    counted = pod.run(["nft", "list", "counter", "ip", "seen", "arrived"], check=True).stdout
    pod.run(["nft", "delete", "table", "ip", "seen"], check=True)
    return "packets 0 " not in counted


def explain(pod, *words):
    return json.loads(run_tool(pod, "explain", "--live", "--json", *words).stdout)


def warned(pod):
    """What verify and audit say of devices whose packets are dropped for their source."""
    verified = [line for line in run_tool(pod, "verify", *OPTIONS).stderr.splitlines() if "packets that come in through" in line]
    audited = json.loads(run_tool(pod, "audit", "--live", "--json", *OPTIONS).stdout)["pods"][0]["warnings"]
    assert [line.removeprefix("warning: ") for line in verified] == [one for one in audited if "packets that come in through" in one]
    return verified


@in_turn("backend", BACKENDS)
def test_what_comes_in_by_the_second_device_is_dropped_where_the_higher_setting_is_strict(require_netns, backend):
    needs(backend)
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *OPTIONS, "--backend", backend).returncode == 0
        pod.run(["ip", "route", "add", "default", "via", "10.78.0.1", "dev", "eth1", "metric", "500"], check=True)
        neighbour = pod.neighbours["eth1"]
        neighbour.run(["ip", "address", "add", f"{FAR}/32", "dev", "lo"], check=True)
        for every, own, drops in SETTINGS:
            configure(pod, "rp_filter", every, "all")
            configure(pod, "rp_filter", own, "eth1")
            for source, is_far in ((FAR, True), ("10.78.0.1", False)):
                told = explain(pod, "inbound", "--from", source, "--to", f"{SECOND}:8080", "--interface", "eth1")
                expected = drops and is_far
                assert arrives(pod, neighbour, Probe(SECOND, 8080, source=source, timeout=0.3)) is not expected
                assert told["verdict"] == ("dropped" if expected else "captured"), told["sentence"]
                if expected:
                    assert f"conf.{'all' if every else 'eth1'}.rp_filter=1) drops what comes in through eth1" in told["sentence"]
                    assert f"the route back to {FAR} leaves through eth0" in told["sentence"]
            lines = warned(pod)
            assert len(lines) == drops
            assert all("through eth1" in one and one.endswith("set net.ipv4.conf.eth1.rp_filter=2") for one in lines)


def test_loose_filtering_drops_only_what_has_no_route_back(require_netns):
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *OPTIONS).returncode == 0
        neighbour = pod.neighbours["eth1"]
        neighbour.run(["ip", "address", "add", f"{FAR}/32", "dev", "lo"], check=True)
        pod.run(["ip", "route", "del", "default"], check=True)
        for strictness in (0, 1, 2):
            configure(pod, "rp_filter", strictness, "eth1")
            told = explain(pod, "inbound", "--from", FAR, "--to", f"{SECOND}:8080", "--interface", "eth1")
            assert arrives(pod, neighbour, Probe(SECOND, 8080, source=FAR, timeout=0.3)) is (strictness == 0)
            assert (told["verdict"] == "dropped") is (strictness > 0), told["sentence"]
            assert "is missing" in told["sentence"] or not strictness


@pytest.mark.parametrize("strictness", [0, 1, 2])
def test_the_answer_that_comes_in_where_no_route_leads_back_is_dropped(require_netns, strictness):
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod)
        neighbour = pod.neighbours["eth1"]
        neighbour.run(["ip", "address", "add", f"{BEYOND}/32", "dev", "lo"], check=True)
        for step in ("route add default via 10.78.0.1 dev eth1 table 100", "rule add uidrange 1000-1000 lookup 100"):
            pod.run(["ip", *step.split()], check=True)
        neighbour.listen(9000)
        assert run_tool(pod, "apply", *OPTIONS).returncode == 0
        configure(pod, "rp_filter", strictness, "all", "eth1")
        (arrived,) = pod.probe([Probe(BEYOND, 9000, uid=1000, gid=1000, timeout=0.5)])
        told = explain(pod, "--to", f"{BEYOND}:9000", "--uid", "1000")
        assert told["verdict"] == "direct"
        assert (arrived.outcome == "answered") is (strictness != 1), arrived
        assert told["answer"]["arrives"] is (strictness != 1), told
        assert bool(warned(pod)) is (strictness == 1)


@together(("setting", "backend"), [(one, BACKENDS[at % 3]) for at, one in enumerate(("lo", "mark", "mark accepted", "mark accepted, strict"))])
def test_transparent_connections_pass_strict_filtering_of_lo_but_not_a_mark_that_counts_as_their_source(require_netns, setting, backend):
    needs(backend)
    with Pod() as pod:
        start_servers(pod, transparent={15006})
        assert run_tool(pod, "apply", *OPTIONS, "-m", "TPROXY", "--backend", backend).returncode == 0
        if setting == "lo":
            configure(pod, "rp_filter", 1, "all", "lo", "eth0")
        else:
            configure(pod, "src_valid_mark", 1, "eth0")
            configure(pod, "accept_local", int("accepted" in setting), "eth0")
            configure(pod, "rp_filter", int("strict" in setting), "eth0")
        is_lost = setting in {"mark", "mark accepted, strict"}
        told = explain(pod, "inbound", "--from", "10.77.0.1", "--to-port", "8080")
        (arrived,) = pod.client.probe([Probe(pod.address, 8080, timeout=1)])
        assert (arrived.outcome == "answered") is not is_lost, arrived
        assert told["verdict"] == ("dropped" if is_lost else "captured"), told["sentence"]
        if is_lost:
            assert "by its mark (net.ipv4.conf.eth0.src_valid_mark is set)" in told["sentence"] or "rp_filter=1" in told["sentence"]
        if setting == "lo":
            (passed,) = pod.probe([Probe(pod.address, 8080, uid=1337, gid=1337, source="127.0.0.6", timeout=1)])
            assert passed.server == "app"


def test_a_mark_that_rules_give_it_after_it_is_routed_does_not_count(require_netns):
    with Pod() as pod:
        start_servers(pod)
        pod.client.listen(9000)
        assert run_tool(pod, "apply", *OPTIONS).returncode == 0
        for step in ("rule add fwmark 1337 lookup 133", "route add local 0.0.0.0/0 dev lo table 133"):
            pod.run(["ip", *step.split()], check=True)
        configure(pod, "src_valid_mark", 1, "eth0")
        pod.run([*INPUT_MARKS, "1337"], check=True)
        told = explain(pod, "inbound", "--from", "10.77.0.1", "--to-port", "8080")
        assert arrives(pod, pod.client, Probe(pod.address, 8080, timeout=1))
        assert told["verdict"] == "captured", told["sentence"]
        (answered,) = pod.probe([Probe("10.77.0.1", 9000, uid=1000, gid=1000, timeout=1)])
        assert answered.outcome == "answered"
        assert explain(pod, "--to", "10.77.0.1:9000", "--uid", "1000")["answer"]["arrives"]


def test_a_mark_that_rules_take_away_after_it_is_routed_counts(require_netns):
    with Pod() as pod:
        start_servers(pod, transparent={15006})
        assert run_tool(pod, "apply", *OPTIONS, "-m", "TPROXY").returncode == 0
        configure(pod, "src_valid_mark", 1, "all", "eth0")
        pod.run([*INPUT_MARKS, "0"], check=True)
        told = explain(pod, "inbound", "--from", "10.77.0.1", "--to-port", "8080")
        assert not arrives(pod, pod.client, Probe(pod.address, 8080, timeout=0.3))
        assert told["verdict"] == "dropped", told["sentence"]
        (change,) = told["changes"]
        assert change == {"change": "net.ipv4.conf.all.src_valid_mark=0 net.ipv4.conf.eth0.src_valid_mark=0", "verdict": "captured"}
        configure(pod, "src_valid_mark", 0, "all", "eth0")
        assert arrives(pod, pod.client, Probe(pod.address, 8080, timeout=1))


def test_a_mark_that_a_rule_may_have_given_leaves_it_unknown(require_netns):
    with Pod() as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *OPTIONS).returncode == 0
        for step in ("rule add fwmark 7 lookup 133", "route add blackhole default table 133"):
            pod.run(["ip", *step.split()], check=True)
        configure(pod, "rp_filter", 1, "eth0")
        sometimes = ["-m", "statistic", "--mode", "random", "--probability", "0.5"]
        pod.run(["iptables", "-w", "-t", "mangle", "-A", "PREROUTING", *sometimes, "-j", "MARK", "--set-mark", "7"], check=True)
        asked = ("inbound", "--from", "10.77.0.1", "--to-port", "8080")
        assert explain(pod, *asked)["verdict"] == "captured"
        configure(pod, "src_valid_mark", 1, "eth0")
        told = explain(pod, *asked)
        assert told["verdict"] == "unknown"
        assert "rp_filter=1" in told["sentence"]


def test_a_policy_rule_for_ports_drops_what_comes_from_other_ports(require_netns):
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *OPTIONS).returncode == 0
        neighbour = pod.neighbours["eth1"]
        neighbour.run(["ip", "address", "add", f"{FAR}/32", "dev", "lo"], check=True)
        for step in ("route add default via 10.78.0.1 dev eth1 table 100", "rule add dport 80-81 lookup 100"):
            pod.run(["ip", *step.split()], check=True)
        for strictness in (0, 1):
            configure(pod, "rp_filter", strictness, "eth1")
            told = explain(pod, "inbound", "--from", FAR, "--to", f"{SECOND}:8080", "--interface", "eth1")
            assert arrives(pod, neighbour, Probe(SECOND, 8080, source=FAR, timeout=0.3)) is not strictness
            assert arrives(pod, neighbour, Probe(SECOND, 8080, source=FAR, source_port=80 + strictness, timeout=0.3))
            assert told["verdict"] == ("dropped" if strictness else "captured"), told["sentence"]
            lines = warned(pod)
            assert len(lines) == strictness
            assert all("through eth1" in one and "are dropped: reverse path" in one for one in lines)


@pytest.mark.parametrize("strictness", [0, 1])
def test_the_way_back_of_what_is_forwarded_meets_the_policy_rules_of_the_device_that_it_leaves_through(require_netns, strictness):
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *OPTIONS, "-d", "9000").returncode == 0
        for step in ("rule add iif eth1 lookup 100", "route add blackhole 10.77.0.0/24 table 100"):
            pod.run(["ip", *step.split()], check=True)
        configure(pod, "rp_filter", strictness, "eth0")
        told = explain(pod, "inbound", "--from", "10.77.0.1", "--to", "10.78.0.1:9000")
        came = arrives(pod, pod.client, Probe("10.78.0.1", 9000, timeout=0.3), COUNT_FORWARDED)
        assert came is not bool(strictness)
        assert told["verdict"] == ("dropped" if strictness else "direct"), told["sentence"]


ODD_SOURCES = {  # those of packets that come in through eth1, and whether the pod takes them with each value of rp_filter
    FAR: ("by the filter alone", (True, False, True)),  # which a route of type unicast leads to lo
    "10.77.0.2": ("accept_local", (True, False, True)),  # the pod's own, of eth0
    SECOND: ("accept_local", (True, True, True)),  # of eth1 itself
    "127.0.0.1": ("accept_local and route_localnet", (True, False, True)),
    "127.0.0.5": ("accept_local and route_localnet", (True, False, True)),
    "10.77.0.255": ("accept_local", (True, False, False)),  # a broadcast address
}
UNSEEN = {("127.0.0.5", 0, 0, 1), ("10.77.0.255", 0, 0, 0)}  # which past policy rules and routes decide


@pytest.mark.parametrize("source", ODD_SOURCES)
def test_a_source_of_the_pods_own_or_of_no_host_is_taken_as_the_settings_say(require_netns, source):
    needed, by_filter = ODD_SOURCES[source]
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *OPTIONS).returncode == 0
        pod.run(["ip", "route", "add", "203.0.113.0/24", "dev", "lo"], check=True)
        neighbour = pod.neighbours["eth1"]
        (eth1,) = json.loads(pod.run(["ip", "-j", "link", "show", "eth1"], check=True).stdout)
        known = ["lladdr", eth1["address"], "dev", "eth0", "nud", "permanent"]  # nobody answers who asks for it from such a source
        neighbour.run(["ip", "neigh", "replace", SECOND, *known], check=True)
        chain = f"type nat hook postrouting priority 100\ntcp dport 8080 snat to {source}"
        neighbour.run(["nft", "-f", "-"], stdin=f"table ip odd {{\nchain c {{\n{chain}\n}}\n}}", check=True)
        for strictness, local, localnet in product((0, 1, 2), (0, 1), (0, 1) if "localnet" in needed else (0,)):
            for name, value in (("rp_filter", strictness), ("accept_local", local), ("route_localnet", localnet)):
                configure(pod, name, value, "eth1")
            told = explain(pod, "inbound", "--from", source, "--to", f"{SECOND}:8080", "--interface", "eth1")
            came = arrives(pod, neighbour, Probe(SECOND, 8080, timeout=0.2))
            if (source, strictness, local, localnet) in UNSEEN:
                assert told["verdict"] == "unknown", told["sentence"]
                continue
            is_taken = by_filter[strictness] and (local or "local" not in needed) and (localnet or "localnet" not in needed)
            assert came is bool(is_taken), (strictness, local, localnet)
            assert told["verdict"] == ("captured" if is_taken else "dropped"), told["sentence"]
