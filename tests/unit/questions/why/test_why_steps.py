"""What single steps make of their objects: names, ports, protocols, modes, statuses, and questions that are none."""

from __future__ import annotations

import pytest
import yaml

from netinit.base.errors import OptionError, ParseError
from netinit.inject.deciding.manifests import workload
from netinit.questions.why import objects as given_objects
from netinit.questions.why.asked import ServiceName, read_asked, read_service_name
from netinit.questions.why.interfaces import list_interfaces
from netinit.questions.why.mutual_tls import find_mode, find_rule
from netinit.questions.why.names import read_resolver
from netinit.questions.why.objects import ServicePort, list_endpoints, read_objects
from netinit.questions.why.pods import addresses_of, read_pod
from netinit.questions.why.protocols import DETECTED, HTTP, TCP, UDP, guess_application, read_protocol
from netinit.questions.why.sidecars import covers_host
from netinit.questions.why.start_up import examine_init_containers, examine_job, examine_order, examine_state
from netinit.questions.why.steps import MAX_STEPS, collect, passed


def port(number=80, name="", target="", protocol="TCP", app_protocol=""):
    return ServicePort(number=number, name=name, target=target or str(number), protocol=protocol, app_protocol=app_protocol)


@pytest.mark.parametrize(
    ("one", "taken"),
    [
        (port(name="http"), HTTP), (port(name="http-web"), HTTP), (port(name="HTTP2-x"), HTTP), (port(name="grpc-web-x"), HTTP),
        (port(name="tcp-http"), TCP), (port(name="mysql"), TCP), (port(name="web"), DETECTED), (port(), DETECTED), (port(3306), TCP),
        (port(3306, name="http"), HTTP), (port(3306, name="db"), TCP), (port(protocol="UDP", name="http"), UDP), (port(name="https"), "TLS"),
        (port(name="http", app_protocol="tcp"), TCP), (port(app_protocol="kubernetes.io/h2c"), HTTP), (port(app_protocol="kubernetes.io/wss"), "TLS"),
        (port(name="tcp", app_protocol="example.com/own"), DETECTED), (port(name="hbone"), DETECTED), (port(name="http_proxy"), HTTP),
        (port(name="redis-x"), TCP), (port(name="tls"), "TLS"), (port(53, name="dns"), TCP), (port(27017), TCP), (port(25, app_protocol="x"), TCP),
    ],
    ids=str,
)  # fmt: skip
def test_a_port_s_protocol_is_read_as_istio_reads_it(one, taken):
    assert read_protocol(one) == taken


@pytest.mark.parametrize(
    ("one", "speaks"),
    [(port(3307, target="3306"), "MySQL"), (port(name="http-mariadb"), "MySQL"), (port(8080), ""), (port(5432), "PostgreSQL"), (port(22), "SSH")],
    ids=str,
)
def test_what_speaks_on_a_port_is_told_by_name_number_or_target(one, speaks):
    assert guess_application(one) == speaks


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("db", ServiceName(name="db", namespace="shop")), ("db.data", ServiceName(name="db", namespace="data")),
        ("db.data.svc", ServiceName(name="db", namespace="data")), ("db.data.svc.cluster.local.", ServiceName(name="db", namespace="data")),
        ("db-0.db.data.svc", ServiceName(name="db", namespace="data", pod="db-0")), ("api.example.com", None), ("db.data.svc.example.com", None),
    ],
)  # fmt: skip
def test_a_name_is_that_of_a_service_as_dns_completes_it(host, name):
    assert read_service_name(host, "shop") == name


