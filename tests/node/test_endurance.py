"""Pods come and go on a real node while strangers attack the webhook and everything is killed, rotated and upgraded.

`make node-endurance SECONDS=1800`. Two replicas of the webhook serve a real API server with failurePolicy Fail; the agent is the
chart's DaemonSet. Its report is one JSON object.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace

import pytest

from control_plane import ADDRESSES, NAMESPACE, PORT, ApiError, Replica
from kubelet import agents, is_so, make_pod
from test_installation import SECRET
from test_kubelet import DAEMON_SETS, OBSTACLE, check_captured, cluster  # noqa: F401 - a fixture
from webhook_attackers import attackers

SECONDS = float(os.environ.get("NETINIT_ENDURANCE") or 0)
pytestmark = [
    pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or ""),
    pytest.mark.skipif(not SECONDS, reason="NETINIT_ENDURANCE names no seconds: run `make node-endurance`"),
    pytest.mark.timeout(SECONDS + 900),
]
ATTACK = {"silent": 500, "half_heads": 60, "half_bodies": 60, "handshakes": 4, "large_bodies": 2, "containers": 1, "heavy": 1}
PAUSE = 15.0  # seconds between two disturbances
CHURN = 3  # pods that start at the same time
MOST_WAIT = 180.0  # seconds until a pod is ready, with an agent that is killed meanwhile
IN_FLIGHT = 6.0  # seconds after a kill in which reviews may be lost: the webhook's timeout, and a second to see it
GROWTH = 8.0  # MiB of a replica, between the medians of the first and last third


class Webhooks:
    """The replicas, and what the endpoints' controller does: whoever is ready is led to."""

    def __init__(self, plane, trees, folder, values):
        self.plane, self.make = plane, lambda address: Replica(plane, address, trees=trees, folder=folder, more=("--valuesFile", values))
        self.running = {}
        self.led_to = ()

    def start(self, address):
        self.running[address] = self.make(address).__enter__()

    def lead(self):
        ready = tuple(address for address, one in tuple(self.running.items()) if one.process.poll() is None and is_ready(one))
        if ready != self.led_to:
            self.led_to = ready
            self.plane.endpoints(*ready)

    def memory(self):
        return [resident(one.process.pid) for one in tuple(self.running.values()) if one.process.poll() is None]

    def close(self):
        for one in self.running.values():
            one.__exit__()


def is_ready(replica):
    try:
        return replica.ready()
    except (OSError, HTTPException):
        return False


