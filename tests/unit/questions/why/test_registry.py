"""What a client's proxy knows of the mesh (Sidecar, exportTo, ServiceEntry), and what follows for mutual TLS. As in Istio 1.31."""

from __future__ import annotations

import json

import pytest

from why_objects import (
    CLIENT,
    CLOSED,
    CLOSED_MESH,
    DB,
    FROM,
    MESH,
    OPEN,
    OPEN_MESH,
    OUTSIDE,
    STRICT,
    TO_DB,
    WEB_SERVICE,
    only,
    outcomes,
    report,
    service,
    sidecar,
)

PERMISSIVE = STRICT.replace("STRICT", "PERMISSIVE")
ABSENT = sidecar(only("istio-system/*", mode="ALLOW_ANY"))


def rule(mode, namespace="shop", name="r", more="", host="db.shop.svc.cluster.local"):
    """A DestinationRule of the Service `db`."""
    tls = f", trafficPolicy: {{tls: {{mode: {mode}}}}}" if mode else ""
    return f"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{host: {json.dumps(host)}{tls}{more}}}"






# --- what goes past the registry is plain text ---


@pytest.mark.parametrize("more", [(), (rule("ISTIO_MUTUAL"),), (rule("DISABLE"),)], ids=["no rule", "ISTIO_MUTUAL", "DISABLE"])
def test_a_service_that_the_sidecar_does_not_import_gets_plain_text_whatever_a_destination_rule_says(more):
    found = report(OPEN_MESH, service(), DB, STRICT, ABSENT, *more, **TO_DB)
    assert (found.cause.code, found.cause.name) == ("NI327", "mutual TLS"), found.text
    assert 'Sidecar "shop/s" does not import the Service' in found.cause.text
    assert found.cause.remedy == 'add "shop/*" to the hosts of egress in the Sidecar'
    assert "DestinationRule" not in found.text


def test_a_permissive_server_takes_the_plain_text_of_a_proxy_that_does_not_know_the_service():
    found = report(OPEN_MESH, service(), DB, PERMISSIVE, ABSENT, **TO_DB)
    assert (found.cause, '✔ mutual TLS: Deployment "shop/db": plain text is sent' in found.text) == (None, True), found.text


def test_nothing_is_said_of_mutual_tls_where_the_proxy_resets_the_connection():
    for strict in (STRICT, PERMISSIVE):
        found = report(OPEN_MESH, service(), DB, strict, sidecar(only("istio-system/*")), **TO_DB)
        assert (found.cause.code, outcomes(found, "mutual TLS")) == ("NI334", []), found.text


def test_an_endpoint_s_own_address_gets_plain_text_from_a_proxy_that_knows_the_service():
    slices = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}\nendpoints: [{addresses: [10.0.0.9]}]"
    one = service("[{port: 80, targetPort: 5432, name: tcp}]", more=", clusterIP: 10.96.0.7")
    for to, code in (("10.96.0.7:80", None), ("10.0.0.9:5432", "NI327"), ("db:80", None)):
        found = report(OPEN_MESH, one, slices, DB, STRICT, to=to)
        assert (found.cause and found.cause.code) == code, found.text
    found = report(CLOSED_MESH, one, slices, DB, STRICT, to="10.0.0.9:5432")
    assert (found.cause.code, found.cause.remedy) == ("NI334", "connect to db.shop"), found.text


# --- what could not be read is not certain ---


def test_a_sidecar_that_could_not_be_read_may_change_mode_and_imports():
    found = report(CLOSED_MESH, unread=("Sidecar",), to=OUTSIDE)
    assert (found.cause, outcomes(found, "registry")) == (None, [("unknown", "NI334")]), found.text
    found = report(OPEN_MESH, service(), DB, STRICT, unread=("Sidecar",), **TO_DB)
    assert (found.cause, outcomes(found, "registry")) == (None, [("unknown", "")]), found.text
    assert outcomes(found, "mutual TLS") == [("unknown", "")], found.text
    assert "Sidecar objects could not be read: Forbidden" in found.text