NO_PORT = "has no port; give db.shop:5432, 10.1.2.3:443 or [fd00::1]:443"
NOT_A_PORT = "is not a port; give a number from 1 to 65535, or a port's name"
NOT_A_NAME = "is not a name of DNS; give db, db.shop or api.example.com"
NO_CLIENT = "is neither an address nor a pod; give web, NAMESPACE/web or 10.1.2.3"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"to": "db"}, f'--to: "db" {NO_PORT}'), ({"to": ":80"}, f'--to: ":80" {NO_PORT}'), ({"to": "db:"}, f'--to: "db:" {NO_PORT}'),
        ({"to": "[x]:80"}, "--to: '[x]' is not an address in brackets; write [fd00::1]:443, or a name without brackets"),
        ({"to": "fd00::1:80"}, f'--to: "fd00::1:80" {NO_PORT}'),
        ({"to": "db:0"}, f'--to: "0" {NOT_A_PORT}'), ({"to": "db:99999"}, f'--to: "99999" {NOT_A_PORT}'), ({"to": "db:Http"}, f'--to: "Http" {NOT_A_PORT}'),
        ({"to": "db:sixteen-letters-"}, f'--to: "sixteen-letters-" {NOT_A_PORT}'), ({"client": "web", "port": "-a"}, f'--port: "-a" {NOT_A_PORT}'),
        ({"to": "d b:80"}, f'--to: "d b" {NOT_A_NAME}'), ({"name": "a..b"}, f'--dns: "a..b" {NOT_A_NAME}'),
        ({"name": "x" * 64}, f'--dns: "{"x" * 64}" {NOT_A_NAME}'), ({"name": f"{'x.' * 127}"}, f'--dns: "{"x." * 60}…" {NOT_A_NAME}'),
        ({"to": "db:80", "probe": True}, "--probe: --to asks something else; ask one at a time"),
        ({"client": "web", "name": "db"}, "--dns: --from asks something else; ask one at a time"),
        ({"port": "80"}, "--port: is about a connection; give it with --from"), ({"to": "db:80", "interface": "net1"}, "--interface: is about a connection; give it with --from"),
        ({"udp": True}, "--udp: is about a connection; give it with --to or --from"), ({"client": "web", "uid": "0"}, "--uid: is about a connection; give it with --to"),
        ({"client": "a/b/c"}, f'--from: "a/b/c" {NO_CLIENT}'), ({"client": "shop/"}, f'--from: "shop/" {NO_CLIENT}'), ({"client": "\x1b"}, f'--from: "\\x1b" {NO_CLIENT}'),
        ({"client": "x" * 254}, f'--from: "{"x" * 120}…" {NO_CLIENT}'),
    ],
    ids=str,
)  # fmt: skip
def test_a_question_that_is_none_is_refused_with_the_option_s_name(given, told):
    with pytest.raises(OptionError) as raised:
        read_asked(**given)
    assert str(raised.value) == told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "its start"), ({"probe": True}, "probes"), ({"name": "DB"}, 'the name "db"'), ({"to": "DB.shop:80"}, 'to "db.shop:80"'), ({"to": "[fd00::1]:80", "udp": True}, 'to "[fd00::1]:80" over UDP'),
        ({"client": "web"}, 'from "web"'), ({"client": "shop/web", "port": "http", "udp": True, "interface": "net1"}, 'from "shop/web" to port http over UDP on net1'),
        ({"client": "10.1.2.3", "port": "80"}, 'from "10.1.2.3" to port 80'), ({"name": f"{'x' * 63}.{'y.' * 94}z"}, f'the name "{"x" * 63}.{"y." * 28}…"'), ({"client": "x" * 253}, f'from "{"x" * 120}…"'),
    ],
    ids=str,
)  # fmt: skip
def test_a_question_in_words(given, words):
    assert read_asked(**given).words == words


def test_addresses_of_both_families_and_ports_by_name_are_questions():
    assert read_asked(to="[fd00::1]:80").to.address == "fd00::1"
    assert read_asked(to="10.1.2.3:80").to.number == 80
    assert read_asked(to="db:postgres").to.port == "postgres"
    assert read_asked().is_start


def pod(text, status=None, namespace="shop"):
    tree = yaml.safe_load(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: {namespace}, labels: {{app: web}}}}\nspec: {{{text}}}")
    return read_pod(workload({**tree, "status": status or {}}))


PROXY = "{name: istio-proxy, image: p}"


@pytest.mark.parametrize(
    ("spec", "host", "queries"),
    [
        ("containers: []", "db", 4), ("containers: []", "api.example.com.", 1), ("containers: []", "a.b.c.d.e.f", 4),
        ('dnsConfig: {options: [{name: ndots, value: "1"}]}', "api.example.com", 4), ("dnsPolicy: None, dnsConfig: {searches: [x.y]}", "a.b", 2),
        ("dnsPolicy: Default", "db", 1), ("hostNetwork: true", "db", 1), ("hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet", "db", 4),
        ('dnsConfig: {options: [{name: ndots, value: "99999999999999"}]}', "a.b", 4), ("dnsConfig: {searches: [a.b, {}, 7]}", "x", 5),
    ],
)  # fmt: skip
def test_the_queries_of_a_name_follow_dns_policy_and_ndots(spec, host, queries):
    assert len(read_resolver(pod(spec)).list_queries(host)) == queries


def test_with_ndots_of_one_a_name_with_a_dot_is_asked_as_it_is_first():
    one = pod('dnsConfig: {options: [{name: ndots, value: "1"}]}')
    assert read_resolver(one).list_queries("api.example.com")[0] == "api.example.com."


def authentications(*specs):
    texts = [f"apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: p{number}, namespace: {home}}}\nspec: {{{spec}}}" for number, (home, spec) in enumerate(specs)]
    return read_objects([yaml.safe_load(text) for text in texts])


OF_WEB = "selector: {matchLabels: {app: web}}"


