"""The agent between sweeps: a change in a pod is reported and repaired within a second, whatever other pods do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from laboratory import NetworkNamespace
from netinit.node.decision import decide, read_pod
from netinit.options import Options
from node_agent import Api, Node, make_validated_pod
from programming import differences_in
from sweeps import choose

PREVIOUS = {"prevResult": {"ips": [{"address": "10.77.0.2/24"}]}}
ALONE = ("--sweep=false",)
CHANGES = {
    "rule deleted": ["iptables", "-t", "nat", "-D", "ISTIO_INBOUND", "1"],
    "rule added": ["iptables", "-t", "nat", "-I", "ISTIO_OUTPUT", "1", "-d", "10.9.9.9", "-j", "RETURN"],
    "table dormant": ["nft", "add", "table", "ip", "nat", "{ flags dormant; }"],
    "foreign chain": ["nft", "add table inet x; add chain inet x o { type filter hook output priority raw; }; add rule inet x o notrack"],
    "device renamed": ["sh", "-c", "ip link set lo down && ip link set lo name lo2 && ip link set lo2 up"],
    "policy rule added": ["sh", "-c", "ip route add local default dev lo table 77 && ip rule add pref 5 uidrange 0-65000 lookup 77"],
    "route added": ["ip", "route", "add", "local", "203.0.113.0/24", "dev", "lo", "table", "local"],
}  # fmt: skip
DRIFT = "InterceptionDrift"
LIBC, PIDFD_GETFD = ctypes.CDLL(None), 438


@pytest.fixture
def api():
    with Api() as made:
        yield made


@contextlib.contextmanager
def programmed(node, api, *names, watched=True):
    """Pods of these names, programmed by the plugin and watched; their namespaces by name."""
    with contextlib.ExitStack() as stack:
        found = {}
        (node.folder / "netns").mkdir(exist_ok=True)
        for name in names:
            found[name] = stack.enter_context(NetworkNamespace(f"watch-{name}"))
            path = node.folder / "netns" / name
            path.touch()
            subprocess.run(["mount", "--bind", found[name].path, path], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", path], check=False, stderr=subprocess.DEVNULL)
            found[name].run(["ip", "link", "set", "lo", "up"], check=True)
            api.put(make_validated_pod(name, "10.77.0.2"))
            assert node.ask("ADD", netns=path, pod=name, configuration=PREVIOUS)[0] == 0
        node.until(lambda: metric(node, "looks_total") >= len(names) * watched, "the first looks")
        yield found


def metric(node, name):
    lines = node.get("/metrics")[1].splitlines()
    return float(next(line for line in lines if line.startswith(f"netinit_node_{name} ")).split()[1])


def events(api, pod, reason=DRIFT):
    return [event["message"] for event in api.events() if (event["involvedObject"]["name"], event["reason"]) == (pod, reason)]


def await_event(node, api, pod, reason=DRIFT):
    """It comes by the watch alone: there are no sweeps, or none is near. tests/bench/watch.py measures how soon."""
    node.until(lambda: events(api, pod, reason), f"{reason} of {pod}")


def is_still(node):
    """Whether nothing was looked at for a while."""
    before = metric(node, "looks_total")
    time.sleep(1.0)
    return metric(node, "looks_total") == before


@pytest.mark.parametrize("change", choose([*CHANGES][::3], CHANGES))
def test_a_change_is_an_event_without_a_sweep(api, tmp_path, require_netns, change):
    with Node(tmp_path, api, *ALONE) as node, programmed(node, api, "web") as pods:
        node.until(lambda: is_still(node), "nothing happens after ADD")
        assert not api.events(), "what the agent did itself is no drift"
        pods["web"].run(CHANGES[change], check=True)
        await_event(node, api, "web")
        node.until(lambda: metric(node, "drift_seconds_count") == 1, "it is counted")  # after the event is written


def test_it_is_reported_once_and_repaired_as_configured(api, tmp_path, require_netns):
    with Node(tmp_path, api, *ALONE, "--repair", "program") as node, programmed(node, api, "web") as pods:
        for number in (1, 2):
            node.until(lambda: is_still(node), "nothing happens")
            pods["web"].run(["iptables", "-t", "nat", "-F", "ISTIO_OUTPUT"], check=True)
            node.until(lambda number=number: len(events(api, "web", "InterceptionRepaired")) == number, "the repair")
            assert len(events(api, "web")) == number
        settled = decide(read_pod(make_validated_pod("web", "10.77.0.2")), Options(reconcile=True), ("10.77.0.2",)).options
        node.until(lambda: is_still(node), "the repair itself is no reason to repair")
        assert differences_in(pods["web"], settled) == []
        assert len(events(api, "web", "InterceptionRepaired")) == 2


def test_a_pod_that_is_put_right_again_alarms_again_when_it_drifts_again(api, tmp_path, require_netns):
    rule = ["-t", "nat", "ISTIO_OUTPUT", "-d", "10.9.9.9", "-j", "RETURN"]
    with Node(tmp_path, api, *ALONE) as node, programmed(node, api, "web") as pods:
        for number in (1, 2):
            node.until(lambda: is_still(node), "nothing happens")
            pods["web"].run(["iptables", *rule[:2], "-I", *rule[2:]], check=True)
            node.until(lambda number=number: len(events(api, "web")) == number, "the event")
            pods["web"].run(["iptables", *rule[:2], "-D", *rule[2:]], check=True)


@contextlib.contextmanager
def changing(pod):
    """The pod changes a table of its own all the time, by one program; the count of its changes so far."""
    count = [0]
    stop = threading.Event()
    with subprocess.Popen(
        ["nsenter", f"--net={pod.path}", "nft", "-i"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:

        def work():
            while not stop.is_set():
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write("add table ip busy\nadd chain ip busy c\nflush chain ip busy c\ndelete table ip busy\n" * 25)
                    process.stdin.flush()
                count[0] += 100
                stop.wait(0.1)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield count
        finally:
            stop.set()
            thread.join()
            process.kill()


def test_a_pod_that_changes_all_the_time_is_looked_at_seldom_and_holds_up_no_other(api, tmp_path, require_netns):
    with Node(tmp_path, api, *ALONE) as node, programmed(node, api, "noisy", "web") as pods, changing(pods["noisy"]) as count:
        node.until(lambda: metric(node, "notifications_dropped_total") > 0, "notifications are dropped")
        node.until(lambda: count[0] > 3000, "the pod is known to be noisy")
        before, begun = metric(node, "looks_total"), time.monotonic()
        time.sleep(choose(2, 5))
        assert metric(node, "looks_total") - before <= 2 + (time.monotonic() - begun) / 2
        pods["web"].run(CHANGES["rule deleted"], check=True)
        await_event(node, api, "web")
        pods["noisy"].run(CHANGES["rule deleted"], check=True)  # among all that is dropped
        await_event(node, api, "noisy")




def netlink_sockets(node):
    """How many sockets of netlink the process without rights has open."""
    pid = int(node.children()[0])
    process, found = os.pidfd_open(pid), 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        taken = LIBC.syscall(PIDFD_GETFD, process, int(one.name), 0)
        if taken < 0:  # it was closed meanwhile
            continue
        if not stat.S_ISSOCK(os.fstat(taken).st_mode):
            os.close(taken)
            continue
        with socket.socket(fileno=taken) as copied:
            found += copied.family == socket.AF_NETLINK
    os.close(process)
    return found


@pytest.mark.parametrize("way", ["DEL", "the runtime takes the namespace away", "the pod is gone"])
def test_a_pod_that_goes_is_let_go(api, tmp_path, require_netns, way):
    with Node(tmp_path, api, *ALONE) as node, programmed(node, api, "web", "stays"):
        node.until(lambda: metric(node, "watched_pods") == 2, "both are watched")
        assert netlink_sockets(node) == 6
        path = node.folder / "netns" / "web"
        if way == "DEL":
            assert node.ask("DEL", netns=path, pod="web")[0] == 0
            assert netlink_sockets(node) == 3, "before the runtime is answered"
        elif way == "the pod is gone":
            api.drop(make_validated_pod("web", "10.77.0.2"))
        else:
            subprocess.run(["umount", "--lazy", path], check=True)  # as runtimes do
        node.until(lambda: netlink_sockets(node) == 3, "its sockets are closed")


def test_an_agent_that_is_started_again_watches_the_pods_that_were_programmed(api, tmp_path, require_netns):
    with Node(tmp_path, api, *ALONE) as node, programmed(node, api, "web") as pods:
        node.stop()
        pods["web"].run(CHANGES["rule deleted"], check=True)
        node.start()
        await_event(node, api, "web")  # what happened while there was no agent is seen first
        node.until(lambda: is_still(node), "nothing happens")
        pods["web"].run(CHANGES["rule added"], check=True)
        node.until(lambda: metric(node, "drift_total") == 2, "the next change")


def test_it_can_be_left_to_sweeps(api, tmp_path, require_netns):
    words = ("--watch=false", "--sweepInterval", "2s")
    with Node(tmp_path, api, *words) as node, programmed(node, api, "web", watched=False) as pods:
        pods["web"].run(CHANGES["rule deleted"], check=True)
        await_event(node, api, "web")
        assert (netlink_sockets(node), metric(node, "looks_total")) == (0, 0)
