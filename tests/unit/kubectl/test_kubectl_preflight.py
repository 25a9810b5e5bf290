"""`kubectl netinit preflight`, against a kubectl that replays a cluster's answers: each thing that is wrong is found, and nothing else."""

from __future__ import annotations

import json

import pytest

from helm import render_chart
from netinit.installation.dry_run_pods import judge, make_dry_run_pods
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


SCC = "security.openshift.io"
ON_OPENSHIFT = f"{AGENT} --set openshift=true --set node.platform=openshift"
NETWORK = {"metadata": {"name": "netinit-cni", "namespace": "shop"}}
MULTUS = {"metadata": {"name": "multus", "namespace": "openshift-multus"}}
SHOP = space("shop", **{"istio-injection": "enabled"})
SOUND = {"nodes": [node()], "namespaces": [SHOP, space("plain", "restricted")], "mutatingwebhookconfigurations": [], "configmaps": ["shop"], "daemonsets": []}


def replay(version="v1.31.2", refused=(), unread=(), refusals=(), groups=(), **changed):
    """The answers of a cluster that is sound but for what is `changed`; `refusals`: a pattern of a pod and why it is refused."""
    cluster = SOUND | changed
    cluster["configmaps"] = [{"metadata": {"name": "istio-ca-root-cert", "namespace": name}} for name in cluster["configmaps"]]
    listed = [
        {"words": f"get {kind} *-o json", "stdout": json.dumps({"kind": "List", "items": items})}
        for kind, items in cluster.items() if kind not in unread
    ]  # fmt: skip
    listed.append({"words": "api-versions*", "stdout": "".join(f"{one}/v1\n" for one in ("apps", *groups)) + "v1\n", "status": int("api-versions" in unread)})
    version = {"words": "version *", "stdout": json.dumps({"serverVersion": {"gitVersion": version}})}
    rights = [{"words": f"auth can-i create {one}*", "stdout": "no\n", "status": 1} for one in refused]
    pods = [{"words": f"created {pod}", "stderr": why, "status": 1} for pod, why in refusals]
    allowed = [{"words": "auth can-i create *", "stdout": "yes\n"}, {"words": "created *", "stdout": "pod/x\n"}]
    return [version, *listed, *rights, *pods, *allowed]


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
        (SET, {"unread": ["api-versions"]}, 0, "not-read", "API groups", "kubectl api-versions"),
        (f"{SET} --set openshift=true", {"groups": [SCC]}, 0, "constraints", "restricted-v2, refuses their init container", "node.enabled=true"),
        (f"{AGENT} --set node.platform=openshift", {"groups": [SCC]}, 1, "constraints", "give a namespace its user ids", "set openshift=true"),
        (ON_OPENSHIFT, {"groups": [SCC, "k8s.cni.cncf.io"], "network-attachment-definitions.k8s.cni.cncf.io": [{"metadata": {"name": "other", "namespace": "shop"}}]}, 0, "no-network", "namespace shop", "k8s.v1.cni.cncf.io/networks: netinit-cni"),
        (f"{AGENT} --set openshift=true", {"groups": [SCC], "daemonsets": [MULTUS]}, 1, "platform", "/etc/cni/multus/net.d, /var/lib/cni/bin, the SELinux type spc_t, the constraint privileged", "node.platform=openshift"),
        (f"{AGENT} --set openshift=true --set node.binFolder=/var/lib/cni/bin --set node.confFolder=/etc/cni/multus/net.d", {"groups": [SCC]}, 1, "platform", "the API server looks like openshift, where the agent needs the SELinux type spc_t, the constraint privileged", "node.platform=openshift"),
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
        (f"{ON_OPENSHIFT}", {"groups": [SCC, "k8s.cni.cncf.io"], "network-attachment-definitions.k8s.cni.cncf.io": [NETWORK]}),
        (f"{AGENT} --set openshift=true --set node.platform=openshift", {"groups": [SCC], "daemonsets": [MULTUS], "nodes": [node(image="Red Hat Enterprise Linux CoreOS 418.94")]}),
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
    kubectl(f"preflight {AGENT} --context prod -n mesh", *replay())
    verbs = {(words[0], *[word for word in words[2:3] if words[0] == "auth"]) for words in kubectl.calls}
    assert verbs <= {("version",), ("api-versions",), ("get",), ("auth", "can-i"), ("create",), ("created",)}
    assert all("--context=prod" in words for words in kubectl.calls if words[0] != "created")
    dry = [words for words in kubectl.calls if words[0] == "create"]
    assert len(dry) == 2
    assert all({"--dry-run=server", "-f", "-"} < set(words) and words[words.index("-n") + 1] == "mesh" for words in dry)
    assert any(words[-2:] == ["-n", "mesh"] for words in kubectl.calls if words[0] == "auth")