def test_where_a_namespace_could_not_be_read_the_root_s_objects_decide_nothing():
    of_root = sidecar(only("istio-system/*"), "istio-system")
    strict = STRICT.replace("namespace: shop", "namespace: istio-system")
    assert report(OPEN_MESH, service(), DB, of_root, **TO_DB).cause.code == "NI334"
    found = report(OPEN_MESH, service(), DB, of_root, unread=("Sidecar",), **TO_DB)
    assert "is a Service, which the proxy knows unless a Sidecar does not import it" in found.text
    assert (found.cause, outcomes(found, "registry")) == (None, [("unknown", "NI334")]), found.text
    past = sidecar(only("istio-system/*", mode="ALLOW_ANY"))
    assert report(OPEN_MESH, service(), DB, past, strict, **TO_DB).cause.code == "NI327"
    found = report(OPEN_MESH, service(), DB, past, strict, unread=("PeerAuthentication",), **TO_DB)
    assert (found.cause, outcomes(found, "mutual TLS")) == (None, [("unknown", "NI327")]), found.text


def test_a_sidecar_of_the_pod_s_own_namespace_is_certain_even_if_the_root_namespace_could_not_be_read():
    found = report(OPEN_MESH, service(), DB, sidecar(only("istio-system/*")), unread=("Sidecar",), **TO_DB)
    assert found.cause.code == "NI334", found.text


def test_a_destination_rule_that_could_not_be_read_may_have_other_tls_sent():
    found = report(OPEN_MESH, service(), DB, STRICT, unread=("DestinationRule",), **TO_DB)
    assert outcomes(found, "mutual TLS") == [("unknown", "")], found.text
    found = report(OPEN_MESH, service(namespace="data"), DB.replace("namespace: shop", "namespace: data"), rule("DISABLE", "data", host="db"),
                   STRICT.replace("namespace: shop", "namespace: data"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: data, labels: {istio-injection: enabled}}",
                   unread=("DestinationRule",), to="db.data:5432")  # fmt: skip
    assert outcomes(found, "mutual TLS") == [("unknown", "NI327")], found.text


def test_files_without_sidecars_say_so_of_a_service():
    found = report(OPEN_MESH, service(), DB, whole=(), **TO_DB)
    assert (found.cause, outcomes(found, "registry")) == (None, [("unknown", "")]), found.text
    assert "no Sidecar is given" in found.text


# --- Sidecar ---


def listener(*hosts, port=0, more=""):
    """An egress listener."""
    return f"{{{f'port: {{number: {port}, protocol: TCP, name: p}}, ' if port else ''}hosts: {json.dumps(hosts)}{more}}}"


HTTP = "[{port: 5432, name: http}]"
TCP = "[{port: 5432, name: tcp}]"
DETECTED = "[{port: 5432, name: db}]"


@pytest.mark.parametrize(
    ("listeners", "ports", "outcome"),
    [
        ([listener("shop/*", port=5432)], TCP, ""),
        ([listener("shop/*", port=5433)], TCP, "failed"),
        ([listener("shop/*", port=5433), listener("istio-system/*")], TCP, "failed"),
        ([listener("shop/*", port=5433), listener("shop/*")], TCP, ""),
        ([listener("data/*", port=5432)], TCP, "failed"),
        ([listener("data/*", port=5432), listener("shop/*")], HTTP, "failed"),
        ([listener("data/*", port=5432), listener("shop/*")], TCP, ""),
        ([listener("data/*", port=5432), listener("shop/*")], DETECTED, "unknown"),
        ([listener("shop/*", port=5432, more=", captureMode: NONE")], TCP, "unknown"),
        ([listener("shop/*", port=5432, more=", bind: 127.0.0.1")], TCP, "unknown"),
        ([listener("shop/*", "~shop/db.shop.svc.cluster.local")], TCP, "failed"),
        ([listener("./*", "~other/*")], TCP, ""),
        ([listener("*/*", "~/*.shop.svc.cluster.local")], TCP, "failed"),
        ([listener("db.shop.svc.cluster.local")], TCP, "failed"),
        ([listener("shop/")], TCP, "failed"),
    ],
)  # fmt: skip
def test_an_egress_listener_with_a_port_is_about_this_port_alone(listeners, ports, outcome):
    one = sidecar(f"{CLOSED}, egress: [{', '.join(listeners)}]")
    found = report(OPEN_MESH, service(ports), DB, PERMISSIVE, one, **TO_DB)
    assert [outcome for outcome, _ in outcomes(found, "registry")] == ([outcome] if outcome else []), found.text


