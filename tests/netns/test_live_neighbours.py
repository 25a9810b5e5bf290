"""verify --live: packets also come in as a neighbour's do, through the pod's own device, and say which way they took."""

from __future__ import annotations

import json
import subprocess

import pytest

from laboratory import Pod
from netinit.options import Options
from programming import SIDECAR, apply_in, needs, run_tool
from sweeps import crossed

OPTIONS = (*SIDECAR, "--ipv6", "on")
MODES = {"REDIRECT": OPTIONS, "TPROXY": (*OPTIONS, "-m", "TPROXY")}


def inbound(pod, arguments):
    """What became of inbound packets, sent from the node's side: family, device and port, with whether it is right."""
    done = run_tool(pod.client, "verify", "--live", "--json", "--pid", str(pod.pid), *arguments)
    answer = json.loads(done.stdout)
    return {
        (one["family"], one["interface"], one["port"]): one["ok"] for one in answer["probes"] if one["direction"] == "inbound"
    }, done


@crossed(backend=("iptables-nft", "iptables-legacy", "nftables"), mode=MODES)
def test_a_neighbours_packets_go_as_planned_in_a_good_pod(pod, backend, mode):
    needs(backend)
    arguments = (*MODES[mode], "--backend", backend)
    apply_in(pod, Options.from_argv(arguments))
    rows, done = inbound(pod, arguments)
    assert {(family, interface) for family, interface, _ in rows} == {
        (family, interface) for family in ("IPv4", "IPv6") for interface in ("eth0", "netinit-probe")
    }, done.stderr
    assert all(ok is not False for ok in rows.values()), rows
    assert any(ok for (_, interface, _), ok in rows.items() if interface == "eth0"), rows


def rule_in(pod, *words):
    done = pod.run(words)
    assert done.returncode == 0, done.stderr


def wrong_ways(pod):
    return {interface for (_, interface, _), ok in inbound(pod, OPTIONS)[0].items() if ok is False}


def test_rules_about_the_pods_device_are_found_by_packets_too(pod):
    apply_in(pod, Options.from_argv(OPTIONS))
    rule_in(pod, "iptables", "-t", "nat", "-I", "PREROUTING", "-i", "eth0", "-p", "tcp", "-j", "ACCEPT")
    assert wrong_ways(pod) == {"eth0"}


def test_rules_of_a_bridge_inside_of_the_pod_are_found_by_packets_too():
    needs("nftables")
    with Pod(ipv6=False) as pod:
        for words in (
            "link add br0 type bridge", "link set eth0 master br0", f"addr del {pod.address}/24 dev eth0", "link set br0 up",
            f"addr add {pod.address}/24 dev br0", "route add default via 10.77.0.1 dev br0",
        ):  # fmt: skip
            rule_in(pod, "ip", *words.split())
        arguments = (*SIDECAR, "--ipv6", "off")
        apply_in(pod, Options.from_argv(arguments))
        rows, done = inbound(pod, arguments)
        assert {interface for _, interface, _ in rows} == {"br0", "netinit-probe"}, done.stderr
        assert False not in rows.values(), rows
        rule_in(pod, "nft", "add table bridge b; add chain bridge b c { type filter hook prerouting priority 0; }; add rule bridge b c tcp dport 8080 drop")
        found = {key: ok for key, ok in inbound(pod, arguments)[0].items() if ok is False}
        assert {interface for _, interface, _ in found} == {"br0"}, found


def test_from_inside_the_pod_it_is_said_that_no_neighbour_was_tried(pod):
    apply_in(pod, Options.from_argv(OPTIONS))
    done = run_tool(pod, "verify", "--live", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert "nothing was sent through eth0, as a neighbour does" in done.stderr
    assert "--pid or --netns" in done.stderr


@pytest.mark.parametrize("where", ["pid", "netns"])
def test_nothing_is_left_on_the_node_or_in_the_pod(pod, where):
    apply_in(pod, Options.from_argv(OPTIONS))

    def list_devices():
        return [subprocess.run(["nsenter", f"--net=/proc/{one}/ns/net", "ip", "-br", "link"], capture_output=True, text=True, check=True).stdout for one in (pod.pid,)], pod.client.run(["ip", "-br", "link"]).stdout

    before = list_devices()
    place = str(pod.pid) if where == "pid" else f"/proc/{pod.pid}/ns/net"
    assert run_tool(pod.client, "verify", "--live", f"--{where}", place, *OPTIONS).returncode == 0
    assert list_devices() == before
