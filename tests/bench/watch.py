"""The agent between sweeps: from a change to its event, and what watching costs: `make bench BENCH=watch`.

Pods are namespaces that the plugin has programmed. An event is had when the agent has written it into the API, which is in this
process. Processor time is that of the agent's two processes and of the children that look at pods.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from laboratory import NetworkNamespace
from node import PREVIOUS, cpu, pss, show
from node_agent import Api, Node, make_validated_pod

RULE = "ISTIO_OUTPUT -d 10.9.9.9 -j RETURN"
TABLE = "local 203.0.113.0/24 dev lo table local"
KINDS = {  # what is changed, and put back: by another ADD where nothing is said
    "rule added": (f"iptables -t nat -I {RULE}", f"iptables -t nat -D {RULE}"),
    "rule deleted": ("iptables -t nat -D ISTIO_INBOUND 1", ""),
    "table dormant": ("nft 'add table ip nat { flags dormant; }'", ""),
    "device renamed": ("ip link set lo name lo2", "ip link set lo2 name lo"),
    "ip rule added": ("ip rule add pref 5 uidrange 0-65000 lookup 77", "ip rule del pref 5"),
    "route added": (f"ip route add {TABLE}", f"ip route del {TABLE}"),
}
QUIET = 2.5  # seconds between two changes, so that none is held back as one of a pod that changes all the time


class Watched:
    """A node with pods; changes are made in the first one."""

    def __init__(self, stack, number):
        self.api = stack.enter_context(Api())
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.pods = [stack.enter_context(NetworkNamespace(f"watch-{one}")) for one in range(number)]
        self.node = stack.enter_context(Node(self.folder, self.api, "--sweep=false", "--log_output_level", "error", in_full=True))
        self.idle_memory = pss(self.node.children()[0])
        for pod in self.pods:
            path = self.folder / pod.name  # as a runtime has it: the process without rights cannot look into /proc
            path.touch()
            subprocess.run(["mount", "--bind", pod.path, path], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", path], check=True)
            pod.run(["ip", "link", "set", "lo", "up"], check=True)
            pod.run(["sh", "-c", "ip route add local default dev lo table 77"], check=True)
            self.api.put(make_validated_pod(pod.name, "10.77.0.2"))
            self.add(pod)
        self.node.until(lambda: self.metric("looks_total") >= number, "the first looks", 120)
        time.sleep(QUIET)

    def add(self, pod):
        assert self.node.ask("ADD", netns=self.folder / pod.name, pod=pod.name, configuration=PREVIOUS)[0] == 0

    def put_back(self, pod, command):
        if command:
            pod.run(["sh", "-c", command], check=True)
        else:
            self.add(pod)

    def metric(self, name):
        lines = self.node.get("/metrics")[1].splitlines()
        return float(next(line for line in lines if line.startswith(f"netinit_node_{name} ")).split()[1])

    def cpu(self):
        return cpu(self.node.process.pid) + cpu(self.node.children()[0])

    def events(self, pod):
        return sum(event["involvedObject"]["name"] == pod.name for event in self.api.events())

    def drift(self, pod, change):
        """Seconds from the change's being made to its event."""
        before = self.events(pod)
        pod.run(["sh", "-c", change], check=True)
        begun = time.perf_counter()
        while self.events(pod) == before:
            time.sleep(0.001)
            assert time.perf_counter() - begun < 30, "no event"
        return time.perf_counter() - begun


def measure_kinds(watched, runs):
    pod = watched.pods[0]
    for kind, (change, back) in KINDS.items():
        took = []
        for _ in range(runs):
            took.append(watched.drift(pod, change))
            watched.put_back(pod, back)
            time.sleep(QUIET)
        show(f"{kind}, to its event", took)


def measure_idle(watched, seconds):
    before = watched.cpu()
    time.sleep(seconds)
    used = watched.cpu() - before
    print(f"idle, {len(watched.pods)} pods watched: {used / seconds * 100:.2f} % of a core")


@contextlib.contextmanager
def noise(pod, rate):
    """The pod changes its rules so many times a second, by one program; what it has done so far."""
    done, stop = [0], threading.Event()
    with subprocess.Popen(["nsenter", f"--net={pod.path}", "nft", "-i"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as nft:
        nft.stdin.write("add table ip busy\nadd chain ip busy c\n")

        def work():
            begun = time.monotonic()
            while not stop.wait(0.01):
                due = int((time.monotonic() - begun) * rate) - done[0]
                nft.stdin.write("add rule ip busy c accept\nflush chain ip busy c\n" * (due // 2))
                nft.stdin.flush()
                done[0] += due // 2 * 2

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield done
        finally:
            stop.set()
            thread.join()
            nft.kill()


def measure_noise(watched, rate, runs, seconds):
    loud, pod = watched.pods[1], watched.pods[2]
    with noise(loud, rate) as done:
        time.sleep(5)
        before, begun, changes, looks = watched.cpu(), time.monotonic(), done[0], watched.metric("looks_total")
        time.sleep(seconds)
        took = time.monotonic() - begun
        print(
            f"one pod with {(done[0] - changes) / took:.0f} changes a second: {(watched.cpu() - before) / took * 100:.2f} % of a core,"
            f" {(watched.metric('looks_total') - looks) / took:.2f} looks a second"
        )
        found = []
        change, back = KINDS["rule added"]
        for _ in range(runs):
            found.append(watched.drift(pod, change))
            watched.put_back(pod, back)
            time.sleep(QUIET)
        show("beside it, a rule added in another", found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        watched = Watched(stack, asked.pods)
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {watched.metric('watched_pods'):.0f} pods watched")
        (own, rss), (idle, idle_rss) = pss(watched.node.children()[0]), watched.idle_memory
        print(f"the process that answers: {rss:.1f} MiB (RSS), {idle_rss:.1f} before; {(own - idle) / asked.pods * 1024:.1f} KiB a pod")
        measure_idle(watched, asked.seconds)
        measure_kinds(watched, asked.runs)
        measure_noise(watched, asked.rate, asked.runs, asked.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
