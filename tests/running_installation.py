"""A running installation in objects, as a cluster lists them: the chart's, with what controllers, kubelets and the webhook add."""

from __future__ import annotations

import base64
import copy
import time

from helm import render_chart
from netinit.webhook.certificates import make_pair

NOW = time.time()
PAIR = make_pair(("x",), now=NOW, seconds=90 * 86400)
GIVEN = (
    "image.repository=registry.example/netinit-webhook", "node.enabled=true", "node.image.repository=registry.example/netinit-node",
    "node.startupTaint=mesh.example/agent-not-ready=:NoSchedule",
)  # fmt: skip
READY = [{"type": "Ready", "status": "True"}]


def node(name, *, ready=True, system="linux", taints=()):
    status = {"nodeInfo": {"operatingSystem": system}, "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
    return {"metadata": {"name": name}, "spec": {"taints": list(taints)}, "status": status}


def agent_pod(daemon_set, name, *, ready=True, image="", **status):
    """A pod of the DaemonSet's on a node, as its controller and the kubelet have it."""
    owner = {"kind": "DaemonSet", "name": daemon_set["metadata"]["name"], "uid": daemon_set["metadata"]["uid"], "controller": True}
    spec = copy.deepcopy(daemon_set["spec"]["template"]["spec"]) | {"nodeName": name}
    if image:
        spec["containers"][0]["image"] = image
    metadata = {"name": f"netinit-node-{name}", "namespace": daemon_set["metadata"]["namespace"], "ownerReferences": [owner]}
    metadata["labels"] = daemon_set["spec"]["template"]["metadata"]["labels"]
    running = {"phase": "Running", "conditions": READY if ready else [], "containerStatuses": [{"name": "agent", "state": {"running": {}}}]}
    return {"metadata": metadata, "spec": spec, "status": running | status}


def mesh_pod(name, *, init=()):
    """A pod with a proxy; `init`: the names of its init containers."""
    containers = [{"name": "app", "image": "app"}, {"name": "istio-proxy", "image": "proxy"}]
    inits = [{"name": one, "image": "registry.example/netinit", "args": ["istio-iptables", "-b", "*", "-i", "*"]} for one in init]
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"initContainers": inits, "containers": containers}, "status": {"phase": "Running"}}


def event(reason, message, *, kind="Pod", name="web-1", namespace="shop", component="netinit-node"):
    involved = {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}
    return {"reason": reason, "message": message, "type": "Warning", "involvedObject": involved, "source": {"component": component}, "lastTimestamp": "2026-01-01T00:00:00Z"}


def make_cluster(*given, nodes=3, namespace="mesh"):
    """The lists of a sound cluster, by kind: a release with webhook and agent, and nodes that all have an agent."""
    by_kind = {}
    for tree in render_chart(*GIVEN, *given, namespace=namespace):
        by_kind.setdefault(tree["kind"], []).append(tree)
    for tree in by_kind["DaemonSet"] + by_kind["Deployment"]:
        tree["metadata"]["uid"] = f"{tree['kind']}-{namespace}"
    (agent,), (deployment,) = by_kind["DaemonSet"], by_kind["Deployment"]
    agent["status"] = {"desiredNumberScheduled": nodes}
    deployment["status"] = {"readyReplicas": deployment["spec"]["replicas"]}
    for hook in [hook for tree in by_kind["MutatingWebhookConfiguration"] for hook in tree["webhooks"]]:
        hook["clientConfig"]["caBundle"] = base64.b64encode(PAIR.authority.encode()).decode()
    ends = [{"addresses": [address], "conditions": {"ready": True}} for address in ("10.0.0.1", "10.0.0.2")]
    labels = {"kubernetes.io/service-name": "netinit-webhook"}
    by_kind["EndpointSlice"] = [{"metadata": {"name": "a", "namespace": namespace, "labels": labels}, "endpoints": ends}]
    spaces = {"shop": {"istio-injection": "enabled"}, "kube-system": {}, namespace: {}}
    by_kind["Namespace"] = [{"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **own}}} for name, own in spaces.items()]
    by_kind["ConfigMap"] += [{"metadata": {"name": "istio-ca-root-cert", "namespace": name}} for name in spaces]
    names = [f"worker-{number}" for number in range(1, nodes + 1)]
    by_kind["Node"] = [node(name) for name in names]
    by_kind["Pod"] = [agent_pod(agent, name) for name in names]
    return by_kind | {kind: by_kind.get(kind, []) for kind in ("Event", "Secret", "HorizontalPodAutoscaler")}