# ---- one pod of each workload as a dry run ---------------------------------------------------------------------------------

DENIED = 'Error from server (Forbidden): error when creating "STDIN": '
GKE = DENIED + "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]\n"
NO_ACCOUNT = DENIED + 'pods "x" is forbidden: error looking up service account netinit-system/x: serviceaccount "x" not found\n'
CRITICAL = '*"priorityClassName": "system-*'


# In the form in which OpenShift 4 refuses a pod (its admission plugin security.openshift.io/SecurityContextConstraint).
OPENSHIFT = (
    'pods "netinit-node-" is forbidden: unable to validate against any security context constraint: [provider "anyuid": Forbidden: not usable by user '
    'or serviceaccount, spec.containers[0].securityContext.capabilities.add: Invalid value: "SYS_ADMIN": capability may not be added]'
)
# In the form in which GKE Autopilot refuses a pod with folders of the node.
AUTOPILOT = (
    'error when creating "STDIN": admission webhook "warden-validating.common-webhooks.networking.gke.io" denied the request: GKE Warden rejected '
    'the request because it violates one or more constraints.\nViolations details: {"[denied by autogke-no-write-mode-hostpath]":["hostPath volume run used"]}'
)
IMPERSONATION = 'Error from server (Forbidden): serviceaccounts "replicaset-controller" is forbidden: User "ann" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "kube-system"\n'


def created(kubectl):
    return [json.loads(words[1]) for words in kubectl.calls if words[0] == "created"]


def test_a_pod_of_the_webhook_and_one_of_the_agent_are_tried_as_they_will_be(kubectl):
    done = kubectl(f"preflight {AGENT} -n mesh --name r", *replay())
    webhook, agent = sorted(created(kubectl), key=lambda pod: pod["spec"]["priorityClassName"])
    assert (webhook["kind"], webhook["metadata"]["namespace"], webhook["metadata"]["generateName"]) == ("Pod", "mesh", "r-webhook-")
    assert (agent["spec"]["hostNetwork"], agent["spec"]["serviceAccountName"]) == (True, "r-node")
    assert webhook["metadata"]["labels"]["app.kubernetes.io/name"] == "netinit-webhook"
    assert webhook["spec"]["containers"][0]["image"].startswith("registry.example/mesh/netinit-webhook:")
    assert "note: a dry run does not tell whether images can be pulled" in done.err


def test_each_pod_is_tried_as_the_controller_that_will_create_it(kubectl):
    kubectl(f"preflight {AGENT}", *replay())
    dry = [words for words in kubectl.calls if words[0] == "create"]
    assert {words[words.index("--as") + 1].rpartition(":")[2] for words in dry} == {"replicaset-controller", "daemon-set-controller"}


@pytest.mark.parametrize("why", [IMPERSONATION, DENIED + 'pods is forbidden: User "system:serviceaccount:kube-system:daemon-set-controller" cannot create resource "pods"'])
def test_without_the_right_to_impersonate_the_pods_are_tried_as_the_user_and_a_note_says_so(kubectl, why):
    done = kubectl(f"preflight {AGENT}", {"words": "create *--as *", "stderr": why, "status": 1}, *replay())
    assert (done.code, done.out) == (0, "nothing found\n"), done
    assert "DaemonSet netinit-system/netinit-node: tried as you, not as system:serviceaccount:kube-system:daemon-set-controller" in done.err
    assert len([words for words in kubectl.calls if words[0] == "create"]) == 4


# ---- who else is there -----------------------------------------------------------------------------------------------------


def daemon_set(name, namespace="kube-system", **labels):
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


OTHER_AGENT = daemon_set("first-node", "mesh-1", **{"app.kubernetes.io/name": "netinit-node", "app.kubernetes.io/instance": "first"})
OWN_AGENT = daemon_set("netinit-node", "netinit-system", **{"app.kubernetes.io/name": "netinit-node", "app.kubernetes.io/instance": "netinit"})


def kinds(kubectl, given, **cluster):
    tree = json.loads(kubectl(f"preflight {given} -o json", *replay(**cluster)).out)
    check_schema(tree, "installation")
    return {one["kind"]: one for one in tree["findings"]}


