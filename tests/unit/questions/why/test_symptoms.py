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
from why_objects import CLOSED, DB, MESH, NAMESPACE, OPEN, TO_DB, only, report, service, sidecar, workload
from why_situations import CASES, Situation, examine, live, recipient


def ask(*texts, whole=(), answer=None, **asked):
    """The report about the workload `web` among these objects; its Namespace asks for injection."""
    found = examine(Situation(texts, asked, whole, answer=answer))
    check_schema(found.to_object(), "why")
    return found


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
        found = ask(workload(), service(), DB, answer=live(listeners=[{**taken, "code": code}]), **TO_DB)
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
    found = ask(workload(), service(), DB, answer=live(listeners=[given]), **TO_DB)
    assert found.cause, name
    assert (found.cause.code, found.cause.name) == (code, "listeners"), found.text


def test_a_timeout_by_a_rule_that_drops_is_named_with_the_rule():
    dropped = {"verdict": "dropped", "sentence": "dropped: it is dropped, because rule 1 of filter OUTPUT", "listeners": []}
    found = ask(workload(), service(), DB, answer=live(**dropped), **TO_DB)
    assert (found.cause.code, "rule 1 of filter OUTPUT" in found.cause.text) == ("NI312", True)


def test_an_answer_that_is_lost_is_a_cause():
    found = ask(workload(), service(), DB, answer=live(answer={"arrives": False, "reason": "x"}), **TO_DB)
    assert found.cause.code == "NI220"


def test_what_a_live_pod_names_by_flags_is_named_as_its_author_does():
    change = {"change": "remove 5432 from --istio-local-outbound-ports-exclude", "verdict": "captured"}
    direct = {"verdict": "direct", "sentence": "direct: goes out", "changes": [change], "listeners": []}
    found = ask(workload(), service(), DB, answer=live(**direct), **TO_DB)
    assert found.cause.remedy == "remove 5432 from annotation traffic.sidecar.istio.io/excludeOutboundPorts"


def test_live_rules_that_are_not_those_of_the_pod_s_options_are_a_cause_that_fix_ends():
    direct = {"verdict": "direct", "sentence": "direct: goes out", "changes": [{"change": "netinit apply --reconcile", "verdict": "captured"}], "listeners": []}
    found = ask(workload(), service(), DB, answer=live(**direct), **TO_DB)
    assert (found.cause.name, found.cause.code) == ("rules", "NI333"), found.text
    assert found.cause.text == "direct: goes out; the live rules are not those that the pod asks for"
    assert found.cause.remedy == "kubectl netinit fix POD, or on the node: netinit apply --reconcile"


def test_udp_that_passes_the_proxy_is_no_cause():
    found = ask(workload(), service("[{port: 514, protocol: UDP, name: log}]"), DB, to="db:514", udp=True)
    assert found.cause is None, found.text
    assert "the proxy handles TCP only" in found.text


def test_a_healthy_connection_has_no_cause():
    found = ask(workload(), service(), DB, answer=live(), whole=("NetworkPolicy", "PeerAuthentication", "DestinationRule", "Sidecar", "AuthorizationPolicy", "VirtualService"), **TO_DB)
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


def test_a_name_of_two_parts_is_one_of_a_namespace_that_is_given_even_with_nothing_in_it():
    data = "apiVersion: v1\nkind: Namespace\nmetadata: {name: data}"
    found = ask(workload(), data, whole=("Service",), to="db.data:80")
    assert (found.cause and found.cause.code) == "NI318", found.text


def test_a_name_is_asked_for_by_the_service_s_port_and_an_endpoint_s_address_by_the_pod_s():
    ports = "[{port: 80, targetPort: 8080, name: tcp-a}, {port: 8080, targetPort: 9090, name: tcp-b}]"
    slices = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}\nendpoints: [{addresses: [10.0.0.9]}]"
    for to, said in (("db:8080", "port 8080 (tcp-b) to 9090"), ("10.96.0.7:8080", "port 8080 (tcp-b) to 9090"), ("10.0.0.9:8080", "port 80 (tcp-a) to 8080")):
        found = ask(workload(), service(ports, ", clusterIP: 10.96.0.7"), slices, DB, to=to)
        assert [step.text for step in found.steps if step.name == "service"] == [f"exists, with {said} of its pods"], found.text


