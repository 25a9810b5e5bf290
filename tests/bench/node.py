"""ADD as the runtime sees it: alone and 110 at once, the agent's memory; and Istio's way beside: `make bench BENCH=node`.

Istio's way is simulated as what its plugin does in the host: a process for each pod reads its configuration, asks the API
for the pod, enters the namespace, and starts iptables-restore once or twice with Istio's rules. Written in Python as a process
that is forked by a warm parent, so that no interpreter's start is counted against it, and without its own logic.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from core import plan
from laboratory import NetworkNamespace
from netinit.kernel import namespaces
from netinit.node.decision import decide, read_pod
from netinit.options import Options
from netinit.rules.iptables.write import render_restore, write_plan
from node_agent import Api, Node, make_pod

PREVIOUS = {"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.77.0.2/24"}]}}
BURST = 110


def show(what, seconds):
    ordered = sorted(one * 1000 for one in seconds)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{what:<34} p50 {statistics.median(ordered):6.1f} ms   p99 {last:6.1f} ms   least {ordered[0]:6.1f} ms   ({len(ordered)})")


def timed(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def cpu(pid):
    """Seconds of a process and of its children that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def pss(pid):
    """MiB that are a process's own, shared ones by its share; and its RSS."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return found["Pss"], found["Rss"]


def add(node, pod):
    status, tree = node.ask("ADD", netns=pod.path, pod=pod.name, configuration=PREVIOUS)
    assert status == 0, tree


def burst(node, pods):
    """The time until all are done, and each one's."""
    begun = time.perf_counter()
    left = {node.begin("ADD", netns=pod.path, pod=pod.name, configuration=PREVIOUS): None for pod in pods}
    took = []
    while left:
        for process in [one for one in left if one.poll() is not None]:
            took.append(time.perf_counter() - begun)
            assert process.returncode == 0, process.stdout.read()
            del left[process]
        time.sleep(0.001)
    return time.perf_counter() - begun, took


def istio(api, pod, text):
    """One pod, as Istio's plugin does it: a process of its own."""
    child = os.fork()
    if not child:
        code = 1
        try:
            connection = http.client.HTTPConnection("127.0.0.1", api.server.server_port)
            connection.request("GET", f"/api/v1/namespaces/shop/pods/{pod.name}")
            json.loads(connection.getresponse().read())
            namespaces.enter(pod.descriptor)
            for program in ("iptables-nft-save", "ip6tables-nft-save"):  # it looks which variant is in use
                subprocess.run([program], capture_output=True, check=True)
            subprocess.run(["iptables-nft-restore", "--noflush"], input=text, capture_output=True, check=True)
            code = 0
        finally:
            os._exit(code)
    return child


def reset(pods):
    for pod in pods:
        pod.run(["nft", "flush", "ruleset"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--burst", type=int, default=BURST)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(Api())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        pods = [stack.enter_context(NetworkNamespace(f"pod-{number}")) for number in range(asked.burst)]
        for pod in pods:
            api.put(make_pod(pod.name))
        node = stack.enter_context(Node(folder, api, "--sweep=false", "--log_output_level", "warn", in_full=True))
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        child, *_ = node.children()
        left_alone = [timed(lambda: node.ask("ADD", netns=pods[0].path, namespace="kube-system")) for _ in range(asked.runs)]
        show("ADD, a pod that is left alone", left_alone)
        before, took = cpu(node.process.pid) + cpu(child), []
        for number in range(asked.runs):
            pod = pods[number % len(pods)]
            took.append(timed(lambda pod=pod: add(node, pod)))
            reset([pod])
        show("ADD, alone", took)
        print(f"{'':<34} {(cpu(node.process.pid) + cpu(child) - before) / asked.runs * 1000:.1f} ms of processor each")
        whole, took = burst(node, pods)
        show(f"ADD, {len(pods)} at once", took)
        print(f"{'':<34} all in {whole:.2f} s")
        for name, pid in (("with the rights", node.process.pid), ("that answers", child)):
            own, rss = pss(pid)
            print(f"the process {name:<22} {own:.1f} MiB (PSS), {rss:.1f} MiB (RSS)")
        reset(pods)
        made = plan(decide(read_pod(make_pod("x")), Options(), ("10.77.0.2",)).options)
        text = render_restore(write_plan(made, made.families[0]))
        took = [timed(lambda pod=pod: os.waitpid(istio(api, pod, text), 0)) for pod in pods[: asked.runs]]
        show("Istio's way, alone", took)
        reset(pods)
        begun = time.perf_counter()
        for child_pid in [istio(api, pod, text) for pod in pods]:
            os.waitpid(child_pid, 0)
        print(f"Istio's way, {len(pods)} at once{'':<14} all in {time.perf_counter() - begun:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