@pytest.mark.parametrize(
    ("specs", "mode"),
    [
        ([], "PERMISSIVE"), ([("shop", "mtls: {mode: STRICT}")], "STRICT"), ([("other", "mtls: {mode: STRICT}")], "PERMISSIVE"),
        ([("istio-system", "mtls: {mode: STRICT}")], "STRICT"), ([("istio-system", "mtls: {mode: STRICT}"), ("shop", "mtls: {mode: DISABLE}")], "DISABLE"),
        ([("shop", "mtls: {mode: STRICT}"), ("shop", f"{OF_WEB}, mtls: {{mode: PERMISSIVE}}")], "PERMISSIVE"),
        ([("shop", f"{OF_WEB}, mtls: {{mode: STRICT}}, portLevelMtls: {{8080: {{mode: PERMISSIVE}}}}")], "PERMISSIVE"),
        ([("shop", f"{OF_WEB}, mtls: {{mode: STRICT}}, portLevelMtls: {{9090: {{mode: PERMISSIVE}}}}")], "STRICT"),
        ([("shop", "selector: {matchLabels: {app: db}}, mtls: {mode: STRICT}")], "PERMISSIVE"), ([("shop", "mtls: {mode: UNSET}"), ("istio-system", "mtls: {mode: STRICT}")], "STRICT"),
    ],
)  # fmt: skip
def test_the_mode_of_mutual_tls_is_that_of_the_nearest_object(specs, mode):
    known = authentications(*specs)
    trees = [{**one, "spec": {**one["spec"], "portLevelMtls": {str(key): value for key, value in one["spec"].get("portLevelMtls", {}).items()}}} for one in known.by_kind.get("PeerAuthentication", ())]
    assert find_mode(pod("containers: []"), 8080, read_objects(trees)).mode == mode


@pytest.mark.parametrize(("home", "is_doubtful"), [("shop", False), ("istio-system", True)])
def test_the_mode_of_the_pod_s_own_namespace_is_certain_whatever_else_could_not_be_read(home, is_doubtful):
    (tree,) = authentications((home, "mtls: {mode: STRICT}")).by_kind["PeerAuthentication"]
    known = read_objects([tree], unread={"PeerAuthentication": "Forbidden"})
    found = find_mode(pod("containers: []"), 8080, known)
    assert found.mode == "STRICT"
    assert found.doubt == ("PeerAuthentication objects could not be read: Forbidden" if is_doubtful else "")
    none = find_mode(pod("containers: []"), 8080, read_objects([], unread={"PeerAuthentication": "Forbidden"}))
    assert (none.mode, none.doubt) == ("PERMISSIVE", "PeerAuthentication objects could not be read: Forbidden")
    assert find_mode(pod("containers: []"), 8080, read_objects([], whole=["PeerAuthentication"])).doubt == ""


@pytest.mark.parametrize(
    ("host", "home", "is_found"),
    [("db", "shop", True), ("db", "data", False), ("db.shop", "data", False), ("db.shop.svc.cluster.local", "data", True), ("*.shop.svc.cluster.local", "data", True), ("*", "data", True), ("", "data", False), ("web", "shop", False)],
)
def test_a_destination_rule_counts_for_the_service_that_its_host_names(host, home, is_found):
    rule = {"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "r", "namespace": home}, "spec": {"host": host, "trafficPolicy": {"tls": {"mode": "DISABLE"}}}}
    service = {"metadata": {"name": "db", "namespace": "shop"}}
    assert find_rule(service, 80, pod("containers: []", namespace="data"), read_objects([rule])).mode == ("DISABLE" if is_found else "")


@pytest.mark.parametrize(
    ("text", "names"),
    [("storage", ["net1"]), ("a/storage@eth9, other", ["eth9", "net2"]), ('[{"name": "x", "interface": "ib0"}, {"name": "y"}]', ["ib0", "net2"]), ("[", []), ("", [])],
)
def test_multus_names_its_interfaces_by_the_annotation(text, names):
    assert list(list_interfaces(text)) == names


def test_the_oldest_form_of_endpoints_is_read_too():
    older = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "db", "namespace": "shop"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}, {"ip": "x"}]}]}
    assert [(one.address, one.is_ready) for one in list_endpoints(read_objects([older]), "shop", "db")] == [("10.0.0.1", True), ("10.0.0.2", False)]


def test_the_addresses_of_a_live_pod_are_those_of_its_status():
    status = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": ""}, 7], "podIP": "10.0.0.1"}
    live = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": []}, "status": status}
    template = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": []}}}, "status": status}
    assert [addresses_of(workload(tree)) for tree in (live, {**live, "status": {"podIP": "10.0.0.2"}}, {**live, "status": {}}, template)] == [["10.0.0.1", "fd00::1", "10.0.0.1"], ["10.0.0.2"], [], []]


