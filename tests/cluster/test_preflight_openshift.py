"""`kubectl netinit preflight` against an API server that serves what OpenShift's does: security context constraints and its plugins.

The constraints have the fields of OpenShift 4's own `restricted-v2` and `privileged`. Its admission plugin is no part of Kubernetes' API
server: a policy stands in for it, by the plugin's rule. A pod is admitted by a constraint that its account, or whoever creates it, may
use (`use` of its name, which RBAC decides) and that allows what the pod asks for; refusals have the plugin's words.
"""

from __future__ import annotations

import json

import pytest

import control_plane
from control_plane import ADMIN, NAMESPACE, find_obstacle
from test_kubectl_netinit import ask
from test_preflight_platforms import GIVEN, Platform, preflight

pytestmark = pytest.mark.skipif(find_obstacle() is not None, reason=find_obstacle() or "")
# Kubernetes' own among those of cluster-kube-apiserver-operator's default configuration
PLUGINS = (
    "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "DefaultIngressClass", "DefaultStorageClass",
    "DefaultTolerationSeconds", "LimitRanger", "MutatingAdmissionWebhook", "NamespaceLifecycle", "NodeRestriction",
    "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "PodNodeSelector", "PodTolerationRestriction", "Priority", "ResourceQuota",
    "RuntimeClass", "ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition", "ValidatingAdmissionWebhook",
)  # fmt: skip
LEVELS = {
    "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
    "defaults": {"enforce": "privileged", "enforce-version": "latest", "audit": "restricted", "audit-version": "latest", "warn": "restricted", "warn-version": "latest"},
}  # fmt: skip
GROUP, KIND = "security.openshift.io", "SecurityContextConstraints"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{KIND.lower()}.{GROUP}"},
    "spec": {
        "group": GROUP, "scope": "Cluster", "names": {"kind": KIND, "listKind": f"{KIND}List", "plural": KIND.lower(), "singular": KIND.lower()},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}],
    },
}  # fmt: skip
HOST = ("allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts", "allowPrivilegeEscalation", "allowPrivilegedContainer")
CONSTRAINTS = {
    "restricted-v2": {
        **dict.fromkeys(HOST, False), "allowedCapabilities": ["NET_BIND_SERVICE"], "requiredDropCapabilities": ["ALL"], "runAsUser": {"type": "MustRunAsRange"},
        "seLinuxContext": {"type": "MustRunAs"}, "volumes": ["configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"],
    },
    "privileged": {
        **dict.fromkeys(HOST, True), "allowedCapabilities": ["*"], "groups": ["system:cluster-admins", "system:nodes", "system:masters"],
        "runAsUser": {"type": "RunAsAny"}, "seLinuxContext": {"type": "RunAsAny"}, "seccompProfiles": ["*"], "volumes": ["*"],
    },
}  # fmt: skip
RANGE = {"openshift.io/sa.scc.uid-range": "1000650000/10000", "openshift.io/sa.scc.mcs": "s0:c26,c0"}
MAY_USE = f"authorizer{{}}.group('{GROUP}').resource('{KIND.lower()}').name('privileged').check('use').allowed()"
USERS = "variables.users.all(user, user >= int(variables.range[0]) && user < int(variables.range[0]) + int(variables.range[1]))"
ADDED = "variables.containers.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(one, one == 'NET_BIND_SERVICE'))"
FOLDERS = "object.spec.?volumes.orValue([]).all(v, !has(v.hostPath))"
POLICY = {
    "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
    "variables": [
        {"name": "range", "expression": "namespaceObject.metadata.annotations['openshift.io/sa.scc.uid-range'].split('/')"},
        {"name": "containers", "expression": "object.spec.containers + object.spec.?initContainers.orValue([])"},
        {"name": "users", "expression": "[object.spec.?securityContext.?runAsUser.orValue(int(variables.range[0]))] + variables.containers.map(c, c.?securityContext.?runAsUser.orValue(int(variables.range[0])))"},
        {"name": "account", "expression": "object.spec.?serviceAccountName.orValue('default')"},
        {"name": "restricted", "expression": f"!object.spec.?hostNetwork.orValue(false) && {FOLDERS} && {ADDED} && {USERS}"},
        {"name": "privileged", "expression": f"{MAY_USE.format('')} || {MAY_USE.format('.serviceAccount(object.metadata.namespace, variables.account)')}"},
    ],
    "validations": [{
        "expression": "variables.restricted || variables.privileged",
        "message": 'unable to validate against any security context constraint: [provider "restricted-v2": not allowed, provider "privileged": Forbidden: not usable by user or serviceaccount]',
    }],
}  # fmt: skip
SET = ("openshift=true", "node.platform=openshift")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"


