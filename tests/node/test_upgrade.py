"""From the last release to this one and back on a real node, with Helm: agent, webhook and init image in any order, and pods made meanwhile."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import urllib.request

import pytest

import kubelet
import last_release
from control_plane import ADDRESSES, NAMESPACE, ApiError
from helm import CHART, find_no_helm
from kubelet import CONTROLLERS, SECONDS, Cluster, agents, is_so, make_pod, run_helm
from runtime import V4, bridge
from test_kubelet import PROXY, check_captured, containers_of, make_proxy

OBSTACLE = last_release.find_obstacle() or kubelet.find_obstacle() or find_no_helm()
pytestmark = [pytest.mark.skipif(last_release.wants(OBSTACLE), reason=OBSTACLE or ""), pytest.mark.timeout(1800)]
MESH, BARE, WITHOUT_AGENT = "shop", "bare", "init"
METRICS = 15114
MOST = 6  # pods that are made while a release is rolled out
OLD, NEW = "old", "new"
numbers = itertools.count()


class Installation(Cluster):
    """A cluster of one node in which Deployments roll, and the chart's release `netinit` in it."""

    controllers = (*CONTROLLERS, "endpointslice-controller", "deployment-controller", "replicaset-controller", "garbage-collector-controller")

    def prepare(self, folder):
        """The images and charts of both releases, and the namespaces: of the mesh, of pods that no webhook injects, of init containers."""
        images = last_release.load_images(self.runtime)
        self.images = {age: {"webhook": own["netinit-webhook"], "node": own["netinit-node"], "init": own["netinit"]} for age, own in images.items()}
        self.charts = {OLD: last_release.copy_out(self.runtime, self.images[OLD]["webhook"], last_release.CHART, folder / "chart"), NEW: CHART}
        self.plugins = {age: last_release.copy_out(self.runtime, own["node"], last_release.PLUGIN, folder / age) for age, own in self.images.items()}
        for name, label in ((MESH, {"istio-injection": "enabled"}), (WITHOUT_AGENT, {"istio-injection": "enabled"}), (BARE, {"istio.io/rev": "nobody"})):
            self.namespace(name, **label)
            self.create(f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": "istio-ca-root-cert"}, "data": {"root-cert.pem": ""}})
            self.until(lambda name=name: self.ask("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default"), "the account is there")

    def values(self, webhook, node, init, *more):
        """--set for the release of each image; no agent where `node` is empty."""
        own = {
            "injection.values.global.proxy.image": PROXY, "injection.values.global.imagePullPolicy": "Never",
            "injection.values.global.proxy.resources.requests.cpu": "10m", "image.pullPolicy": "Never",
            "resources.requests.cpu": "10m", "node.resources.requests.cpu": "10m",
        }  # fmt: skip
        for key, age, kind in (("image", webhook, "webhook"), ("initImage", init, "init"), ("node.image", node, "node")):
            if age:
                own[f"{key}.repository"], _, own[f"{key}.tag"] = self.images[age][kind].rpartition(":")
        if node:
            own |= {
                "node.enabled": "true", "node.image.pullPolicy": "Never", "node.monitoringPort": METRICS, "node.repair": "program",
                "node.sweepInterval": "3s", "node.binFolder": self.runtime.folder / "bin", "node.confFolder": self.runtime.folder / "net.d",
            }  # fmt: skip
        return [word for key, value in own.items() for word in ("--set", f"{key}={value}")]

    def roll_out(self, chart, webhook, node, init, *words, make=None):
        """Install or upgrade the release, and make pods until each piece is of the wanted release; return them."""
        run_helm(self, "upgrade", "--install", "netinit", self.charts[chart], "--disable-openapi-validation", *self.values(webhook, node, init), *words)
        return self.wait(webhook, node, make)

    def wait(self, webhook, node, make):
        made = []

        def is_done():
            self.bind(NAMESPACE)
            if make and len(made) < MOST:
                made.extend(make())
            return self.is_rolled_out(webhook, node)

        try:
            self.until(is_done, f"the release's pieces run: webhook {webhook}, agent {node}", 4 * SECONDS)
        except AssertionError as error:
            said = [told for pod in self.list_pods(NAMESPACE) for told in (pod["metadata"]["name"], self.events(NAMESPACE, pod["metadata"]["name"])[-3:], self.logs(NAMESPACE, pod["metadata"]["name"]))]
            raise AssertionError(f"{error}\n{said}") from None
        return made

    def is_rolled_out(self, webhook, node):
        """Every pod of the release's is of the wanted image and ready, and there is no other."""
        deployment = self.ask("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/netinit-webhook")
        wanted = {"netinit-webhook-": (self.images[webhook]["webhook"], deployment["spec"]["replicas"])}
        if node:
            wanted["netinit-node-"] = (self.images[node]["node"], 1)
        pods = self.list_pods(NAMESPACE)
        for prefix, (image, count) in wanted.items():
            found = [pod for pod in pods if pod["metadata"]["name"].startswith(prefix)]
            if len(found) != count or not all(is_so(pod, "Ready") and pod["spec"]["containers"][0]["image"] == image for pod in found):
                return False
        generations = {deployment["metadata"]["generation"], deployment["status"].get("observedGeneration")}
        return len(generations) == 1 and (bool(node) or not agents(self))

    def list_pods(self, namespace):
        return self.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]

    def make(self, namespace=MESH, **annotations):
        """A pod; of a namespace without injection, one that was injected by hand and that nothing validates."""
        name = f"pod-{next(numbers)}"
        tree = make_pod(name)
        tree["metadata"]["annotations"] = annotations
        if namespace == BARE:
            tree["metadata"]["annotations"] |= {"sidecar.istio.io/status": "{}"}
            proxy = {"name": "istio-proxy", "image": PROXY, "imagePullPolicy": "Never", "args": ["proxy", "sidecar"]}
            proxy["readinessProbe"] = {"httpGet": {"path": "/healthz/ready", "port": 15021}, "periodSeconds": 1, "failureThreshold": 60}
            tree["spec"]["containers"].insert(0, {**proxy, "securityContext": {"runAsUser": 1337, "runAsGroup": 1337}})
        self.pod(namespace, tree, dry_run=False)
        return namespace, name

    def make_both(self):
        """A pod that the webhook injects and one that it does not. One that the API server refuses is made again by its controller."""
        for namespace in (MESH, BARE):
            try:
                yield self.make(namespace)
            except ApiError as error:
                self.refused.append(str(error))

    def wait_until_ready(self, namespace, name):
        pod = kubelet.wait_until_ready(self, name, namespace)
        assert not any(one["restartCount"] for one in pod["status"].get("initContainerStatuses", ())), "istio-validation found no rules"
        return pod

    def check(self, made):
        """Every pod runs, was never started without its rules, and its connections meet its proxy."""
        for namespace, name in made:
            check_captured(self.runtime, self.wait_until_ready(namespace, name))

    def check_sweeps(self, made):
        """The agent that runs now finds the rules of all these pods as it would make them, whichever release made them."""
        self.until(lambda: f'netinit_node_pods{{state="captured"}} {len(made)}.0' in self.metrics(), f"{len(made)} pods are as planned", SECONDS)
        assert {name: told for _, name in made if name not in self.broken and (told := self.interceptions(name))} == {}

    def interceptions(self, name):
        """What the agent has told of a pod's rules."""
        return [told for namespace in (MESH, BARE, WITHOUT_AGENT) for told in self.events(namespace, name) if told.startswith("Interception")]

    def repair(self, made):
        """Somebody changes the rules of these pods, and the agent that runs now programs them again."""
        for namespace, name in made:
            self.broken.add(name)
            path = self.runtime.namespace(self.runtime.find_sandbox(self.find_pod(namespace, name)["metadata"]["uid"]))
            subprocess.run(["nsenter", f"--net={path}", "iptables-nft", "-w", "-t", "nat", "-F", "ISTIO_OUTPUT"], check=True)
            self.until(lambda name=name: any(told.startswith("InterceptionRepaired: ") for told in self.interceptions(name)), f"the agent repairs {name}", SECONDS)
        self.check(made)

    def metrics(self):
        with urllib.request.urlopen(f"http://{ADDRESSES[0]}:{METRICS}/metrics", timeout=5) as answer:
            return answer.read().decode()

    def check_plugin(self, age):
        """What stands on the node is this release's, once."""
        folder = self.runtime.folder
        assert hashlib.sha256((folder / "bin" / "netinit-cni").read_bytes()).digest() == hashlib.sha256(self.plugins[age].read_bytes()).digest()
        assert f"namespace={NAMESPACE}\n" in (folder / "bin" / "netinit-cni.settings").read_text()
        (path,) = (folder / "net.d").iterdir()
        assert [one["type"] for one in json.loads(path.read_text())["plugins"]].count("netinit-cni") == 1

    def delete(self, made):
        for namespace, name in made:
            self.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
        self.until(lambda: not any(self.list_pods(namespace) for namespace in (MESH, BARE, WITHOUT_AGENT)), "the pods are gone", SECONDS)


