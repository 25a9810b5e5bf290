"""Installations with one thing wrong: it is found, has a remedy, and nothing else is said."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
import sys

import pytest

from helm import render_chart
from netinit.base.documentation import address_of
from netinit.installation.linting import lint
from netinit.webhook.certificates import make_pair
from sweeps import together

NOW = 1_800_000_000.0
PAIR = make_pair(("x",), now=NOW, seconds=90 * 86400)


def installed(*given):
    """The chart's objects as a cluster has them: with caBundles, endpoints and a namespace that is labelled."""
    trees = render_chart("image.repository=registry.example/netinit-webhook", *given)
    for tree in trees:
        for hook in tree.get("webhooks", ()):
            hook["clientConfig"]["caBundle"] = base64.b64encode(PAIR.authority.encode()).decode()
    trees.append(
        {
            "kind": "EndpointSlice",
            "metadata": {
                "name": "netinit-webhook-x7",
                "namespace": "mesh",
                "labels": {"kubernetes.io/service-name": "netinit-webhook"},
            },
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
        }
    )
    labels = [{"istio-injection": "enabled"}, {"istio.io/rev": "default"}, {"kubernetes.io/metadata.name": "plain"}]
    trees += [
        {"kind": "Namespace", "metadata": {"name": f"n{number}", "labels": one}} for number, one in enumerate(labels)
    ]
    trees.append({"kind": "Namespace", "metadata": {"name": "mesh", "labels": {"kubernetes.io/metadata.name": "mesh"}}})
    trees += [{"kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert", "namespace": f"n{number}"}} for number in range(3)]
    trees.append({"kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert", "namespace": "mesh"}})
    return trees


def hooks(trees):
    return [hook for tree in trees for hook in tree.get("webhooks", ())]


def kinds(trees, **more):
    found = lint(trees, now=NOW, **more)
    assert all(finding.remedy and finding.message and finding.subject for finding in found)
    return sorted({finding.kind for finding in found})


@pytest.mark.parametrize("given", [(), ("webhook.enableNamespacesByDefault=true",), ("webhook.flavour=classic",)])
def test_our_own_installation_is_sound(given):
    assert kinds(installed(*given)) == []


def test_the_manifests_alone_are_sound():
    assert kinds(render_chart("image.repository=registry.example/netinit-webhook"), whole=False) == []


def test_nothing_installed():
    assert kinds([]) == ["no-webhook"]


def without_exclusion(trees):
    for hook in hooks(trees):
        expressions = hook["namespaceSelector"]["matchExpressions"]
        hook["namespaceSelector"]["matchExpressions"] = [
            one for one in expressions if one["key"] != "kubernetes.io/metadata.name"
        ]
        hook["objectSelector"] = {}


def without_authority(trees):
    trees[:] = [tree for tree in trees if tree["metadata"] != {"name": "istio-ca-root-cert", "namespace": "n0"}]


def short_image(kind):
    def change(trees):
        (at,) = [at for at, tree in enumerate(trees) if tree["kind"] == kind and "labels" in tree["metadata"]]
        trees[at] = json.loads(json.dumps(trees[at]).replace("registry.example/", ""))

    return change


def one_replica(trees):
    next(tree for tree in trees if tree["kind"] == "Deployment")["spec"]["replicas"] = 1


def remove(kind):
    def change(trees):
        trees[:] = [tree for tree in trees if tree["kind"] != kind]

    return change


def bundle(text):
    def change(trees):
        for hook in hooks(trees):
            hook["clientConfig"]["caBundle"] = text and base64.b64encode(text.encode()).decode()

    return change


SERVED = make_pair(("netinit-webhook.mesh.svc",), now=NOW, seconds=90 * 86400)
OTHER = make_pair(("netinit-webhook.mesh.svc",), now=NOW, seconds=90 * 86400)


