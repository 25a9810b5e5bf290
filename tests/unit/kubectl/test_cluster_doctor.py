"""`kubectl netinit doctor --cluster`, against a kubectl that replays a cluster's answers: one screen, what is wrong, and the command that mends it."""

from __future__ import annotations

import base64
import json

import pytest

from netinit.serving.certificates import service_names
from netinit.webhook.certificates import make_pair
from running_installation import NOW, agent_pod, event, make_cluster, mesh_pod, node
from schemas import check_schema

RESOURCES = {
    "Node": "nodes", "Namespace": "namespaces", "MutatingWebhookConfiguration": "mutatingwebhookconfigurations", "DaemonSet": "daemonsets", "Deployment": "deployments",
    "Pod": "pods -A -l", "Event": "events", "ConfigMap": "configmaps -A", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "Service": "services", "EndpointSlice": "endpointslices.v1.discovery.k8s.io", "PodDisruptionBudget": "poddisruptionbudgets",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers", "Secret": "secret netinit-webhook-tls",
}  # fmt: skip
EXEC = "exec -n mesh netinit-node-worker-2 -c agent -- netinit node status --json"


def replay(by_kind, *, refused=()):
    """kubectl's answers about these objects; lists of kinds that are `refused` are as when the right is missing."""
    given = [(kind, words) for kind, words in RESOURCES.items() if kind not in refused]
    answers = {kind: {"kind": "List", "items": by_kind.get(kind, [])} for kind, _ in given}
    answers["Secret"] = next(iter(by_kind["Secret"]), {})
    lists = [{"words": f"get {words} *-o json", "stdout": json.dumps(answers[kind]) if answers[kind] else ""} for kind, words in given]
    maps = {"words": "get configmaps -l *", "stdout": json.dumps({"kind": "List", "items": by_kind["ConfigMap"]})}
    return [maps, *lists]


@pytest.fixture
def doctor(kubectl):
    """`doctor(by_kind, *answers)`: the checks by kind, each held against the schema; `doctor.done` is how it ended, and `doctor.text` what people read."""

    def ask(by_kind, *answers, refused=()):
        ask.text = kubectl("doctor --cluster", *answers, *replay(by_kind, refused=refused)).out
        ask.done = kubectl("doctor --cluster -o json", *answers, *replay(by_kind, refused=refused))
        tree = json.loads(ask.done.out)
        check_schema(tree, "cluster-doctor")
        assert tree["ok"] is (ask.done.code == 0)
        return {(one["state"], one["kind"]): one for one in tree["checks"]}

    return ask


def wrong(checks):
    return {kind for state, kind in checks if state != "ok"}


def test_a_sound_cluster_is_one_screen_of_ticks(doctor):
    checks = doctor(make_cluster(nodes=250))
    assert (wrong(checks), doctor.done.code) == (set(), 0), doctor.text
    assert "✔ 250 nodes (worker-1, worker-2, worker-3 and 247 more): agent ready, 0.2.0" in doctor.text
    assert "✔ netinit-webhook-sidecar-injector: 4 webhooks, failurePolicy Fail, caBundle valid until " in doctor.text
    assert "2 ready endpoints" in doctor.text
    assert "✔ release mesh/netinit: webhook 0.2.0, agent 0.2.0, init container 0.2.0" in doctor.text
    assert len(doctor.text.splitlines()) < 20
    assert len(checks["ok", "ready"]["subjects"]) == 250


def test_what_is_the_same_on_many_nodes_is_one_row_and_a_screen_is_enough_for_what_differs(doctor):
    cluster = make_cluster(nodes=250)
    for number, pod in enumerate(cluster["Pod"]):
        pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff" if number % 2 else f"Odd{number}"}}}]}
    checks = doctor(cluster)
    assert doctor.done.code == 1
    assert "✘ 125 nodes (worker-2, worker-4, worker-6 and 122 more): agent not ready: ImagePullBackOff" in doctor.text
    assert "… and " in doctor.text
    assert len(doctor.text.splitlines()) < 40
    assert ("error", "not-ready") in checks


