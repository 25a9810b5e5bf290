"""The webhook beside istiod's own, on pods that differ: processor time a review, the rate of one client, and the tail at 60 a second.

Both read the same ConfigMaps of a real API server (KUBEBUILDER_ASSETS, ISTIO_ASSETS), and take turns with the same 300 reviews.

    unshare --net -- sh -c 'ip link set lo up; for n in 1 2 3; do ip address add 10.77.0.$n/32 dev lo; done; python tests/bench/beside_istiod.py'
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import ssl
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("", "cluster", "mesh", "bench"))]

from webhook import Client, cpu, share  # noqa: E402

import control_plane  # noqa: E402 - the lines above lead to what tests share
import istiod  # noqa: E402
from control_plane import ADDRESSES, NAMESPACE, ControlPlane, Replica  # noqa: E402
from istiod import ISTIOD, WithIstiod  # noqa: E402
from pod_shapes import varied_pods  # noqa: E402
from webhook_server import make_review  # noqa: E402

SHAPES, RATE, SECONDS = 300, 60, 10.0
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Plane(WithIstiod, ControlPlane):
    """The control plane with istiod, whose ConfigMaps netinit's webhook finds in its own namespace."""

    def bring_up(self):
        super().bring_up()
        self.namespace(istiod.ROOT)
        for tree in self.install_istiod({}):
            if tree["kind"] == "ConfigMap":
                self.apply({**tree, "metadata": {**tree["metadata"], "namespace": NAMESPACE}})


class Side:
    """One of the two webhooks: where it listens, whom to trust, and its process."""

    def __init__(self, plane, title, address, configuration, name, pid):
        authority = base64.b64decode(plane.ask("GET", f"{CONFIGURATIONS}/{configuration}")["webhooks"][0]["clientConfig"]["caBundle"])
        self.title, self.host, self.port, self.name, self.pid = title, address, 15017, name, pid
        self.context = ssl.create_default_context(cadata=authority.decode())


class Reviewer(Client):
    """A client whose reviews differ."""

    def __init__(self, side, connections, bodies):
        super().__init__(side, connections)
        head = "POST /inject?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
        self.requests = [head.format(len(body)).encode() + body for body in bodies]
        self.sent = 0

    async def _ask(self, streams):
        self.request = self.requests[self.sent % len(self.requests)]
        self.sent += 1
        await super()._ask(streams)


def measure(sides, bodies, rounds):
    """What each side takes: medians of rounds in turns."""
    found = {side.title: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            client, before = Reviewer(side, 8, bodies), cpu(side.pid)
            rate = asyncio.run(client.flood(len(bodies), 8))
            spent = (cpu(side.pid) - before) / len(bodies) * 1000
            steady = Reviewer(side, 16, bodies)
            asyncio.run(steady.run(RATE, SECONDS if number else 1.0))
            if client.failed or steady.failed:
                sys.exit(f"{side.title}: {(client.failed + steady.failed)[0]}")
            if number:  # the first one warms
                found[side.title].append((spent, rate, share(steady.times, 0.5), share(steady.times, 0.99)))
    for title, rows in found.items():
        spent, rate, middle, tail = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"  {title:8} {spent:5.2f} ms of CPU a review, {rate:4.0f} a second; at {RATE} a second p50 {middle:5.1f}, p99 {tail:6.1f} ms")
    ours, theirs = ([statistics.median(column) for column in zip(*found[side.title], strict=True)] for side in sides)
    print(f"  netinit's to Istio's: CPU {ours[0] / theirs[0]:.2f}, rate {ours[1] / theirs[1]:.2f}, p99 {ours[3] / theirs[3]:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if reason := control_plane.find_obstacle() or istiod.find_obstacle():
        print(f"webhook beside istiod: not measured: {reason}")
        return
    bodies = [json.dumps(make_review(pod)).encode() for pod in varied_pods(SHAPES)]
    with tempfile.TemporaryDirectory() as name, Plane(name) as plane:
        own = ("injection.configMap=istio-sidecar-injector", "injection.meshConfigMap=istio", "injection.nativeSidecars=auto")
        _, trees = plane.install(*own)
        registration = next(tree for tree in trees if tree["kind"] == "MutatingWebhookConfiguration")
        plane.apply(registration)
        registered = registration["metadata"]["name"]
        with Replica(plane, ADDRESSES[0], trees=trees, folder=name, more=["--log_output_level=warn"]) as replica:
            replica.wait()
            plane.until(lambda: plane.has_signed(registered), "the webhook has a bundle")
            of_istio = next(one for one in plane.processes if one.args[0].endswith("pilot-discovery"))
            print(f"{SHAPES} pods that differ, over TLS; load of the machine: {os.getloadavg()[0]:.1f}")
            measure((
                Side(plane, "netinit", ADDRESSES[0], registered, f"netinit-webhook.{NAMESPACE}.svc", replica.process.pid),
                Side(plane, "Istio", ISTIOD, "istio-sidecar-injector", f"istiod.{istiod.ROOT}.svc", of_istio.pid),
            ), bodies, given.rounds)  # fmt: skip


if __name__ == "__main__":
    main()