@pytest.fixture(scope="module")
def openshift(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ETCD", "PEER", "API"):
            patch.setattr(control_plane, name, getattr(control_plane, name) + 2000)
        with Platform(tmp_path_factory.mktemp("openshift"), enabled=PLUGINS, plugins=[("PodSecurity", LEVELS)]) as plane:
            if plane.minor() < 31:
                pytest.skip("this API server's policies cannot say it")
            plane.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
            plane.ask("PATCH", f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"annotations": RANGE}}, kind="application/merge-patch+json")
            plane.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
            for name, fields in CONSTRAINTS.items():
                tree = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": {"name": name}, **fields}
                plane.until(lambda tree=tree: plane.apply(tree), "the constraints are known")
            plane.create(f"{POLICIES}ies", {"metadata": {"name": "constraints"}, "spec": POLICY})
            plane.create(f"{POLICIES}ybindings", {"metadata": {"name": "constraints"}, "spec": {"policyName": "constraints", "validationActions": ["Deny"]}})
            plane.until(lambda: preflight(plane, tmp_path_factory.mktemp("wait"))[0] == 1, "the policy is in force")
            yield plane


def findings(plane, tmp_path, *given, kubeconfig=None):
    words = [word for pair in [*(f"{name}={value}" for name, value in GIVEN.items()), *given] for word in ("--set", pair)]
    done = ask(plane, tmp_path, "preflight", *words, "-o", "json", namespace=NAMESPACE, kubeconfig=kubeconfig)
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {(one["kind"], one["subject"].partition(" ")[0]): one for one in found}, done.stderr


def test_by_default_everything_that_openshift_wants_otherwise_is_named_with_its_value(openshift, tmp_path):
    code, found, _ = findings(openshift, tmp_path)
    assert code == 1
    assert found["constraints", "the"]["remedy"] == "set openshift=true"
    platform = found["platform", "DaemonSet"]
    assert platform["message"] == (
        "the API server looks like openshift, where the agent needs /etc/cni/multus/net.d, /var/lib/cni/bin, the SELinux type spc_t, the constraint privileged"
    )
    assert platform["remedy"] == "set node.platform=openshift"
    for kind in ("Deployment", "DaemonSet"):
        refused = found["pod-refused", kind]
        assert "unable to validate against any security context constraint" in refused["message"]
        assert refused["remedy"].startswith("set openshift=true and node.platform=openshift")


def test_with_the_values_nothing_is_in_the_way_of_a_cluster_admin(openshift, tmp_path):
    code, found, notes = findings(openshift, tmp_path, *SET)
    assert (code, found) == (0, {}), found
    assert "(netinit-node may use the constraint privileged only after the installation)" in notes


def test_someone_who_may_create_pods_alone_hears_that_the_agent_s_are_not_known(openshift, tmp_path):
    groups, users = "/apis/rbac.authorization.k8s.io/v1/clusterrole", [{"kind": "User", "name": "ann"}]
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "create"]}]
    openshift.create(f"{groups}s", {"metadata": {"name": "ann"}, "rules": rules})
    openshift.create(f"{groups}bindings", {"metadata": {"name": "ann"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ann"}, "subjects": users})
    config = tmp_path / "ann.kubeconfig"
    config.write_text(json.dumps(openshift.kubeconfig(ADMIN, "ann")))
    openshift.until(lambda: findings(openshift, tmp_path, *SET, kubeconfig=config)[0] == 0, "the rights are there")
    _, found, _ = findings(openshift, tmp_path, *SET, kubeconfig=config)
    assert [*found] == [("pod-not-tried", "DaemonSet")], found
    assert "netinit-node may use the constraint privileged only after the installation" in found["pod-not-tried", "DaemonSet"]["message"]


def test_after_the_installation_the_controllers_create_the_pods_by_the_chart_s_own_roles(openshift, tmp_path):
    _, trees = openshift.install(*SET, *(f"{name}={value}" for name, value in GIVEN.items()))
    try:
        openshift.until(lambda: "only after" not in findings(openshift, tmp_path, *SET)[2], "the roles are in force")
        code, found, notes = findings(openshift, tmp_path, *SET)
        assert (code, found) == (0, {}), found
        assert "tried as you" not in notes
        assert "tried with default" not in notes
    finally:
        for tree in trees:
            if tree["kind"] == "ClusterRoleBinding":
                openshift.ask("DELETE", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{tree['metadata']['name']}")
