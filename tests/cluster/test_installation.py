"""The chart's objects in a real API server: it sends pods here, and what comes back is what it keeps."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chart_places import BEYOND, OPERATORS
from control_plane import ADDRESSES, NAME, NAMESPACE, NATIVE_SIDECARS, ApiError, Replica
from inject_data import CURRENT as INJECT
from inject_data import DATA, assert_same, cases, documents, joined_mesh, needs_data
from installation import bare, fresh, injected, installed, numbers, reaches
from netinit.cli.webhook.manifests import objects
from netinit.golang import goyaml
from netinit.inject.adding.values import merge_values
from netinit.inject.deciding.manifests import workloads
from netinit.serving.certificates import describe, service_names
from netinit.webhook.certificates import make_pair
from webhook_server import CONFIG, make_pod, make_review

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/netinit-webhook-tls"
OVERRIDES = '--overrides={"spec": {"serviceAccountName": "default"}}'

def test_the_charts_objects_are_taken_and_pods_are_injected(clean, tmp_path):
    too_new, trees = clean.install()
    assert set(too_new) <= {"PodDisruptionBudget"}, "the API server refuses or lacks more than that"
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    other = fresh(clean)
    with Replica(clean, ADDRESSES[0], trees=trees, folder=tmp_path) as replica:
        replica.wait()
        clean.endpoints(ADDRESSES[0])
        reaches(clean, namespace)
        kept = clean.pod(namespace, bare("kept"), dry_run=False)
        assert injected(kept)
        assert kept["metadata"]["annotations"]["sidecar.istio.io/status"]
        assert not injected(clean.pod(other, bare()))
        assert not injected(clean.pod(namespace, bare(labels={"sidecar.istio.io/inject": "false"})))
        assert injected(clean.pod(other, bare(labels={"sidecar.istio.io/inject": "true"})))


def test_objects_and_pods_with_all_that_operators_can_set_are_taken(clean, tmp_path):
    values = merge_values({**BEYOND, "certificate": {}}, OPERATORS)
    (tmp_path / "values.json").write_text(json.dumps({**values, "node": {**values["node"], "priorityClassName": "system-node-critical"}, "priorityClassName": ""}))
    trees = objects(NAMESPACE, "netinit", (str(tmp_path / "values.json"),))
    too_new = [tree["kind"] for tree in trees if not clean.apply(tree)]
    assert set(too_new) <= {"PodDisruptionBudget", "PodMonitor", "PrometheusRule", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    clean.delete_webhooks()
    for tree in trees:
        if tree["kind"] in {"Deployment", "DaemonSet"}:
            template = tree["spec"]["template"]
            pod = clean.pod(NAMESPACE, {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": tree["kind"].lower()}, "spec": template["spec"]})
            assert "sha256:" in pod["spec"]["containers"][0]["image"]
    for tree in trees:  # lint of a later test would find them
        if tree["kind"] in {"Deployment", "DaemonSet", "ConfigMap"}:
            group = "api/v1" if tree["kind"] == "ConfigMap" else "apis/apps/v1"
            clean.ask("DELETE", f"/{group}/namespaces/{NAMESPACE}/{tree['kind'].lower()}s/{tree['metadata']['name']}")


def as_account(plane, account, method, path, body=None, *, node="", kind="application/json-patch+json"):
    """Why a request with a token of the chart's account is refused, the token being of a pod on this node; empty where it is taken."""
    headers = {"Impersonate-User": f"system:serviceaccount:{NAMESPACE}:{account}"}
    if node:
        headers["Impersonate-Extra-Authentication.kubernetes.io%2Fnode-Name"] = node
    try:
        plane.ask(method, path, body, kind=kind, headers=headers)
    except ApiError as error:
        return str(error)
    return ""