@pytest.mark.parametrize(
    ("policy", "mesh", "code"),
    [
        ("outboundTrafficPolicy: {}", "outboundTrafficPolicy: {mode: ALLOW_ANY}", "NI334"),
        ('outboundTrafficPolicy: {mode: ""}', "{}", "NI334"),
        ("outboundTrafficPolicy:", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "NI334"),
        ("outboundTrafficPolicy:", "{}", None),
        ("egress: [{hosts: [./*]}]", "outboundTrafficPolicy: {}", "NI334"),
        ("egress: [{hosts: [./*]}]", "outboundTrafficPolicy: {mode: 0}", "NI334"),
        ("egress: [{hosts: [./*]}]", "outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}", None),
    ],
)
def test_an_outbound_policy_without_a_mode_is_registry_only_and_replaces_the_mesh_s(policy, mesh, code):
    found = report(MESH.replace("SETTINGS", mesh), sidecar(policy), to=OUTSIDE)
    assert (found.cause and found.cause.code) == code, found.text


@pytest.mark.parametrize(("policy", "words"), [("mode: FAST", "none of its modes"), ("mode: ALLOW_ANY, egressProxy: {host: out.example.com, port: {number: 80}}", "egressProxy")])
def test_a_mode_that_is_none_and_an_egress_proxy_are_not_passed_on_as_they_are(policy, words):
    found = report(OPEN_MESH, sidecar(f"outboundTrafficPolicy: {{{policy}}}"), to=OUTSIDE)
    (step,) = [one for one in found.steps if one.name == "registry"]
    assert (step.outcome, words in step.text) == ("unknown", True), found.text


@pytest.mark.parametrize(
    ("sidecars", "code"),
    [
        ((sidecar(f"{CLOSED}, workloadSelector: {{}}"), sidecar(OPEN, name="a")), "NI334"),
        ((sidecar(f"{CLOSED}, workloadSelector: {{labels: {{}}}}", "istio-system"),), None),
        ((sidecar(f"{CLOSED}, workloadSelector: {{labels: {{app: web}}}}", "istio-system"),), None),
        ((sidecar(f"{CLOSED}, workloadSelector:", "istio-system"),), "NI334"),
        ((sidecar(OPEN, name="b"), sidecar(CLOSED, name="a")), "NI334"),
    ],
)
def test_a_selector_without_labels_is_one_and_of_two_sidecars_the_older_or_first_by_name_counts(sidecars, code):
    found = report(OPEN_MESH, *sidecars, to=OUTSIDE)
    assert (found.cause and found.cause.code) == code, found.text


def test_the_mesh_names_its_root_namespace():
    mesh = MESH.replace("SETTINGS", "rootNamespace: defaults")
    assert report(mesh, sidecar(CLOSED, "istio-system"), to=OUTSIDE).cause is None
    assert report(mesh, sidecar(CLOSED, "defaults"), to=OUTSIDE).cause.code == "NI334"
    past, strict = sidecar(only("x/*", mode="ALLOW_ANY")), STRICT.replace("namespace: shop", "namespace: defaults")
    assert report(mesh, service(), DB, past, strict, **TO_DB).cause.code == "NI327"


