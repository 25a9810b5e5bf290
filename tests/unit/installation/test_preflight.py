"""What an installation would meet in a cluster: platforms, versions, PodSecurity levels, kernels, as whole findings."""

from __future__ import annotations

import pytest

from netinit.installation.linting import HOOKS
from netinit.installation.preflight import detect_platforms, name_resource, preflight

LEVEL = "pod-security.kubernetes.io/enforce"
HOOK = {
    "kind": HOOKS, "metadata": {"name": "netinit-webhook"},
    "webhooks": [{
        "name": "namespace.sidecar-injector.istio.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"name": "netinit", "namespace": "mesh", "path": "/inject"}},
        "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }],
}  # fmt: skip
UNTESTED = "older than 6.1, the oldest kernel that netinit is tested on"
KINDS = ("native-sidecars", "pod-security", "old-kernel", "untested-kernel")


def node(name="n1", *, kubelet="v1.31.0", kernel="6.1.0", image="Debian", labels=None, system="linux"):
    info = {"kubeletVersion": kubelet, "kernelVersion": kernel, "osImage": image, "operatingSystem": system}
    return {"metadata": {"name": name, "labels": labels or {}}, "status": {"nodeInfo": info}}


def workload(kind, *arguments):
    return {"kind": kind, "metadata": {"name": kind}, "spec": {"template": {"spec": {"containers": [{"args": list(arguments)}]}}}}


def find(planned, cluster, *, namespace="mesh", version="v1.31.0"):
    found = preflight(planned, cluster, namespace, version=version)
    return [(one.severity, one.kind, one.subject, one.message, one.remedy) for one in found if one.kind in KINDS]


@pytest.mark.parametrize(
    ("more", "platform"),
    [
        ({"kubelet": "v1.31.2+k3s1"}, "k3s"), ({"kubelet": "v1.31.2-gke.100"}, "gke"), ({"image": "Talos (v1.8)"}, "talos"),
        ({"image": "Red Hat Enterprise Linux CoreOS 416"}, "openshift"), ({"labels": {"microk8s.io/cluster": ""}}, "microk8s"),
    ],
)  # fmt: skip
def test_a_platform_is_known_by_its_nodes_and_named_with_the_first(more, platform):
    assert detect_platforms([node(), node("n2", **more), node("n3", **more)]) == {platform: "n2"}
    assert detect_platforms([node(), node(image="no Talos"), node(image="talos")]) == {}


@pytest.mark.parametrize(
    ("kind", "version", "resource"),
    [
        ("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies.networking.k8s.io"), ("Service", "v1", "services"),
        ("Deployment", "apps/v1", "deployments.apps"), ("ConfigMap", "v1", "configmaps"),
    ],
)  # fmt: skip
def test_a_resource_is_named_as_for_auth_can_i(kind, version, resource):
    assert name_resource({"kind": kind, "apiVersion": version}) == resource


def test_native_sidecars_need_an_api_server_and_kubelets_of_1_29():
    planned = [workload("Deployment", "--native-sidecars=true")]
    nodes = {"Node": [node("a", kubelet="v1.28.9"), node("b", kubelet="v1.29.0"), node("c", kubelet="v1.2", system="windows")]}
    older = "native sidecars exist since 1.29, and the kubelet of node a is v1.28.9"
    remedy = "set injection.nativeSidecars=false"
    assert find(planned, nodes, version="v1.29.0") == [("error", "native-sidecars", "Kubernetes", older, remedy)]
    (found,) = find(planned, nodes, version="v1.28.1")
    assert "the API server is v1.28.1, the kubelet of node a is v1.28.9" in found[3]
    assert find(planned, {}, version="v1.29.0") == find(planned, {}, version="?") == []
    assert find([workload("Deployment")], nodes, version="v1.28.1") == []


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_strict_namespace_refuses_injected_pods_or_the_agent(level):
    labels = {LEVEL: level, "istio-injection": "enabled"}
    shop, mesh = ({"metadata": {"name": name, "labels": labels}} for name in ("shop", "mesh"))
    plain = {"metadata": {"name": "plain", "labels": {LEVEL: level}}}
    label = "kubectl label --overwrite namespace {} pod-security.kubernetes.io/enforce=privileged"
    refuses = f"its PodSecurity level {level} refuses"
    (pods,) = find([HOOK], {"Namespace": [shop, plain]})
    assert pods[:3] == ("error", "pod-security", "Namespace shop")
    assert pods[3:] == (
        f"{refuses} injected pods: their init container has NET_ADMIN", f"set node.enabled=true, or: {label.format('shop')}",
    )  # fmt: skip
    agent = find([HOOK, workload("DaemonSet")], {"Namespace": [shop, mesh]})
    whom = "the node's agent, which has host paths and capabilities"
    assert agent == [("error", "pod-security", "Namespace mesh", f"{refuses} {whom}", label.format("mesh"))]
    privileged = {"metadata": {"name": "shop", "labels": {**labels, LEVEL: "privileged"}}}
    assert find([HOOK], {"Namespace": [privileged]}) == []


def test_kernels_that_are_too_old_or_untested_are_named():
    old = [node(name, kernel=kernel) for name, kernel in (("a", "4.19.0"), ("b", "5.15.0"), ("c", "6.1.0"), ("d", "unknown"))]
    assert find([workload("DaemonSet", "--backend=nftables")], {"Node": old}) == [
        ("error", "old-kernel", "Linux", "the backend nftables needs Linux 5.2: node a: 4.19.0", "set node.backend=auto"),
        ("warning", "untested-kernel", "Linux", f"{UNTESTED}: node a: 4.19.0, node b: 5.15.0",
         "run netinit doctor on such a node: it tries what pods need"),
    ]  # fmt: skip
    assert [one[1] for one in find([workload("DaemonSet")], {"Node": old})] == ["untested-kernel"]
    assert find([workload("DaemonSet")], {"Node": [node(kernel="6.1.0"), node(kernel="4.0", system="windows")]}) == []
