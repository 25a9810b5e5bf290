"""Pods of a mesh whose proxy is no sidecar, or that have none: gateways, waypoints, and pods of an ambient mesh that are not created yet."""

from __future__ import annotations

import json

import pytest

WORKLOAD = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: web, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata:
      labels: {{app: web, {labels}}}
      annotations: {{{annotations}}}
    spec: {{containers: [{container}]}}
"""
LEFT_ALONE = 'sidecar.istio.io/inject: "false"'
ASKS = 'sidecar.istio.io/inject: "true"'
PROXY = "{{name: istio-proxy, image: 'istio/proxyv2:1.20.0', args: [proxy, {}, --domain, d]}}"
COMPLETED = "{name: istio-proxy, image: auto}"
AMBIENT = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/dataplane-mode: ambient}}\n"
APPLICATION = "{name: app, image: a, securityContext: {capabilities: {drop: [ALL]}}}"
TO = ["--to", "203.0.113.7:443", "--uid", "1000"]
FROM = ["--from", "10.9.9.9", "--to-port", "8443"]


@pytest.fixture
def write(tmp_path):
    def write_text(container=APPLICATION, labels='more: ""', annotations="a: b", kind="Deployment", more=""):
        path = tmp_path / "web.yaml"
        path.write_text(WORKLOAD.format(kind=kind, labels=labels, annotations=annotations, container=container) + more)
        return str(path)

    return write_text


GATEWAYS = [
    ({"container": PROXY.format("router"), "labels": LEFT_ALONE}, "router"),
    ({"container": PROXY.format("waypoint"), "labels": LEFT_ALONE}, "waypoint"),
    ({"container": PROXY.format("ztunnel"), "labels": LEFT_ALONE, "kind": "DaemonSet"}, "ztunnel"),
    ({"container": COMPLETED, "labels": ASKS, "annotations": "inject.istio.io/templates: gateway"}, "router"),
]


@pytest.mark.parametrize(("given", "kind"), GATEWAYS)
def test_a_proxy_that_is_no_sidecar_is_not_said_to_be_captured(run, write, given, kind):
    file = write(**given)
    for words in (TO, FROM):
        told = run(["netinit", "explain", "--pod", file, *words])
        assert (told.out.partition(":")[0], f"its proxy is a {kind}, not a sidecar" in told.err) == ("direct", True), told


@pytest.mark.parametrize(("given", "kind"), GATEWAYS)
def test_nothing_is_wrong_with_a_gateway(run, write, given, kind):
    file = write(**given)
    assert run(["netinit", "lint", "--strict", file]).code == 0
    audited = json.loads(run(["netinit", "audit", "--json", file]).out)["pods"][0]["traffic"]
    assert {row["by"] for row in audited} == {"design"}
    why = run(["netinit", "why", file])
    assert (why.code, f"its proxy is a {kind}, not a sidecar" in why.out, "start order" in why.out) == (0, True, False)


@pytest.mark.parametrize("container", [COMPLETED, APPLICATION])
@pytest.mark.parametrize("templates", ["gateway", "' gateway '"])
def test_a_pod_that_asks_for_istios_gateway_is_injected_and_nothing_of_it_is_intercepted(run, write, container, templates):
    file = write(container, ASKS, f"inject.istio.io/templates: {templates}")
    told = run(["netinit", "check-inject", "-f", file])
    assert (told.code, told.out.splitlines()[1].split()[4]) == (0, "✔")
    assert "  interception: nothing is intercepted: its proxy is a router, not a sidecar" in told.out
    assert "its proxy is a router" in run(["netinit", "explain", "--pod", file, *TO]).err
    refused = run(["netinit", "inject", "-f", file])
    assert (refused.code, "template 'gateway' not found; netinit's own configuration has" in refused.err) == (1, True)


def test_a_sidecar_with_settings_of_the_pods_own_is_one_that_the_injection_completes(run, write):
    file = write(f"{APPLICATION}, {COMPLETED}", ASKS, 'traffic.sidecar.istio.io/excludeOutboundPorts: "443"')
    told = run(["netinit", "explain", "--pod", file, *TO])
    assert told.out.startswith("direct: ")
    assert "as the webhook would inject it" in told.err
    assert run(["netinit", "lint", "--strict", file]).code == 0


@pytest.mark.parametrize(("given", "verdict"), [
    ({"more": AMBIENT}, "captured"),
    ({"labels": "istio.io/dataplane-mode: ambient", "more": AMBIENT.replace("ambient", "none")}, "captured"),
    ({"labels": "istio.io/dataplane-mode: none", "more": AMBIENT}, "direct"),
    ({"labels": LEFT_ALONE, "more": AMBIENT}, "captured"),
    ({"labels": ASKS, "more": AMBIENT, "annotations": 'traffic.sidecar.istio.io/excludeOutboundPorts: "443"'}, "direct"),
])  # fmt: skip
def test_a_pod_that_an_ambient_mesh_will_program_is_judged_so(run, write, given, verdict):
    assert run(["netinit", "explain", "--pod", write(**given), *TO]).out.partition(":")[0] == verdict


def test_a_sidecar_s_annotation_in_a_namespace_of_an_ambient_mesh_has_no_effect_and_lint_says_so(run, write):
    file = write(annotations='traffic.sidecar.istio.io/excludeOutboundPorts: "443"', more=AMBIENT)
    assert "NI126" in run(["netinit", "lint", file]).out
    assert run(["netinit", "explain", "--pod", file, *TO]).out.startswith("captured: ")
    assert "ambient mesh's agent would program it" in run(["netinit", "why", file]).out


MESHES = [("linkerd-init", "Linkerd", "linkerd"), ("linkerd-network-validator", "Linkerd", "linkerd"), ("kuma-init", "Kuma", "kuma"), ("consul-connect-inject-init", "Consul", "consul"), ("osm-init", "Open Service Mesh", "")]
ISTIO_INIT = "{name: istio-init, image: i, args: [istio-iptables, -b, '*', -i, '*'], securityContext: {capabilities: {add: [NET_ADMIN]}}}"


@pytest.mark.parametrize(("name", "mesh", "peer"), MESHES)
@pytest.mark.parametrize("labels", ['more: ""', ASKS.replace("true", "false")])
def test_a_pod_of_another_mesh_is_named_as_such_and_not_judged_as_one_of_istio(run, write, name, mesh, peer, labels):
    file = write(APPLICATION + f"], initContainers: [{{name: {name}, image: i}}", labels)
    told = run(["netinit", "explain", "--pod", file, *TO])
    assert told.out.startswith(f"unknown: its rules are not Istio's: init container {name} makes those of {mesh}"), told.out
    assert (f"netinit convert --from {peer}" in told.out, "with the rules of injection" in told.out) == (bool(peer), False)
    checked = run(["netinit", "lint", "--strict", file])
    assert (checked.code, "its rules are not Istio's" in checked.out, "Namespace" in checked.out) == (1, True, False)
    assert run(["netinit", "audit", "--fail-on", "bypass", file]).code == 4
    assert "its rules are not Istio's" in run(["netinit", "why", file]).out


def test_of_two_meshes_in_one_pod_neither_is_believed(run, write):
    file = write(APPLICATION + f"], initContainers: [{{name: linkerd-init, image: i}}, {ISTIO_INIT}")
    told = run(["netinit", "explain", "--pod", file, *TO])
    assert "init container linkerd-init is Linkerd's, and the pod is in Istio's mesh too: only one of them gets a connection" in told.out
    assert run(["netinit", "lint", "--strict", file]).code == 1


@pytest.mark.parametrize("asked", ["os: {name: windows}", "nodeSelector: {kubernetes.io/os: windows}", "nodeSelector: {beta.kubernetes.io/os: windows}"])
@pytest.mark.parametrize(("labels", "code"), [(ASKS, 1), (ASKS.replace("true", "false"), 0)])
def test_a_pod_for_windows_does_not_start_in_the_mesh_and_lint_says_so(run, write, asked, labels, code):
    file = write(f"{APPLICATION}], {asked}, volumes: [", labels)
    told = run(["netinit", "lint", file])
    assert (told.code, "NI381" in told.out) == (code, bool(code)), told
    assert ("windows: no init container and no proxy of a mesh runs on Windows" in run(["netinit", "why", file]).out) is bool(code)


def test_linux_is_not_windows(run, write):
    assert "NI381" not in run(["netinit", "lint", write(f"{APPLICATION}], os: {{name: linux}}, nodeSelector: {{kubernetes.io/os: linux}}, volumes: [", ASKS)]).out
