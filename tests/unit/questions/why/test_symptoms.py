"""Symptoms that developers report, each with the objects that cause it: the first step that fails names the cause."""

from __future__ import annotations

import json

import pytest
import yaml

from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_objects
from netinit.options import Options
from netinit.questions.why.asked import read_asked
from netinit.questions.why.objects import read_objects
from schemas import check_schema
from why_objects import CLOSED, DB, MESH, NAMESPACE, OPEN, STRICT, TO_DB, only, service, sidecar, workload


def ask(*texts, whole=(), explain=None, **asked):
    """The report about the workload `web` among these objects; its Namespace asks for injection."""
    trees = [tree for text in (NAMESPACE, *texts) for tree in yaml.safe_load_all(text)]
    known = read_objects(trees, whole=whole)
    chosen = next(one for one in known.workloads if one.name == "web")
    found = why_of_objects(read_asked(**asked), chosen, known, options=Options(), outlook=Outlook(), explain=explain)
    check_schema(found.to_object(), "why")
    return found


def live(*, listeners=(), answer=None):
    """What a live pod answers: captured, with these recipients."""
    told = {
        "verdict": "captured", "sentence": "captured: goes to the proxy", "packet": {"direction": "outbound"}, "original_destination": "10.0.0.1:5432",
        "listeners": list(listeners),
    }  # fmt: skip
    return lambda _: {**told, **(answer or {})}


def recipient(code, text, outcome="refused", who="proxy"):
    return {"who": who, "code": code, "text": text, "outcome": outcome}