def test_a_client_s_connection_comes_from_its_own_address():
    client = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "api", "namespace": "shop"}, "spec": {"containers": [{"name": "api"}]}}
    excludes = workload(annotations='netinit.io/exclude-inbound-cidrs: "10.9.0.0/16"')
    for address, verdict in (("10.9.1.2", "direct"), ("10.8.1.2", "captured")):
        found = ask(excludes, json.dumps({**client, "status": {"podIP": address}}), client="api", port="8080")
        assert [step.text.partition(":")[0] for step in found.steps if step.name == "rules"] == [verdict], found.text


def test_of_many_mistakes_in_a_manifest_the_first_are_told_and_the_others_counted():
    names = [f"traffic.sidecar.istio.io/excludeOutboundPort{letter}" for letter in "abcdefg"]
    misplaced = ', annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "1"}'
    found = ask(workload(annotations=", ".join(f'{name}: "1"' for name in names), top=misplaced))
    steps = [step for step in found.steps if step.name == "manifest"]
    assert [(step.outcome, step.code) for step in steps[:5]] == [("failed", "NI106")] * 5
    assert [(step.outcome, step.about, step.text) for step in steps[5:]] == [("unknown", 'Deployment "shop/web"', "1 more of 6 findings is not examined")]


@pytest.mark.parametrize(("interface", "outcome"), [("net1", "failed"), ("", "unknown"), ("eth0", "unknown")])
def test_what_ends_the_capture_of_a_second_network_is_said_wherever_a_connection_comes_in(interface, outcome):
    found = ask(workload(annotations="k8s.v1.cni.cncf.io/networks: storage"), client="192.168.5.7", port="8080", interface=interface)
    (step,) = [step for step in found.steps if step.code == "NI315"]
    assert (step.outcome, step.remedy) == (outcome, "add net1 to annotation traffic.sidecar.istio.io/excludeInterfaces"), found.text


def test_a_query_is_asked_about_over_udp():
    config = "proxy.istio.io/config: 'proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\"}'"
    spec = "dnsPolicy: None, dnsConfig: {nameservers: [10.96.0.10]}, containers: [{name: web, image: web}]"
    for protocol, verdict in (("udp", "direct"), ("tcp", "captured")):
        excludes = f"{config}, netinit.io/exclude-outbound-for-uids: '{protocol}:53:1-60000'"
        found = ask(workload(spec, annotations=excludes), name="api.example.com")
        assert [step.text.partition(":")[0] for step in found.steps if step.name == "rules"] == [verdict], found.text
        assert ("the proxy handles TCP only, so the mesh does nothing to UDP" in found.text) is (verdict == "direct"), found.text


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


def test_what_is_left_out_of_long_lists_is_counted():
    ready = [{"addresses": [f"10.0.0.{number}"], "conditions": {"ready": True}} for number in range(1, 9)]
    slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "endpoints": ready, "ports": [{"name": "tcp-sql", "port": 5432}]}
    slices["metadata"] = {"name": "db-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "db"}}
    found = report(service(more=", clusterIP: None"), json.dumps(slices), to="db:5432")
    texts = [step.text for step in found.steps if step.name == "rules"]
    assert len(texts) == 6, texts
    assert texts[-1] == "3 more of 8 addresses are not examined"
    names = [f"p{number}" for number in range(1, 8)]
    ports = json.dumps([{"port": number, "name": name} for number, name in enumerate(names, 80)])
    (lacking,) = [step.text for step in report(service(ports), to="db:5432").steps if step.text.startswith("has no port")]
    assert lacking.endswith(" and 2 more")
