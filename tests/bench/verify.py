"""Whether pods are as planned: `verify` of one pod, and a sweep of many: `make bench BENCH=verify`.

Processor time is what counts on a busy machine: of the program and its children, and of the agent's processes and theirs.
A sweep where nothing has changed has a budget, as a ratio to a fork for each pod; over it, the run ends with exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import netinit
from laboratory import NetworkNamespace, Pod
from netinit.kernel import Closing, namespaces, netlink, preload
from node import PREVIOUS, cpu, show
from node_agent import Api, Node, make_validated_pod
from programming import TOOL

SWEEP_BUDGET = 0.9  # of the processor time of a bare loop of forks
OPTIONS = ("-b", "*", "-i", "*", "-u", "1337", "--ipv6", "on")
UNMET = "nft add table inet y; nft add chain inet y f '{ type filter hook forward priority 0; }'; nft add rule inet y f tcp dport 9 drop"
MET = "nft add table inet x; nft add chain inet x o '{ type filter hook output priority raw; }'; nft add rule inet x o udp dport 9 drop"


def used(who):
    spent = resource.getrusage(who)
    return spent.ru_utime + spent.ru_stime


def measure_verify(runs):
    """Wall and processor time of the program, started anew each time, from outside of the pod."""
    for backend in ("iptables-nft", "nftables", "iptables-legacy"):
        with Pod() as pod:
            pod.run([*TOOL, "apply", *OPTIONS, "--backend", backend], check=True)
            for what, command in (("", "true"), (", foreign rules not met", UNMET), (", foreign rules met", MET)):
                pod.run(["sh", "-ec", command], check=True)
                wall, spent = [], []
                for _ in range(runs):
                    began, before = time.perf_counter(), used(resource.RUSAGE_CHILDREN)
                    subprocess.run([*TOOL, "verify", *OPTIONS, "--pid", str(pod.pid)], check=True, stdout=subprocess.DEVNULL)
                    wall.append(time.perf_counter() - began)
                    spent.append(used(resource.RUSAGE_CHILDREN) - before)
                show(f"verify, {backend}{what}", wall)
                show("  of it processor time", spent)


def sweep_seconds(node):
    return float(next(line for line in node.get("/metrics")[1].splitlines() if line.startswith("netinit_node_sweep_seconds ")).split()[1])


def make_cgroups(stack, folder):
    """An empty folder for pods in the machine's cgroup file system (version 2), mounted at this one; all of it goes with the stack."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", folder], check=True)
    stack.callback(subprocess.run, ["umount", "--lazy", folder], check=True)
    kubepods = folder / f"kubepods-bench-{os.getpid()}"
    kubepods.mkdir()
    stack.callback(lambda: [one.rmdir() for one in sorted((path for path in (kubepods, *kubepods.rglob("*")) if path.is_dir()), reverse=True)])
    return folder, kubepods


def measure_sweep(number, sweeps):
    """Sweeps of this many pods that the plugin has programmed, one after the other."""
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(Api())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "netns").mkdir()
        pods = [stack.enter_context(NetworkNamespace(f"sweep-{one}")) for one in range(number)]
        cgroups, kubepods = make_cgroups(stack, folder / "cgroups")
        words = (f"--cgroupFolder={cgroups}", "--watch=false", "--sweepInterval", "1s", "--log_output_level", "error")
        node = stack.enter_context(Node(folder, api, *words, in_full=True))
        added = []
        for pod in pods:
            path = folder / "netns" / pod.name
            path.touch()
            subprocess.run(["mount", "--bind", pod.path, path], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", path], check=True)
            pod.run(["ip", "link", "set", "lo", "up"], check=True)
            tree = make_validated_pod(pod.name, "10.77.0.2", uid=str(uuid.uuid4()))
            (kubepods / f"pod{tree['metadata']['uid']}" / "c1").mkdir(parents=True)
            api.put(tree)
            began = time.perf_counter()
            assert node.ask("ADD", netns=path, pod=pod.name, configuration=PREVIOUS)[0] == 0
            added.append(time.perf_counter() - began)
        show(f"ADD, one after the other, {number} pods", added)
        node.until(lambda: f'netinit_node_pods{{state="captured"}} {number:.1f}' in node.get("/metrics")[1], "a whole sweep", 300)
        took, spent = [], []
        for _ in range(sweeps):
            last, before = sweep_seconds(node), cpu(node.process.pid) + cpu(node.children()[0])
            node.until(lambda last=last: sweep_seconds(node) != last, "the next sweep", 300)
            took.append(sweep_seconds(node))
            spent.append(cpu(node.process.pid) + cpu(node.children()[0]) - before)
        show(f"a sweep of {number} pods", took)
        show("  of it processor time", spent)
        ratio = median(spent) / median(measure_forks([folder / "netns" / pod.name for pod in pods], sweeps))
        print(f"  {ratio:.2f} of it, at most {SWEEP_BUDGET} {'✔' if ratio <= SWEEP_BUDGET else '✘'}")
        return ratio <= SWEEP_BUDGET


def measure_forks(paths, sweeps):
    """The least that a sweep with a process for each pod would take: a fork of what has the agent's modules, which enters the pod,
    reads the generation of nf_tables, and ends."""
    preload.load_all(str(Path(netinit.__file__).parent))
    gc.collect()
    gc.freeze()
    spent = []
    for _ in range(sweeps):
        before = used(resource.RUSAGE_SELF) + used(resource.RUSAGE_CHILDREN)
        for path in paths:
            if not (child := os.fork()):
                code = 1
                try:
                    with Closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as namespace:
                        namespaces.enter(namespace, namespaces.NETWORK, str(path))
                    code = netlink.read_nft_generation() < 1
                finally:
                    os._exit(code)
            assert not os.waitpid(child, 0)[1]
        spent.append(used(resource.RUSAGE_SELF) + used(resource.RUSAGE_CHILDREN) - before)
    show("  a bare loop of forks that enter", spent)
    return spent


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--sweeps", type=int, default=5)
    asked = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    measure_verify(asked.runs)
    return 0 if measure_sweep(asked.pods, asked.sweeps) else 1


if __name__ == "__main__":
    sys.exit(main())
