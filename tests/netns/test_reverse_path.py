"""Reverse path filtering (rp_filter): what the kernel drops for its source, explain, verify and audit say to be dropped."""

from __future__ import annotations

import json

import pytest

from lab_probes import Probe
from laboratory import Pod, start_servers
from programming import needs, run_tool
from sweeps import in_turn, together

FAR, SECOND, BEYOND = "203.0.113.9", "10.78.0.2", "203.0.113.80"
OPTIONS = ("-b", "*", "-i", "*", "-o", "9000")
BACKENDS = ("iptables-nft", "nftables", "iptables-legacy")
COUNT = (  # what is routed to this pod; the mark does not matter there any more
    "table ip seen {\n counter arrived { }\n chain c {\n type filter hook input priority -200; policy accept;\n"
    " tcp dport { 8080, 15006 } tcp flags syn / syn,ack iifname != lo counter name arrived\n }\n}"
)
SETTINGS = [(0, 0, False), (1, 0, True), (0, 1, True), (2, 0, False), (1, 2, False), (2, 1, False), (0, 2, False)]


def configure(pod, name, value, *devices):
    for device in devices:
        pod.set_sysctl(f"net/ipv4/conf/{device}/{name}", value)


def arrives(pod, sender, probe):
    """Whether the first packet of a connection is delivered to the pod, whoever answers."""
    pod.run(["nft", "delete", "table", "ip", "seen"])
    pod.run(["nft", "-f", "-"], stdin=COUNT, check=True)
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
