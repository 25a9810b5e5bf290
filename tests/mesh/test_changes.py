"""What changes in a mesh that runs: its init image, in a Deployment that rolls; a revision's tag; pods with addresses of both families."""

from __future__ import annotations

import contextlib
import json

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed: run `make mesh-test`")
import mesh
import runtime
from answers import FLUSHED
from calls import RESET, request
from kubelet import is_so
from mesh import MESH, OWN_IMAGE, PROXY_IMAGE, VALUES, run_netinit
from pods import HTTP, ISTIO, OWN, MeshPod, Variant, containers_of, describe_pod, make_service, open_pods

OBSTACLE = mesh.find_obstacle() or runtime.find_obstacle()
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")
REPLICAS = 2
TAG = "prod"
V6 = {"subnet": "fd91::/64"}


def choose_init_image(plane, image):
    """Has pods injected with this init container, and waits until that is so."""
    plane.configure_injection(**{"global": {"proxy_init": {"image": image}}})
    plane.until(lambda: containers_of(plane.pod(MESH, describe_pod("tried")))["istio-init"] == image, f"pods are injected with {image}")


class Rollout:
    """A Deployment of the mesh, whose pods this test serves in."""

    path = f"/apis/apps/v1/namespaces/{MESH}/deployments"

    def __init__(self, plane, name, stack):
        self.plane, self.name, self.stack = plane, name, stack
        self.served = {}
        self.service = make_service(plane, name)
        template = describe_pod(name)
        template["spec"]["terminationGracePeriodSeconds"] = 2
        strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        spec = {"replicas": REPLICAS, "strategy": strategy, "selector": {"matchLabels": {"app": name}}, "template": template, "minReadySeconds": 2}
        plane.create(self.path, {"metadata": {"name": name}, "spec": spec})
        stack.callback(plane.ask, "DELETE", f"{self.path}/{name}?propagationPolicy=Background")

    def restart(self, number):
        template = {"metadata": {"annotations": {"restarted": str(number)}}}
        self.plane.ask("PATCH", f"{self.path}/{self.name}", {"spec": {"template": template}}, kind="application/merge-patch+json")

    def list_pods(self):
        """Its pods, each of which serves as soon as it has an address."""
        found = self.plane.ask("GET", f"/api/v1/namespaces/{MESH}/pods?labelSelector=app%3D{self.name}")["items"]
        for tree in found:
            name = tree["metadata"]["name"]
            if name not in self.served and tree["status"].get("podIP") and "deletionTimestamp" not in tree["metadata"]:
                self.served[name] = MeshPod(self.plane, tree, name, self.stack)
        return found

    def runs(self, image):
        """Whether all its pods are ready and have this init container."""
        found = self.list_pods()
        return len(found) == REPLICAS and all(is_so(one, "Ready") and containers_of(one)["istio-init"] == image for one in found)


def test_a_deployment_rolls_from_istio_s_init_image_to_ours_and_back(plane, others):
    caller = others["guest"].app
    with contextlib.ExitStack() as stack:
        stack.callback(choose_init_image, plane, OWN_IMAGE)
        choose_init_image(plane, PROXY_IMAGE)
        rollout = Rollout(plane, "web", stack)
        plane.until(lambda: rollout.runs(PROXY_IMAGE), "the Deployment runs with Istio's image", 120)
        plane.until(lambda: request(caller, rollout.service, 80).outcome in rollout.served, "the guest reaches the Deployment")
        for number, image in enumerate((OWN_IMAGE, PROXY_IMAGE)):
            choose_init_image(plane, image)
            rollout.restart(number)
            answered = set()

            def is_rolled_out(image=image, answered=answered):
                answered.add(request(caller, rollout.service, 80).outcome)
                return rollout.runs(image)

            plane.until(is_rolled_out, f"the Deployment has rolled to {image}", 180)
            assert answered <= set(rollout.served)  # no request failed meanwhile
            assert len(answered) > REPLICAS, "requests met pods of both images"
            for one in rollout.list_pods():
                code, out = run_netinit("verify", "--pid", plane.pid(one))
                assert code == 0, out