@pytest.fixture(scope="module")
def cluster(runtime, tmp_path_factory):
    network = bridge(V4)
    network["plugins"][0]["ipam"]["routes"] = [{"dst": "0.0.0.0/0"}]
    runtime.network(network)
    folder = tmp_path_factory.mktemp("plane")
    runtime.ctr("-n", "k8s.io", "images", "import", make_proxy(folder))
    with Installation(folder, runtime) as plane:
        plane.prepare(folder)
        plane.refused, plane.broken = [], set()
        yield plane


@pytest.fixture
def old(cluster):
    """The last release, as its own chart installs it, and two pods that it captures."""
    cluster.roll_out(OLD, OLD, OLD, OLD, "--reset-values")
    made = list(cluster.make_both())
    cluster.check(made)
    cluster.check_plugin(OLD)
    yield made
    cluster.delete(made)


@pytest.mark.parametrize("between", [(OLD, NEW), (NEW, OLD)], ids=["agent first", "webhook first"])
def test_webhook_and_agent_are_upgraded_in_either_order_and_rolled_back_and_every_pod_made_meanwhile_is_captured(cluster, old, between):
    revision = json.loads(run_helm(cluster, "history", "netinit", "--output", "json"))[-1]["revision"]
    made = old
    for webhook, node in (between, (NEW, NEW)):
        made += cluster.roll_out(NEW, webhook, node, webhook, "--reset-then-reuse-values", make=cluster.make_both)
        cluster.check(made)
        cluster.check_plugin(node)
        cluster.check_sweeps(made)
    cluster.repair(made[:2])  # which the last release programmed
    run_helm(cluster, "rollback", "netinit", str(revision))
    made += cluster.wait(OLD, OLD, cluster.make_both)
    cluster.check(made)
    cluster.check_plugin(OLD)
    cluster.check_sweeps(made)
    newest = list(cluster.make_both())
    made += newest
    cluster.check(newest)
    cluster.repair(made[-4:])  # the first two of which this release may have programmed
    assert cluster.refused == []


def test_each_webhook_injects_the_init_container_of_each_release_and_the_agent_of_none_takes_its_pods_for_broken(cluster):
    made = []
    # The tests before leave a release with an agent, whose webhook makes pods without an init container until its last replica has ended.
    cluster.roll_out(OLD, OLD, "", OLD, "--reset-values")
    try:
        for webhook, init in itertools.product((OLD, NEW), (OLD, NEW)):
            made += cluster.roll_out(webhook, webhook, "", init, "--reset-values", make=lambda: [cluster.make(WITHOUT_AGENT)])
            made.append(cluster.make(WITHOUT_AGENT))
            cluster.check(made)
            (used,) = [one["image"] for one in containers_of(cluster.find_pod(*made[-1])) if one["name"] == "istio-init"]
            assert used == cluster.images[init]["init"]
        for node in (OLD, NEW):
            cluster.roll_out(node, node, node, node, "--reset-values")
            cluster.until(lambda: 'netinit_node_pods{state="drifted"} 0.0' in cluster.metrics(), "a sweep finds nothing wrong", SECONDS)
            assert {name: told for _, name in made if (told := cluster.interceptions(name))} == {}
            cluster.check(made)
    finally:
        cluster.delete(made)