def test_a_stolen_token_of_the_webhook_changes_no_more_than_the_bundle(clean):
    clean.install("admissionPolicies.enabled=true")
    path = f"{CONFIGURATIONS}/netinit-webhook-sidecar-injector"
    bundle = base64.b64encode(make_pair(service_names("netinit-webhook", NAMESPACE), now=time.time(), seconds=9000).authority.encode()).decode()
    attacks = (
        {"op": "add", "path": "/webhooks/0/rules/0/resources/0", "value": "configmaps"}, {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
        {"op": "replace", "path": "/webhooks/0/clientConfig/service/namespace", "value": "evil"}, {"op": "remove", "path": "/webhooks/1"},
        {"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {}}, {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30},
        {"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": "https://192.0.2.1"}},
        {"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "never", "expression": "false"}]}, {"op": "add", "path": "/metadata/labels/x", "value": "y"},
        {"op": "move", "from": "/webhooks/0", "path": "/webhooks/1"},
    )  # fmt: skip
    allowed = "may change caBundle alone"
    clean.until(lambda: allowed in as_account(clean, "netinit-webhook", "PATCH", f"{path}?dryRun=All", attacks[1:2]), "the policy is in force")
    for attack in attacks:
        assert allowed in as_account(clean, "netinit-webhook", "PATCH", path, [attack]), attack
    assert as_account(clean, "netinit-webhook", "PATCH", path, [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]) == ""
    clean.ask("PATCH", path, attacks[1:2], kind="application/json-patch+json")  # others are not bound by it


ABSENT = {"apiVersion": "v1", "kind": "Namespace", "name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}  # a garbage collector deletes what it owns
METADATA = {  # a value for each field that a request could set
    "annotations": {"a": "b"}, "creationTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1, "deletionTimestamp": "2020-01-01T00:00:00Z",
    "finalizers": ["example.com/held"], "generateName": "x-", "generation": 77, "labels": {"a": "b"}, "name": "other", "namespace": "other", "ownerReferences": [ABSENT],
    "resourceVersion": "1", "selfLink": "/x", "uid": ABSENT["uid"],
}  # fmt: skip
WEBHOOK = {
    "admissionReviewVersions": ["v1beta1"], "failurePolicy": "Ignore", "matchConditions": [{"name": "never", "expression": "false"}], "matchPolicy": "Exact", "name": "other.example.com",
    "namespaceSelector": {}, "objectSelector": {"matchLabels": {"a": "b"}}, "reinvocationPolicy": "IfNeeded", "sideEffects": "None", "timeoutSeconds": 3,
    "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
}  # fmt: skip
CLIENT = {"url": {"url": "https://192.0.2.1"}, "service": {"service": {"namespace": "evil", "name": "evil"}}}  # one without the other


def fields_of(plane, group, kind):
    """The names of a kind's fields, as this API server has them."""
    (found,) = [one for name, one in plane.ask("GET", f"/openapi/v3/{group}")["components"]["schemas"].items() if name.endswith(f".{kind}")]
    return found.get("SchemaProps", found)["properties"].keys()  # as API servers built with Go's newer JSON have it


def without_versions(tree):
    return {**tree, "metadata": {key: value for key, value in tree["metadata"].items() if key not in {"managedFields", "resourceVersion", "generation"}}}


def test_no_field_but_the_bundle_can_be_changed_with_the_webhooks_token(clean):
    clean.install("admissionPolicies.enabled=true")
    path, group = f"{CONFIGURATIONS}/netinit-webhook-sidecar-injector", "apis/admissionregistration.k8s.io/v1"
    assert fields_of(clean, group, "ObjectMeta") - {"managedFields"} <= METADATA.keys(), "a field of this API server that nothing is known of"
    assert fields_of(clean, group, "MutatingWebhook") - {"clientConfig"} <= WEBHOOK.keys()
    assert fields_of(clean, group, "WebhookClientConfig") == {*CLIENT, "caBundle"}
    was = without_versions(clean.ask("GET", path))
    tried = {f"/metadata/{key}": value for key, value in METADATA.items()} | {f"/webhooks/0/{key}": value for key, value in WEBHOOK.items()}
    tried |= {f"/webhooks/0/clientConfig#{key}": value for key, value in CLIENT.items()}
    allowed = "may change caBundle alone"
    clean.until(lambda: allowed in as_account(clean, "netinit-webhook", "PATCH", f"{path}?dryRun=All", [{"op": "add", "path": "/metadata/labels/x", "value": "y"}]), "the policy is in force")
    by_policy = set()
    for at, value in tried.items():
        if allowed in as_account(clean, "netinit-webhook", "PATCH", path, [{"op": "add", "path": at.partition("#")[0], "value": value}]):
            by_policy.add(at)
        assert without_versions(clean.ask("GET", path)) == was, at
    kept = {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "name", "namespace", "resourceVersion", "selfLink", "uid"}
    assert tried.keys() - by_policy == {f"/metadata/{key}" for key in kept}, "what the API server itself keeps"


def test_a_stolen_token_of_an_agent_deletes_and_labels_pods_of_its_own_node(clean):
    clean.install("admissionPolicies.enabled=true", "node.enabled=true", "node.repair=delete")
    clean.delete_webhooks()
    namespace = fresh(clean)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for name, node in (("near", "n1"), ("far", "n2")):
        clean.pod(namespace, {**bare(name), "spec": {**bare(name)["spec"], "nodeName": node}}, dry_run=False)
    refused = "may act on pods of its token's node alone"
    clean.until(lambda: refused in as_account(clean, "netinit-node", "DELETE", f"{pods}/far?dryRun=All", node="n1"), "the policy is in force")
    assert refused in as_account(clean, "netinit-node", "DELETE", f"{pods}/far", node="n1")
    assert refused in as_account(clean, "netinit-node", "DELETE", f"{pods}/near"), "a token of no node"
    assert as_account(clean, "netinit-node", "DELETE", f"{pods}/near", node="n1") == ""
    clean.install("admissionPolicies.enabled=true", "node.enabled=true", "node.repair=label")
    label = {"path": f"{pods}/far/status", "kind": "application/merge-patch+json"}
    clean.until(lambda: "cannot patch" not in as_account(clean, "netinit-node", "PATCH", body={}, node="n2", **label), "the right is there")
    assert refused in as_account(clean, "netinit-node", "PATCH", body={"metadata": {"labels": {"a": "b"}}}, node="n1", **label)
    assert as_account(clean, "netinit-node", "PATCH", body={"metadata": {"labels": {"a": "b"}}}, node="n2", **label) == ""
    assert fields_of(clean, "api/v1", "ObjectMeta") - {"managedFields"} <= METADATA.keys()
    was = without_versions(clean.ask("GET", f"{pods}/far"))
    tried = {"status": {"podIPs": [{"ip": "10.0.0.9"}], "podIP": "10.0.0.9"}, **{key: {key: value} for key, value in METADATA.items() if key != "labels"}}
    said = {key: as_account(clean, "netinit-node", "PATCH", body={"status" if key == "status" else "metadata": value}, node="n2", **label) for key, value in tried.items()}
    assert without_versions(clean.ask("GET", f"{pods}/far")) == was
    assert {key for key, text in said.items() if "may change the labels of pods alone" in text} >= {"status", "annotations", "finalizers"}


def test_kubectl_shows_warnings_and_refusals(clean, tmp_path):
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path):
        reaches(clean, namespace)
        pod = bare("warned", annotations={"traffic.sidecar.istio.io/excludeInbuondPorts": "80"})
        code, _, said = clean.kubectl("-n", namespace, "apply", "--validate=false", "-f", "-", text=json.dumps(pod))
        assert code == 0, said
        assert (
            'Warning: annotation "traffic.sidecar.istio.io/excludeInbuondPorts" has no effect: nothing reads it; did you mean'
            in said
        )
        pod = bare("refused", annotations={"status.sidecar.istio.io/port": "no"})
        code, _, said = clean.kubectl("-n", namespace, "apply", "--validate=false", "-f", "-", text=json.dumps(pod))
        assert code == 1
        assert (
            f"denied the request: pod {namespace}/refused: invalid value 'no' for annotation 'status.sidecar.istio.io/port'"
            in said
        )


def test_the_bundle_is_put_back_when_somebody_changes_it(clean, tmp_path):
    with installed(clean, tmp_path):
        path = f"{CONFIGURATIONS}/netinit-webhook-sidecar-injector"

        def bundles():
            return {one["clientConfig"].get("caBundle") for one in clean.ask("GET", path)["webhooks"]}

        clean.until(lambda: None not in bundles(), "the bundle is there")
        (right,) = bundles()
        assert base64.b64decode(clean.ask("GET", SECRET)["data"]["ca.crt"]) == base64.b64decode(right)
        patch = [
            {
                "op": "replace",
                "path": "/webhooks/0/clientConfig/caBundle",
                "value": base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode(),
            }
        ]
        with contextlib.suppress(ApiError):  # newer API servers refuse what is no certificate
            clean.ask("PATCH", path, patch, kind="application/json-patch+json")
        clean.ask(
            "PATCH",
            path,
            [{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}],
            kind="application/json-patch+json",
        )
        clean.until(lambda: bundles() == {right}, "it is put back", 10)


def test_two_replicas_share_one_secret(clean, tmp_path):
    with contextlib.suppress(ApiError):
        clean.ask("DELETE", SECRET)
    with installed(clean, tmp_path, replicas=2) as replicas:
        served = [one.log.read_text() for one in replicas]
        assert all("serving certificate for" in text for text in served)
        clean.until(lambda: clean.ask("GET", SECRET)["data"]["tls.crt"], "the Secret is there")
        namespace = fresh(clean, **{"istio-injection": "enabled"})
        reaches(clean, namespace)
        assert all(injected(clean.pod(namespace, bare())) for _ in range(20))


class Stream:
    """Pods created one after the other, by requests and by kubectl, as long as the block lasts; what failed is kept."""

    def __init__(self, plane, namespace):
        self.plane, self.namespace = plane, namespace
        self.failed, self.bare, self.count, self.runs = [], [], 0, 0
        self.ending = threading.Event()

    def run(self):
        while not self.ending.is_set():
            try:
                if not injected(self.plane.pod(self.namespace, bare())):
                    self.bare.append(self.count)
            except ApiError as error:
                self.failed.append(str(error))
            self.count += 1

    def run_kubectl(self):
        words = ("-n", self.namespace, "run", "--image=app:1", "--restart=Never", OVERRIDES, "--dry-run=server", "-o", "json")
        while not self.ending.is_set():
            code, pod, said = self.plane.kubectl(*words, f"web-{next(numbers)}")
            if code:
                self.failed.append(said)
            elif not injected(json.loads(pod)):
                self.bare.append(self.count)
            self.runs += 1

    def __enter__(self):
        self.threads = [threading.Thread(target=work) for work in (self.run, self.run, self.run_kubectl)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self.threads:
            thread.join(60)

    def more(self, number):
        wanted = self.count + number
        self.plane.until(lambda: self.count >= wanted or self.failed, "pods go on being created")


def test_a_rolling_update_fails_no_pod(clean, tmp_path):
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    _, trees = clean.install()
    started = [
        Replica(clean, address, trees=trees, folder=tmp_path, more=["--shutdownDelay", "2s"]) for address in ADDRESSES
    ]
    with contextlib.ExitStack() as stack:
        first, second, third = [stack.enter_context(one) for one in started]
        for one in (first, second):
            one.wait()
        clean.endpoints(first.address, second.address)
        reaches(clean, namespace)
        with Stream(clean, namespace) as stream:
            stream.more(20)
            third.wait()
            clean.endpoints(first.address, second.address, third.address)
            for old, left in ((first, (second, third)), (second, (third,))):
                old.end()  # as the kubelet and the endpoints controller do, at the same time
                clean.endpoints(*[one.address for one in left])
                stream.more(30)
                assert old.process.wait(30) == 0
            stream.more(20)
        assert (stream.failed, stream.bare) == ([], [])
        print(f"{stream.count} pods and {stream.runs} kubectl runs during the update")


def test_a_rotation_of_the_certificate_fails_no_pod(clean, tmp_path):
    with contextlib.suppress(ApiError):
        clean.ask("DELETE", SECRET)
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path, "certificate.lifetime=30s", replicas=2) as replicas:
        reaches(clean, namespace)
        first = clean.ask("GET", SECRET)["data"]["tls.crt"]
        with Stream(clean, namespace) as stream:
            clean.until(
                lambda: clean.ask("GET", SECRET)["data"]["tls.crt"] != first or stream.failed,
                "the certificate is renewed",
                90,
            )
            stream.more(40)
        assert (stream.failed, stream.bare) == ([], []), replicas[0].log.read_text()[-3000:]
        data = clean.ask("GET", SECRET)["data"]
        assert base64.b64decode(data["ca.crt"]).count(b"BEGIN CERTIFICATE") >= 2
        assert describe(base64.b64decode(data["tls.crt"]).decode()).until > time.time()
        print(f"{stream.count} pods and {stream.runs} kubectl runs during the rotation")
    clean.ask("DELETE", SECRET)


def test_creating_pods_is_timed_with_the_webhook_and_without(clean, tmp_path):
    plain, asked = fresh(clean), fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path), ThreadPoolExecutor(4) as threads:
        reaches(clean, asked)
        for namespace in (plain, asked):
            begun = time.monotonic()
            made = list(threads.map(lambda _: clean.pod(namespace, bare(), dry_run=False), range(200)))  # noqa: B023
            print(f"{len(made) / (time.monotonic() - begun):.0f} pods a second {'with' if namespace is asked else 'without'} it")
            assert {injected(pod) for pod in made} == {namespace is asked}


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_without_a_webhook_the_failure_policy_decides(clean, tmp_path, policy):
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    outside = fresh(clean)
    with installed(clean, tmp_path, f"webhook.failurePolicy={policy}", "webhook.timeoutSeconds=2"):
        reaches(clean, namespace)
    code, _, said = clean.kubectl("-n", namespace, "run", "web", "--image=app:1", "--restart=Never", OVERRIDES)
    if policy == "Fail":
        assert code == 1
        assert 'failed calling webhook "namespace.sidecar-injector.istio.io"' in said
    else:
        assert code == 0, said
        assert not injected(clean.ask("GET", f"/api/v1/namespaces/{namespace}/pods/web"))
    assert clean.pod(outside, bare()), "namespaces that do not ask are not touched"
    assert clean.pod(NAMESPACE, bare(labels={"sidecar.istio.io/inject": "false"})), "nor is the webhook's own"
    print(f"{policy}: {said.strip()}")


class Impostor:
    """What stands in our place with a certificate, by `with`: it takes connections, reads, and never answers."""

    def __init__(self, plane, folder, pair, *given):
        (folder / "impostor.pem").write_text(pair.key + pair.certificate)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(folder / "impostor.pem")
        _, trees = plane.install(*given)
        configuration = next(tree for tree in trees if tree["kind"] == "MutatingWebhookConfiguration")
        for webhook in configuration["webhooks"]:
            webhook["clientConfig"]["caBundle"] = base64.b64encode(pair.authority.encode()).decode()
        plane.apply(configuration)
        plane.endpoints(ADDRESSES[0])
        self.asked = 0

    def __enter__(self):
        self.listening = socket.create_server((ADDRESSES[0], 15017))
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return self

    def serve(self):
        with contextlib.ExitStack() as kept:
            while True:
                try:
                    connection, _ = self.listening.accept()
                except OSError:
                    return
                self.asked += 1
                with contextlib.suppress(OSError):
                    kept.enter_context(self.context.wrap_socket(connection, server_side=True))

    def __exit__(self, *_):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(10)


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    ("what", "said"),
    [("expired", "certificate has expired or is not yet valid"), ("slow", "context deadline exceeded")],
)
def test_what_kubectl_says_of_an_expired_certificate_and_of_a_slow_webhook(clean, tmp_path, what, said, policy):
    age = 3600 if what == "expired" else 0  # ours would refuse to serve it
    pair = make_pair(service_names(NAME, NAMESPACE), now=time.time() - age, seconds=1800)
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    outside = fresh(clean)
    told = []

    def run(where):
        begun = time.monotonic()
        words = ("run", f"web-{next(numbers)}", "--image=app:1", "--restart=Never", OVERRIDES, "-o", "json")
        told.append((*clean.kubectl("-n", where, *words), time.monotonic() - begun))
        return told[-1]

    with Impostor(clean, tmp_path, pair, f"webhook.failurePolicy={policy}", "webhook.timeoutSeconds=2") as impostor:
        clean.until(lambda: run(namespace) and impostor.asked, "the API server has heard of the webhook", 30)
        code, pod, error, seconds = run(namespace)
        if policy == "Fail":
            assert code == 1
            assert said in error
            assert 'failed calling webhook "namespace.sidecar-injector.istio.io"' in error
        else:
            assert code == 0, error
            assert not injected(json.loads(pod))
        assert (seconds >= 2) is (what == "slow"), "the API server waits for its timeoutSeconds, and not longer"
        assert seconds < 30
        asked = impostor.asked
        assert run(outside)[0] == 0
        assert impostor.asked == asked, "namespaces that do not ask do not wait"
    print(f"{what}, {policy}, {seconds:.1f} s: {error.strip()}")