@pytest.mark.parametrize(
    ("pattern", "host", "covers"),
    [
        ("db.shop.svc", "DB.shop.svc.", True), ("DB.shop.svc", "db.shop.svc", True), ("db.shop.svc", "db.shop.svc..", False), ("*", "x", True), ("*.example.com", "a.b.Example.com.", True),
        ("*.example.com", "example.com", False), ("*example.com", "example.com", True), ("db", "db.shop", False), ("db.", "db", False), ("db", "Xdb", False),
    ],
)  # fmt: skip
def test_a_host_of_a_list_is_taken_in_any_case_and_with_or_without_the_last_dot(pattern, host, covers):
    assert covers_host(pattern, host) is covers


def test_a_proxy_that_is_not_ready_is_a_cause_with_its_reason():
    status = {"containerStatuses": [{"name": "istio-proxy", "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
    (step,) = examine_state(pod(f"containers: [{PROXY}]", status))
    assert (step.code, "CrashLoopBackOff" in step.text, "kubectl logs" in step.shown_by) == ("NI317", True, True)


@pytest.mark.parametrize(("phase", "outcome"), [("Succeeded", "passed"), ("Failed", "passed"), ("Running", "failed"), ("", "failed")])
def test_a_proxy_that_has_ended_with_its_pod_is_no_cause(phase, outcome):
    ended = [{"name": "istio-proxy", "ready": False, "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]
    (step,) = examine_state(pod(f"containers: [{PROXY}]", {"phase": phase, "containerStatuses": ended}))
    assert step.outcome == outcome


def test_an_init_container_that_has_ended_is_no_cause():
    spec = f"initContainers: [{{name: istio-validation, image: i, args: [--run-validation, --skip-rule-apply]}}, {{name: m, image: m}}], containers: [{PROXY}]"
    ended = {"initContainerStatuses": [{"name": "m", "state": {"terminated": {"exitCode": 0}}}]}
    runs = {"initContainerStatuses": [{"name": "m", "state": {"running": {}}}]}
    asked = read_asked(to="db:80")
    assert [[step.outcome for step in examine_init_containers(pod(spec, status), asked)] for status in ({}, ended, runs)] == [["unknown"], ["passed"], ["failed"]]


def test_of_many_init_containers_before_the_proxy_the_pod_is_said_to_have_more():
    many = ", ".join(f"{{name: m{number}, image: m}}" for number in range(7))
    spec = f"initContainers: [{{name: istio-validation, image: i, args: [--run-validation, --skip-rule-apply]}}, {many}], containers: [{PROXY}]"
    *steps, last = examine_init_containers(pod(spec), read_asked())
    assert [(step.outcome, step.about) for step in steps] == [("failed", f'init container "m{number}"') for number in range(5)]
    assert (last.outcome, last.about, last.text) == ("unknown", 'Pod "shop/web"', "2 more of 7 init containers are not examined")


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        (f"initContainers: [{PROXY}], containers: []", ["passed"]), (f"containers: [{{name: web}}, {PROXY}]", ["unknown"]), ("containers: []", []),
        ("containers: [{name: istio-proxy, lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}}, {name: web}]", ["passed"]),
    ],
)  # fmt: skip
def test_whether_the_application_waits_for_its_proxy_is_read_of_the_pod(spec, outcome):
    assert [step.outcome for step in examine_order(pod(spec))] == outcome


def test_the_pod_of_a_job_that_runs_is_recognized_by_its_owner():
    tree = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j-x", "namespace": "shop", "generateName": "j-", "ownerReferences": [{"kind": "Job", "name": "j", "apiVersion": "batch/v1", "controller": True}]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "j"}, {"name": "istio-proxy"}]},
    }  # fmt: skip
    assert [step.code for step in examine_job(read_pod(workload(tree)))] == ["NI313"]


def test_more_objects_than_a_cluster_s_namespaces_hold_are_refused(monkeypatch):
    monkeypatch.setattr(given_objects, "MAX_OBJECTS", 3)
    with pytest.raises(ParseError, match="more than 3 objects"):
        read_objects([{}] * 4)


def test_more_steps_than_are_shown_end_with_one_that_says_so():
    found = collect(passed("x", str(number)) for number in range(10 * MAX_STEPS))
    assert (len(found), found[-1].outcome, "the rest is left out" in found[-1].text) == (MAX_STEPS + 1, "unknown", True)


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [None, 7, "x", {}, []]])
def test_parts_of_the_wrong_type_are_passed_over(value):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": value, "spec": {"ports": value, "selector": value}}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": value, "spec": value}
    slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"labels": value}, "endpoints": value}
    known = read_objects([service, policy, slices, value])
    assert list_endpoints(known, "default", "x") is None
    assert find_mode(pod("containers: []"), 80, read_objects([{"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication", "metadata": value, "spec": value}])).mode == "PERMISSIVE"