def resident(pid):
    """MiB of a process."""
    try:
        return int(Path(f"/proc/{pid}/status").read_text().partition("\nVmRSS:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


class Endurance:
    """What happens at the same time, and what was seen of it."""

    def __init__(self, plane, runtime, webhooks):
        self.plane, self.runtime, self.webhooks = plane, runtime, webhooks
        self.over, self.meeting = threading.Event(), threading.Lock()  # of a server of the node's, which has its port once
        self.numbers = itertools.count()
        self.counts, self.disturbances = Counter(), Counter()
        self.uncaptured, self.late, self.refused, self.errors = [], [], [], []
        self.killed = [0.0]
        self.memory, self.agent_memory = [], []

    def run(self, seconds):
        works = [self.review, self.lead, self.disturb, self.sample, *[self.churn] * CHURN]
        threads = [threading.Thread(target=self.insist, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        self.over.wait(seconds)
        self.over.set()
        for thread in threads:
            thread.join(MOST_WAIT + 60)

    def insist(self, work):
        while not self.over.is_set():
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the report has it, and it fails the test
                self.errors.append(f"{work.__name__}: {type(error).__name__}: {error}"[:2000])

    def create(self, namespace, pod, *, dry_run):
        """The pod, or None where the API server refused it."""
        begun = time.monotonic()
        try:
            return self.plane.pod(namespace, pod, dry_run=dry_run)
        except ApiError as error:
            lost = any(begun - IN_FLIGHT < at < time.monotonic() for at in self.killed)
            self.refused.append((("after a kill: " if lost else "") + str(error))[:300])
            return None

    def review(self):
        made = self.create("shop", make_pod(f"dry-{next(self.numbers)}"), dry_run=True)
        self.counts["reviews"] += 1
        if made and "istio-proxy" not in json.dumps(made["spec"]):
            self.uncaptured.append("a pod that was not injected")
        self.over.wait(0.1)

    def churn(self):
        name = f"pod-{next(self.numbers)}"
        if not self.create("shop", make_pod(name), dry_run=False):
            return
        try:
            self.see(name)
        finally:
            self.plane.ask("DELETE", f"/api/v1/namespaces/shop/pods/{name}?gracePeriodSeconds=0")

    def see(self, name):
        end = time.monotonic() + MOST_WAIT
        while not is_so(pod := self.plane.find_pod("shop", name), "Ready"):
            if time.monotonic() > end:
                self.late.append((name, self.plane.events("shop", name)[-3:]))
                return
            time.sleep(0.3)
        try:
            with self.meeting:
                check_captured(self.runtime, pod)
            self.counts["captured"] += 1
        except AssertionError as error:
            self.uncaptured.append(f"{name}: {error}"[:500])

    def lead(self):
        self.webhooks.lead()
        self.plane.bind(NAMESPACE)
        self.over.wait(0.5)

    def sample(self):
        self.memory += self.webhooks.memory()
        self.agent_memory.append(sum(map(resident, self.agent_pids())))
        self.over.wait(5.0)

    def agent_tasks(self):
        for pod in agents(self.plane):
            wanted = f'labels."io.kubernetes.pod.uid"=={pod["metadata"]["uid"]},labels."io.cri-containerd.kind"==container'
            yield from self.runtime.ctr("-n", "k8s.io", "containers", "ls", "--quiet", wanted).stdout.split()

    def agent_pids(self):
        tasks = set(self.agent_tasks())
        rows = [line.split() for line in self.runtime.ctr("-n", "k8s.io", "tasks", "ls").stdout.splitlines()]
        roots = {int(row[1]) for row in rows if row and row[0] in tasks}
        return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and descends(path, roots)}

    def disturb(self):
        for name in ("kill_replica", "rotate", "kill_agent", "upgrade_webhook", "upgrade_agent"):
            if self.over.wait(PAUSE):
                return
            getattr(self, name)()
            self.disturbances[name] += 1

    def kill_replica(self):
        victim = random.choice(self.webhooks.led_to)
        replica = self.webhooks.running[victim]
        self.killed.append(time.monotonic())
        replica.process.send_signal(signal.SIGKILL)
        replica.__exit__()
        self.webhooks.start(victim)

    def rotate(self):
        self.plane.ask("DELETE", SECRET)

    def kill_agent(self):
        for task in self.agent_tasks():
            self.runtime.ctr("-n", "k8s.io", "tasks", "kill", "-s", "9", task, check=False)

    def upgrade_webhook(self):
        """As a Deployment rolls: a new replica is led to before an old one is told to end."""
        old = random.choice(self.webhooks.led_to)
        (new,) = set(ADDRESSES) - set(self.webhooks.running)
        self.webhooks.start(new)
        while new not in self.webhooks.led_to and not self.over.wait(0.2):
            pass
        replica = self.webhooks.running[old]
        replica.end()
        replica.process.wait(60)
        replica.__exit__()
        del self.webhooks.running[old]

    def upgrade_agent(self):
        patch = {"spec": {"template": {"metadata": {"annotations": {"changed": str(time.time())}}}}}
        self.plane.ask("PATCH", f"{DAEMON_SETS}/{self.plane.daemon_set['metadata']['name']}", patch, kind="application/merge-patch+json")

    def report(self):
        return {
            **self.counts, "disturbances": dict(self.disturbances), "uncaptured": self.uncaptured, "late": self.late,
            "refused": dict(Counter(self.refused)), "errors": self.errors, "replica MiB": thirds(self.memory), "agent MiB": thirds(self.agent_memory),
            "load": os.getloadavg(),
        }  # fmt: skip


def descends(path, roots):
    try:
        parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return False
    return int(path.name) in roots or parent in roots


def thirds(values):
    """The median of the first and the last third, and the greatest."""
    third = max(1, len(values) // 3)
    median = lambda part: round(sorted(part)[len(part) // 2], 1)  # noqa: E731
    return [median(values[:third]), median(values[-third:]), round(max(values), 1)] if values else []


def test_pods_come_and_go_under_attack_kills_rotations_and_upgrades(cluster, runtime, tmp_path):  # noqa: F811
    _, trees = cluster.install(*cluster.values)
    webhooks = Webhooks(cluster, trees, tmp_path, cluster.folder / "values.json")
    cluster.replica.__exit__()
    try:
        for address in ADDRESSES[:2]:
            webhooks.start(address)
        cluster.until(lambda: webhooks.lead() or len(webhooks.led_to) == 2, "both replicas are ready", 60)
        seen = Endurance(cluster, runtime, webhooks)
        with contextlib.ExitStack() as stack:
            for address in ADDRESSES[:2]:
                stack.enter_context(attackers(SimpleNamespace(port=PORT, address=address), **ATTACK))
            seen.run(SECONDS)
        told = seen.report()
        text = json.dumps(told, indent=1)
        (Path(os.environ.get("NETINIT_ENDURANCE_REPORT") or tmp_path / "report.json")).write_text(text)
        print(text)
    finally:
        webhooks.close()
    assert seen.counts["captured"] > SECONDS / 60
    assert not seen.uncaptured
    assert not seen.late
    assert not seen.errors
    assert all(one.startswith("after a kill: ") for one in seen.refused)
    assert told["replica MiB"][1] - told["replica MiB"][0] < GROWTH