def unready(cluster, **status):
    agent = cluster["DaemonSet"][0]
    cluster["Pod"][1] = agent_pod(agent, "worker-2", ready=False, **status)
    return cluster


def test_an_agent_that_runs_says_itself_what_is_missing_on_its_node(doctor):
    status = {"executable": "", "entry": "no list in /host/etc/cni/net.d has the entry", "agent": "plugin: the entry is missing"}
    checks = doctor(unready(make_cluster()), {"words": EXEC, "stdout": json.dumps(status), "status": 1})
    (found,) = [one for one in checks.values() if one["state"] != "ok"]
    assert (found["kind"], found["subjects"]) == ("plugin-missing", ["node worker-2"])
    assert found["message"] == "the plugin is not in place: entry: no list in /host/etc/cni/net.d has the entry"
    assert found["remedy"] == "kubectl -n mesh logs netinit-node-worker-2"


def test_without_the_right_to_ask_the_agent_its_event_says_why_and_the_missing_right_is_named(doctor):
    cluster = unready(make_cluster())
    cluster["Event"] = [event("NotReady", "pods: the API cannot be asked", kind="Node", name="worker-2", namespace="")]
    checks = doctor(cluster)
    assert checks["error", "not-ready"]["message"] == "agent not ready: pods: the API cannot be asked"
    assert checks["unknown", "no-right"]["subjects"] == ["the agent's own status"]
    assert "kubectl -n mesh create role netinit-doctor-create --verb=create --resource=pods/exec" in checks["unknown", "no-right"]["remedy"]


@pytest.mark.parametrize(("status", "why"), [
    ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, "ImagePullBackOff"),
    ({"phase": "Pending", "containerStatuses": [], "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}, "0/3 nodes are available"),
    ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}, "it ended with 137, OOMKilled"),
    ({"phase": "Failed", "reason": "Evicted", "containerStatuses": []}, "Evicted"),
])  # fmt: skip
def test_why_an_agent_is_not_ready_is_said(doctor, status, why):
    checks = doctor(unready(make_cluster(), **status))
    assert why in checks["error", "not-ready"]["message"]
    assert checks["error", "not-ready"]["remedy"] == "kubectl -n mesh describe pod netinit-node-worker-2"


def test_an_agent_that_waits_for_its_node_is_that_node_s(doctor):
    cluster = unready(make_cluster(), phase="Pending", containerStatuses=[])
    spec = cluster["Pod"][1]["spec"]
    del spec["nodeName"]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-2"]}]}]
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert doctor(cluster)["error", "not-ready"]["subjects"] == ["node worker-2"]


def test_during_an_upgrade_with_surge_the_ready_agent_of_a_node_counts(doctor):
    cluster = make_cluster()
    cluster["Pod"].append(agent_pod(cluster["DaemonSet"][0], "worker-2", ready=False, phase="Pending"))
    assert wrong(doctor(cluster)) == set()


def test_nodes_whose_agent_is_of_another_version_are_named(doctor):
    cluster = make_cluster()
    cluster["Pod"][0] = agent_pod(cluster["DaemonSet"][0], "worker-1", image="registry.example/netinit-node:0.1.0")
    checks = doctor(cluster)
    assert wrong(checks) == {"old-agent"}
    assert checks["warning", "old-agent"]["message"] == "agent ready, of the version 0.1.0, while its DaemonSet has 0.2.0"
    assert doctor.done.code == 0


