"""`kubectl netinit why` against a kubectl that replays answers: what it reads, by which right, and what it makes of what it may not."""

from __future__ import annotations

import json

import pytest

import netinit.cli.why
import netinit.kubectl.why
from kubectl_calls import AGENTS, ASKED, FAKE, POD, WEB
from netinit.kubectl.cluster_objects import RESOURCES
from netinit.kubectl.why import write_words
from netinit.questions.connections import Question
from schemas import check_schema

FORBIDDEN = "Error from server (Forbidden): not allowed\n"
NO_TYPE = 'error: the server doesn\'t have a resource type "peerauthentications"\n'
SHOP = [
    {"words": POD, "file": "pod-web.json"},
    {"words": "get namespace shop *", "file": "namespace-shop.json"},
    {"words": "get service db -n shop *", "file": "service-db.json"},
    {"words": "get endpointslices.v1.discovery.k8s.io -n shop -l kubernetes.io/service-name=db *", "file": "slices-db.json"},
]
NOTHING = [{"words": "get networkpolicies* *"}, {"words": "get peerauthentications* *"}, {"words": "get destinationrules* *"}, {"words": "get configmap istio -n istio-system *"}, {"words": "get serviceentries* *"}, {"words": "get sidecars* *"}, {"words": "get authorizationpolicies* *"}, {"words": "get virtualservices* *"}, {"words": "get pods -n shop -l app=db *"}, {"words": "get deployment db *"}]


def read(name):
    return json.loads((FAKE / "shop" / name).read_text())


def answer_of(verdict, listeners=(), sentence="captured: goes to the proxy on 15001"):
    told = {"verdict": verdict, "sentence": sentence, "packet": {"direction": "outbound"}, "original_destination": "10.96.14.3:5432", "listeners": list(listeners), "others": []}
    return {"words": f"{ASKED}explain*", "stdout": json.dumps({"code": 0, "answer": json.dumps(told), "notes": ""}) + "\n"}


def test_only_get_and_list_are_asked_of_the_cluster_where_there_is_no_agent(kubectl):
    done = kubectl(f"why {WEB} -n shop --to db:5432", *SHOP, *NOTHING)
    assert {words[0] for words in kubectl.calls} == {"get"}, kubectl.calls
    assert done.code == 0, done
    assert '✔ service: Service "shop/db": exists, with port 5432 (postgres) to 6432 of its pods' in done.out
    assert "listeners: who listens is not known" in done.out
    assert "manifests alone: the live pod was not read" in done.err


def test_listeners_of_the_live_pod_are_read_through_the_agent(kubectl):
    refused = {"who": "proxy", "code": "NI301", "text": "nothing listens on 15001 (the proxy is not up): the connection is refused", "outcome": "refused"}
    done = kubectl(f"why {WEB} -n shop --to db:5432", *SHOP, *NOTHING, *AGENTS, answer_of("captured", [refused]))
    assert done.code == 3, done
    assert done.out.startswith("✘ listeners: the proxy: nothing listens on 15001")
    (question,) = kubectl.questions
    assert question["words"][-4:] == ["outbound", "--to", "10.96.14.3:5432", "--json"]
    assert "live rules, read in the pod's network namespace" in done.err


def test_what_may_not_be_read_is_not_known_and_says_why(kubectl):
    refused = [{"words": f"get {name}* *", "stderr": FORBIDDEN, "status": 1} for name in ("service", "namespace", "networkpolicies", "peerauthentications", "destinationrules")]
    done = kubectl(f"why {WEB} -n shop --to db:5432 --source manifest", SHOP[0], *refused)
    assert done.code == 0, done
    assert '? service: Service "shop/db": it is not known whether it exists: Service objects could not be read' in done.out
    assert "Forbidden" in done.out


def test_kinds_that_are_not_installed_have_no_objects(kubectl):
    missing = [{"words": f"get {name}* *", "stderr": NO_TYPE, "status": 1} for name in ("peerauthentications", "destinationrules", "authorizationpolicies")]
    done = kubectl(f"why {WEB} -n shop --from 10.9.9.9 --port 8080 --source manifest", *SHOP, *missing, {"words": "get networkpolicies* *"}, {"words": "get services -n shop *"}, {"words": "get endpointslices* *"}, {"words": "get pods -A *"})
    assert done.code == 0, done
    assert "plain text is sent, and taken (PERMISSIVE)" in done.out


@pytest.mark.parametrize("kind", RESOURCES)
def test_every_kind_that_is_read_is_named_in_the_help(kind):
    plural = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
    for module in (netinit.cli.why, netinit.kubectl.why):
        assert plural in module.command.help, module.__name__


def test_a_name_without_a_service_is_looked_for_in_other_namespaces(kubectl):
    other = read("service-db.json")
    other["metadata"] |= {"namespace": "data"}
    answers = [*SHOP[:2], {"words": "get service db -n shop *"}, {"words": "get services -A --field-selector=metadata.name=db *", "file": "others.json"}, *NOTHING]
    done = kubectl(f"why {WEB} -n shop --dns db", *answers, files={"others.json": {"kind": "List", "apiVersion": "v1", "items": [other]}})
    assert (done.code, "write db.data" in done.out) == (3, True), done