def secret(chain, authority, namespace="mesh"):
    """A Secret with a certificate for the Service, and caBundles of this authority."""

    def change(trees):
        data = {"tls.crt": base64.b64encode(chain.encode()).decode()}
        trees.append({"kind": "Secret", "metadata": {"name": "tls", "namespace": namespace}, "data": data})
        bundle(authority)(trees)

    return change


def seconds(trees):
    for hook in hooks(trees):
        hook["timeoutSeconds"] = 30


def side_effects(trees):
    for hook in hooks(trees):
        hook["sideEffects"] = "Unknown"


def unlabelled(trees):
    trees[:] = [tree for tree in trees if tree["kind"] != "Namespace"]
    trees.append(
        {
            "kind": "Namespace",
            "metadata": {"name": "plain", "labels": {"istio-injection": "disabled", "istio.io/rev": "other"}},
        }
    )


def not_ready(trees):
    (one,) = next(tree for tree in trees if tree["kind"] == "EndpointSlice")["endpoints"]
    one["conditions"]["ready"] = False


def old_endpoints(subset):
    def change(trees):
        remove("EndpointSlice")(trees)
        metadata = {"name": "netinit-webhook", "namespace": "mesh"}
        trees.append({"kind": "Endpoints", "metadata": metadata, "subsets": [{subset: [{"ip": "10.0.0.1"}]}]})

    return change


def second_injector(trees):
    other = copy.deepcopy(next(tree for tree in trees if tree["kind"] == "MutatingWebhookConfiguration"))
    other["metadata"]["name"] = "istio-sidecar-injector"
    for hook in other["webhooks"]:
        hook["clientConfig"] = {"url": "https://istiod/inject", "caBundle": hook["clientConfig"]["caBundle"]}
    trees.append(other)


def label_as_istio(trees, revision="default"):
    for tree in trees:
        if tree["kind"] == "MutatingWebhookConfiguration":
            tree["metadata"].setdefault("labels", {})["istio.io/rev"] = revision


def istiod(revision):
    return {"kind": "Deployment", "metadata": {"name": "istiod", "namespace": "istio-system", "labels": {"app": "istiod", "istio.io/rev": revision}}}


def deleted_namespace(trees):
    """As `kubectl delete namespace mesh` leaves it."""
    trees[:] = [tree for tree in trees if "mesh" not in (tree["metadata"].get("namespace"), tree["metadata"]["name"])]