@pytest.mark.parametrize(("pods", "found"), [
    ([], ("ok", "not-selected")), ([mesh_pod("web-1", init=["istio-init"])], ("ok", "not-selected")), ([mesh_pod("web-1")], ("error", "no-agent-for-pods")),
    ([mesh_pod("web-1", init=["istio-validation"])], ("error", "no-agent-for-pods")),
])  # fmt: skip
def test_a_node_without_an_agent_matters_where_its_pods_need_one(doctor, pods, found):
    cluster = make_cluster()
    cluster["Node"].append(node("special"))
    checks = doctor(cluster, {"words": "get pods -A --field-selector spec.nodeName=special *", "stdout": json.dumps({"items": pods})})
    assert checks[found]["subjects"] == ["node special"]
    assert wrong(checks) == ({found[1]} if found[0] == "error" else set())


def test_windows_nodes_need_no_agent_and_nodes_that_are_down_are_not_known(doctor):
    cluster = make_cluster()
    cluster["Node"] += [node("win-1", system="windows"), node("off", ready=False)]
    checks = doctor(cluster)
    assert wrong(checks) == {"node-not-ready"}
    assert checks["unknown", "node-not-ready"]["subjects"] == ["node off"]
    assert doctor.done.code == 1


def test_agents_that_a_quota_refuses_are_counted_and_the_event_says_why(doctor):
    cluster = make_cluster()
    cluster["DaemonSet"][0]["status"]["desiredNumberScheduled"] = 5
    cluster["Event"] = [event("FailedCreate", "insufficient quota to match these scopes", kind="DaemonSet", name="netinit-node", namespace="mesh", component="daemonset-controller")]
    checks = doctor(cluster)
    assert checks["error", "agents-not-created"]["message"] == "2 of 5 agents could not be created: insufficient quota to match these scopes"


@pytest.mark.parametrize(("key", "installed", "kind"), [
    ("mesh.example/agent-not-ready", True, "tainted"), ("netinit.io/agent-not-ready", False, "taint"), ("netinit.io/old", True, "taint"), ("node-role.kubernetes.io/control-plane", True, None),
])  # fmt: skip
def test_taints_that_keep_pods_away_are_named_with_the_command_that_removes_them(doctor, key, installed, kind):
    cluster = make_cluster()
    cluster["Node"][0] = node("worker-1", taints=[{"key": key, "effect": "NoSchedule"}])
    if not installed:
        cluster |= {"DaemonSet": [], "Pod": []}
    checks = doctor(cluster)
    assert [one["kind"] for one in checks.values() if one["state"] == "warning" and one["kind"] in ("taint", "tainted")] == [kind] * bool(kind)
    if kind:
        assert checks["warning", kind]["remedy"] == f"kubectl taint node worker-1 {key}:NoSchedule-"


# ---- webhooks ----------------------------------------------------------------------------------------------------------------


def without_bundle(cluster):
    for hook in cluster["MutatingWebhookConfiguration"][0]["webhooks"]:
        del hook["clientConfig"]["caBundle"]


def without_endpoints(cluster):
    cluster["EndpointSlice"] = []


def without_namespace(cluster):
    cluster["Namespace"] = [one for one in cluster["Namespace"] if one["metadata"]["name"] != "mesh"]
    for kind in ("Service", "Deployment", "EndpointSlice", "DaemonSet", "Pod"):
        cluster[kind] = []