@pytest.mark.parametrize(("given", "other", "kind", "remedy"), [
    (AGENT, OTHER_AGENT, "another-agent", "set node.enabled=false, or: helm uninstall first -n mesh-1"),
    (AGENT, daemon_set("istio-cni-node"), "other-mesh-agent", "remove it when netinit's agents are ready"),
    (f"{AGENT} --set node.ownList=true", daemon_set("linkerd-cni", "linkerd-cni"), "other-mesh-agent", "set node.ownList=false"),
    (AGENT, daemon_set("kuma-cni-node"), "other-mesh-agent", "remove it"), (AGENT, daemon_set("consul-consul-cni", "consul"), "other-mesh-agent", "remove it"),
    (f"{AGENT} --set node.ownList=true", daemon_set("cilium"), "cilium-exclusive", "set cni.exclusive=false"),
    (AGENT, daemon_set("kube-multus-ds"), "multus", "set node.confName"),
    (f"{AGENT} --set node.ownList=true --set node.confName=10-calico.conflist", daemon_set("kube-multus-ds"), "multus", "node.ownList=false"),
])  # fmt: skip
def test_other_releases_and_other_agents_are_named_with_what_to_set(kubectl, given, other, kind, remedy):
    found = kinds(kubectl, given, daemonsets=[other])
    assert [*found] == [kind], found
    assert remedy in found[kind]["remedy"]
    assert found[kind]["subject"] == f"DaemonSet {other['metadata']['namespace']}/{other['metadata']['name']}"


@pytest.mark.parametrize(("given", "other"), [
    (AGENT, OWN_AGENT), (SET, OTHER_AGENT), (SET, daemon_set("istio-cni-node")), (AGENT, daemon_set("cilium")), (AGENT, daemon_set("kube-proxy")),
    (f"{AGENT} --set node.confName=10-calico.conflist", daemon_set("kube-multus-ds")),
])  # fmt: skip
def test_neighbours_that_get_in_nobody_s_way_are_no_finding(kubectl, given, other):
    assert kinds(kubectl, given, daemonsets=[other]) == {}


@pytest.mark.parametrize(("runtime", "found"), [
    ("containerd://2.1.9", False), ("containerd://1.6.20~ds1", False), ("", False), ("containerd://1.4.3", True), ("cri-o://1.33.0", True), ("docker://27.1", True),
])  # fmt: skip
def test_a_runtime_that_the_plugin_was_not_tested_under_is_named(kubectl, runtime, found):
    there = node()
    there["status"]["nodeInfo"]["containerRuntimeVersion"] = runtime
    assert ("untested-runtime" in kinds(kubectl, AGENT, nodes=[there])) is found
    assert kinds(kubectl, SET, nodes=[there]) == {}


def test_a_release_of_the_same_name_in_another_namespace_is_named(kubectl):
    annotations = {"meta.helm.sh/release-name": "netinit", "meta.helm.sh/release-namespace": "mesh-1"}
    hooks = {**OTHER, "metadata": {"name": "netinit-webhook-sidecar-injector", "annotations": annotations}}
    found = kinds(kubectl, SET, mutatingwebhookconfigurations=[hooks])
    assert "choose another name for the release, or: helm uninstall netinit -n mesh-1" in found["name-taken"]["remedy"]
    annotations["meta.helm.sh/release-namespace"] = "netinit-system"
    assert "name-taken" not in kinds(kubectl, SET, mutatingwebhookconfigurations=[hooks])


def test_a_quota_for_critical_classes_is_met_by_the_chart_s_own(kubectl):
    done = kubectl(f"preflight {AGENT}", *replay(refusals=[(CRITICAL, GKE)]))
    assert (done.code, done.out) == (0, "nothing found\n"), done
    assert "tried without the priority class system-node-critical, which the chart's own ResourceQuota will admit" in done.err
    assert [("priorityClassName" in pod["spec"]) for pod in created(kubectl)] == [True, True, False, False]


def test_without_the_chart_s_quota_the_refusal_is_found_for_each_workload(kubectl):
    done = kubectl(f"preflight {AGENT} --set resourceQuotas.enabled=false", *replay(refusals=[(CRITICAL, GKE)]))
    assert done.code == 1
    for workload in ("Deployment netinit-system/netinit-webhook", "DaemonSet netinit-system/netinit-node"):
        assert f"✘ {workload}: its pods are refused: {GKE.strip()}\n    remedy: set resourceQuotas.enabled=true" in done.out
    free = kubectl(f"preflight {SET} --set resourceQuotas.enabled=false --set priorityClassName=", *replay(refusals=[(CRITICAL, GKE)]))
    assert (free.code, free.out) == (0, "nothing found\n")


def test_before_the_installation_the_pods_are_tried_with_the_default_account(kubectl):
    limit = DENIED + 'pods "x" is forbidden: maximum memory usage per Container is 128Mi, but limit is 256Mi\n'
    refusals = [("*serviceAccountName*", NO_ACCOUNT), (CRITICAL, GKE), ('*"name": "webhook"*', limit)]
    done = kubectl(f"preflight {SET}", *replay(refusals=refusals))
    assert done.code == 1
    assert "its pods are refused: " + limit.strip() in done.out
    assert "LimitRange" in done.out
    done = kubectl(f"preflight {SET}", *replay(refusals=refusals[:2]))
    assert (done.code, done.out) == (0, "nothing found\n")
    assert "the account netinit-webhook does not exist yet: tried with default; what applies to netinit-webhook alone is not known" in done.err


