"""The server and the CA bundle of a webhook: each problem as a whole finding."""

from __future__ import annotations

import base64
import sys

import pytest

from netinit.installation.linting import HOOKS, lint
from netinit.webhook.certificates import make_pair

NOW = 1_800_000_000.0
DAY = 86400
KINDS = {
    "no-service", "namespace-deleted", "no-endpoints", "one-replica", "no-disruption-budget", "no-bundle", "bad-bundle", "expired-bundle", "expiring-bundle",
}  # fmt: skip
SUBJECT = "injector, webhook sidecar-injector.istio.io"
NO_BUDGET = "failurePolicy Fail without a PodDisruptionBudget: draining nodes may stop all replicas at once"


def encode(text):
    return base64.b64encode(text.encode()).decode()


BUNDLE = encode(make_pair(("x",), now=NOW, seconds=90 * DAY).authority)


def hook(*, bundle=BUNDLE, policy="Fail"):
    service = {"name": "netinit", "namespace": "mesh", "path": "/inject"}
    return {
        "kind": HOOKS, "metadata": {"name": "injector"},
        "webhooks": [{
            "name": "sidecar-injector.istio.io", "failurePolicy": policy, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": service, "caBundle": bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }],
    }  # fmt: skip


def named(kind, name="netinit", namespace="mesh", **more):
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, **more}


SERVICE = named("Service", spec={"selector": {"app": "netinit"}})
ENDPOINTS = named("Endpoints", subsets=[{"addresses": [{"ip": "10.0.0.1"}]}])


def deployment(**spec):
    return named("Deployment", "server", spec={"template": {"metadata": {"labels": {"app": "netinit"}}}, **spec})


BUDGET = named("PodDisruptionBudget", spec={"selector": {"matchLabels": {"app": "netinit"}}})
SCALER = named("HorizontalPodAutoscaler", spec={"scaleTargetRef": {"name": "server"}})


def find(*trees, whole=True):
    found = lint(trees, now=NOW, whole=whole)
    return [(one.severity, one.kind, one.subject, one.message) for one in found if one.kind in KINDS]


DEFAULT, MESH = {"kind": "Namespace", "metadata": {"name": "default"}}, {"kind": "Namespace", "metadata": {"name": "mesh"}}
ENDING = {"kind": "Namespace", "metadata": {"name": "mesh", "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(("policy", "severity", "effect"), [
    ("Fail", "error", "no pod that it selects can be created"), ("Ignore", "warning", "the pods that it selects are created without a sidecar"),
])  # fmt: skip
@pytest.mark.parametrize("namespaces", [(DEFAULT,), (DEFAULT, ENDING)], ids=["gone", "ending"])
def test_a_webhook_that_outlived_its_namespace_is_named_with_the_command_that_removes_it(namespaces, policy, severity, effect):
    trees = [hook(policy=policy), *namespaces]
    assert find(*trees) == [(severity, "namespace-deleted", SUBJECT, f"its namespace mesh was deleted without it: {effect}")]
    (one,) = [one for one in lint(trees, now=NOW) if one.kind == "namespace-deleted"]
    assert "kubectl delete mutatingwebhookconfiguration injector" in one.remedy
    assert "netinit node status" in one.remedy
    assert one.page.endswith("#a-namespace-that-was-deleted-with-its-release")


def test_a_service_that_lacks_in_a_namespace_that_is_there_or_not_known_is_only_that():
    assert find(hook(), DEFAULT, MESH) == find(hook()) == [("error", "no-service", SUBJECT, "there is no Service mesh/netinit")]


@pytest.mark.parametrize(
    ("trees", "whole", "found"),
    [
        ([hook()], True, [("error", "no-service", SUBJECT, "there is no Service mesh/netinit")]),
        ([hook(policy="Ignore")], True, [("warning", "no-service", SUBJECT, "there is no Service mesh/netinit")]),
        ([hook()], False, []),
        ([hook(), named("Service", "other")], False, [("error", "no-service", SUBJECT, "there is no Service mesh/netinit")]),
        ([hook(), SERVICE], False, []),
        ([hook(), SERVICE], True,
         [("error", "no-endpoints", SUBJECT, "Service mesh/netinit leads to no ready pod: no pod can be created")]),
        ([hook(policy="Ignore"), SERVICE], True,
         [("warning", "no-endpoints", SUBJECT, "Service mesh/netinit leads to no ready pod: pods are created without a sidecar")]),
        ([hook(), SERVICE, ENDPOINTS], True, []),
        ([hook(), SERVICE, ENDPOINTS, deployment(replicas=1), BUDGET], True,
         [("warning", "one-replica", "Deployment mesh/server",
           "failurePolicy Fail and 1 replica: no pod can be created while it is replaced")]),
        ([hook(), SERVICE, ENDPOINTS, deployment(), BUDGET, SCALER], True, []),
        ([hook(), SERVICE, ENDPOINTS, deployment(replicas=2)], True,
         [("warning", "no-disruption-budget", "Deployment mesh/server", NO_BUDGET)]),
        ([hook(policy="Ignore"), SERVICE, ENDPOINTS, deployment(replicas=1)], True, []),
    ],
)  # fmt: skip
def test_a_server_that_may_be_away_is_found(trees, whole, found):
    assert find(*trees, whole=whole) == found


@pytest.mark.parametrize(
    ("bundle", "severity", "kind", "message"),
    [
        ("", "warning", "no-bundle", "it has no caBundle: it is not trusted yet"),
        ("%", "error", "bad-bundle", "its caBundle holds no certificates: Only base64 data is allowed"),
        (encode("no certificate"), "error", "bad-bundle", "its caBundle holds no certificates"),
        (encode(make_pair(("x",), now=NOW - 4000 * DAY, seconds=DAY).authority), "error", "expired-bundle",
         "every CA of its caBundle has expired"),
    ],
)  # fmt: skip
def test_a_bundle_that_is_not_trusted_is_found(bundle, severity, kind, message):
    assert find(hook(bundle=bundle), SERVICE, ENDPOINTS) == [(severity, kind, SUBJECT, message)]
    assert bool(find(hook(bundle=bundle), SERVICE, ENDPOINTS, whole=False)) is bool(bundle), "manifests may have none"


def test_without_cryptography_a_bundle_is_not_judged_and_all_else_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    found = {one.kind: one for one in lint([hook(), DEFAULT, MESH], now=NOW)}
    assert {"bundle-not-judged", "no-service"} <= {*found}
    assert (found["bundle-not-judged"].severity, found["bundle-not-judged"].remedy) == ("warning", "pip install cryptography")


@pytest.mark.parametrize(("kind", "trees"), [
    ("Service", []), ("EndpointSlice", [SERVICE]), ("PodDisruptionBudget", [SERVICE, ENDPOINTS, deployment(replicas=2)]),
    ("HorizontalPodAutoscaler", [SERVICE, ENDPOINTS, BUDGET, deployment(replicas=1)]),
])  # fmt: skip
def test_nothing_is_concluded_from_kinds_that_were_not_read(kind, trees):
    known = [hook(), MESH, *trees]
    assert {one.kind for one in lint(known, now=NOW)} & KINDS
    assert not {one.kind for one in lint(known, now=NOW, unread={kind})} & KINDS
