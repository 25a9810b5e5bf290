"""A real kubelet: pods of a restricted namespace, injected by our webhook, captured by our agent, which is itself a DaemonSet's pod."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kubelet
from control_plane import ADDRESSES, ADMIN, NAMESPACE, ApiError, Replica
from cri import IMAGE, archive_image, compile_static
from helm import CHART, needs_helm
from kubelet import (
    SECONDS,
    Cluster,
    agent_values,
    agents,
    is_so,
    make_pod,
    run_helm,
    run_test_pod,
    state_of,
    wait_for_agent,
    wait_until_ready,
)
from meeting import check_meets_envoy
from netinit.cli.webhook.manifests import objects
from netinit.golang import goyaml
from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_files
from netinit.options import Options
from netinit.questions.why.asked import read_asked
from node_agent import NODE
from runtime import V4, bridge
from sidecar import find_envoy, make_bootstrap

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "istio-injection": "enabled"}
PROXY = "netinit.test/proxy:1"
# Istio's proxy is told what it is by its arguments; Envoy knows it by its configuration.
LAUNCHER = '#include <unistd.h>\nint main(void)\n{\n    return execl("/envoy", "envoy", "-c", "/envoy.json", "--disable-hot-restart", "--concurrency", "1", (char *)0);\n}\n'
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
OBSTACLE = kubelet.find_obstacle()
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")


@pytest.fixture(scope="module")
def cluster(runtime, tmp_path_factory):
    """A node with our webhook and the chart's DaemonSet, and the namespace `shop`, which is restricted."""
    network = bridge(V4)
    network["plugins"][0]["ipam"]["routes"] = [{"dst": "0.0.0.0/0"}]  # the API's Service is no neighbour of the pods
    runtime.network(network)
    built = Path(os.environ["NETINIT_NODE_IMAGES"])
    folder = tmp_path_factory.mktemp("plane")
    for archive in (built / "netinit.tar", built / "netinit-node.tar", make_proxy(folder)):
        runtime.ctr("-n", "k8s.io", "images", "import", archive)
    with Cluster(folder, runtime) as plane:
        values = folder / "values.json"
        images = {"imagePullPolicy": "Never", "proxy": {"image": PROXY}, "proxy_init": {"image": "localhost/netinit:latest"}}
        values.write_text(json.dumps({"istio_cni": {"enabled": True}, "global": images}))
        plane.values = agent_values(runtime)
        _, trees = plane.install(*plane.values)
        (tree,) = [tree for tree in trees if tree["kind"] == "DaemonSet"]
        with Replica(plane, ADDRESSES[0], trees=trees, folder=folder, more=("--valuesFile", values)) as replica:
            replica.wait()
            plane.endpoints(ADDRESSES[0])
            plane.namespace("shop", **RESTRICTED)
            plane.create("/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "istio-ca-root-cert"}, "data": {"root-cert.pem": ""}})
            plane.until(lambda: plane.ask("GET", "/api/v1/namespaces/shop/serviceaccounts/default"), "the account is there")
            plane.daemon_set, plane.replica = tree, replica
            wait_for_agent(plane)
            yield plane


def make_proxy(folder):
    """The image in the sidecar's place: a real Envoy with the libraries that it wants."""
    config = folder / "envoy.json"
    config.write_text(json.dumps(make_bootstrap(transparent=False, health=[15021])))
    envoy = find_envoy()
    files = {"proxy": compile_static(folder, "proxy", LAUNCHER), "envoy": envoy, "envoy.json": config}
    files |= {str(path).lstrip("/"): path for path in kubelet.libraries_of(envoy)}
    return archive_image(folder / "proxy.tar", PROXY, files)


@contextlib.contextmanager
def running(plane, name):
    """The pod that the API server keeps, once the kubelet says that it is ready."""
    with created(plane, name):
        yield wait_until_ready(plane, name)


@contextlib.contextmanager
def created(plane, name):
    made = plane.pod("shop", make_pod(name), dry_run=False)
    try:
        yield made
    finally:
        plane.ask("DELETE", f"/api/v1/namespaces/shop/pods/{name}?gracePeriodSeconds=0")


def containers_of(pod):
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def check_captured(runtime, pod):
    path = runtime.namespace(runtime.find_sandbox(pod["metadata"]["uid"]))
    check_meets_envoy(path, [one["ip"] for one in pod["status"]["podIPs"]])


def test_a_pod_of_a_restricted_namespace_is_injected_captured_and_passes_its_validation(cluster, runtime):
    with running(cluster, "web") as pod:
        assert [one["name"] for one in containers_of(pod)] == ["istio-validation", "istio-proxy", "app"]
        for one in containers_of(pod):
            context = one["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["runAsUser"] in {1000, 1337}
            assert context["runAsNonRoot"]
            assert not context["allowPrivilegeEscalation"]
        assert state_of(pod, "istio-validation")["terminated"]["exitCode"] == 0
        check_captured(runtime, pod)


def test_the_same_namespace_refuses_the_init_container_that_programs_rules_itself(cluster):
    pod = make_pod("old")
    context = {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}}
    pod["spec"]["initContainers"] = [{"name": "istio-init", "image": "localhost/netinit:latest", "securityContext": context}]
    with pytest.raises(ApiError, match='violates PodSecurity "restricted') as caught:
        cluster.pod("shop", pod)
    assert "NET_ADMIN" in str(caught.value)


def test_without_the_agent_a_pod_waits_and_it_starts_captured_when_the_agent_is_back(cluster, runtime):
    take_the_agent_away(cluster)
    with created(cluster, "late"):
        cluster.until(lambda: any("agent does not answer" in told for told in cluster.events("shop", "late")), "the kubelet says why the pod waits", SECONDS)
        pod = cluster.find_pod("shop", "late")
        assert pod["status"]["phase"] == "Pending"
        assert all(set(state_of(pod, one["name"])) <= {"waiting"} for one in containers_of(pod))
        checks = examine_cluster(cluster)
        assert checks["error", "pods-wait"]["detail"].startswith("the node's agent does not answer, so this pod waits"), checks
        assert "pod shop/late" in checks["error", "pods-wait"]["subjects"]
        assert checks["error", "no-agent-for-pods"]["subjects"] == [f"node {NODE}"]
        allow_the_agent(cluster)
        wait_for_agent(cluster)  # its own pod starts by the very plugin that makes the others wait
        check_captured(runtime, wait_until_ready(cluster, "late"))


def examine_cluster(plane):
    """What `kubectl netinit doctor --cluster` finds, by state and kind."""
    with start_netinit(plane, "admin", "doctor", "--cluster", "-o", "json") as begun:
        out, err = begun.communicate(timeout=150)
    assert out, err
    return {(one["state"], one["kind"]): one for one in json.loads(out)["checks"]}


def test_the_doctor_of_the_cluster_hears_from_the_agent_itself_what_is_missing_on_its_node(cluster, runtime):
    wait_for_agent(cluster)
    assert examine_cluster(cluster)["ok", "ready"]["subjects"] == [f"node {NODE}"]
    executable, kept = runtime.folder / "bin" / "netinit-cni", runtime.folder / "netinit-cni"
    executable.rename(kept)
    (executable / "in the way").mkdir(parents=True)  # which no agent removes
    try:
        cluster.until(lambda: not any(is_so(pod, "Ready") for pod in agents(cluster)), "the agent is not ready", SECONDS)
        found = examine_cluster(cluster)["error", "plugin-missing"]
        assert found["subjects"] == [f"node {NODE}"]
        assert found["message"].startswith("the plugin is not in place: executable: /host/opt/cni/bin/netinit-cni is missing")
        assert found["remedy"].startswith(f"kubectl -n {NAMESPACE} logs netinit-node-")
    finally:
        (executable / "in the way").rmdir()
        executable.rmdir()
        kept.rename(executable)
        wait_for_agent(cluster)


def take_the_agent_away(plane):
    """No node is the DaemonSet's any more, so its pods go; the DaemonSet stays, and with it the plugin."""
    select(plane, {"nobody": "here"})
    plane.until(lambda: not agents(plane), "the agent's pod is gone", SECONDS)


def allow_the_agent(plane):
    select(plane, {"nobody": None})


def select(plane, labels):
    patch = {"spec": {"template": {"spec": {"nodeSelector": labels}}}}
    plane.ask("PATCH", f"{DAEMON_SETS}/{plane.daemon_set['metadata']['name']}", patch, kind="application/merge-patch+json")


def test_an_upgrade_of_the_agent_lets_no_pod_wait(cluster, runtime):
    before = {pod["metadata"]["uid"] for pod in agents(cluster)}
    names = []

    def is_replaced():
        cluster.bind(NAMESPACE)
        now = agents(cluster)
        if len(names) < 10:  # of 100 thousandths of a CPU each
            names.append(f"while-{len(names)}")
            stack.enter_context(created(cluster, names[-1]))
        return len(now) == 1 and now[0]["metadata"]["uid"] not in before and is_so(now[0], "Ready")

    with contextlib.ExitStack() as stack:
        patch = {"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}
        cluster.ask("PATCH", f"{DAEMON_SETS}/{cluster.daemon_set['metadata']['name']}", patch, kind="application/merge-patch+json")
        cluster.until(is_replaced, "another agent is there", 2 * SECONDS)
        for name in names:
            check_captured(runtime, wait_until_ready(cluster, name))
            assert not [told for told in cluster.events("shop", name) if "FailedCreatePodSandBox" in told]
    assert len(names) > 3


def test_pods_that_start_at_once_are_all_captured(cluster, runtime):
    names = [f"many-{number}" for number in range(6)]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(created(cluster, name))
        for name in names:
            check_captured(runtime, wait_until_ready(cluster, name))


@pytest.mark.parametrize(("native", "phase", "code"), [("false", "Running", "NI313"), ("true", "Succeeded", "")])
def test_a_job_ends_with_its_application_only_beside_a_native_sidecar_and_why_says_so(cluster, tmp_path, native, phase, code):
    jobs, name = "/apis/batch/v1/namespaces/shop/jobs", f"job-{native}"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": IMAGE}]}}
    job = cluster.create(jobs, {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}})
    pod = make_pod(name, image="localhost/netinit:latest", args=["version"])  # which ends at once
    pod["spec"]["restartPolicy"] = "Never"
    pod["metadata"] |= {
        "generateName": f"{name}-", "annotations": {"sidecar.istio.io/nativeSidecar": native},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}],
    }
    cluster.pod("shop", pod, dry_run=False)
    try:
        cluster.until(lambda: state_of(cluster.find_pod("shop", name), "app").get("terminated", {}).get("exitCode") == 0, "the application ends", SECONDS)
        cluster.until(lambda: cluster.find_pod("shop", name)["status"]["phase"] == phase, f"the pod is {phase}", SECONDS)
        there = cluster.find_pod("shop", name)
        assert ("running" in state_of(there, "istio-proxy")) == (phase == "Running")
        (tmp_path / "pod.json").write_text(json.dumps(there))
        found = why_of_files(read_asked(), [str(tmp_path / "pod.json")], "", Options(), Outlook())
        assert (found.cause.code if found.cause else "") == code, found.text
    finally:
        cluster.ask("DELETE", f"/api/v1/namespaces/shop/pods/{name}?gracePeriodSeconds=0")
        cluster.ask("DELETE", f"{jobs}/{name}")