def test_the_api_server_shows_its_certificate_and_nobody_else_is_answered(clean, tmp_path):
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path, more=["--clientCAFile", clean.folder / "caller.crt"]) as (replica,):
        reaches(clean, namespace)
        assert injected(clean.pod(namespace, bare()))
        stranger = http.client.HTTPSConnection(replica.address, 15017, context=ssl._create_unverified_context(), timeout=30)
        with contextlib.closing(stranger):
            stranger.request("POST", "/inject", json.dumps(make_review(make_pod())), {"Content-Type": "application/json"})
            assert stranger.getresponse().status == 403


def test_config_maps_are_watched_and_a_bad_one_is_an_event(clean, tmp_path):
    def put(name, **data):
        clean.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}
        )

    def release(namespace):
        return clean.pod(namespace, bare())["metadata"].get("annotations", {}).get("release")

    put("istio-sidecar-injector", config=json.dumps(CONFIG), values='{"release": "one"}')
    put("istio", mesh="trustDomain: td.example")
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path, "injection.configMap=istio-sidecar-injector", "injection.meshConfigMap=istio"):
        reaches(clean, namespace)
        assert release(namespace) == "one"
        proxy = clean.pod(namespace, bare())["spec"]["containers"][1]
        assert {"name": "MESH", "value": "td.example"} in proxy["env"]
        put("istio-sidecar-injector", config=json.dumps(CONFIG), values='{"release": "two"}')
        changed = time.monotonic()
        clean.until(lambda: release(namespace) == "two", "the change is in use", 10)
        print(f"in use after {time.monotonic() - changed:.2f} s")
        put("istio-sidecar-injector", config='{"policy": "enabled", "templates": {"sidecar": "{{ bad"}}')

        def events():
            found = clean.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
            return [one for one in found if one["reason"] == "InvalidConfiguration"]

        clean.until(events, "there is an event on the ConfigMap")
        assert events()[0]["involvedObject"]["name"] == "istio-sidecar-injector"
        assert "template 'sidecar' cannot be parsed" in events()[0]["message"]
        assert release(namespace) == "two"
        put("istio-sidecar-injector", config=json.dumps(CONFIG), values='{"release": "two"}')
        put("istio", mesh="defaultConfig: {concurrency: many}")
        told = lambda: [one["involvedObject"]["name"] for one in events()]  # noqa: E731
        clean.until(lambda: "istio" in told(), "there is an event on the mesh's ConfigMap")
        put("istio", other="the key was forgotten")
        clean.until(lambda: any("it has no key mesh" in one["message"] for one in events()), "a key that is missing is told")
        proxy = clean.pod(namespace, bare())["spec"]["containers"][1]
        assert {"name": "MESH", "value": "td.example"} in proxy["env"], "and not taken for the default"


