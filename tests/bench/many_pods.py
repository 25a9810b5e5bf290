"""The webhook and the commands about whole clusters beside many pods of a real API server: memory, processor time, how long.

    unshare --net -- sh -c 'ip link set lo up; for n in 1 2 3; do ip address add 10.77.0.$n/32 dev lo; done; python tests/bench/many_pods.py'

The pods are objects as the webhook injects them (KUBEBUILDER_ASSETS); no kubelet runs them. They are created beside the webhook,
which is asked about those of one namespace. The webhook watches nodes too: so many are there that pods have places.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("", "cluster", "bench"))]

from webhook import share  # noqa: E402

import control_plane  # noqa: E402
from control_plane import ADDRESSES, ADMIN, API, ControlPlane, Replica  # noqa: E402
from installation import bare, injected, reaches  # noqa: E402
from node import cpu, pss  # noqa: E402 - the line above leads to what tests share

TOGETHER = 8  # connections that create
PER_NODE = 100  # pods
MESHED = "meshed"


class Connection:
    """Requests of the administrator on one connection."""

    def __init__(self, plane):
        context = ssl.create_default_context(cadata=plane.pair.authority)
        self.http = http.client.HTTPSConnection("localhost", API, context=context, timeout=60)

    def post(self, path, body):
        head = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        self.http.request("POST", path, body, head)
        answer = self.http.getresponse()
        told = answer.read()
        if answer.status != 201:
            raise AssertionError(f"{path}: {answer.status} {told[:300]!r}")
        return told


def create(plane, bodies):
    """Create objects, (path, body) each, over several connections."""
    left, failed = iter(bodies), []
    lock = threading.Lock()

    def work():
        connection = Connection(plane)
        try:
            while True:
                with lock:
                    one = next(left, None)
                if one is None:
                    return
                connection.post(*one)
        except (AssertionError, OSError, http.client.HTTPException) as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(TOGETHER)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failed:
        raise failed[0]


def make_node(number):
    """A node as large as clouds have them: 50 images, of which the kubelet tells."""
    images = [{"names": [f"registry.example.com/team-{one}/service-{one}@sha256:{one:064x}", f"registry.example.com/team-{one}/service-{one}:v1.2.3"], "sizeBytes": 10**8} for one in range(50)]
    return {"metadata": {"name": f"node-{number}"}, "status": {"images": images, "nodeInfo": {
        "kubeletVersion": "v1.34.1", "architecture": "amd64", "operatingSystem": "linux", "osImage": "x", "kernelVersion": "6.1.0",
        "containerRuntimeVersion": "containerd://2.1.0", "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
    }}}  # fmt: skip


def fill(plane, pods, namespaces):
    """Nodes, namespaces and pods that are as injected ones are; yield what was created, and the seconds that it took."""
    nodes = max(1, pods // PER_NODE)
    shape = plane.pod(MESHED, bare("web"))
    assert injected(shape)
    kept = {key: shape["metadata"][key] for key in ("labels", "annotations")}
    kept["labels"] = {**kept["labels"], "sidecar.istio.io/inject": "false", "pod-template-hash": "5d8f9"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True, "uid": "c0ffee"}

    def make_pod(number):
        owners = [{**owner, "name": f"web-{number // 10}-5d8f9"}]
        metadata = {**kept, "name": f"web-{number // 10}-5d8f9-{number}", "ownerReferences": owners}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**shape["spec"], "nodeName": f"node-{number % nodes}"}}

    for what, bodies in (
        (f"{nodes} nodes", (("/api/v1/nodes", make_node(one)) for one in range(nodes))),
        (f"{namespaces} namespaces", (("/api/v1/namespaces", {"metadata": {"name": f"ns-{one}"}}) for one in range(namespaces))),
        (f"{pods} pods", ((f"/api/v1/namespaces/ns-{one % namespaces}/pods", make_pod(one)) for one in range(pods))),
    ):
        began = time.monotonic()
        create(plane, ((path, json.dumps(tree).encode()) for path, tree in bodies))
        print(f"{what} in {time.monotonic() - began:.0f} s", flush=True)


def measure_webhook(plane, replica, label, number):
    """Memory and idle processor time of the webhook, and how long pods take that are created through it, and beside it."""
    own, rss = pss(replica.process.pid)
    before = cpu(replica.process.pid)
    time.sleep(10)
    print(f"{label}: webhook {own:.1f} MiB (PSS), {rss:.1f} MiB (RSS), idle {(cpu(replica.process.pid) - before) * 10:.2f} % of a core")
    for where in (MESHED, "default"):
        connection, took = Connection(plane), []
        spent = cpu(replica.process.pid)
        for one in range(number):
            pod = json.dumps(bare(f"{label.replace(' ', '-')}-{one}")).encode()
            began = time.monotonic()
            connection.post(f"/api/v1/namespaces/{where}/pods", pod)
            took.append(time.monotonic() - began)
        spent = (cpu(replica.process.pid) - spent) / number * 1000
        how = f"through it, {spent:.2f} ms of its processor time each" if where == MESHED else "beside it"
        print(f"  {number} pods created {how}: p50 {share(took, 0.5):.1f}, p99 {share(took, 0.99):.1f} ms", flush=True)


def tree_of(pid):
    """A process and all that it has started."""
    found = [pid]
    for one in found:
        try:
            found += [int(word) for task in Path(f"/proc/{one}/task").iterdir() for word in (task / "children").read_text().split()]
        except OSError:  # it has ended
            continue
    return found


def rss_of(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def measure_command(plane, words):
    """How long a command takes, its exit code, its own peak memory and that of what it starts (kubectl)."""
    environ = {**os.environ, "PATH": f"{plane.assets}:{os.environ['PATH']}", "KUBECONFIG": str(plane.folder / "admin.kubeconfig"), "HOME": str(plane.folder)}
    began, own, others = time.monotonic(), 0.0, 0.0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([sys.executable, "-m", "netinit", *words], stdout=out, stderr=errors, env=environ, cwd=ROOT)
        while process.poll() is None:
            first, *more = tree_of(process.pid)
            own, others = max(own, rss_of(first)), max(others, sum(map(rss_of, more)))
            time.sleep(0.05)
        took = time.monotonic() - began
        out.seek(0)
        errors.seek(0)
        said = (errors.read().decode().strip() or "").splitlines()
        printed = out.read()
    last = printed.decode().splitlines()[-1:] if "json" not in words else []
    print(f"{' '.join(words)}: {took:.1f} s, exit code {process.returncode}, {own:.0f} MiB, kubectl {others:.0f} MiB, {len(printed) / 2**20:.1f} MiB printed")
    for line in [*last, *said[:3]]:
        print(f"  {line[:200]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--namespaces", type=int, default=500)
    parser.add_argument("--created", type=int, default=300, help="Pods that are created to measure how long that takes.")
    given = parser.parse_args()
    if reason := control_plane.find_obstacle():
        print(f"beside many pods: not measured: {reason}")
        return
    with tempfile.TemporaryDirectory() as name, ControlPlane(name) as plane:
        _, trees = plane.install("injection.nativeSidecars=auto", "injection.proxyConfigs=false")
        print(f"load of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        plane.endpoints(ADDRESSES[0])
        for label in ("without pods", "beside them"):
            began = time.monotonic()
            with Replica(plane, ADDRESSES[0], trees=trees, folder=name, more=["--log_output_level=warn"]) as replica:
                replica.wait()
                print(f"{label}: ready {time.monotonic() - began:.1f} s after its start")
                if label == "without pods":
                    plane.namespace(MESHED, **{"istio-injection": "enabled"})
                    reaches(plane, MESHED)
                    measure_webhook(plane, replica, "before", given.created)
                    fill(plane, given.pods, given.namespaces)
                    measure_webhook(plane, replica, "after", given.created)
                else:
                    own, rss = pss(replica.process.pid)
                    print(f"restarted: {own:.1f} MiB (PSS), {rss:.1f} MiB (RSS)")
                    print(f"metrics: {len(replica.metrics().splitlines())} lines")
        first = "/api/v1/namespaces/ns-0/pods/web-0-5d8f9-0/status"
        plane.ask("PATCH", first, {"status": {"phase": "Running", "podIP": "10.9.0.1", "podIPs": [{"ip": "10.9.0.1"}]}}, kind="application/merge-patch+json")
        for words in (("report", "web-0-5d8f9-0", "-n", "ns-0"), ("doctor", "--cluster"), ("check", "-A")):
            measure_command(plane, ["kubectl", *words])


if __name__ == "__main__":
    main()