@pytest.mark.parametrize(
    ("why", "kind", "remedy"),
    [
        (DENIED + 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)', "pod-refused", "enforce=privileged"),
        (DENIED + "exceeded quota: team, requested: pods=1, used: pods=5, limited: pods=5", "pod-refused", "raise the quota"),
        (DENIED + "no PriorityClass with name system-cluster-critical was found", "pod-refused", "priorityClassName"),
        ('Error from server: error when creating "STDIN": admission webhook "validate.kyverno.svc-fail" denied the request: no', "pod-refused", "policy"),
        ('Error from server (InternalError): Internal error occurred: failed calling webhook "a.b"', "pod-refused", "policy"),
        ('Warning: unknown field "spec.x"\nThe Pod "netinit" is invalid: spec.containers[0]: Required value', "pod-refused", "change what refuses it"),
        ("The pods \"netinit-x\" is invalid: : ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no", "pod-refused", "policy"),
        (DENIED + OPENSHIFT, "pod-refused", "node.platform=openshift"),
        ("Error from server (GKE Warden constraints violations): " + AUTOPILOT, "pod-refused", "--workload-policies=allow-net-admin"),
        (DENIED + 'pods "x" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist', "pod-refused", "tolerationsWhitelist"),
        (DENIED + 'pods "x" is forbidden: pod node label selector conflicts with its namespace node label selector', "pod-refused", "node-selector"),
        ('Error from server (NotFound): error when creating "STDIN": namespaces "netinit-system" not found', "no-namespace", "kubectl create namespace netinit-system"),
        (DENIED + 'pods is forbidden: User "ann" cannot create resource "pods" in API group "" in the namespace "netinit-system"', "pod-not-tried", "netinit-system"),
        ('Error from server (BadRequest): error when creating "STDIN": admission webhook "a.b" does not support dry run', "pod-not-tried", "may create"),
        ("Error from server (ServiceUnavailable): the server is currently unable to handle the request", "pod-not-tried", "may create"),
        ("Unable to connect to the server: dial tcp: i/o timeout", "pod-not-tried", "may create"),
        ("error: unknown flag: --dry-run", "pod-not-tried", "may create"),
        ("", "pod-not-tried", "may create"),
    ],
)  # fmt: skip
def test_what_refuses_a_pod_is_an_error_and_what_could_not_be_tried_is_not_taken_for_granted(kubectl, why, kind, remedy):
    done = kubectl(f"preflight {SET} -o json", *replay(refusals=[("*", why)]))
    tree = json.loads(done.out)
    check_schema(tree, "installation")
    (found,) = tree["findings"]
    assert (found["kind"], found["severity"], done.code) == (kind, "error" if kind == "pod-refused" else "warning", kind == "pod-refused")
    assert remedy in found["remedy"]
    assert "a dry run does not tell" not in done.err


def test_a_refusal_is_shown_on_one_line_and_cut(kubectl):
    done = kubectl(f"preflight {SET}", *replay(refusals=[("*", DENIED + "\x1b[2J" + "a" * 9000)]))
    (line,) = [line for line in done.out.splitlines() if "refused" in line]
    assert "\x1b" not in line
    assert len(line) < 600


NAMED = [("*serviceAccountName*", NO_ACCOUNT)]


def test_a_constraint_that_the_agent_may_use_after_the_installation_is_tried_by_the_user_s_own_right():
    planned = render_chart("node.enabled=true", "node.platform=openshift")
    (pod,) = [one for one in make_dry_run_pods(planned, "mesh") if one.workload.startswith("DaemonSet")]
    with_default = judge(pod, NO_ACCOUNT, planned)
    by_user = judge(with_default, DENIED + OPENSHIFT, planned)
    assert (with_default.creator != "", by_user.creator) == (True, "")
    assert by_user.notes[-1].endswith("(netinit-node may use the constraint privileged only after the installation)")
    assert judge(pod, DENIED + OPENSHIFT, planned).kind == "pod-refused", "with its own account, the API server knows"


def test_a_user_who_may_not_use_the_constraint_hears_that_it_is_not_known(kubectl):
    refusals = [*NAMED, ('*"name": "agent"*', DENIED + OPENSHIFT)]
    done = kubectl(f"preflight {ON_OPENSHIFT}", *replay(refusals=refusals, groups=[SCC]))
    assert done.code == 0
    assert "! DaemonSet netinit-system/netinit-node: whether its pods are refused is not known: netinit-node may use the constraint privileged" in done.out, done.out
    assert "remedy: run preflight as cluster-admin" in done.out
    refused = kubectl(f"preflight {AGENT} --set openshift=true", *replay(refusals=refusals, groups=[SCC]))
    assert refused.code == 1
    assert "its pods are refused" in refused.out