# kubectl netinit, with a kubelet behind the API server. The namespace `open` admits what kubectl debug adds.
READS = {"apiGroups": [""], "resources": ["pods", "services", "namespaces"], "verbs": ["get", "list"]}
SLICES = {"apiGroups": ["discovery.k8s.io", "apps"], "resources": ["endpointslices", "deployments"], "verbs": ["get", "list"]}
RIGHTS = {
    "ann": [
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings"], "verbs": ["list"]},
    ],
    "ben": [
        {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods/log", "pods/attach"], "verbs": ["get", "create"]},
    ],
    "cat": [],
}
BY_AGENT, BY_CONTAINER = "live rules, read through the node agent netinit-system/netinit-node-", "live rules, read by the ephemeral container netinit-"
BY_MANIFEST = "only the pod's manifest: what the rules should be; the live ones were not read"
EXAMPLES = Path(__file__).parents[2] / "examples"
DEBUG_IMAGE = "localhost/netinit:debug"  # of another tag than `latest`, which is pulled always


@pytest.fixture(scope="module")
def shop(cluster, runtime):
    """Two pods of a Deployment `web` that everybody may read, a Service `db`, and who may do what."""
    runtime.ctr("-n", "k8s.io", "images", "tag", "--force", "localhost/netinit:latest", DEBUG_IMAGE)
    cluster.namespace("open", **{"istio-injection": "enabled"})
    cluster.create("/api/v1/namespaces/open/configmaps", {"metadata": {"name": "istio-ca-root-cert"}, "data": {"root-cert.pem": ""}})
    cluster.until(lambda: cluster.ask("GET", "/api/v1/namespaces/open/serviceaccounts/default"), "the account is there")
    rights = "/apis/rbac.authorization.k8s.io/v1"
    for user, rules in RIGHTS.items():
        cluster.create(f"{rights}/clusterroles", {"metadata": {"name": user}, "rules": [READS, SLICES, *rules]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
        cluster.create(f"{rights}/clusterrolebindings", {"metadata": {"name": user}, "roleRef": role, "subjects": [{"kind": "User", "name": user}]})
        (cluster.folder / f"{user}.kubeconfig").write_text(json.dumps(cluster.kubeconfig(ADMIN, user)))
    service = cluster.create("/api/v1/namespaces/open/services", {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}})
    cluster.create("/apis/discovery.k8s.io/v1/namespaces/open/endpointslices", {
        "metadata": {"name": "db-1", "labels": {"kubernetes.io/service-name": "db"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.9.9"], "conditions": {"ready": True}}], "ports": [{"port": 6432}],
    })  # fmt: skip
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": IMAGE}]}}
    deployment = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}}
    cluster.create("/apis/apps/v1/namespaces/open/deployments", deployment)
    for name, noted in (("web-a", {}), ("web-b", {}), ("web-c", {"traffic.sidecar.istio.io/excludeOutboundPorts": "5432"})):
        pod = make_pod(name)
        pod["metadata"] |= {"labels": {"app": "web"}, "annotations": noted}
        cluster.pod("open", pod, dry_run=False)
    found = {name: wait_until_ready(cluster, name, "open") for name in ("web-a", "web-b", "web-c")}
    yield {"ClusterIP": service["spec"]["clusterIP"], **found}
    for name in found:
        cluster.ask("DELETE", f"/api/v1/namespaces/open/pods/{name}?gracePeriodSeconds=0")


def start_netinit(plane, user, *words):
    """`kubectl netinit` as this user, with the kubectl of the assets; the plugin is what kubectl starts by its name."""
    beside = Path(sys.executable).parent
    assert (beside / "kubectl-netinit").exists()
    environ = {
        **os.environ, "PATH": f"{plane.assets}:{beside}:{os.environ['PATH']}", "HOME": str(plane.folder),
        "KUBECONFIG": str(plane.folder / f"{user}.kubeconfig"), "NETINIT_IMAGE": DEBUG_IMAGE,
    }  # fmt: skip
    where = () if {"--cluster", "-n"}.intersection(words) else ("-n", "open")
    return subprocess.Popen(["kubectl", "netinit", *words, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def netinit(plane, user, *words, code=0):
    with start_netinit(plane, user, *words) as begun:
        out, err = begun.communicate(timeout=150)
    assert begun.returncode == code, (begun.returncode, out, err)
    return out


def test_kubectl_netinit_asks_the_agent_of_the_pod_s_node(cluster, shop):
    told = netinit(cluster, "ann", "explain", "web-a", "--to", "db:5432")
    assert told.startswith(f"open/web-a: {BY_AGENT}"), told
    assert f"service db.open, its ClusterIP, {shop['ClusterIP']}:5432:" in told
    assert "service db.open, endpoint 1 of 1, 10.1.9.9:6432:" in told
    assert told.count("captured: goes to the proxy on 15001") == 2
    own = shop["web-b"]["status"]["podIP"]
    assert f"{own}:80:" in netinit(cluster, "ann", "explain", "web-a", "--to", "pod/web-b:80")
    assert "127.0.0.1:80:" in netinit(cluster, "ann", "explain", "web-a", "--to", "localhost:80")
    (pod,) = json.loads(netinit(cluster, "ann", "audit", "web-a", "-o", "json"))["pods"]
    assert pod["source"].startswith(BY_AGENT)
    assert pod["answers"][0]["answer"]["pods"][0]["traffic"]
    assert "as planned" in netinit(cluster, "ann", "verify", "web-a")
    assert BY_AGENT in netinit(cluster, "ann", "doctor", "web-a")


def test_of_a_deployment_the_differing_pod_comes_first(cluster, shop):
    told = netinit(cluster, "ann", "explain", "deploy/web", "--to", "db:5432")
    heads = [line.partition(":")[0] for line in told.splitlines() if line.startswith("open/")]
    assert heads == ["open/web-c", "open/web-a", "open/web-b"]
    assert told.splitlines()[-1] == "3 pods: 2 different answers"


def test_check_sees_the_live_rules_and_finds_the_pod_whose_rules_somebody_changed(cluster, runtime, shop):
    rows = {row["name"]: row for row in json.loads(netinit(cluster, "ann", "check", "-o", "json"))["pods"]}
    assert {name: (row["injected"], row["rules"]) for name, row in rows.items()} == dict.fromkeys(("web-a", "web-b", "web-c"), (True, "as planned")), rows
    path = runtime.namespace(runtime.find_sandbox(shop["web-b"]["metadata"]["uid"]))
    rule = ["-t", "nat", "-I", "OUTPUT", "1", "-p", "tcp", "--dport", "5432", "-j", "ACCEPT"]
    subprocess.run(["nsenter", f"--net={path}", "iptables", "-w", *rule], check=True)
    told = netinit(cluster, "ann", "check", code=3)
    assert told.splitlines()[1].split()[:4:3] == ["pod/web-b", "different"]
    assert "direct" in netinit(cluster, "ann", "explain", "web-b", "--to", "db:5432")
    subprocess.run(["nsenter", f"--net={path}", "iptables", "-w", *[word.replace("-I", "-D") for word in rule if word != "1"]], check=True)


@pytest.mark.parametrize("words", [("explain", "--to", "db:5432"), ("audit",), ("verify",), ("doctor",)], ids=lambda words: words[0])
def test_without_the_right_to_the_agent_an_ephemeral_container_reads_the_rules(cluster, shop, words):
    told = netinit(cluster, "ben", words[0], "web-a", *words[1:])
    assert told.startswith(f"open/web-a: {BY_CONTAINER}"), told
    assert "name its namespace with --agent-namespace" in told


@pytest.mark.parametrize(("words", "code"), [(("explain", "--to", "db:5432"), 0), (("audit",), 0), (("check",), 0), (("verify",), 1)], ids=str)
def test_without_any_right_the_manifest_answers_and_says_so(cluster, shop, words, code):
    if words == ("check",):
        rows = json.loads(netinit(cluster, "cat", "check", "-o", "json"))["pods"]
        assert {row["rules"] for row in rows} == {"not read"}
        assert all("--agent-namespace" in row["reasonNotRead"] and row["bypasses"] is not None for row in rows), rows
        return
    with start_netinit(cluster, "cat", words[0], "web-a", *words[1:]) as begun:
        out, err = begun.communicate(timeout=150)
    assert begun.returncode == code, (out, err)
    if code:
        assert "verify needs the live state, which a manifest does not show" in err
    else:
        assert out.startswith(f"open/web-a: {BY_MANIFEST}")
        assert 'cannot patch resource "pods/ephemeralcontainers"' in out


def program(runtime, pod, *words):
    path = runtime.namespace(runtime.find_sandbox(pod["metadata"]["uid"]))
    subprocess.run(["nsenter", f"--net={path}", "iptables", "-w", *words], check=True)


@pytest.mark.parametrize("user", ["ann", "ben"])
def test_fix_brings_changed_rules_back_by_the_agent_or_an_ephemeral_container(cluster, runtime, shop, user):
    program(runtime, shop["web-b"], "-t", "nat", "-D", "ISTIO_OUTPUT", "1")
    program(runtime, shop["web-b"], "-t", "nat", "-I", "ISTIO_OUTPUT", "1", "-p", "tcp", "--dport", "5432", "-j", "RETURN")
    before = netinit(cluster, user, "fix", "web-b", "--dry-run", code=3)
    assert before.startswith("open/web-b: "), before
    assert "difference" in before.splitlines()[0]
    assert "extra: IPv4 nat ISTIO_OUTPUT" in before
    with start_netinit(cluster, user, "fix", "web-b") as begun:
        _, err = begun.communicate(timeout=150)
    assert (begun.returncode, "--yes: there is no terminal to confirm on" in err) == (2, True), err
    assert netinit(cluster, user, "fix", "web-b", "--dry-run", code=3) == before, "neither changed anything"
    assert netinit(cluster, user, "fix", "web-b", "--yes").splitlines()[-1] == "open/web-b: 1 rule restored, 1 removed: as planned"
    assert netinit(cluster, user, "fix", "web-b", "--yes") == "open/web-b: as planned, nothing to do\n"
    check_captured(runtime, shop["web-b"])


def test_fix_leaves_the_rules_of_who_may_only_look(cluster, runtime, shop):
    program(runtime, shop["web-b"], "-t", "nat", "-I", "ISTIO_OUTPUT", "1", "-p", "tcp", "--dport", "5432", "-j", "RETURN")
    with start_netinit(cluster, "cat", "fix", "web-b", "--yes") as begun:
        out, err = begun.communicate(timeout=150)
    assert (begun.returncode, 'cannot patch resource "pods/ephemeralcontainers"' in err) == (1, True), (out, err)
    assert "direct" in netinit(cluster, "ann", "explain", "web-b", "--to", "db:5432")
    netinit(cluster, "ann", "fix", "deploy/web", "--yes")
    assert "as planned" in netinit(cluster, "ann", "verify", "web-b")


def find_pid(pod):
    """The process id of a container of the pod, as docs/install.md finds it: the pod's uid is in the name of its control group."""
    uid = pod["metadata"]["uid"]
    listed = subprocess.run(["sh", "-c", 'grep -Els "$1" /proc/[0-9]*/cgroup', "sh", f"{uid}|{uid.replace('-', '_')}"], capture_output=True, text=True, check=False)
    return listed.stdout.split()[0].split("/")[2]


def debug_node(plane, *words):
    """What netinit's image says and how it ends as a debug container of the node: root, in the node's namespaces of processes and networks."""
    options = ("--image", DEBUG_IMAGE, "--profile=sysadmin", f"--custom={EXAMPLES / 'kubectl-debug.yaml'}", "--attach", "--arguments-only")
    status, out, err = plane.kubectl("debug", f"node/{NODE}", "-n", "open", *options, "--", *words)
    assert status == 0, (out, err)
    name = re.search(rf"node-debugger-{NODE}-[a-z0-9]+", out + err)[0]
    path = f"/api/v1/namespaces/open/pods/{name}"
    plane.until(lambda: plane.ask("GET", path)["status"]["phase"] in {"Succeeded", "Failed"}, f"{words} end", SECONDS)
    pod = plane.ask("GET", path)
    logs = plane.kubectl("logs", "-n", "open", name)
    plane.ask("DELETE", f"{path}?gracePeriodSeconds=0")
    assert logs[0] == 0, logs
    return state_of(pod, "debugger")["terminated"]["exitCode"], logs[1], out + err


def test_a_debug_container_of_the_node_verifies_explains_and_programs_a_pod_by_a_process_id(cluster, runtime, shop):
    """The image has one executable and no shell."""
    pid = find_pid(shop["web-b"])
    code, told, attached = debug_node(cluster, "verify", "--pid", pid)
    assert (code, told.splitlines()[-1].startswith("as planned")) == (0, True), told
    assert "as planned" in attached
    code, told, _ = debug_node(cluster, "explain", "--pid", pid, "--to", "203.0.113.7:443", "--uid", "1000")
    assert (code, "captured: goes to the proxy on 15001" in told) == (0, True), told
    program(runtime, shop["web-b"], "-t", "nat", "-I", "ISTIO_OUTPUT", "1", "-p", "tcp", "--dport", "443", "-j", "RETURN")
    report = netinit(cluster, "ann", "report", "web-b", "--source", "manifest").partition("## Options")[2]
    options = shlex.split(re.search("^netinit apply (.*)$", report, re.MULTILINE)[1])
    code, told, _ = debug_node(cluster, "verify", "--pid", pid, *options)
    assert (code, "extra: IPv4 nat ISTIO_OUTPUT" in told) == (3, True), told
    assert "direct" in debug_node(cluster, "explain", "--pid", pid, "--to", "203.0.113.7:443", "--uid", "1000")[1]
    code, told, _ = debug_node(cluster, "apply", "--reconcile", "--pid", pid, *options)
    assert code == 0, told
    code, told, _ = debug_node(cluster, "verify", "--pid", pid, *options)
    assert code == 0, told
    check_captured(runtime, shop["web-b"])
    assert "as planned" in netinit(cluster, "ann", "verify", "web-b")
    code, told, _ = debug_node(cluster, "doctor", "--pid", pid)
    assert code == 0, told


def test_a_report_has_rules_options_doctor_and_versions_and_no_name_of_the_cluster(cluster, shop):
    told = netinit(cluster, "ann", "report", "web-a")
    sections = [line for line in told.splitlines() if line.startswith("## ")]
    assert sections[:3] == ["## Versions", "## Pod", "## Options"]
    for expected in ("netinit apply", "netinit verify: exit code 0", "netinit doctor: exit code", "ISTIO_OUTPUT", "istio-validation"):
        assert expected in told, expected
    addresses = [one["ip"] for one in shop["web-a"]["status"]["podIPs"]]
    for name in ("web-a", shop["web-a"]["spec"]["nodeName"], *addresses):
        assert name not in told, name
    assert "open/web-a" in netinit(cluster, "ann", "report", "web-a", "--plain")


def test_preflight_finds_nothing_wrong_with_what_runs_and_what_would_not(cluster, shop):
    sound = ("--set", "image.repository=registry.test/mesh/netinit-webhook", "--set", "injection.values.global.proxy.image=registry.test/mesh/proxy:1")
    told = netinit(cluster, "admin", "preflight", *sound, code=1)
    (error,) = [line for line in told.splitlines() if line.startswith("✘")]
    assert error.startswith("✘ Namespace shop: its PodSecurity level restricted refuses injected pods"), told
    assert "remedy: set node.enabled=true" in told
    agent = ("-n", NAMESPACE, "--set", "node.enabled=true", "--set", "node.image.repository=registry.test/mesh/netinit-node")  # of the release that is there
    told = netinit(cluster, "admin", "preflight", *sound, *agent)
    assert "✘" not in told, told
    told = netinit(cluster, "admin", "preflight", *agent, "--set", "image.repository=mesh/netinit-webhook")
    assert "its image mesh/netinit-webhook:" in told, told
    assert "names no registry" in told, told
    told = netinit(cluster, "cat", "preflight", *sound, *agent, code=1)
    assert "cannot list resource" in told, told


def test_a_process_of_the_agent_that_is_killed_is_replaced_in_the_same_container(cluster, runtime):
    (agent,) = agents(cluster)
    name = agent["metadata"]["name"]
    tasks = [line.split()[1] for line in runtime.ctr("-n", "k8s.io", "tasks", "list").stdout.splitlines()[1:]]
    (first,) = [pid for pid in tasks if b"--daemonSetName=netinit-node" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    answering = int(min(children, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])))  # the oldest: ids begin anew
    os.kill(answering, signal.SIGKILL)
    with running(cluster, "after-a-kill") as pod:
        check_captured(runtime, pod)
    cluster.until(lambda: "was killed by signal 9; starting another" in cluster.logs(NAMESPACE, name), "the log says it")
    (status,) = cluster.find_pod(NAMESPACE, name)["status"]["containerStatuses"]
    assert status["restartCount"] == agent["status"]["containerStatuses"][0]["restartCount"]


def test_the_agent_of_a_second_release_is_refused_and_its_end_takes_nothing_from_the_first(cluster, runtime):
    cluster.namespace("second", **{"pod-security.kubernetes.io/enforce": "privileged"})
    trees = [tree for tree in objects("second", "second", (), (*cluster.values, "revision=canary", "node.monitoringPort=15115")) if "second-node" in tree["metadata"]["name"]]
    for tree in trees:
        cluster.apply(tree)

    def is_refused():
        cluster.bind("second")
        return "the agent of another release, netinit-system/netinit-node, answers the plugin" in cluster.logs("second", "second-node-*")

    cluster.until(is_refused, "it is refused", SECONDS)
    with running(cluster, "beside-two") as pod:
        check_captured(runtime, pod)
    cluster.ask("DELETE", "/apis/apps/v1/namespaces/second/daemonsets/second-node?propagationPolicy=Background")
    cluster.ask("DELETE", "/api/v1/namespaces/second")
    cluster.until(lambda: not cluster.ask("GET", "/api/v1/namespaces/second/pods")["items"], "its pods are gone", SECONDS)
    with running(cluster, "after-two") as pod:
        check_captured(runtime, pod)
    assert any(is_so(pod, "Ready") for pod in agents(cluster))


@needs_helm
def test_the_pod_of_helm_test_ends_well_where_it_is_captured_and_there_alone(cluster, runtime):
    """Helm installs the chart; `helm test` itself wants an API server that publishes OpenAPI as protobuf, which not every build does."""
    runtime.ctr("-n", "k8s.io", "images", "import", Path(os.environ["NETINIT_NODE_IMAGES"]) / "netinit-webhook.tar")
    own = ("image.repository=localhost/netinit-webhook", "image.tag=latest", "image.pullPolicy=Never", "test.namespace=shop")
    values = [word for text in (*cluster.values, *own) for word in ("--set", text)]
    said = run_helm(cluster, "install", "netinit", CHART, "--take-ownership", "--disable-openapi-validation", *values)
    assert f"helm test netinit --namespace {NAMESPACE}\n" in said
    wait_for_agent(cluster)
    (tree,) = [one for one in goyaml.load_all(run_helm(cluster, "get", "hooks", "netinit")) if one]
    phase, said = run_test_pod(cluster, tree)
    assert (phase, "captured: the proxy accepted a connection to 192.0.2.1:80, and none to 9" in said) == ("Succeeded", True), said
    tree["metadata"]["labels"]["sidecar.istio.io/inject"] = "false"
    phase, said = run_test_pod(cluster, tree)
    assert (phase, "not captured: no process accepted a connection to 192.0.2.1:80" in said) == ("Failed", True), said


def test_the_plugin_goes_with_the_namespace_of_the_release_and_new_namespaces_start_pods(cluster, runtime):
    """The last test: there is no agent after it."""
    before = [path for path in (runtime.folder / "net.d").iterdir() if "netinit-cni" in path.read_text()]
    assert before
    cluster.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    cluster.until(lambda: not agents(cluster), "the agent's pod is gone", SECONDS)
    assert [path for path in (runtime.folder / "net.d").iterdir() if "netinit-cni" in path.read_text()] == []
    assert not (runtime.folder / "bin" / "netinit-cni").exists()
    cluster.namespace("later")
    cluster.until(lambda: cluster.ask("GET", "/api/v1/namespaces/later/serviceaccounts/default"), "the account is there")
    cluster.pod("later", make_pod("plain"), dry_run=False)
    wait_until_ready(cluster, "plain", "later")