# --- ServiceEntry ---


def entry(hosts="[api.example.com]", more="", namespace="shop"):
    """A ServiceEntry."""
    return f"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: e, namespace: {namespace}}}\nspec: {{hosts: {hosts}{more}}}"


def test_one_host_of_a_service_entry_is_both_asked_for_and_imported():
    one = sidecar(only("shop/other.example.com"))
    found = report(OPEN_MESH, entry("[api.example.com, other.example.com]"), one, to=OUTSIDE)
    assert (found.cause.code, "does not import ServiceEntry" in found.cause.text) == ("NI334", True), found.text
    assert report(OPEN_MESH, entry("[api.example.com, other.example.com]"), one, to="other.example.com:443").cause is None


def test_an_address_of_a_service_entry_is_known_by_any_of_its_hosts():
    one = sidecar(only("shop/other.example.com"))
    found = report(OPEN_MESH, entry("[x.example.com, other.example.com]", ", addresses: [203.0.113.7]"), one, to="203.0.113.7:443")
    assert (found.cause, outcomes(found, "registry")) == (None, [("passed", "")]), found.text


@pytest.mark.parametrize(
    ("more", "outcome"),
    [("", "passed"), (", ports: [{number: 443, name: tls, protocol: TLS}]", "passed"), (", ports: [{number: 80, name: http, protocol: HTTP}]", "failed")],
)
def test_a_service_entry_is_about_its_ports_alone(more, outcome):
    assert [one for one, _ in outcomes(report(CLOSED_MESH, entry(more=more), to=OUTSIDE), "registry")] == [outcome]


@pytest.mark.parametrize(("unread", "outcome"), [((), "failed"), (("ServiceEntry",), "unknown")])
def test_a_service_entry_without_the_port_decides_only_where_there_can_be_no_other(unread, outcome):
    found = report(CLOSED_MESH, entry(more=", ports: [{number: 80, name: http, protocol: HTTP}]"), unread=unread, to=OUTSIDE)
    (step,) = [one for one in found.steps if one.name == "registry"]
    assert (step.outcome, step.remedy) == (outcome, "add port 443 to the ServiceEntry"), found.text
    known = step.text.partition("; ")[0].removeprefix('ServiceEntry "shop/e" names it, for port 80 (http) alone')
    assert known == (", and the proxy knows it only if it is registered (ServiceEntry objects could not be read: Forbidden)" if unread else ""), found.text


@pytest.mark.parametrize(("protocol", "outcome"), [("HTTP", "failed"), ("GRPC", "failed"), ("TCP", "passed"), ("TLS", "passed"), ("", "unknown")])
def test_a_service_entry_s_protocol_decides_whether_a_listener_of_its_port_leaves_it_to_the_others(protocol, outcome):
    one = sidecar(f"{CLOSED}, egress: [{listener('data/*', port=443)}, {listener('shop/*')}]")
    ports = f", ports: [{{number: 443, name: p, protocol: {protocol}}}]" if protocol else ""
    found = report(CLOSED_MESH, entry(more=ports), one, to=OUTSIDE)
    assert [one for one, _ in outcomes(found, "registry")] == [outcome], found.text


# --- exportTo ---


def exported(text, namespace="data"):
    """The Service `db` of another namespace."""
    return service(namespace=namespace).replace("metadata: {", f"metadata: {{annotations: {{networking.istio.io/exportTo: '{text}'}}, ")


DATA = ("apiVersion: v1\nkind: Namespace\nmetadata: {name: data, labels: {istio-injection: enabled}}", DB.replace("namespace: shop", "namespace: data"))