MISSPELT = 'traffic.sidecar.istio.io/excludeOutboundPort: "5432"'
OLD_SIDECAR = 'sidecar.istio.io/nativeSidecar: "false"'
CASES = {  # symptom -> objects, question, code, words of the cause, words of the remedy
    "an annotation is misspelt": ([workload(annotations=MISSPELT)], {}, "NI106", "excludeOutboundPort", "did you mean traffic.sidecar.istio.io/excludeOutboundPorts"),
    "an annotation is on the Deployment": ([workload(top=', annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "5432"}')], {}, "NI107", "has no effect", "spec.template.metadata.annotations"),
    "works as root only: the application has the proxy's user": (
        [workload("containers: [{name: web, image: web, securityContext: {runAsUser: 1337}}]"), service(), DB], TO_DB, "NI017", "1337", "runAsUser"),
    "an init container hangs": (
        [workload("initContainers: [{name: istio-validation, image: i, args: [--run-validation, --skip-rule-apply]}, {name: migrate, image: m}], containers: [{name: web, image: web}, {name: istio-proxy, image: p}]")],
        {}, "NI105", "no network", "native sidecars"),
    "an external address goes past the proxy": (
        [workload(annotations="traffic.sidecar.istio.io/includeOutboundIPRanges: 10.0.0.0/8")], {"to": "8.8.8.8:443"}, "NI311", "past the proxy", "includeOutboundIPRanges"),
    "an excluded port is sent in plain text": (
        [workload(annotations='traffic.sidecar.istio.io/excludeOutboundPorts: "5432"'), service(), DB, STRICT], TO_DB, "NI311", "plain text", "remove 5432 from annotation traffic.sidecar.istio.io/excludeOutboundPorts"),
    "DNS is slow": ([workload()], {"name": "api.example.com"}, "NI331", "costs 8 queries", "api.example.com."),
    "a headless Service is refused": ([workload(), service("[{port: 80, targetPort: 5432, name: tcp}]", ", clusterIP: None"), DB], {"to": "db:80"}, "NI322", "headless", "5432"),
    "a probe fails": (
        [workload("containers: [{name: web, image: web, readinessProbe: {httpGet: {path: /, port: 8080}}}]", annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false"'), STRICT],
        {"probe": True}, "NI329", "STRICT", 'rewriteAppHTTPProbers: "true"'),
    "a hook of the kubelet fails": (
        [workload("containers: [{name: web, image: web, lifecycle: {preStop: {httpGet: {path: /, port: 8080}}}}]", annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false"'), STRICT],
        {"probe": True}, "NI329", "STRICT", 'rewriteAppHTTPProbers: "true"'),
    "NXDOMAIN of a short name": ([workload(), service(namespace="data")], TO_DB, "NI318", "NXDOMAIN", "db.data"),
    "NXDOMAIN by --dns": ([workload(), service(namespace="data")], {"name": "db"}, "NI318", "NXDOMAIN", "db.data"),
    "NXDOMAIN of a pod that asks its node's servers": ([workload("dnsPolicy: Default, containers: [{name: web, image: web}]"), service(), DB], TO_DB, "NI332", "NXDOMAIN", "ClusterFirst"),
    "a Job never ends": ([workload("restartPolicy: Never, containers: [{name: web, image: web}]", OLD_SIDECAR, "Job")], {}, "NI313", "never ends", "nativeSidecar"),
    "address already in use": ([workload("containers: [{name: web, image: web, ports: [{containerPort: 15001}]}]")], {}, "NI314", "15001", "another port"),
    "address already in use by another container": (
        [workload("containers: [{name: web, image: web, ports: [{containerPort: 80}]}, {name: log, image: l, ports: [{containerPort: 80}]}]")], {}, "NI314", '"log"', "own port"),
    "metrics are unreachable": (
        [workload(annotations='prometheus.io/port: "9090"'), STRICT], {"client": "10.9.9.9", "port": "9090"}, "NI327", "plain text", "15020"),
    "a server that speaks first": ([workload(), service("[{port: 3307, targetPort: 3306, name: db}]"), DB], {"to": "db:3307"}, "NI326", "server speaks first", "appProtocol: tcp"),
    "a port named http with another protocol": ([workload(), service("[{port: 5432, name: http-sql}]"), DB], TO_DB, "NI325", "PostgreSQL", "appProtocol: tcp"),
    "appProtocol http with another protocol": ([workload(), service("[{port: 6379, appProtocol: HTTP}]"), DB], {"to": "db:6379"}, "NI325", "Redis", "appProtocol: tcp"),
    "a UDP port is asked by TCP": ([workload(), service("[{port: 514, protocol: UDP, name: log}]"), DB], {"to": "db:514"}, "NI324", "UDP", "--udp"),
    "a second interface": (
        [workload(annotations="k8s.v1.cni.cncf.io/networks: storage")], {"client": "192.168.5.7", "port": "8080", "interface": "net1"}, "NI315", "net1", "excludeInterfaces"),
    "a client on the host's network": (
        [workload(), DB.replace("name: db, namespace", "name: agent, namespace").replace("spec: {containers", "spec: {hostNetwork: true, containers"), STRICT],
        {"client": "agent", "port": "8080"}, "NI327", "hostNetwork: true", "hostNetwork"),
    "a client outside of the mesh": (
        [workload(), DB.replace("labels: {app: db}", 'labels: {app: db, sidecar.istio.io/inject: "false"}'), STRICT], {"client": "db", "port": "8080"}, "NI327", "not in the mesh", "inject"),
    "a DestinationRule turns TLS off": (
        [workload(), service(), DB, STRICT, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: off, namespace: shop}\nspec: {host: db, trafficPolicy: {tls: {mode: DISABLE}}}"],
        TO_DB, "NI327", "DISABLE", "ISTIO_MUTUAL"),
    "a DestinationRule wants TLS of a server without a proxy": (
        [workload(), service(), DB.replace("labels: {app: db}", 'labels: {app: db, sidecar.istio.io/inject: "false"}'),
         "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: on, namespace: shop}\nspec: {host: db.shop.svc.cluster.local, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}"],
        TO_DB, "NI328", "no proxy", "leave out"),
    "a selector that matches nothing": ([workload(), service(more=", selector: {app: database}"), DB], TO_DB, "NI320", "app=database", "selector"),
    "no endpoint is ready": (
        [workload(), service(), DB, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}\nendpoints: [{addresses: [10.0.0.9], conditions: {ready: false}}]"],
        TO_DB, "NI320", "none is ready", "--probe"),
    "a port that the Service lacks": ([workload(), service(), DB], {"to": "db:5433"}, "NI319", "5432 (tcp-sql)", "5432"),
    "a targetPort by a name that no container has": ([workload(), service("[{port: 5432, name: tcp, targetPort: psql}]"), DB], TO_DB, "NI321", "psql", "containerPort"),
    "an ExternalName that is an address": ([workload(), service(more=", type: ExternalName, externalName: 10.1.2.3")], TO_DB, "NI323", "10.1.2.3", "EndpointSlice"),
    "a probe of a port name that does not exist": (
        [workload("containers: [{name: web, image: web, livenessProbe: {httpGet: {port: health}}}]")], {"probe": True}, "NI330", "health", "containerPort"),
    "a pod that is not injected": ([workload(labels='app: web, sidecar.istio.io/inject: "false"'), service(), DB, STRICT], TO_DB, "NI310", "no proxy", "sidecar.istio.io/inject"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_first_step_that_fails_names_the_cause(name):
    objects, asked, code, words, remedy = CASES[name]
    found = ask(*objects, **asked)
    assert found.cause, found.text
    assert (found.cause.code, words in found.cause.text, remedy in found.cause.remedy) == (code, True, True), found.text
    assert found.text.startswith("✘ "), "the cause comes first"


ONLY = MESH.replace("SETTINGS", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
ENTRY = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: [HOST], addresses: [203.0.113.0/24, bad], endpoints: [{address: 198.51.100.9}]}"
ALL = ("ServiceEntry", "Service", "Sidecar")


@pytest.mark.parametrize(
    ("mesh", "entries", "to", "whole", "outcome"),
    [
        (ONLY, (), "api.example.com:443", ALL, "failed"),
        (ONLY, (), "api.example.com:443", (), "unknown"),
        (ONLY, (), "203.0.113.7:443", ALL, "failed"),
        (ONLY, (), "203.0.113.7:443", ("ServiceEntry", "Sidecar"), "unknown"),
        (ONLY, (), "203.0.113.7:443", ("ServiceEntry", "Service"), "failed"),
        (ONLY, ("x.example",), "203.0.113.7:443", ("ServiceEntry", "Service"), "asks"),
        (ONLY, ("x.example",), "203.0.113.7:443", ALL, "passed"),
        (ONLY, ("x.example",), "198.51.100.9:443", ALL, "unknown"),
        (ONLY, ("x.example",), "198.51.100.8:443", ALL, "failed"),
        (ONLY, ("API.example.com",), "api.example.com:443", ALL, "passed"),
        (ONLY, ('"*.example.com"',), "api.example.com:443", ALL, "passed"),
        (ONLY, ('"*.example.com"',), "example.com:443", ALL, "failed"),
        (ONLY, ("other.example.com",), "api.example.com:443", ALL, "failed"),
        (MESH.replace("SETTINGS", "{}"), (), "api.example.com:443", ("Sidecar",), "passed"),
        (MESH.replace("SETTINGS", "{}"), (), "api.example.com:443", (), "asks"),
        (MESH.replace("SETTINGS", "{"), (), "api.example.com:443", ALL, "unknown"),
        (MESH.replace("SETTINGS", "[]"), (), "api.example.com:443", ALL, "passed"),
        (NAMESPACE, (), "api.example.com:443", ALL, "unknown"),
    ],
)  # fmt: skip
def test_what_is_not_registered_is_reset_where_the_mesh_passes_on_nothing_else(mesh, entries, to, whole, outcome):
    found = ask(workload(), mesh, *[ENTRY.replace("HOST", one) for one in entries], whole=whole, to=to)
    (step,) = [one for one in found.steps if one.name == "registry"]
    outcome, code = ("unknown", "") if outcome == "asks" else (outcome, "" if outcome == "passed" else "NI334")
    assert (step.outcome, step.code) == (outcome, code), found.text
    assert (found.cause == step) == (outcome == "failed")




SELF = "workloadSelector: {labels: {app: web}}"





@pytest.mark.parametrize(
    ("sidecars", "to", "mesh", "outcome"),
    [
        ((sidecar(CLOSED),), "api.example.com:443", "{}", "failed"),
        ((sidecar(OPEN),), "api.example.com:443", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "passed"),
        ((sidecar(CLOSED, "istio-system"),), "api.example.com:443", "{}", "failed"),
        ((sidecar(CLOSED, "istio-system"), sidecar(OPEN)), "api.example.com:443", "{}", "passed"),
        ((sidecar(CLOSED), sidecar(f"{OPEN}, {SELF}")), "api.example.com:443", "{}", "passed"),
        ((sidecar(CLOSED, made="2026-02-01T00:00:00Z"), sidecar(OPEN)), "api.example.com:443", "{}", "passed"),
        ((sidecar(f"{CLOSED}, workloadSelector: {{labels: {{app: other}}}}"),), "api.example.com:443", "{}", "passed"),
        ((sidecar(CLOSED, "data"),), "api.example.com:443", "{}", "passed"),
        ((sidecar(only("~/*")),), "db:5432", "{}", "failed"),
        ((sidecar(only("~/*", mode="ALLOW_ANY")),), "db:5432", "{}", "passed"),
        ((sidecar(only("./*")),), "db:5432", "{}", ""),
        ((sidecar(only("istio-system/*", "shop/db.shop.svc.cluster.local")),), "db:5432", "{}", ""),
        ((sidecar(only("*/api.shop.svc.cluster.local")),), "db:5432", "{}", "failed"),
        ((sidecar("egress: [5, {hosts: [~]}, {hosts: 7}], workloadSelector: [], outboundTrafficPolicy: 5"),), "db:5432", "{}", "passed"),
    ],
)  # fmt: skip
def test_a_sidecar_resource_decides_what_the_proxy_knows_and_what_becomes_of_the_rest(sidecars, to, mesh, outcome):
    whole = ALL
    found = ask(workload(), service(), DB, MESH.replace("SETTINGS", mesh), *sidecars, whole=whole, to=to)
    steps = [one for one in found.steps if one.name == "registry"]
    assert [one.outcome for one in steps] == ([outcome] if outcome else []), found.text
    assert (found.cause in steps) == (outcome == "failed"), found.text


def test_what_a_sidecar_does_not_import_is_not_registered_by_a_service_entry():
    entry, mesh = ENTRY.replace("HOST", "api.example.com"), MESH.replace("SETTINGS", "{}")
    for hosts, code in (("./*", None), ("istio-system/*", "NI334"), ("*/*.example.com", None), ("~/*", "NI334")):
        one = sidecar(only(hosts))
        found = ask(workload(), mesh, entry, one, whole=ALL, to="api.example.com:443")
        assert (found.cause and found.cause.code) == code, (hosts, found.text)


def test_a_service_and_what_goes_past_the_proxy_are_not_asked_about_in_the_registry():
    past = workload(annotations='traffic.sidecar.istio.io/excludeOutboundPorts: "443"')
    for found in (ask(workload(), service(), DB, ONLY, whole=ALL, **TO_DB), ask(past, ONLY, whole=ALL, to="203.0.113.7:443")):
        assert not [one for one in found.steps if one.name == "registry"], found.text


@pytest.mark.parametrize(("limit", "words"), [("5s", "loses 5s"), ("0.1s", "loses 0.1s"), ("0s", "until one gives up"), ("", "until one gives up")])
def test_a_server_that_speaks_first_is_as_slow_as_the_mesh_waits_for_the_client(limit, words):
    mesh = MESH.replace("SETTINGS", f"protocolDetectionTimeout: {limit}")
    found = ask(workload(), service("[{port: 3307, targetPort: 3306, name: db}]"), DB, mesh, to="db:3307")
    assert (found.cause.code, words in found.cause.text) == ("NI326", True), found.text


def test_a_process_of_another_user_on_the_proxy_s_port_is_the_cause():
    taken = {"who": "proxy", "text": "0.0.0.0:15001 (uid 1000) gets it", "outcome": "accepted", "users": [1000]}
    for code in ("NI380", None):
        found = ask(workload(), service(), DB, explain=live(listeners=[{**taken, "code": code}]), **TO_DB)
        assert (found.cause and found.cause.code) == code, found.text


@pytest.mark.parametrize(
    ("name", "given", "code"),
    [
        ("connection refused: the proxy is not up", recipient("NI301", "nothing listens on 15001"), "NI301"),
        ("connection refused: the application is on loopback", recipient("NI305", "listens on 127.0.0.1", who="application"), "NI305"),
        ("timeout: the queue is full", recipient("NI307", "the accept queue is full", "unanswered"), "NI307"),
        ("timeout: TPROXY without a transparent socket", recipient("NI303", "is not transparent", "unanswered"), "NI303"),
    ],
)
def test_who_listens_in_a_live_pod_is_the_cause(name, given, code):
    found = ask(workload(), service(), DB, explain=live(listeners=[given]), **TO_DB)
    assert found.cause, name
    assert (found.cause.code, found.cause.name) == (code, "listeners"), found.text


def test_a_timeout_by_a_rule_that_drops_is_named_with_the_rule():
    dropped = {"verdict": "dropped", "sentence": "dropped: it is dropped, because rule 1 of filter OUTPUT", "listeners": []}
    found = ask(workload(), service(), DB, explain=live(answer=dropped), **TO_DB)
    assert (found.cause.code, "rule 1 of filter OUTPUT" in found.cause.text) == ("NI312", True)


def test_an_answer_that_is_lost_is_a_cause():
    found = ask(workload(), service(), DB, explain=live(answer={"answer": {"arrives": False, "reason": "x"}}), **TO_DB)
    assert found.cause.code == "NI220"


def test_what_a_live_pod_names_by_flags_is_named_as_its_author_does():
    change = {"change": "remove 5432 from --istio-local-outbound-ports-exclude", "verdict": "captured"}
    direct = {"verdict": "direct", "sentence": "direct: goes out", "changes": [change], "listeners": []}
    found = ask(workload(), service(), DB, explain=live(answer=direct), **TO_DB)
    assert found.cause.remedy == "remove 5432 from annotation traffic.sidecar.istio.io/excludeOutboundPorts"


def test_udp_that_passes_the_proxy_is_no_cause():
    found = ask(workload(), service("[{port: 514, protocol: UDP, name: log}]"), DB, to="db:514", udp=True)
    assert found.cause is None, found.text
    assert "the proxy handles TCP only" in found.text


def test_a_healthy_connection_has_no_cause():
    found = ask(workload(), service(), DB, explain=live(), whole=("NetworkPolicy", "PeerAuthentication", "DestinationRule", "Sidecar", "AuthorizationPolicy", "VirtualService"), **TO_DB)
    assert {step.outcome for step in found.steps} == {"passed"}, found.text
    assert found.text.startswith("✔ no cause found: every step is as it should be")


def test_network_policies_that_select_either_end_are_named_and_not_judged():
    policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: NAME, namespace: shop}\nspec: {podSelector: {matchLabels: {app: APP}}, policyTypes: [TYPE]}"
    texts = [policy.replace("NAME", name).replace("APP", app).replace("TYPE", kind) for name, app, kind in (
        ("out", "web", "Egress"), ("in", "db", "Ingress"), ("other-way", "web", "Ingress"), ("others", "x", "Egress"))]  # fmt: skip
    found = ask(workload(), service(), DB, *texts, **TO_DB)
    assert found.cause is None
    assert [step.about for step in found.steps if step.name == "network policy"] == ['NetworkPolicy "shop/in"', 'NetworkPolicy "shop/out"']


def test_a_pod_on_its_node_s_network_is_told_to_leave_it():
    found = ask(workload("hostNetwork: true, containers: [{name: web, image: web}]"), service(), DB, **TO_DB)
    (step,) = [step for step in found.steps if step.name == "injection"]
    assert (step.outcome, step.code, step.remedy) == ("unknown", "NI101", "remove hostNetwork: true if it is to be in the mesh")


def test_what_could_not_be_read_is_unknown_and_says_why():
    known = read_objects(yaml.safe_load_all(NAMESPACE + "---\n" + workload()), unread={"Service": "Forbidden", "NetworkPolicy": "Forbidden"})
    found = why_of_objects(read_asked(**TO_DB), known.workloads[0], known, options=Options(), outlook=Outlook())
    assert [step.outcome for step in found.steps if step.name == "service"] == ["unknown"]
    assert "Service objects could not be read: Forbidden" in found.text
    assert found.text.startswith("? no cause found; not known: service")


def test_a_missing_service_is_a_cause_only_where_all_are_known():
    assert ask(workload(), **TO_DB).cause is None
    assert ask(workload(), whole=("Service",), **TO_DB).cause.code == "NI318"


def test_rules_that_tell_addresses_apart_are_not_judged_by_an_example():
    found = ask(workload(annotations="traffic.sidecar.istio.io/includeOutboundIPRanges: 10.0.0.0/8"), service(), DB, **TO_DB)
    assert found.cause is None
    assert 'the address of "db" is not known' in found.text


def test_a_host_of_two_parts_is_no_service_of_an_unknown_namespace():
    found = ask(workload(), whole=("Service",), to="example.com:443")
    assert found.cause is None, found.text
    assert "is taken for a host outside" in found.text


def test_names_of_objects_cannot_forge_lines():
    evil = "x\n✔ no cause found\x1b[2J"
    hostile = json.loads(json.dumps(yaml.safe_load(service())))
    hostile["spec"] |= {"ports": [{"port": 5432, "name": evil, "targetPort": evil}]}
    found = ask(workload(), json.dumps(hostile), DB, **TO_DB)
    assert "\x1b" not in found.text
    assert not [line for line in found.text.splitlines() if line.startswith("✔ no cause found")]


def test_other_objects_of_the_same_kind_are_not_taken_for_services():
    knative = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {template: {}}"
    assert ask(workload(), knative, whole=("Service",), **TO_DB).cause.code == "NI318"