def test_with_the_charts_defaults_too_bad_values_are_an_event_on_their_config_map(clean, tmp_path):
    with installed(clean, tmp_path) as (replica,):
        (values,) = [Path(word.partition("=")[2]) for word in replica.command if word.startswith("--valuesFile=")]
        values.write_text("{")
        name = f"{NAME}-values"

        def events():
            found = clean.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
            return [one for one in found if one["reason"] == "InvalidConfiguration" and one["involvedObject"]["name"] == name]

        clean.until(events, "there is an event on the ConfigMap")
        (event,) = events()
        assert event["involvedObject"]["uid"] == clean.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")["metadata"]["uid"]
        assert "keeps the previous one" in event["message"]


def test_a_secret_that_is_deleted_is_written_anew_and_refuses_no_pod(clean, tmp_path):
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/netinit-webhook-tls"
    with installed(clean, tmp_path):
        reaches(clean, namespace)
        before = clean.ask("GET", path)
        clean.ask("DELETE", path)

        def is_back():
            assert injected(clean.pod(namespace, bare()))
            return clean.ask("GET", path)["data"] == before["data"]

        clean.until(is_back, "the Secret is back")


BROKEN = ("connection refused", "connection reset", "EOF", "broken pipe")  # how the API server words a call that lost its server