@pytest.mark.parametrize(
    ("text", "mesh", "code"),
    [
        ("*", "", None), (".", "", "NI334"), ("shop, other", "", None), ("other", "", "NI334"), ("~", "", "NI334"), ("", "", None),
        ("", ', defaultServiceExportTo: ["."]', "NI334"), ("*", ', defaultServiceExportTo: ["."]', None), ("", ", defaultServiceExportTo: [shop]", None),
    ],
)  # fmt: skip
def test_a_service_that_is_not_exported_to_the_pod_s_namespace_is_not_known(text, mesh, code):
    found = report(MESH.replace("SETTINGS", f"{{{CLOSED}{mesh}}}"), exported(text), *DATA, to="db.data:5432")
    assert (found.cause and found.cause.code) == code, found.text
    if code:
        assert (found.cause.remedy, "exportTo" in found.cause.text) == ('export it to "shop"', True)


def test_a_private_service_is_known_in_its_own_namespace_and_a_service_entry_is_exported_too():
    assert report(CLOSED_MESH, exported(".", "shop"), DB, **TO_DB).cause is None
    for places, code in (("['.']", "NI334"), ("[shop]", None), ("['*']", None)):
        found = report(CLOSED_MESH, entry(namespace="data", more=f", exportTo: {places}"), to=OUTSIDE)
        assert (found.cause and found.cause.code) == code, found.text


def test_whether_a_service_of_another_namespace_is_exported_is_not_known_without_the_mesh_s_settings():
    found = report(exported(""), *DATA, to="db.data:5432")
    assert (found.cause, outcomes(found, "registry")) == (None, [("unknown", "")]), found.text
    assert "defaultServiceExportTo" in found.text


# --- DestinationRule ---


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ((rule("DISABLE"),), "NI327"),
        ((rule("", more=", trafficPolicy: {tls: {}}"),), "NI327"),
        ((rule("DISABLE", "data", more=", exportTo: ['.']"),), None),
        ((rule("DISABLE", "istio-system", more=", exportTo: [data]"),), None),
        ((rule("DISABLE", more=", workloadSelector: {matchLabels: {app: other}}"),), None),
        ((rule("DISABLE", more=", workloadSelector: {matchLabels: {app: web}}"),), "NI327"),
        ((rule("DISABLE", "istio-system", more=", workloadSelector: {matchLabels: {app: web}}"),), None),
        ((rule("DISABLE", host="*.svc.cluster.local"), rule("ISTIO_MUTUAL", name="exact")), None),
        ((rule("DISABLE", "istio-system"), rule("")), None),
        ((rule("DISABLE", "istio-system"),), "NI327"),
        ((rule("DISABLE", name="b"), rule("ISTIO_MUTUAL", name="a")), None),
        ((rule("DISABLE", name="b"), rule("", name="a")), "NI327"),
        ((rule("", more=", trafficPolicy: {tls: {mode: DISABLE}, portLevelSettings: [{port: {number: 5432}}]}"),), None),
        ((rule("", more=", trafficPolicy: {tls: {mode: ISTIO_MUTUAL}, portLevelSettings: [{port: {number: 5432}, tls: {mode: DISABLE}}]}"),), "NI327"),
    ],
)  # fmt: skip
def test_the_nearest_and_most_specific_destination_rule_that_is_for_the_client_counts(rules, code):
    found = report(OPEN_MESH, service(), DB, STRICT, *rules, **TO_DB)
    assert (found.cause and found.cause.code) == code, found.text


def test_tls_of_a_destination_rule_s_own_is_for_the_application_where_mutual_tls_is_not_strict():
    found = report(OPEN_MESH, service(), DB, PERMISSIVE, rule("SIMPLE"), **TO_DB)
    assert outcomes(found, "mutual TLS") == [("unknown", "NI328")], found.text


def test_a_server_that_takes_plain_text_alone_does_not_get_mutual_tls():
    off = STRICT.replace("STRICT", "DISABLE")
    assert report(OPEN_MESH, service(), DB, off, rule("ISTIO_MUTUAL"), **TO_DB).cause.code == "NI328"
    assert 'plain text is sent, and taken (PeerAuthentication "shop/all": DISABLE)' in report(OPEN_MESH, service(), DB, off, **TO_DB).text


