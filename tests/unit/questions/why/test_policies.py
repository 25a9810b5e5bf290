"""AuthorizationPolicies and VirtualServices are named where they may refuse a connection, and not judged."""

from __future__ import annotations

import pytest

from why_objects import (
    CLIENT,
    DB,
    FROM,
    MESH,
    OPEN_MESH,
    OUTSIDE,
    TO_DB,
    WEB_SERVICE,
    only,
    outcomes,
    report,
    service,
    sidecar,
)


def policy(spec="", namespace="shop", name="p"):
    """An AuthorizationPolicy."""
    return f"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{spec}}}"


def route(hosts="[db]", more="", namespace="shop"):
    """A VirtualService."""
    return f"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: {namespace}}}\nspec: {{hosts: {hosts}{more}}}"


def abouts(found, name):
    return [step.about for step in found.steps if step.name == name and step.outcome == "unknown"]


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        (policy(), True), (policy("action: DENY, selector: {matchLabels: {app: db}}"), True), (policy("selector: {matchLabels: {app: web}}"), False),
        (policy("action: AUDIT"), False), (policy(namespace="istio-system"), True), (policy("selector: {matchLabels: {app: db}}", "istio-system"), True),
        (policy(namespace="data"), False), (policy("targetRefs: [{kind: Service, name: db}]"), False), (policy("selector: 5, action: []"), True),
    ],
)  # fmt: skip
def test_an_authorization_policy_that_selects_the_server_is_named(text, is_named):
    found = report(OPEN_MESH, service(), DB, text, **TO_DB)
    assert found.cause is None, found.text
    assert len(abouts(found, "authorization")) == is_named, found.text
    assert outcomes(found, "authorization") == [("unknown" if is_named else "passed", "")], found.text


def test_an_authorization_policy_of_the_pod_is_named_for_its_clients():
    found = report(OPEN_MESH, CLIENT, WEB_SERVICE, policy("selector: {matchLabels: {app: web}}"), **FROM)
    assert abouts(found, "authorization") == ['AuthorizationPolicy "shop/p"'], found.text
    assert "kubectl describe authorizationpolicies.security.istio.io p -n shop" in found.text


@pytest.mark.parametrize(
    ("text", "to", "is_named"),
    [
        (route(), "db:5432", True), (route("[db.shop.svc.cluster.local]", namespace="data"), "db:5432", True), (route(namespace="data"), "db:5432", False),
        (route('["*"]'), "db:5432", True), (route(more=", gateways: [edge]"), "db:5432", False), (route(more=", gateways: [mesh, edge]"), "db:5432", True),
        (route("[db.shop.svc.cluster.local]", ", exportTo: ['.']", "data"), "db:5432", False), (route("[api.example.com]"), OUTSIDE, True),
        (route("[other.example.com]"), OUTSIDE, False), (route("5"), "db:5432", False),
    ],
)  # fmt: skip
def test_a_virtual_service_of_the_host_is_named(text, to, is_named):
    found = report(OPEN_MESH, service(), DB, text, to=to)
    assert outcomes(found, "route") == [("unknown" if is_named else "passed", "")], found.text
    assert abouts(found, "route") == (['VirtualService "%s/v"' % ("data" if "namespace: data" in text else "shop")] if is_named else []), found.text


def test_policies_and_routes_that_could_not_be_read_are_not_known():
    found = report(OPEN_MESH, service(), DB, unread=("AuthorizationPolicy", "VirtualService"), **TO_DB)
    assert [outcomes(found, name) for name in ("authorization", "route")] == [[("unknown", "")]] * 2, found.text
    assert "AuthorizationPolicy objects could not be read: Forbidden" in found.text


def test_nothing_is_said_of_policies_and_routes_that_a_connection_does_not_reach():
    found = report(MESH.replace("SETTINGS", "{}"), service(), DB, policy(), route(), sidecar(only("istio-system/*")), **TO_DB)
    assert (found.cause.code, outcomes(found, "authorization"), outcomes(found, "route")) == ("NI334", [], []), found.text