@together(
    ("change", "wanted"),
    [
        (label_as_istio, ["claimed-by-istiod"]),
        (without_exclusion, ["own-namespace", "system-namespace"]),
        (without_authority, ["no-authority"]),
        (short_image("Deployment"), ["short-image"]),
        (short_image("ConfigMap"), ["short-image"]),
        (one_replica, ["one-replica"]),
        (remove("PodDisruptionBudget"), ["no-disruption-budget"]),
        (remove("Service"), ["no-service"]),
        (deleted_namespace, ["namespace-deleted"]),
        (not_ready, ["no-endpoints"]),
        (remove("EndpointSlice"), ["no-endpoints"]),
        (old_endpoints("notReadyAddresses"), ["no-endpoints"]),
        (old_endpoints("addresses"), []),
        (bundle(""), ["no-bundle"]),
        (bundle("nothing"), ["bad-bundle"]),
        (bundle(make_pair(("x",), now=NOW - 10**7, seconds=60).authority), ["expired-bundle"]),
        (bundle(make_pair(("x",), now=NOW, seconds=86400).authority), ["expiring-bundle"]),
        (secret(SERVED.certificate, SERVED.authority), []),
        (secret(SERVED.certificate, OTHER.authority + SERVED.authority), []),
        (secret(SERVED.certificate, OTHER.authority), ["wrong-bundle"]),
        (secret(PAIR.certificate, OTHER.authority), []),
        (secret(SERVED.certificate, OTHER.authority, "elsewhere"), []),
        (secret("nothing", OTHER.authority), []),
        (seconds, ["timeout"]),
        (side_effects, ["side-effects"]),
        (second_injector, ["two-injectors"]),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_one_thing_that_is_wrong_is_found_and_nothing_else(change, wanted):
    trees = installed()
    change(trees)
    assert kinds(trees) == wanted


@pytest.mark.parametrize(
    ("revisions", "whole", "severity", "said"),
    [
        (("default",), True, "error", "an istiod of that revision replaces the caBundle"),
        (("1-27",), True, "warning", "no istiod of that revision runs now, but any would replace"),
        ((), False, "error", "an istiod of that revision replaces the caBundle"),
    ],
)
def test_a_configuration_that_istiod_writes_its_authority_into_is_named_with_its_remedy(revisions, whole, severity, said):
    trees = [*installed(), *map(istiod, revisions)]
    label_as_istio(trees)
    found = [one for one in lint(trees, now=NOW, whole=whole) if one.kind == "claimed-by-istiod"]
    assert {(one.severity, one.page) for one in found} == {(severity, address_of("webhook", "istiod-and-the-label-istioiorev"))}
    for one in found:
        assert said in one.message
        assert "kubectl label mutatingwebhookconfiguration netinit-webhook-sidecar-injector istio.io/rev-" in one.remedy


def test_istiods_own_configuration_is_istiods_to_write():
    trees = installed()
    label_as_istio(trees)
    for hook in hooks(trees):
        hook["clientConfig"]["service"]["name"] = "istiod-1-27"
    assert "claimed-by-istiod" not in kinds(trees)


def test_a_webhook_whose_own_pods_it_leaves_out_by_their_labels_can_start_in_a_labelled_namespace():
    """As istiod's, whose webhooks know nothing of its namespace's name."""
    trees = installed()
    labels = {"app": "istiod", "sidecar.istio.io/inject": "false"}
    trees += [
        {"kind": "Service", "metadata": {"name": "istiod", "namespace": "istio-system"}, "spec": {"selector": {"app": "istiod"}}},
        {"kind": "Deployment", "metadata": {"name": "istiod", "namespace": "istio-system"},
         "spec": {"replicas": 2, "template": {"metadata": {"labels": labels}}}},
    ]  # fmt: skip
    for hook in hooks(trees):
        hook["clientConfig"]["service"] |= {"name": "istiod", "namespace": "istio-system"}
        rest = [one for one in hook["namespaceSelector"]["matchExpressions"] if one["key"] != "kubernetes.io/metadata.name"]
        hook["namespaceSelector"]["matchExpressions"] = rest
    assert "own-namespace" not in kinds(trees)
    del labels["sidecar.istio.io/inject"]
    assert "own-namespace" in kinds(trees)


def test_single_configurations_are_said_to_match_nothing_and_not_each_webhook_of_a_sound_one():
    trees = installed()
    trees[:] = [tree for tree in trees if tree["metadata"].get("labels") != {"istio.io/rev": "default"}]
    assert kinds(trees) == [], "a webhook for istio.io/rev waits for whoever wants it"


def test_selectors_that_match_nothing():
    trees = installed()
    unlabelled(trees)
    assert "matches-nothing" in kinds(trees)


def test_revisions_do_not_get_in_each_others_way():
    canary = [
        tree
        for tree in render_chart("revision=canary")
        if tree["kind"] == "MutatingWebhookConfiguration"
    ]
    bundled = base64.b64encode(PAIR.authority.encode()).decode()
    for hook in hooks(canary):
        hook["clientConfig"] = {"url": "https://canary/inject", "caBundle": bundled}
    canary_namespace = {"kind": "Namespace", "metadata": {"name": "c", "labels": {"istio.io/rev": "canary"}}}
    authority = {"kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert", "namespace": "c"}}
    assert kinds([*installed(), *canary, canary_namespace, authority]) == []


def test_two_servers_of_one_revision_are_told_with_an_example():
    trees = installed()
    second_injector(trees)
    told = next(finding for finding in lint(trees, now=NOW) if finding.kind == "two-injectors")
    assert "would be injected twice" in told.message
    assert "istio.io/rev=default" in told.message


@pytest.mark.parametrize(
    "trees",
    [
        [{"kind": "MutatingWebhookConfiguration"}],
        [{"kind": "MutatingWebhookConfiguration", "webhooks": [None, {"name": 1}]}],
        [{}, {"kind": None}],
    ],
)
def test_objects_of_any_shape_are_looked_at(trees):
    assert kinds(trees) == ["no-webhook"]


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "netinit", "webhook", "lint", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_command_tells_findings_with_their_remedies(tmp_path):
    trees = installed()
    without_exclusion(trees)
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": trees}))
    done = run("-f", tmp_path / "all.json")
    assert done.returncode == 1
    assert (
        "✘ netinit-webhook-sidecar-injector, webhook namespace: it matches pods of its own namespace mesh" in done.stdout
    )
    assert (
        "remedy: add to namespaceSelector: {key: kubernetes.io/metadata.name, operator: NotIn, values: [mesh]}"
        in done.stdout
    )
    found = json.loads(run("-f", tmp_path / "all.json", "--json").stdout)["findings"]
    assert {"severity", "kind", "subject", "message", "remedy", "page"} == set(found[0])


def test_the_command_finds_nothing_in_what_manifests_prints(tmp_path):
    printed = subprocess.run(
        [sys.executable, "-m", "netinit", "webhook", "manifests", "--set", "image.repository=registry.example/netinit-webhook"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    (tmp_path / "m.yaml").write_text(printed)
    done = run("-f", tmp_path / "m.yaml")
    assert (done.returncode, done.stdout) == (0, "nothing found\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no manifests are given"),
        (("-f", "x", "--context", "c"), "contradicts"),
        (("-f", "/none"), "cannot be read"),
    ],
)
def test_what_it_cannot_look_at_is_told(words, said):
    done = run(*words)
    assert done.returncode in {1, 2}
    assert said in done.stderr


CONFIG = """
templates:
  sidecar: |
    metadata: {annotations: {a: b}}
  mine: |
    {{ nope }}
  random: |
    metadata: {name: {{ uuidv4 }}}
"""


def injector_map(config):
    return {"kind": "ConfigMap", "metadata": {"name": "istio-sidecar-injector", "namespace": "istio-system"}, "data": {"config": config}}


def test_templates_that_would_not_work_are_found():
    found = [one for one in lint([*installed(), injector_map(CONFIG)], now=NOW) if one.kind == "template"]
    assert [(one.severity, one.subject) for one in found] == [
        ("error", "ConfigMap istio-system/istio-sidecar-injector"),
        ("warning", "ConfigMap istio-system/istio-sidecar-injector"),
    ]
    assert "template 'mine' cannot be parsed: template: mine:1: function \"nope\" not defined" in found[0].message
    assert "template 'random': line 1 names uuidv4" in found[1].message
    whole = lint([*installed(), injector_map(CONFIG.replace("sidecar: |", "other: |"))], now=NOW)
    assert [one.kind for one in whole if one.severity == "error"] == ["configuration"]
    assert kinds([*installed(), injector_map("templates: {sidecar: '{}'}")]) == []


def test_the_configuration_alone_is_looked_at_in_files():
    assert kinds([injector_map(CONFIG)], whole=False) == ["template"]


def test_proxy_config_resources_are_warned_about_where_our_webhook_does_not_watch_them():
    resource = {"kind": "ProxyConfig", "metadata": {"name": "p", "namespace": "shop"}, "spec": {"concurrency": 0}}
    assert kinds([*installed(), resource]) == []
    blind = installed("injection.proxyConfigs=false")
    assert kinds([*blind, resource]) == ["proxy-config"]
    others = [tree for tree in blind if tree["kind"] != "Deployment"]
    assert "proxy-config" not in kinds([*others, resource])

