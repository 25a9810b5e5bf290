"""Every way of programming a pod, in a real mesh with STRICT mTLS: the same answers as with Istio's own init container."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed: run `make mesh-test`")
import mesh
import runtime
from answers import Pair, expect
from audit_rows import CAPTURED, find_row
from calls import RESET
from control_plane import ADDRESSES, NAMESPACE, Replica
from kubelet import SECONDS, agent_values, agents, is_so, wait_for_agent
from mesh import MESH, NAME_SERVER, OWN_IMAGE, PROXY_IMAGE, run_netinit
from netinit.cli.webhook.manifests import objects
from netinit.lab import APP_ID
from pods import (
    AGENT,
    BACKENDS,
    EXCLUDED_IN,
    EXCLUDED_OUT,
    HTTP,
    ISTIO,
    OUTSIDE,
    OUTSIDE_DIRECT,
    OWN,
    WEBHOOK,
    Variant,
    choose_injection,
    containers_of,
    open_pair,
)  # fmt: skip
from reuse import DIRECT, REFUSED, TIMES, call_from_one_port, try_all

OBSTACLE = mesh.find_obstacle() or runtime.find_obstacle()
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")
MODES = ("REDIRECT", "TPROXY")
# netinit's webhook comes last: it takes the place of istiod's.
VARIANTS = [
    *(Variant(mode, backend, who) for who in (OWN, ISTIO) for mode in MODES for backend in BACKENDS),
    *(Variant(mode, "iptables-nft", OWN, is_native=False) for mode in MODES),
    *(Variant(mode, backend, AGENT) for backend in BACKENDS for mode in MODES),
    Variant("REDIRECT", "iptables-nft", AGENT, is_native=False),
    *(Variant(mode, "nftables", AGENT, WEBHOOK) for mode in MODES),
    *(Variant(mode, "iptables-nft", OWN, WEBHOOK, is_native) for mode, is_native in zip(MODES, (True, False), strict=True)),
    Variant("REDIRECT", "iptables-nft", AGENT, WEBHOOK, is_native=False),
]


@pytest.fixture(scope="module")
def chart(plane, node):
    """netinit's chart with the node's agent, which runs; its webhook is not registered yet."""
    node.ctr("-n", "k8s.io", "images", "import", Path(os.environ["NETINIT_NODE_IMAGES"]) / "netinit-node.tar")
    trees = objects(NAMESPACE, "netinit", (), (*agent_values(node), "node.backend=iptables-nft", "revision=own", "tags={stable}", "injection.configMap=istio-sidecar-injector", "injection.meshConfigMap=istio"))
    for tree in trees:
        if tree["kind"] != "MutatingWebhookConfiguration":
            plane.apply(tree)
    wait_for_agent(plane)
    return trees


def choose_agent_backend(plane, chart, backend):
    """Rolls out an agent that programs with this backend, and waits until no other is left."""
    (tree,) = [tree for tree in chart if tree["kind"] == "DaemonSet"]
    container = tree["spec"]["template"]["spec"]["containers"][0]
    wanted = f"--backend={backend}"
    container["args"] = [wanted if word.startswith("--backend=") else word for word in container["args"]]
    plane.apply(tree)

    def is_rolled_out():
        plane.bind(NAMESPACE)
        return all(wanted in pod["spec"]["containers"][0]["args"] and is_so(pod, "Ready") for pod in agents(plane))

    plane.until(is_rolled_out, f"the agent programs with {backend}", 2 * SECONDS)  # the one before ends in its own time


@pytest.fixture(scope="module")
def own_webhook(plane, chart, tmp_path_factory):
    """netinit's webhook, in the place of istiod's: the namespace gets the label of a tag of its revision."""
    registrations = [tree for tree in chart if tree["kind"] == "MutatingWebhookConfiguration"]
    for registration in registrations:  # no namespace has the label of its revision or of its tag yet
        plane.apply(registration)
    more = ("--kubeconfig", plane.folder / "admin.kubeconfig")  # the account of this revision has another name
    with Replica(plane, ADDRESSES[0], trees=chart, folder=tmp_path_factory.mktemp("webhook"), more=more) as replica:
        replica.wait()
        plane.endpoints(ADDRESSES[0], name="netinit-webhook-own")
        plane.until(lambda: all(plane.has_signed(one["metadata"]["name"]) for one in registrations), "netinit has signed its webhooks")
        plane.ask(
            "PATCH", f"/api/v1/namespaces/{MESH}", {"metadata": {"labels": {"istio-injection": None, "istio.io/rev": "stable"}}},
            kind="application/merge-patch+json",
        )  # fmt: skip
        yield replica


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def pair(request, plane, others):
    variant = request.param
    for fixture in ["chart"] * (variant.who == AGENT) + ["own_webhook"] * (variant.injector == WEBHOOK):
        request.getfixturevalue(fixture)
    choose_injection(plane, cni=variant.who == AGENT)
    if variant.who == AGENT:
        choose_agent_backend(plane, request.getfixturevalue("chart"), variant.backend)
    with open_pair(plane, variant) as (a, b, service):
        name, image = ("istio-validation" if variant.who == AGENT else "istio-init"), (PROXY_IMAGE if variant.who == ISTIO else OWN_IMAGE)
        assert containers_of(a.tree)[name] == image
        found = Pair(variant, a, b, service, **others)
        found.await_endpoints()
        yield found


def test_a_pair_gives_the_answers_of_the_mesh(pair):
    assert pair.ask() == expect(pair.variant.mode)


def test_a_port_that_is_used_again_passes_no_proxy_unless_the_rules_are_istio_s(pair):
    istio = pair.variant.who == ISTIO
    found = try_all(pair)
    again = call_from_one_port(pair.plain.app, pair.b.address, HTTP)
    assert found["plain to b"] == again == ([RESET, pair.b.name] * 2 if istio and pair.variant.mode == "TPROXY" else [RESET] * TIMES)
    assert found["a to an unknown network"] == (DIRECT if istio else REFUSED)
    # What is used again for a good reason works.
    assert found["plain to b, excluded port"] == found["a to b's service"] == [pair.b.name] * TIMES
    assert found["a to an excluded network"] == DIRECT


# Questions of answers.py as packets: whose connection, and what explain is told of it.
EXPLAINED = {
    "a to b's service": lambda x: (x.a, "outbound", "--to", f"{x.service}:80"),
    "a to plain, excluded port": lambda x: (x.a, "outbound", "--to", f"{x.plain.address}:{EXCLUDED_OUT}"),
    "a to an excluded network": lambda x: (x.a, "outbound", "--to", f"{OUTSIDE_DIRECT}:80"),
    "a to an unknown network": lambda x: (x.a, "outbound", "--to", f"{OUTSIDE}:80"),
    "b to its own service": lambda x: (x.b, "outbound", "--to", f"{x.service}:80"),
    "b to 127.0.0.1": lambda x: (x.b, "outbound", "--to", f"127.0.0.1:{HTTP}"),
    "b to its own address": lambda x: (x.b, "outbound", "--to", f"{x.b.address}:{HTTP}"),
    "plain to b": lambda x: (x.b, "inbound", "--from", x.plain.address, "--to", f"{x.b.address}:{HTTP}"),
    "plain to b, excluded port": lambda x: (x.b, "inbound", "--from", x.plain.address, "--to", f"{x.b.address}:{EXCLUDED_IN}"),
    **{
        f"port {port}": lambda x, port=port: (x.b, "inbound", "--from", x.plain.address, "--to", f"{x.b.address}:{port}")
        for port in (15020, 15021, 15090)
    },
}


def test_explain_says_of_each_connection_what_the_access_logs_say(pair):
    lines = {name: logged for name, (_, logged) in expect(pair.variant.mode).items()}
    found = {}
    for name, question in EXPLAINED.items():
        pod, *words = question(pair)
        _, out = run_netinit("explain", *words, "--json", "--pid", pair.a.plane.pid(pod.tree))
        found[name] = json.loads(out)["verdict"]
    assert found == {name: "captured" if lines[name] else "direct" for name in EXPLAINED}


def test_audit_puts_each_connection_where_the_access_logs_say(pair):
    lines = {name: logged for name, (_, logged) in expect(pair.variant.mode).items()}
    found = {}
    for name, question in EXPLAINED.items():
        pod, direction, *words = question(pair)
        given = dict(zip(words[::2], words[1::2], strict=True))
        host, _, port = given["--to"].partition(":")
        inside = host in {"127.0.0.1", pod.address}
        facts = {"protocol": "tcp", "destination": host, "port": int(port), "source": given.get("--from", host if inside else pod.address)}
        facts["interface"] = "lo" if inside and direction == "outbound" else "eth0"
        _, out = run_netinit("audit", "--full", "--json", "--pid", pair.a.plane.pid(pod.tree))
        row = find_row(json.loads(out)["pods"][0]["traffic"], direction, **facts, uid=APP_ID, gid=APP_ID)
        found[name] = row["kind"] in CAPTURED
    assert found == {name: bool(lines[name]) for name in EXPLAINED}


def test_verify_finds_the_rules_as_planned_whoever_programmed_them(pair, tmp_path):
    for pod in (pair.a, pair.b):
        manifest = tmp_path / f"{pod.name}.json"
        manifest.write_text(json.dumps(pod.tree))
        for more in ((), ("--pod", manifest)):
            code, out = run_netinit("verify", "--pid", pair.a.plane.pid(pod.tree), *more)
            assert code == 0, out
            assert pair.variant.backend in out


def test_audit_lists_old_entries_as_a_way_past_istio_s_rules_alone(pair):
    code, out = run_netinit("audit", "--pid", pair.a.plane.pid(pair.b.tree), "--fail-on", "bypass:untranslated")
    assert code == (4 if pair.variant.who == ISTIO else 0), out


def test_reconcile_closes_what_istio_s_rules_leave_open_while_the_pods_run(pair):
    if pair.variant.who != ISTIO:
        pytest.skip("netinit programmed these pods")
    reconcile(pair)
    assert try_all(pair)["a to an unknown network"] == REFUSED
    assert call_from_one_port(pair.plain.app, pair.b.address, HTTP) == [RESET] * TIMES
    assert pair.ask() == expect(pair.variant.mode)
    reconcile(pair, "--istio-exact")  # and back
    assert try_all(pair)["a to an unknown network"] == DIRECT
    assert pair.ask() == expect(pair.variant.mode)


def reconcile(pair, *more):
    """netinit programs both pods from the node, with the arguments of their init containers."""
    for pod in (pair.a, pair.b):
        (init,) = [one for one in pod.tree["spec"]["initContainers"] if one["name"] == "istio-init"]
        words = ["--backend", pair.variant.backend, *init["args"][1:], "--redirect-dns", "--dns-servers", NAME_SERVER, *more]
        code, out = run_netinit("apply", "--pid", pair.a.plane.pid(pod.tree), "--reconcile", *words)
        assert code == 0, out
