"""`kubectl netinit preflight`, against a kubectl that replays a cluster's answers: each thing that is wrong is found, and nothing else."""

from __future__ import annotations

import json

import pytest

from schemas import check_schema

SET = "--set image.repository=registry.example/mesh/netinit-webhook"
AGENT = f"{SET} --set node.enabled=true --set node.image.repository=registry.example/mesh/netinit-node"
OTHER = {
    "metadata": {"name": "istio-sidecar-injector"},
    "webhooks": [
        {
            "name": "namespace.sidecar-injector.istio.io",
            "clientConfig": {"service": {"name": "istiod", "namespace": "istio-system", "path": "/inject"}},
            "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}},
        }
    ],
}


def node(kubelet="v1.31.2", kernel="6.1.0-18-amd64", image="Debian GNU/Linux 12 (bookworm)", system="linux", labels=None):
    info = {"kubeletVersion": kubelet, "kernelVersion": kernel, "osImage": image, "operatingSystem": system}
    return {"metadata": {"name": "worker-1", "labels": labels or {}}, "status": {"nodeInfo": info}}


def space(name, level="", **labels):
    levels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **levels, **labels}}}


SHOP = space("shop", **{"istio-injection": "enabled"})
SOUND = {"nodes": [node()], "namespaces": [SHOP, space("plain", "restricted")], "mutatingwebhookconfigurations": [], "configmaps": ["shop"]}


def replay(version="v1.31.2", refused=(), unread=(), **changed):
    """The answers of a cluster that is sound but for what is `changed`."""
    cluster = SOUND | changed
    cluster["configmaps"] = [{"metadata": {"name": "istio-ca-root-cert", "namespace": name}} for name in cluster["configmaps"]]
    listed = [
        {"words": f"get {kind} *-o json", "stdout": json.dumps({"kind": "List", "items": items})}
        for kind, items in cluster.items() if kind not in unread
    ]  # fmt: skip
    version = {"words": "version *", "stdout": json.dumps({"serverVersion": {"gitVersion": version}})}
    rights = [{"words": f"auth can-i create {one}*", "stdout": "no\n", "status": 1} for one in refused]
    return [version, *listed, *rights, {"words": "auth can-i create *", "stdout": "yes\n"}]


@pytest.mark.parametrize("given", [SET, AGENT])
def test_nothing_is_found_in_a_cluster_that_is_sound(kubectl, given):
    done = kubectl(f"preflight {given}", *replay())
    assert (done.code, done.out) == (0, "nothing found\n"), done


@pytest.mark.parametrize(
    ("given", "cluster", "code", "kind", "named", "remedy"),
    [
        ("", {}, 0, "short-image", "names no registry", "initImage.repository"),
        ("--set image.repository=mesh/netinit-webhook", {}, 0, "short-image", "mesh/netinit:", "set initImage.repository to REGISTRY/mesh/netinit"),
        (SET, {"version": "v1.28.9"}, 1, "native-sidecars", "the API server is v1.28.9", "injection.nativeSidecars=false"),
        (SET, {"nodes": [node("v1.27.1")]}, 1, "native-sidecars", "node worker-1 is v1.27.1", "injection.nativeSidecars=false"),
        (SET, {"namespaces": [SHOP | space("shop", "baseline", **{"istio-injection": "enabled"})]}, 1, "pod-security", "Namespace shop", "node.enabled=true"),
        (AGENT, {"namespaces": [space("netinit-system", "restricted")]}, 1, "pod-security", "Namespace netinit-system", "enforce=privileged"),
        (SET, {"mutatingwebhookconfigurations": [OTHER]}, 1, "two-injectors", "istio-sidecar-injector", "istio.io/rev"),
        (SET, {"configmaps": []}, 0, "no-authority", "namespace shop", "configmap istio-ca-root-cert"),
        (AGENT, {"nodes": [node("v1.31.2+k3s1")]}, 1, "platform", "/var/lib/rancher/k3s/agent/etc/cni/net.d", "node.platform=k3s"),
        (AGENT, {"nodes": [node(labels={"microk8s.io/cluster": "true"})]}, 1, "platform", "/var/snap/microk8s", "node.platform=microk8s"),
        (SET, {"nodes": [node(kernel="5.4.0-1")]}, 0, "untested-kernel", "node worker-1: 5.4.0-1", "netinit doctor"),
        (SET, {"refused": ["mutatingwebhookconfigurations.admissionregistration.k8s.io"]}, 1, "no-right", "mutatingwebhookconfigurations", "cluster-admin"),
        (SET, {"unread": ["nodes"]}, 0, "not-read", "Nodes", "may list"),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_found_with_its_remedy(kubectl, given, cluster, code, kind, named, remedy):
    done = kubectl(f"preflight {given} -o json", *replay(**cluster))
    tree = json.loads(done.out)
    check_schema(tree, "installation")
    found = {one["kind"]: one for one in tree["findings"]}
    assert set(found) == {kind}, tree
    assert named in found[kind]["subject"] + found[kind]["message"]
    assert remedy in found[kind]["remedy"]
    assert (done.code, found[kind]["severity"]) == (code, "error" if code else "warning")


@pytest.mark.parametrize(
    ("given", "cluster"),
    [
        (f"{SET} --set injection.nativeSidecars=false", {"version": "v1.24.0"}),
        (f"{AGENT} --set node.platform=k3s", {"nodes": [node("v1.31.2+k3s1")]}),
        (AGENT, {"namespaces": [space("shop", "restricted", **{"istio-injection": "enabled"})]}),
        (f"{SET} --set revision=netinit", {"mutatingwebhookconfigurations": [OTHER]}),
        (SET, {"nodes": [node("v1.20.0", "4.4.0", "Windows Server 2022", "windows")]}),
        (SET, {"mutatingwebhookconfigurations": [{**OTHER, "metadata": {"name": "netinit-webhook-sidecar-injector"}}]}),
    ],
)
def test_what_the_values_provide_for_is_no_finding(kubectl, given, cluster):
    done = kubectl(f"preflight {given}", *replay(**cluster))
    assert (done.code, done.out) == (0, "nothing found\n"), done


def test_old_kernels_stop_the_backend_that_needs_a_newer_one(kubectl):
    done = kubectl(f"preflight {AGENT} --set node.backend=nftables", *replay(nodes=[node(kernel="4.19.0")]))
    assert done.code == 1
    assert "✘ Linux: the backend nftables needs Linux 5.2: node worker-1: 4.19.0\n    remedy: set node.backend=auto" in done.out


def test_without_a_cluster_nothing_is_called_sound(kubectl):
    done = kubectl(f"preflight {SET}")
    assert (done.code, done.out) == (1, "")
    assert "kubectl version: Error from server" in done.err


def test_a_right_that_cannot_be_asked_for_is_not_taken_for_granted(kubectl):
    done = kubectl(f"preflight {SET}", *[one for one in replay() if not one["words"].startswith("auth")])
    assert "your rights are not known" in done.out


def test_nothing_is_changed_and_flags_of_the_cluster_go_along(kubectl):
    kubectl(f"preflight {SET} --context prod -n mesh", *replay())
    verbs = {(words[0], *[word for word in words[2:3] if words[0] == "auth"]) for words in kubectl.calls}
    assert verbs <= {("version",), ("get",), ("auth", "can-i")}
    assert all("--context=prod" in words for words in kubectl.calls)
    assert any(words[-2:] == ["-n", "mesh"] for words in kubectl.calls if words[0] == "auth")
