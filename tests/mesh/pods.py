"""The pods of the mesh, and what they serve: the application is the test's own process, in the pod's namespace, with uid 1000."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

from kubelet import make_pod, wait_until_ready
from mesh import MESH, PROXY_IMAGE
from netinit.lab import APP_ID
from pod import Member, serve_pages
from runtime import There

HTTP, EXCLUDED_IN, GUARDED, EXCLUDED_OUT, STREAM = 8080, 8081, 8083, 8082, 9000
PAGES = (HTTP, EXCLUDED_IN, GUARDED, EXCLUDED_OUT)
OUTSIDE_DIRECT, OUTSIDE = "203.0.113.7", "203.0.113.8"  # servers of the node; the first is excluded from capture
ANNOTATIONS = {
    "traffic.sidecar.istio.io/excludeInboundPorts": str(EXCLUDED_IN),
    "traffic.sidecar.istio.io/excludeOutboundPorts": str(EXCLUDED_OUT),
    "traffic.sidecar.istio.io/excludeOutboundIPRanges": f"{OUTSIDE_DIRECT}/32",
}
OWN, ISTIO, AGENT = "netinit", "istio", "agent"  # who programs the rules: netinit's init container, pilot-agent, netinit's agent
ISTIOD, WEBHOOK = "istiod", "webhook"  # who injects: Istio's webhook or netinit's
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Variant:
    """One way in which a pod is programmed."""

    mode: str
    backend: str
    who: str
    injector: str = ISTIOD
    is_native: bool = True  # the sidecar is an init container that goes on running

    def __str__(self):
        return f"{self.mode}-{self.backend}-{self.who}-by-{self.injector}{'' if self.is_native else '-container'}"

    def annotate(self, **metadata):
        """Returns the annotations that choose it, with more of the proxy's metadata."""
        variant = self.backend.removeprefix("iptables-")
        chosen = {**metadata, **({"NATIVE_NFTABLES": "true"} if self.backend == "nftables" else {"FORCE_IPTABLES_BINARY": variant})}
        if self.who == ISTIO:
            chosen["NETINIT_ISTIO_EXACT"] = "true"  # what `verify --pod` expects there
        found = {"sidecar.istio.io/interceptionMode": self.mode, "sidecar.istio.io/nativeSidecar": str(self.is_native).lower(), "proxy.istio.io/config": json.dumps({"proxyMetadata": chosen})}
        return {**found, **({"sidecar.istio.io/proxyImage": PROXY_IMAGE} if self.who == ISTIO else {})}


class MeshPod:
    """A pod that runs, its servers, and who opens connections there."""

    def __init__(self, plane, tree, name, stack):
        self.plane, self.tree, self.name = plane, tree, name
        self.namespace = stack.enter_context(plane.enter(tree))
        self.address = tree["status"]["podIP"]
        self.app = Member(self.namespace, APP_ID, APP_ID)
        stack.enter_context(serve_pages(self.namespace, name, ids=(APP_ID, APP_ID), families=[4, 6] if ":" in tree["status"]["podIPs"][-1]["ip"] else [4], ports=PAGES))
        self.namespace.listen(STREAM, name=name, uid=APP_ID, gid=APP_ID)

    def await_ready(self):
        self.tree = wait_until_ready(self.plane, self.name, self.tree["metadata"]["namespace"])

    def restarts(self):
        status = self.plane.find_pod(self.tree["metadata"]["namespace"], self.name)["status"]
        return sum(one["restartCount"] for one in (*status.get("initContainerStatuses", ()), *status["containerStatuses"]))


@contextlib.contextmanager
def open_pods(plane, *trees):
    """Creates the pods, serves in each as soon as it has an address, and yields them when they are ready."""
    with contextlib.ExitStack() as stack:
        for tree in trees:
            metadata = tree["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
            plane.create(path, tree)
            stack.callback(plane.ask, "DELETE", f"{path}/{metadata['name']}?gracePeriodSeconds=0")
        pods = [MeshPod(plane, wait_for_address(plane, tree["metadata"]), tree["metadata"]["name"], stack) for tree in trees]
        for pod in pods:
            pod.await_ready()
        yield pods


def wait_for_address(plane, metadata):
    """Returns the pod with its address."""
    find = lambda: plane.find_pod(metadata["namespace"], metadata["name"])  # noqa: E731
    try:
        plane.until(lambda: find()["status"].get("podIP"), f"the pod {metadata['name']} has an address")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{plane.events(metadata['namespace'], metadata['name'])}") from None
    return find()


def describe_pod(name, namespace=MESH, *, account="default", annotations=None, probed=False):
    """Returns a pod's manifest; `probed`: with an application's probes, which the injector rewrites."""
    probe = {"httpGet": {"path": "/", "port": HTTP}, "periodSeconds": 1, "failureThreshold": 60}
    tree = make_pod(name, ports=[{"containerPort": HTTP}], **({"readinessProbe": probe, "livenessProbe": probe} if probed else {}))
    tree["metadata"] |= {"namespace": namespace, "annotations": annotations or {}}
    tree["spec"]["serviceAccountName"] = account
    return tree


def make_service(plane, name, namespace=MESH):
    """Creates the Service of a pod and returns its cluster address."""
    ports = [{"name": "http", "port": 80, "targetPort": HTTP}, {"name": "http-guarded", "port": GUARDED}, {"name": "tcp-stream", "port": STREAM}]
    made = plane.create(f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports}})
    return made["spec"]["clusterIP"]


@contextlib.contextmanager
def open_pair(plane, variant):
    """Yields the pods a and b of this variant, with a Service of b: (a, b, its cluster address)."""
    number = next(_numbers)
    names = [f"{letter}{number}" for letter in "ab"]
    annotations = {**ANNOTATIONS, **variant.annotate()}
    cluster_ip = make_service(plane, names[1])
    trees = [describe_pod(names[0], account="a", annotations=annotations), describe_pod(names[1], annotations=annotations, probed=True)]
    with open_pods(plane, *trees) as (first, second):
        yield first, second, cluster_ip


def containers_of(tree):
    """Returns the names and images of a pod's init containers."""
    return {one["name"]: one["image"] for one in tree["spec"].get("initContainers", ())}


def choose_injection(plane, *, cni):
    """Has pods injected for the agent (`cni`) or with an init container, and waits until that is so."""
    plane.configure_injection(pilot={"cni": {"enabled": cni, "provider": "default"}})
    wanted = "istio-validation" if cni else "istio-init"
    plane.until(lambda: wanted in containers_of(plane.pod(MESH, describe_pod("tried"))), f"pods are injected with {wanted}")


def here(path="/proc/self/ns/net"):
    """Returns the node's own network namespace."""
    return There(Path(path))