def test_a_replica_killed_with_signal_9_fails_no_more_than_the_reviews_on_their_way_to_it(clean, tmp_path):
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path, replicas=2) as (_, second):
        reaches(clean, namespace)
        with Stream(clean, namespace) as stream:
            stream.more(50)
            second.process.kill()
            second.process.wait()
            clean.endpoints(ADDRESSES[0])  # a second or two later in a cluster: until then new connections may be refused
            end = stream.count + 200
            clean.until(lambda: stream.count >= end, "pods go on being created")
        print(f"{len(stream.failed)} of {stream.count} creations failed: {stream.failed}")
        assert stream.bare == []
        assert len(stream.failed) <= 3 * len(stream.threads)
        assert all(any(word in said for word in BROKEN) for said in stream.failed), stream.failed


def test_openshifts_user_ids_come_from_the_watched_namespaces(clean, tmp_path):
    text = "spec: {containers: [{name: istio-proxy, image: p, securityContext: {runAsUser: {{ .ProxyUID }}}}]}"
    config = {"policy": "enabled", "templates": {"sidecar": text}}
    clean.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "uids", "namespace": NAMESPACE},
            "data": {"config": json.dumps(config)},
        }
    )
    namespace = fresh(clean, **{"istio-injection": "enabled"})
    with installed(clean, tmp_path, "injection.configMap=uids", "openshift=true"):
        reaches(clean, namespace)
        annotations = {"openshift.io/sa.scc.uid-range": "1000620000/10000"}
        clean.ask(
            "PATCH",
            f"/api/v1/namespaces/{namespace}",
            {"metadata": {"annotations": annotations}},
            kind="application/merge-patch+json",
        )

        def uid():
            return clean.pod(namespace, bare())["spec"]["containers"][1]["securityContext"]["runAsUser"]

        clean.until(lambda: uid() == 1000629999, "the namespace's range is used", 10)


