"""`kubectl netinit preflight` against API servers with the admission plugins that GKE, EKS, AKS and k3s document.

GKE: critical priority classes only with a quota (cloud.google.com, "system-node-critical"). EKS and AKS: the plugins that their pages
list. k3s: the PodSecurity defaults of its hardening guide. The API server's own code judges; nothing is created.
"""

from __future__ import annotations

import json

import pytest

import control_plane
from control_plane import NAMESPACE, ControlPlane, find_obstacle
from test_kubectl_netinit import ask

pytestmark = pytest.mark.skipif(find_obstacle() is not None, reason=find_obstacle() or "")
CRITICAL = {"operator": "In", "scopeName": "PriorityClass", "values": ["system-node-critical", "system-cluster-critical"]}
QUOTA = {
    "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
    "limitedResources": [{"resource": "pods", "matchScopes": [CRITICAL]}],
}  # fmt: skip
HARDENED = {
    "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
    "defaults": {f"{mode}{of}": value for mode in ("enforce", "audit", "warn") for of, value in (("", "restricted"), ("-version", "latest"))},
    "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": ["kube-system", "cis-operator-system", "tigera-operator"]},
}  # fmt: skip
EKS = (
    "NodeRestriction", "ExtendedResourceToleration", "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity",
    "Priority", "DefaultTolerationSeconds", "DefaultStorageClass", "StorageObjectInUseProtection", "PersistentVolumeClaimResize", "RuntimeClass",
    "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "DefaultIngressClass", "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
)  # fmt: skip
AKS = ("PodNodeSelector", "PodTolerationRestriction", "ExtendedResourceToleration", "LimitRanger", "ResourceQuota", "ServiceAccount")
ALLOWED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
GIVEN = {
    "image.repository": "registry.example/mesh/netinit-webhook", "node.enabled": "true",
    "node.image.repository": "registry.example/mesh/netinit-node",
}  # fmt: skip


class Platform(ControlPlane):
    disabled = ()

    def __init__(self, folder, *, enabled=(), plugins=()):
        super().__init__(folder)
        self.enabled = enabled
        self.plugins = [{"name": name, "configuration": tree} for name, tree in plugins]


@pytest.fixture(scope="module", params=["gke", "eks", "aks", "k3s"])
def platform(request, tmp_path_factory):
    """The platform's name and its control plane, beside that of the other tests."""
    made = {
        "gke": {"enabled": ("ResourceQuota",), "plugins": [("ResourceQuota", QUOTA)]}, "eks": {"enabled": EKS}, "aks": {"enabled": AKS},
        "k3s": {"enabled": ("NodeRestriction",), "plugins": [("PodSecurity", HARDENED)]},
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ETCD", "PEER", "API"):
            patch.setattr(control_plane, name, getattr(control_plane, name) + 1000)
        with Platform(tmp_path_factory.mktemp(request.param), **made[request.param]) as plane:
            plane.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
            yield request.param, plane


def preflight(plane, tmp_path, *given):
    """Exit code, findings of a pod by their kind and workload, and notes."""
    values = [word for name, value in GIVEN.items() for word in ("--set", f"{name}={value}")]
    words = [word for one in given for word in ("--set", one)]
    done = ask(plane, tmp_path, "preflight", *values, *words, "-o", "json", namespace=NAMESPACE)
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {one["subject"].partition(" ")[0]: one for one in found if one["kind"] in {"pod-refused", "pod-not-tried"}}, done.stderr


@pytest.mark.parametrize("given", ["sound", "spoilt"])
def test_the_api_server_says_what_would_refuse_the_pods_and_what_to_set(platform, tmp_path, given):
    """With the chart's defaults nothing is refused but where the platform's own defaults do; with the change, the plugin's refusal is named."""
    name, plane = platform
    space = f"/api/v1/namespaces/{NAMESPACE}"
    label = lambda where, **values: plane.ask("PATCH", space, {"metadata": {where: values}}, kind="application/merge-patch+json")  # noqa: E731
    refused, more = {}, ()
    if name == "gke":
        refused, more = ({}, ("node.platform=gke",)) if given == "sound" else (
            dict.fromkeys(("Deployment", "DaemonSet"), ("insufficient quota to match these scopes", "resourceQuotas.enabled=true")), ("resourceQuotas.enabled=false",)
        )  # fmt: skip
    elif name in ("eks", "k3s"):
        strict = (given == "spoilt") == (name == "eks")  # the hardened k3s refuses by default
        label("labels", **{"pod-security.kubernetes.io/enforce": ("restricted" if strict else None) if name == "eks" else None if strict else "privileged"})
        refused = {"DaemonSet": ("violates PodSecurity", "pod-security.kubernetes.io/enforce=privileged")} if strict else {}
    elif given == "spoilt":
        label("annotations", **{ALLOWED: json.dumps([{"key": "a", "operator": "Exists"}])})
        refused = dict.fromkeys(("Deployment", "DaemonSet"), ("whitelist", ALLOWED))
    code, found, notes = preflight(plane, tmp_path, *more)
    assert {kind: one["kind"] for kind, one in found.items()} == dict.fromkeys(refused, "pod-refused"), (found, notes)
    for kind, (reason, remedy) in refused.items():
        assert reason in found[kind]["message"]
        assert remedy in found[kind]["remedy"]
    assert code == bool(refused)
    assert "does not exist yet: tried with default" in notes or len(refused) == 2


def test_pods_are_tried_as_their_controllers_by_whom_a_policy_judges(platform, tmp_path):
    name, plane = platform
    if name != "eks":
        pytest.skip("policies by who asks are the same code on each")
    plane.ask("PATCH", f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}, kind="application/merge-patch+json")
    group = "/apis/admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "!request.userInfo.username.endsWith('daemon-set-controller')", "message": "no agents here"}]}
    plane.create(f"{group}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    plane.create(f"{group}/validatingadmissionpolicybindings", {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}})
    plane.until(lambda: "DaemonSet" in preflight(plane, tmp_path)[1], "the policy is in force")
    code, found, notes = preflight(plane, tmp_path)
    assert (code, "no agents here" in found["DaemonSet"]["message"], "exempt" in found["DaemonSet"]["remedy"]) == (1, True, True), found
    assert "Deployment" not in found
    assert "tried as you" not in notes
