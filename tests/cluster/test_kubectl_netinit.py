"""`kubectl netinit` with a real kubectl and a real API server; there is no kubelet, so nothing is executed in a pod."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from control_plane import ETCD
from netinit.base.errors import ClusterError
from netinit.kube.resources import PAGE
from netinit.kubectl.objects import read_pod
from netinit.kubectl.program import Kubectl
from netinit.kubectl.sources import EphemeralSource, PodQuestion
from netinit.options import Options

SHOP = "kubectl-shop"
ARGS = ["istio-iptables", "-p", "15001", "-u", "1337", "-i", "*", "-b", "*"]


def make_pod(name, address, *exclude):
    init = {"name": "istio-init", "image": "mesh/netinit:0.2.0", "args": [*ARGS, *exclude], "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
    spec = {"nodeName": "worker-1", "initContainers": [init], "containers": [{"name": "app", "image": "app:1"}, {"name": "istio-proxy", "image": "p:1"}]}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec, "status": status}


@pytest.fixture(scope="module")
def shop(plane):
    plane.namespace(SHOP, **{"istio-injection": "enabled"})
    where = f"/api/v1/namespaces/{SHOP}"
    for name, address, *exclude in (("web-a", "10.1.0.4"), ("web-b", "10.1.0.5"), ("web-c", "10.1.0.6", "-x", "10.78.0.0/16")):
        pod = make_pod(name, address, *exclude)
        plane.create(f"{where}/pods", pod)
        plane.ask("PATCH", f"{where}/pods/{name}/status", {"status": pod["status"]}, kind="application/strategic-merge-patch+json")
    ports = [{"name": "postgres", "port": 5432, "targetPort": 6432}]
    service = plane.create(f"{where}/services", {"metadata": {"name": "db"}, "spec": {"selector": {"app": "db"}, "ports": ports}})
    plane.create(f"/apis/discovery.k8s.io/v1/namespaces/{SHOP}/endpointslices", {
        "metadata": {"name": "db-1", "labels": {"kubernetes.io/service-name": "db"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.9.9"], "conditions": {"ready": True}}], "ports": [{"name": "postgres", "port": 6432}],
    })  # fmt: skip
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    deployment = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}}
    plane.create(f"/apis/apps/v1/namespaces/{SHOP}/deployments", deployment)
    return service["spec"]["clusterIP"]


def find_program(plane):
    return str(plane.assets / "kubectl") if (plane.assets / "kubectl").exists() else shutil.which("kubectl")


def ask(plane, tmp_path, *words, namespace=SHOP, kubeconfig=None):
    """`netinit kubectl WORDS` as the administrator, or with another kubeconfig; without -n where the namespace is empty."""
    (tmp_path / "kubectl").symlink_to(find_program(plane)) if not (tmp_path / "kubectl").exists() else None
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig or plane.folder / "admin.kubeconfig"), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "netinit", "kubectl", *words, *(("-n", namespace) if namespace else ())]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120, check=False, cwd=Path(__file__).parents[2])


def test_a_deployment_and_a_service_become_pods_and_addresses(plane, shop, tmp_path):
    done = ask(plane, tmp_path, "explain", "deploy/web", "--to", "db:5432", "--source", "manifest")
    assert done.returncode == 0, done.stderr
    heads = [line.partition(":")[0] for line in done.stdout.splitlines() if line.startswith(SHOP)]
    assert heads == [f"{SHOP}/web-c", f"{SHOP}/web-a", f"{SHOP}/web-b"]
    assert f"its ClusterIP, {shop}:5432:" in done.stdout
    assert "endpoint 1 of 1, 10.1.9.9:6432:" in done.stdout, done.stdout


def test_check_lists_the_pods(plane, shop, tmp_path):
    done = ask(plane, tmp_path, "check", "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["pods"]}
    assert {name: (row["injected"], row["rules"]) for name, row in rows.items()} == dict.fromkeys(("web-a", "web-b", "web-c"), (True, "not read"))
    assert len(rows["web-c"]["bypasses"]) > len(rows["web-a"]["bypasses"])


def test_kubectl_debug_takes_the_container_that_is_asked_for(plane, shop, tmp_path):
    kubectl = Kubectl(find_program(plane), (f"--kubeconfig={plane.folder / 'admin.kubeconfig'}",), {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    pod = read_pod(kubectl.get("pod", "web-a", "-n", SHOP))
    question = PodQuestion("verify", ("--json",), Options.from_argv(["-i", "*", "-b", "8080"]))
    with pytest.raises(ClusterError, match='does not end: "it has not started"'):
        EphemeralSource(kubectl, "mesh/netinit:0.2.0", seconds=0.5, pause=0.1).ask(pod, question)
    (made,) = plane.ask("GET", f"/api/v1/namespaces/{SHOP}/pods/web-a")["spec"]["ephemeralContainers"]
    assert made["image"] == "mesh/netinit:0.2.0"
    assert made["args"][0] == "verify"
    assert made["args"][-1] == "--json"
    assert "NET_ADMIN" in made["securityContext"]["capabilities"]["add"]
    assert not made.get("command")


def test_why_reads_with_get_and_list_and_names_the_first_cause(plane, shop, tmp_path):
    done = ask(plane, tmp_path, "why", "web-a", "--to", "db:5432", "--source", "manifest", "--json")
    tree = json.loads(done.stdout)
    steps = {one["step"]: one["outcome"] for one in tree["steps"]}
    assert (done.returncode, tree["cause"]) == (0, None), done.stdout + done.stderr
    assert (steps["service"], steps["protocol"], steps["rules"], steps["network policy"]) == ("passed", "unknown", "passed", "passed"), tree
    missing = ask(plane, tmp_path, "why", "deploy/web", "--to", "db:5433", "--json")
    assert (missing.returncode, json.loads(missing.stdout)["cause"]["code"]) == (3, "NI319"), missing.stdout + missing.stderr
    named = ask(plane, tmp_path, "why", "web-a", "--dns", "nowhere", "--json")
    assert (named.returncode, json.loads(named.stdout)["cause"]["code"]) == (3, "NI318"), named.stdout + named.stderr


# Before the second page is asked for, etcd forgets the revision that the first one was of, as the API server makes it do every five
# minutes. The API server's own copy follows.
FORGETFUL = """#!/bin/sh
case $* in *continue=*)
    if ! [ -e {folder}/forgotten ]; then
        : > {folder}/forgotten
        {kubectl} --kubeconfig={admin} label namespace {namespace} forgotten=yes >&2
        {python} {folder}/compact.py
        for second in $(seq 120); do
            {kubectl} "$@" 2>&1 >/dev/null | grep -q Expired && break
            sleep 1
        done
    fi ;;