def test_lint_looks_into_the_cluster(clean, tmp_path):
    import subprocess
    import sys

    def lint():
        words = ["webhook", "lint", "--kubeconfig", clean.folder / "admin.kubeconfig"]
        return subprocess.run(
            [sys.executable, "-m", "netinit", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    clean.endpoints()
    done = lint()
    assert (done.returncode, "there is no webhook that injects sidecars" in done.stdout) == (1, True), done
    fresh(clean, **{"istio-injection": "enabled"})
    fresh(clean, **{"istio.io/rev": "default"})
    with installed(clean, tmp_path, "image.repository=registry.example/netinit-webhook") as (replica,):
        clean.until(lambda: "has no caBundle" not in lint().stdout, "the bundle is there")
        assert "there is no ConfigMap istio-ca-root-cert" in lint().stdout
        for namespace in clean.ask("GET", "/api/v1/namespaces")["items"]:
            authority = {"name": "istio-ca-root-cert", "namespace": namespace["metadata"]["name"]}
            if {"istio-injection", "istio.io/rev"} & namespace["metadata"].get("labels", {}).keys():
                clean.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": authority})
        told = [
            line
            for line in lint().stdout.splitlines()
            if "PodDisruptionBudget" not in line and "minAvailable" not in line
        ]
        assert told in ([], ["nothing found"])  # an old API server has no budgets of this version
        replica.end()
        clean.endpoints()
        assert "leads to no ready pod: no pod can be created" in lint().stdout


CURRENT = {
    "default": (),
    "default+enableNamespacesByDefault": ("webhook.enableNamespacesByDefault=true",),
    "rev=canary": ("revision=canary",),
}
FIRED = json.dumps(
    {"policy": "enabled", "templates": {"sidecar": "spec: {containers: [{name: istio-proxy, image: p}]}"}}
)


def fired(pod):
    """The webhooks that were called: each leaves a variable, by a path of its own."""
    variables = [one["name"] for container in pod["spec"]["containers"] for one in container.get("env", ())]
    return sorted(
        name.removeprefix("FIRED.").lower() for name in variables if name.startswith("FIRED.")
    )


@needs_data
@pytest.mark.parametrize("config", CURRENT)
def test_every_cell_of_istios_truth_table_through_the_real_selectors(clean, tmp_path, config):
    (tmp_path / "config").write_text(FIRED)
    (tmp_path / "values").write_text("{}")
    cells = [cell for cell in json.loads((DATA / "webhook-matrix.json").read_text()) if cell["config"] == config]
    assert len(cells) == 64
    _, trees = clean.install(*CURRENT[config])
    configuration = next(tree for tree in trees if tree["kind"] == "MutatingWebhookConfiguration")
    for hook in configuration["webhooks"]:
        short = hook["name"].removesuffix(".sidecar-injector.istio.io")
        hook["clientConfig"]["service"]["path"] = f"/inject/fired.{short}/1"
    namespaces = {}
    for cell in cells:
        key = json.dumps(cell["namespace_labels"], sort_keys=True)
        if key not in namespaces:
            namespaces[key] = clean.namespace(f"cell-{next(numbers)}", **cell["namespace_labels"])
    name = configuration["webhooks"][0]["clientConfig"]["service"]["name"]
    # a revision has a service account of its own, for which the control plane here has no token
    more = ["--injectConfig", tmp_path, "--kubeconfig", clean.folder / "admin.kubeconfig"]
    with Replica(clean, ADDRESSES[0], trees=trees, folder=tmp_path, more=more) as replica:
        replica.wait()
        clean.endpoints(ADDRESSES[0], name=name)
        clean.apply(configuration)
        positive = next(cell for cell in cells if cell["webhooks"])

        def ask(cell):
            pod = bare(labels=cell["pod_labels"] or {"plain": "yes"})
            return fired(clean.pod(namespaces[json.dumps(cell["namespace_labels"], sort_keys=True)], pod))

        clean.until(lambda: ask(positive) == sorted(positive["webhooks"]), "the API server has heard of the webhooks")
        time.sleep(1)
        wrong = [(cell, found) for cell in cells if (found := ask(cell)) != sorted(cell["webhooks"])]
    assert wrong == []


def golden():
    """Istio's cases of the webhook whose settings any server of ours can have, by settings."""
    found = {}
    for case in cases(INJECT):
        plain = not (case["skip_webhook"] or case["expected_error"] or case["platform"] or case["compliance_policy"])
        if plain and case["want_given"]:
            found.setdefault((case["settings"], json.dumps(case["mesh_override"]), case["native_sidecars"]), []).append(
                case
            )
    return found


LABELLED = {"metadata": {"labels": {"istio-injection": "enabled"}}}
BY_DEFAULT = {"path": "/", "protocol": "TCP", "scheme": "HTTP", "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
              "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}  # fmt: skip
OF_THE_POD = ("ISTIO_META_POD_PORTS", "ISTIO_KUBE_APP_PROBERS")


def without_defaults(value):
    """What templates write of the pod into variables, without what the API server adds to a pod before it asks."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if BY_DEFAULT.get(key) != item}
        kept.pop("imagePullPolicy", None)  # its default follows from the image's tag
        return {key: without_defaults(item) for key, item in kept.items()}
    return [without_defaults(item) for item in value] if isinstance(value, list) else value


def normal(pod):
    for key in ("initContainers", "containers"):
        for variable in (one for container in pod["spec"].get(key, ()) for one in container.get("env", ())):
            if variable["name"] in OF_THE_POD and variable.get("value"):
                variable["value"] = without_defaults(json.loads(variable["value"]))
    annotations = pod["annotations"] or {}
    if overrides := annotations.get("proxy.istio.io/overrides"):
        annotations["proxy.istio.io/overrides"] = json.dumps(without_defaults(json.loads(overrides)))
    return pod


def kept(pod):
    """What counts of a pod that the API server keeps."""
    metadata = pod["metadata"]
    return {"labels": metadata.get("labels"), "annotations": metadata.get("annotations"), "spec": pod["spec"]}


@needs_data
def test_istios_golden_pods_come_out_of_the_api_server(clean, tmp_path):
    """Created through the webhook, a pod is what the API server keeps of the wanted one created as it is."""
    native = clean.minor() >= NATIVE_SIDECARS
    clean.ask("PATCH", "/api/v1/namespaces/default", LABELLED, kind="application/merge-patch+json")
    injected_ns, plain_ns = "default", fresh(clean)  # Istio's pods are of the namespace default
    _, trees = clean.install()
    compared, refused = 0, 0
    for (settings, override, sidecars), of_settings in golden().items():
        if sidecars and not native:
            continue
        folder = tmp_path / f"config-{settings}-{sidecars}-{abs(hash(override))}"
        folder.mkdir()
        source = INJECT / "settings" / settings
        for name, file in (("config", "config.yaml"), ("values", "values.json")):
            (folder / name).write_text((source / file).read_text())
        mesh = joined_mesh(goyaml.load((source / "mesh.yaml").read_text()) or {}, json.loads(override))
        (folder / "mesh").write_text(json.dumps(mesh))
        more = [
            "--injectConfig",
            folder,
            "--meshConfig",
            folder / "mesh",
            f"--native-sidecars={str(sidecars).lower()}",
            "--shutdownDelay",
            "0s",
        ]
        with Replica(clean, ADDRESSES[0], trees=trees, folder=tmp_path, more=more) as replica:
            replica.wait()
            clean.endpoints(ADDRESSES[0])
            reaches_any(clean, injected_ns)
            for case in of_settings:
                outcome = compare(clean, case, injected_ns, plain_ns)
                compared += outcome == "equal"
                refused += outcome == "refused"
    print(f"{compared} pods are equal, {refused} are refused by the API server both ways")
    possible = [case for (_, _, sidecars), found in golden().items() for case in found if native or not sidecars]
    assert compared + refused == len(possible)
    assert compared, "an API server before 1.29 knows no native sidecars, and leaves few of the cases"


def reaches_any(plane, namespace):
    """The API server gets answers, whatever they are."""

    def answers():
        try:
            return plane.pod(namespace, bare())
        except ApiError as error:
            return "failed calling webhook" not in error.message

    plane.until(answers, "the webhook is asked")


def labelled(plane, namespace):
    """The namespace of that name, which asks for injection."""
    with contextlib.suppress(ApiError):  # it is there already
        plane.namespace(namespace, **LABELLED["metadata"]["labels"])
    return namespace


def compare(plane, case, injected_ns, plain_ns):
    inputs = [one for tree in documents(INJECT / "cases" / case["input"]) if tree for one in workloads(tree)]
    wants = [one for tree in documents(INJECT / "cases" / case["want"]) if tree for one in workloads(tree)]
    outcomes = set()
    for workload, wanted in zip(inputs, wants, strict=True):
        told = []
        own = labelled(plane, workload.namespace) if workload.namespace else injected_ns
        for source, namespace in ((workload, own), (wanted, plain_ns)):
            pod = json.loads(json.dumps(source.pod()))
            pod["spec"].setdefault("serviceAccountName", "default")
            owner = {
                "apiVersion": workload.owner.api_version,
                "kind": workload.kind,
                "name": workload.name,
                "controller": True,
                "uid": "u",
            }
            pod |= {"apiVersion": "v1", "kind": "Pod"}
            pod["metadata"] = {key: value for key, value in pod["metadata"].items() if key in {"labels", "annotations"}}
            pod["metadata"] |= {"generateName": f"{workload.name or 'x'}-", "ownerReferences": [owner]}
            if source is wanted and "istio-proxy" not in json.dumps(pod):
                pod["metadata"].setdefault("labels", {})
            try:
                told.append(kept(plane.pod(namespace, pod)))
            except ApiError as error:
                told.append(error.status)
        if isinstance(told[1], int) or isinstance(told[0], int):
            assert told[0] == told[1], (case["name"], told)
            outcomes.add("refused")
            continue
        ours, theirs = (normal(one) for one in told)
        for one in (ours, theirs):
            status = (one["annotations"] or {}).get("sidecar.istio.io/status")
            if status:
                one["annotations"]["sidecar.istio.io/status"] = {**json.loads(status), "revision": ""}
            for key in ("istio.io/rev",):
                (one["annotations"] or {}).pop(key, None)
        assert_same(ours, theirs)
        outcomes.add("equal")
    return "equal" if outcomes == {"equal"} else "refused"