def test_a_namespace_with_a_revision_s_tag_is_injected_as_the_revision_says(plane, others):
    chart = plane.istio / "manifests/charts/istio-control/istio-discovery"
    (tagged,) = [tree for tree in plane.render(chart, {**VALUES, "revisionTags": [TAG]}) if tree["metadata"]["name"] == f"istio-revision-tag-{TAG}"]
    plane.apply(tagged)
    plane.until(lambda: plane.has_signed(tagged["metadata"]["name"]), "istiod has signed the tag's webhook")
    plane.namespace("tagged", **{"istio.io/rev": TAG})
    plane.until(lambda: plane.ask("GET", "/api/v1/namespaces/tagged/serviceaccounts/default"), "the account is there")
    with open_pods(plane, describe_pod("tagged", "tagged")) as (pod,):
        assert containers_of(pod.tree)["istio-init"] == OWN_IMAGE
        assert request(others["plain"].app, pod.address, HTTP).outcome == RESET
        plane.until(lambda: request(pod.app, others["plain_service"], 80).outcome == others["plain"].name, "the pod reaches the plain service")


@pytest.fixture(scope="module")
def dual_network(node):
    """Pods get addresses of both families, IPv4 first."""
    kept = (node.folder / "net.d" / "10-net.conflist").read_text()
    network = runtime.bridge(runtime.V4, V6)
    network["plugins"][0]["ipam"]["routes"] = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    node.network(network)
    yield
    node.network(json.loads(kept))


DUAL = [Variant("REDIRECT", "iptables-nft", OWN), Variant("TPROXY", "nftables", OWN), Variant("REDIRECT", "iptables-nft", ISTIO)]


@pytest.mark.parametrize("variant", DUAL, ids=str)
def test_in_a_dual_stack_pod_both_families_go_through_the_proxy(plane, others, dual_network, variant):
    annotations = variant.annotate(ISTIO_DUAL_STACK="true")
    with open_pods(plane, describe_pod("server", annotations=annotations), describe_pod("outsider", "plain")) as (server, outsider):
        six, its = (find_ipv6(pod) for pod in (server, outsider))
        answers = {
            "in": request(outsider.app, six, HTTP), "out": request(server.app, its, HTTP),
            "in 4": request(outsider.app, server.address, HTTP), "itself": request(server.app, six, HTTP),
        }  # fmt: skip
        assert {name: call.outcome for name, call in answers.items()} == {"in": RESET, "out": "outsider", "in 4": RESET, "itself": "server"}
        ends = {answers["out"].source: "PassthroughCluster", answers["in"].source: None}  # refused before there is a cluster

        def has_logged():
            found = {one["downstream_remote_address"]: one["upstream_cluster"] for one in plane.access_log(server.tree)}
            return ends.items() <= found.items()

        plane.until(has_logged, f"Envoy has logged {ends}", FLUSHED * 8)
        pid = plane.pid(server.tree)
        code, out = run_netinit("verify", "--pid", pid)
        assert code == 0, out
        assert "IPv4 and IPv6" in out
        for words in (("inbound", "--from", its, "--to", f"[{six}]:{HTTP}"), ("outbound", "--to", f"[{its}]:{HTTP}")):
            assert json.loads(run_netinit("explain", *words, "--json", "--pid", pid)[1])["verdict"] == "captured"
        assert run_netinit("audit", "--pid", pid, "--fail-on", "bypass:ipv6")[0] == 0


@pytest.mark.parametrize("who", [OWN, ISTIO])
def test_without_dual_stack_ipv6_is_open_and_audit_and_explain_say_so(plane, others, dual_network, who):
    annotations = Variant("REDIRECT", "iptables-nft", who).annotate()
    with open_pods(plane, describe_pod("server", annotations=annotations), describe_pod("outsider", "plain")) as (server, outsider):
        six, its = (find_ipv6(pod) for pod in (server, outsider))
        assert request(outsider.app, six, HTTP).outcome == "server"
        assert request(outsider.app, server.address, HTTP).outcome == RESET
        pid = plane.pid(server.tree)
        told = run_netinit("explain", "inbound", "--from", its, "--to", f"[{six}]:{HTTP}", "--json", "--pid", pid)
        assert json.loads(told[1])["verdict"] == "direct"
        assert run_netinit("audit", "--pid", pid, "--fail-on", "bypass:ipv6")[0] == 4


def find_ipv6(pod):
    """A pod's second address."""
    _, second = (one["ip"] for one in pod.tree["status"]["podIPs"])
    return second