def test_a_peer_authentication_without_labels_is_about_its_whole_namespace():
    empty = STRICT.replace("spec: {", "spec: {selector: {matchLabels: {}}, portLevelMtls: {5432: {mode: PERMISSIVE}}, ")
    assert report(OPEN_MESH, service(), DB, ABSENT, empty, **TO_DB).cause.code == "NI327"


# --- a client, as the server sees it ---




@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ((WEB_SERVICE,), None),
        ((WEB_SERVICE, ABSENT), "NI327"),
        ((WEB_SERVICE, rule("DISABLE", host="web")), "NI327"),
        ((), "NI327"),
        ((WEB_SERVICE, sidecar(only("istio-system/*"))), "NI334"),
    ],
    ids=["known", "not imported", "DestinationRule", "no Service", "REGISTRY_ONLY"],
)
def test_a_client_in_the_mesh_sends_mutual_tls_only_to_a_service_that_its_proxy_knows(texts, code):
    found = report(OPEN_MESH, CLIENT, STRICT, *texts, **FROM)
    assert (found.cause and found.cause.code) == code, found.text
    if code == "NI334":
        assert outcomes(found, "mutual TLS") == [], found.text


def test_of_a_client_whose_options_let_connections_pass_its_proxy_it_is_not_known_what_arrives():
    excludes = CLIENT.replace("labels: {app: api}", "labels: {app: api}, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: '80'}")
    found = report(OPEN_MESH, excludes, STRICT, WEB_SERVICE, **FROM)
    assert (found.cause, outcomes(found, "mutual TLS")) == (None, [("unknown", "")]), found.text


def test_the_mutual_tls_of_a_client_is_not_known_where_its_sidecar_could_not_be_read():
    found = report(OPEN_MESH, CLIENT, STRICT, WEB_SERVICE, unread=("Sidecar",), **FROM)
    assert (found.cause, outcomes(found, "mutual TLS")) == (None, [("unknown", "")]), found.text


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [None, 7, "x", {}, []]])
def test_parts_of_the_wrong_type_are_passed_over(value):
    def of(kind, spec, namespace="shop"):
        return json.dumps({"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": {"name": "x", "namespace": namespace}, "spec": spec})

    fields = ("hosts", "ports", "addresses", "endpoints", "exportTo")
    one = of("ServiceEntry", {"hosts": ["api.example.com"], **dict.fromkeys(fields[1:], value)})
    other = of("Sidecar", {"egress": [value, {"port": value, "hosts": value, "bind": value}], "workloadSelector": value, "outboundTrafficPolicy": value})
    third = of("DestinationRule", {"host": "db", "workloadSelector": value, "exportTo": value, "trafficPolicy": value})
    for asked in (TO_DB, {"to": OUTSIDE}, {"to": "203.0.113.7:443"}):
        for texts in ((one,), (other,), (third,), (of("ServiceEntry", dict.fromkeys(fields, value)), of("Sidecar", value), of("DestinationRule", value))):
            assert report(OPEN_MESH, service(), DB, *texts, **asked).text


@pytest.mark.parametrize(("routes", "code"), [
    ("http: [{route: [{destination: {host: egress.data.svc.cluster.local}}]}]", ("unknown", "NI334")),
    ("tls: [{match: [{sniHosts: [api.example.com]}], route: []}]", ("failed", "NI334")),
])  # fmt: skip
def test_a_host_to_which_a_virtual_service_leads_http_is_perhaps_known_without_a_registry(routes, code):
    made = f"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: shop}}\nspec: {{hosts: [api.example.com], {routes}}}"
    found = report(CLOSED_MESH, made, to=OUTSIDE)
    assert outcomes(found, "registry") == [code], found.text