def with_istiod(cluster):
    hook = {"name": "namespace.sidecar-injector.istio.io", "sideEffects": "None", "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}}}
    hook["clientConfig"] = {"url": "https://istiod.example/inject", "caBundle": cluster["MutatingWebhookConfiguration"][0]["webhooks"][0]["clientConfig"]["caBundle"]}
    cluster["MutatingWebhookConfiguration"].append({"metadata": {"name": "istio-sidecar-injector"}, "webhooks": [hook]})


def with_another_certificate(cluster):
    pair = make_pair(service_names("netinit-webhook", "mesh"), now=NOW, seconds=90 * 86400)
    cluster["Secret"] = [{"kind": "Secret", "metadata": {"name": "netinit-webhook-tls", "namespace": "mesh"}, "data": {"tls.crt": base64.b64encode(pair.certificate.encode()).decode()}}]


def with_unready_replicas(cluster):
    cluster["Deployment"][0]["status"] = {}


@pytest.mark.parametrize(("change", "kind"), [
    (without_bundle, "no-bundle"), (with_another_certificate, "wrong-bundle"), (without_endpoints, "no-endpoints"), (without_namespace, "namespace-deleted"), (with_istiod, "two-injectors"), (with_unready_replicas, "replicas"),
])  # fmt: skip
def test_what_is_wrong_with_webhooks_is_what_lint_finds_and_their_replicas(doctor, change, kind):
    cluster = make_cluster()
    change(cluster)
    checks = doctor(cluster)
    (found,) = [one for one in checks.values() if one["kind"] == kind]
    assert found["state"] in ("error", "warning")
    assert found["remedy"]
    assert found["area"] == "webhooks"


def test_four_webhooks_of_a_configuration_with_the_same_problem_are_one_row(doctor):
    cluster = make_cluster()
    without_bundle(cluster)
    doctor(cluster)
    assert "! netinit-webhook-sidecar-injector, 4 webhooks (rev.namespace, rev.object, namespace and 1 more): it has no caBundle" in doctor.text


# ---- releases ----------------------------------------------------------------------------------------------------------------


def test_an_image_of_another_version_than_its_release_is_named(doctor):
    checks = doctor(make_cluster("initImage.tag=0.1.0"))
    assert wrong(checks) == {"version-skew"}
    assert checks["warning", "version-skew"]["message"] == "of several versions: webhook 0.2.0, agent 0.2.0, init container 0.1.0"


def test_two_releases_with_an_agent_are_an_error_and_two_without_are_not(doctor):
    cluster, other = make_cluster(), make_cluster("revision=canary", namespace="canary")
    for kind in ("DaemonSet", "Deployment", "Service", "EndpointSlice", "PodDisruptionBudget"):
        cluster[kind] += other[kind]
    both = doctor(cluster)
    assert both["error", "another-agent"]["subjects"] == ["DaemonSet canary/netinit-node"]
    assert "helm uninstall netinit -n canary" in both["error", "another-agent"]["remedy"]
    cluster["DaemonSet"].pop()
    assert ("error", "another-agent") not in doctor(cluster)


def test_the_agent_of_another_mesh_is_named(doctor):
    cluster = make_cluster()
    cluster["DaemonSet"].append({"metadata": {"name": "istio-cni-node", "namespace": "istio-system"}})
    assert "other-mesh-agent" in wrong(doctor(cluster))


def test_roles_of_a_release_that_is_gone_are_named_each_with_the_command_that_deletes_it(doctor):
    cluster = make_cluster()
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        cluster[kind] += [one | {"metadata": one["metadata"] | {"labels": one["metadata"]["labels"] | {"app.kubernetes.io/instance": "gone"}}} for one in cluster[kind]]
    checks = doctor(cluster)
    assert wrong(checks) == {"no-release"}
    assert checks["warning", "no-release"]["message"] == "its release gone is gone"
    assert checks["warning", "no-release"]["remedy"].startswith("kubectl delete clusterrole netinit-")
    assert len(checks["warning", "no-release"]["subjects"]) == 4


def test_without_agents_no_node_is_asked_for_one(doctor):
    cluster = make_cluster() | {"DaemonSet": [], "Pod": []}
    checks = doctor(cluster)
    assert "no node agent is installed" in checks["ok", "no-agent"]["message"]


# ---- events ------------------------------------------------------------------------------------------------------------------


def test_events_are_counted_by_kind_and_not_listed_by_pod(doctor):
    cluster = make_cluster()
    cluster["Event"] = [event("InterceptionMissing", f"pod {number} has no rules", name=f"web-{number}") for number in range(40)]
    cluster["Event"] += [event("Unhealthy", "probe failed", component="kubelet"), event("NotReady", "old", kind="Node", name="worker-1", namespace="")]
    checks = doctor(cluster)
    assert wrong(checks) == {"InterceptionMissing"}
    assert "! 40 pods (shop/web-0, shop/web-1, shop/web-2 and 37 more): InterceptionMissing: pod 0 has no rules" in doctor.text
    assert "kubectl netinit verify web-0 -n shop" in doctor.text
    assert doctor.done.code == 0


def test_pods_that_wait_for_a_plugin_are_an_error_with_what_the_plugin_says(doctor):
    cluster = make_cluster() | {"DaemonSet": [], "Pod": []}
    said = 'failed to setup network for sandbox "8a": plugin type="netinit-cni" failed (add): netinit: the node\'s agent does not answer, so this pod waits'
    cluster["Event"] = [event("FailedCreatePodSandBox", said, component="kubelet")]
    checks = doctor(cluster)
    assert doctor.done.code == 1
    assert checks["error", "pods-wait"]["detail"] == "the node's agent does not answer, so this pod waits"
    assert "a-node-is-stuck" in checks["error", "pods-wait"]["page"]


# ---- rights, and a cluster that does not answer ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RESOURCES)
def test_what_may_not_be_read_is_not_known_with_the_right_that_is_missing_and_nothing_is_concluded_from_it(doctor, kind):
    checks = doctor(make_cluster(), refused=[kind])
    assert wrong(checks) == {"no-right"}, doctor.text
    assert doctor.done.code == 1
    assert checks["unknown", "no-right"]["subjects"] == [kind]
    right = "--verb=get --resource=secrets --resource-name=netinit-webhook-tls" if kind == "Secret" else f"--verb=list --resource={RESOURCES[kind].split()[0].replace('.v1.', '.')}"
    assert f"{right}, and" in checks["unknown", "no-right"]["remedy"]
    assert "? " in doctor.text


def test_with_no_right_at_all_nothing_is_called_sound(doctor):
    checks = doctor(make_cluster(), refused=[*RESOURCES])
    assert {state for state, _ in checks} == {"unknown"}, doctor.text


def test_a_cluster_that_does_not_answer_is_an_error(kubectl):
    done = kubectl("doctor --cluster", {"words": "*", "stderr": "The connection to the server localhost:8080 was refused", "status": 1})
    assert (done.code, done.out) == (1, "")
    assert "The connection to the server localhost:8080 was refused" in done.err


def test_kinds_that_an_old_cluster_has_not_are_none(doctor):
    absent = {"words": "get validating*", "stderr": 'error: the server doesn\'t have a resource type "validatingadmissionpolicies"', "status": 1}
    assert wrong(doctor(make_cluster(), absent)) == set()


def test_a_hostile_cluster_cannot_forge_lines_or_words_of_commands(doctor, kubectl):
    cluster = make_cluster()
    cluster["Event"] = [event("Interception\x1b[2J", "a\nOK: nothing is wrong\n" + "x" * 9000, name="web; reboot")]
    doctor(cluster)
    assert "\x1b" not in doctor.text
    assert "\nOK" not in doctor.text
    assert max(map(len, doctor.text.splitlines())) < 600
    assert "verify 'web; reboot'" in doctor.text
    cluster["Node"].append(node("-o;x"))
    done = kubectl("doctor --cluster", *replay(cluster))
    assert (done.code, done.out) == (1, "")
    assert "is not a name of a node" in done.err


def test_nothing_is_changed_and_the_flags_of_the_cluster_go_along(kubectl):
    kubectl("doctor --cluster --context prod --json", *replay(make_cluster()))
    assert {words[0] for words in kubectl.calls} == {"get"}
    assert all("--context=prod" in words for words in kubectl.calls)


@pytest.mark.parametrize(("line", "told"), [
    ("doctor --cluster web-1", "'web-1' is not among"), ("doctor --cluster --source agent", "'--source' is not an option"), ("doctor", "missing argument: OBJECT"),
])  # fmt: skip
def test_a_pod_or_the_cluster_is_asked_about(kubectl, line, told):
    done = kubectl(line)
    assert done.code == 2
    assert told in done.err