def test_a_host_that_is_not_registered_is_the_cause_where_the_mesh_says_so(kubectl):
    mesh = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "istio", "namespace": "istio-system"}, "data": {"mesh": "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"}}
    given = {"words": "get configmap istio -n istio-system *", "file": "mesh.json"}
    done = kubectl(f"why {WEB} -n shop --to api.example.com:443 --source manifest", given, *SHOP, *NOTHING, files={"mesh.json": mesh})
    assert (done.code, "(NI334)" in done.out.splitlines()[0]) == (3, True), done


SIDECAR = {"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": "s", "namespace": "data"}, "spec": {"egress": [{"hosts": ["istio-system/*"]}]}}


def test_the_sidecar_of_a_client_s_own_namespace_is_read(kubectl):
    client = read("pod-web.json")
    client["metadata"] |= {"name": "api", "namespace": "data", "labels": {"app": "api"}}
    strict = {"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication", "metadata": {"name": "all", "namespace": "shop"}, "spec": {"mtls": {"mode": "STRICT"}}}
    web = read("service-db.json")
    web["metadata"] |= {"name": "web"}
    web["spec"] |= {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080, "name": "http"}]}
    files = {"api.json": client, "sidecars.json": SIDECAR, "strict.json": strict, "web.json": web}
    given = [{"words": "get pod api -n data *", "file": "api.json"}, {"words": "get namespace data *"}, {"words": "get services -n shop *", "file": "web.json"},
             {"words": "get sidecars* -n data *", "file": "sidecars.json"}, {"words": "get peerauthentications* -n shop *", "file": "strict.json"}, {"words": "get endpointslices* *"}]  # fmt: skip
    done = kubectl(f"why {WEB} -n shop --from data/api --port 8080 --source manifest", *given, *SHOP, *NOTHING, files=files)
    assert (done.code, "(NI327)" in done.out, 'Sidecar "data/s" does not import the Service' in done.out) == (3, True, True), done


def test_the_root_namespace_is_the_one_that_the_mesh_names(kubectl):
    mesh = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "istio", "namespace": "istio-system"}, "data": {"mesh": "rootNamespace: defaults\n"}}
    given = {"words": "get configmap istio -n istio-system *", "file": "mesh.json"}
    kubectl(f"why {WEB} -n shop --to db:5432 --source manifest", given, *SHOP, *NOTHING, files={"mesh.json": mesh})
    asked = [" ".join(words) for words in kubectl.calls]
    for kind in ("peerauthentications", "destinationrules", "sidecars"):
        assert [one for one in asked if f"get {kind}" in one and "-n defaults" in one], asked
        assert not [one for one in asked if f"get {kind}" in one and "-n istio-system" in one], asked


def test_a_sidecar_that_may_not_be_read_leaves_the_registry_open(kubectl):
    mesh = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "istio", "namespace": "istio-system"}, "data": {"mesh": "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n"}}
    given = [{"words": "get configmap istio -n istio-system *", "file": "mesh.json"}, {"words": "get sidecars* *", "stderr": FORBIDDEN, "status": 1}]
    done = kubectl(f"why {WEB} -n shop --to api.example.com:443 --source manifest", *given, *SHOP, *NOTHING, files={"mesh.json": mesh})
    assert (done.code, "? registry" in done.out, "Sidecar objects could not be read" in done.out) == (0, True, True), done


def test_the_answer_in_json_has_its_schema(kubectl):
    done = kubectl(f"why {WEB} -n shop --to db:5433 -o json", *SHOP, *NOTHING)
    tree = json.loads(done.out)
    check_schema(tree, "why")
    assert (done.code, tree["cause"]["code"]) == (3, "NI319"), done


def test_a_pod_on_its_node_s_network_and_one_without_an_address_are_examined_too(kubectl):
    pod = read("pod-web.json")
    pod["spec"] |= {"hostNetwork": True, "initContainers": [], "containers": pod["spec"]["containers"][:1]}
    pod["status"] = {"phase": "Pending"}
    done = kubectl(f"why {WEB} -n shop --dns db", {"words": POD, "file": "host.json"}, *SHOP[1:], *NOTHING, {"words": "get mutating* *"}, files={"host.json": pod})
    assert (done.code, "NI332" in done.out) == (3, True), done


def test_of_a_workload_without_pods_the_template_is_examined(kubectl):
    answers = [{"words": "get deployment web -n shop *", "file": "deployment-web.json"}, {"words": "get pods -n shop -l app=web *"}, *SHOP[1:], *NOTHING, {"words": "get mutating* *"}]
    done = kubectl("why deploy/web -n shop --to db:5433", *answers)
    assert (done.code, 'Deployment "shop/web", to "db:5433"' in done.out) == (3, True), done


def test_an_agent_that_is_wanted_and_not_there_is_an_error(kubectl):
    done = kubectl(f"why {WEB} -n shop --to db:5432 --source agent", *SHOP, *NOTHING)
    assert (done.code, "app.kubernetes.io/name=netinit-node" in done.err) == (1, True), done


@pytest.mark.parametrize("names", ["--to db", "--from a/b/c", "--port 80", "--to db:80 --probe"])
def test_a_wrong_question_is_refused_before_the_cluster_is_asked(kubectl, names):
    done = kubectl(f"why {WEB} -n shop {names}", *SHOP)
    assert (done.code, kubectl.calls) == (2, []), done


def test_a_question_is_written_as_explain_takes_it():
    assert write_words(Question("inbound", source="10.1.1.1", to_port="80", interface="net1", udp=True)) == (
        "inbound", "--from", "10.1.1.1", "--to-port", "80", "--interface", "net1", "--udp", "--json",
    )  # fmt: skip