esac
exec {kubectl} "$@"
"""
COMPACT = """
import base64, json, urllib.request
def ask(what, body):
    request = urllib.request.Request("http://127.0.0.1:{etcd}/v3/" + what, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
revision = ask("kv/range", {{"key": "AA=="}})["header"]["revision"]
ask("kv/put", {{"key": base64.b64encode(b"compact_rev_key").decode(), "value": base64.b64encode(revision.encode()).decode()}})
ask("kv/compaction", {{"revision": revision, "physical": True}})
"""


@pytest.mark.parametrize("is_forgotten", [True, False], ids=["forgotten", "kept"])
def test_check_goes_on_by_namespace_where_the_api_server_has_forgotten_the_list_of_all_pods(plane, tmp_path, is_forgotten):
    """More pods than a page holds, in two namespaces with injection: each is told once, whichever way they were listed."""
    names = [f"kubectl-{'forgotten' if is_forgotten else 'kept'}-{letter}" for letter in "ab"]
    wanted = set()
    for name, count in zip(names, (PAGE - 1, 3), strict=True):
        plane.namespace(name, **{"istio-injection": "enabled"})
        with ThreadPoolExecutor(8) as pool:
            pods = [make_pod(f"web-{number}", "10.1.0.4") for number in range(count)]
            list(pool.map(partial(plane.create, f"/api/v1/namespaces/{name}/pods"), pods))
        wanted |= {(name, f"web-{number}") for number in range(count)}
    try:
        program = tmp_path / "kubectl"
        if is_forgotten:
            (tmp_path / "compact.py").write_text(COMPACT.format(etcd=ETCD))
            program.write_text(FORGETFUL.format(folder=tmp_path, kubectl=find_program(plane), admin=plane.folder / "admin.kubeconfig", namespace=names[0], python=sys.executable))
            program.chmod(0o755)
        done = ask(plane, tmp_path, "check", "-A", "-o", "json", namespace="")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "forgotten").exists() is is_forgotten
        told = [(row["namespace"], row["name"]) for row in json.loads(done.stdout)["pods"]]
        assert len(told) == len(set(told)), "no pod twice"
        assert {one for one in told if one[0] in names} == wanted
    finally:
        for name in names:
            plane.ask("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
