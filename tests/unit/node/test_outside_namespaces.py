"""Which namespaces are outside of the mesh, by the webhooks of the chart and of Istio, and the list that the plugin reads."""

from __future__ import annotations

import asyncio
import io
import os
from functools import partial
from types import SimpleNamespace

import pytest

from helm import render_chart
from netinit.inject.deciding.usual_webhooks import current_webhooks, early_webhook
from netinit.inject.deciding.webhooks import Webhook, parse_injectors
from netinit.kube.resources import NAMESPACES as NAMESPACES_OF_THE_API
from netinit.kube.resources import WEBHOOK_CONFIGURATIONS
from netinit.node import outside_namespaces
from netinit.node.outside_namespaces import OutsideNamespaces, find_outside, format_names, replace_list
from netinit.serving.event_log import EventLog

NAMESPACES = {
    "plain": {}, "labelled": {"team": "a"}, "injected": {"istio-injection": "enabled"}, "refused": {"istio-injection": "disabled"},
    "odd": {"istio-injection": "Enabled"}, "revised": {"istio.io/rev": "default"}, "canary": {"istio.io/rev": "canary"},
    "ambient": {"istio.io/dataplane-mode": "ambient"}, "no-ambient": {"istio.io/dataplane-mode": "none"},
}  # fmt: skip
NAMESPACES = {name: {**labels, "kubernetes.io/metadata.name": name} for name, labels in NAMESPACES.items()}
OUTSIDE = {"plain", "labelled", "refused", "no-ambient"}


def of_chart(*given):
    trees = [tree for tree in render_chart("node.enabled=true", *given) if tree["kind"] == "MutatingWebhookConfiguration"]
    return [webhook for tree in trees for _, webhook in parse_injectors(tree)]


@pytest.mark.parametrize(
    ("webhooks", "expected"),
    [
        (current_webhooks(), OUTSIDE), (current_webhooks("canary"), OUTSIDE), (current_webhooks(by_default=True), {"refused"}),
        (early_webhook(), OUTSIDE), (early_webhook(by_default=True), {"refused"}),
        (partial(of_chart), OUTSIDE), (partial(of_chart, "revision=canary"), OUTSIDE),
        (partial(of_chart, "webhook.enableNamespacesByDefault=true"), {"refused"}), (partial(of_chart, "webhook.flavour=kubesphere"), OUTSIDE),
        ((*current_webhooks(), *current_webhooks("canary", by_default=True)), OUTSIDE), ((*current_webhooks("canary"), *early_webhook(by_default=True)), {"refused"}),
    ],
    ids=range(11),
)  # fmt: skip
def test_what_no_webhook_selects_and_no_label_asks_for_is_outside(webhooks, expected):
    found = webhooks() if callable(webhooks) else webhooks  # a chart is rendered where it is asked for, not by each worker that collects
    assert found
    assert find_outside(NAMESPACES, found) == expected


def test_a_kubesphere_workspace_is_in_the_mesh():
    spaces = {"shop": {"kubesphere.io/workspace": "w"}, "off": {"kubesphere.io/workspace": "w", "istio-injection": "disabled"}, "plain": {}}
    assert find_outside(spaces, of_chart("webhook.flavour=kubesphere")) == {"off", "plain"}


def test_without_an_injector_nothing_is_known_to_be_outside():
    assert find_outside(NAMESPACES, ()) == set()


def test_only_injectors_count():
    def configuration(name, **leads_to):
        return {"webhooks": [{"name": name, "clientConfig": leads_to}]}

    for tree in (
        configuration("x.sidecar-injector.istio.io"), configuration("x", service={"path": "/inject"}), configuration("x", url="https://istiod/inject/cluster/c"),
    ):  # fmt: skip
        assert [webhook.name for _, webhook in parse_injectors(tree)] == [tree["webhooks"][0]["name"]]
    for tree in (configuration("mutate.example.com", service={"path": "/mutate"}), configuration("x"), {}):
        assert list(parse_injectors(tree)) == []


def test_the_list_has_only_names_sorted_and_no_more_than_the_plugin_reads():
    assert format_names(["b", "a-2", "a"]) == ("a\na-2\nb\n", [])
    assert format_names([]) == ("", [])
    assert format_names(["ok", "", "A", "a\nb", "-a", "a-", "a.b", "é", "a" * 64, "b" * 63]) == ("b" * 63 + "\nok\n", [])
    text, left_out = format_names(f"{number:063}" for number in range(20_000))
    assert text.splitlines() + left_out == [f"{number:063}" for number in range(20_000)]
    assert (1 << 20) - 65 < len(text) < 1 << 20
    assert text.endswith("\n")


def test_names_that_have_no_room_in_the_list_are_said_once_with_what_to_do(tmp_path):
    stream = io.StringIO()
    made = OutsideNamespaces(tmp_path / "list", SimpleNamespace(), type("Pods", (list,), {"synced": True})(), EventLog("info", as_json=True, stream=stream))
    made._webhooks._take([made._webhooks._keep(tree) for tree in render_chart() if tree["kind"] == "MutatingWebhookConfiguration"], "1")

    def update(count):
        made._namespaces._take([made._namespaces._keep({"metadata": {"name": f"{number:060}", "labels": {}}}) for number in range(count)], "1")
        asyncio.run(made._update())
        return made.problem, stream.getvalue().count("have no room")

    assert update(10) == ("", 0)
    said = f"2811 namespaces, {17189:060} to {19999:060}, have no room in the list of 1 MiB"
    assert update(20_000) == (said, 1)
    assert update(20_000) == (said, 1)
    assert "their pods wait while the agent does not answer; name them in --excludeNamespaces" in stream.getvalue()
    assert update(10) == ("", 1)


def test_the_list_follows_labels_webhooks_and_pods_and_waits_until_all_are_known(tmp_path, monkeypatch):
    stream, path, pods = io.StringIO(), tmp_path / "list", type("Pods", (list,), {"synced": False})()
    made = OutsideNamespaces(path, SimpleNamespace(), pods, EventLog("info", as_json=True, stream=stream))
    written = []
    monkeypatch.setattr(outside_namespaces, "replace_list", lambda path, text: written.append(text) or replace_list(path, text))
    namespaces, webhooks = made._namespaces, made._webhooks

    def update(**labels):
        if labels:
            namespaces._take([namespaces._keep({"metadata": {"name": name, "labels": given}}) for name, given in labels.items()], "1")
        asyncio.run(made._update())
        return path.read_text() if path.exists() else None

    assert update() is None
    webhooks._take([webhooks._keep(tree) for tree in render_chart() if tree["kind"] == "MutatingWebhookConfiguration"], "1")
    inside = {"istio-injection": "enabled", "kubernetes.io/metadata.name": "shop"}
    assert update(shop=inside, plain={"kubernetes.io/metadata.name": "plain"}) is None, "the pods are not known yet"
    pods.synced = True
    assert (update(), update(), written) == ("plain\n", "plain\n", ["plain\n"])
    pods += [SimpleNamespace(namespace="plain", proxy=False), SimpleNamespace(namespace="other", proxy=True)]
    assert update() == "plain\n"
    pods.append(SimpleNamespace(namespace="plain", proxy=True))
    assert update() == "", "a pod with a proxy is in the mesh, whatever its namespace asks for"
    pods.clear()
    assert update(shop={**inside, "istio-injection": "disabled"}) == "shop\n"
    for error in ("down", "down", "", "down"):
        webhooks.error = error
        update()
    assert stream.getvalue().count("which namespaces are outside of the mesh is not known: down") == 2
    monkeypatch.setattr(outside_namespaces, "replace_list", lambda path, text: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        update(plain={"kubernetes.io/metadata.name": "plain"})
    monkeypatch.setattr(outside_namespaces, "replace_list", replace_list)
    assert update() == "plain\n", "what could not be written is written again"


def test_the_list_follows_the_cluster_s_namespaces_and_webhooks_at_most_once_a_second(tmp_path, monkeypatch):
    given, client = [], SimpleNamespace()
    made = OutsideNamespaces(tmp_path / "list", client, SimpleNamespace(), EventLog("info", stream=io.StringIO()))

    async def follow(caches, update, *, seconds):
        given.append((caches, update, seconds))

    async def pause(seconds):
        given.append(seconds)
        raise EOFError

    monkeypatch.setattr(outside_namespaces, "follow", follow)
    asyncio.run(made.run())
    monkeypatch.setattr(outside_namespaces.asyncio, "sleep", pause)
    with pytest.raises(EOFError):
        made._update().send(None)
    assert given == [((made._namespaces, made._webhooks), made._update, 0.0), 1.0]
    assert [(one.client, one.resource) for one in given[0][0]] == [(client, NAMESPACES_OF_THE_API), (client, WEBHOOK_CONFIGURATIONS)]


def test_a_webhook_that_cannot_be_read_selects_everything():
    from netinit.node.outside_namespaces import _read_webhooks

    tree = {"webhooks": [{"name": "x.sidecar-injector.istio.io", "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Newer"}]}}]}
    (found,) = _read_webhooks(tree)
    assert isinstance(found, Webhook)
    assert find_outside(NAMESPACES, [found]) == set()


def test_a_list_that_cannot_be_replaced_is_removed_so_that_pods_wait(tmp_path):
    path = tmp_path / "list"
    replace_list(path, "old\n")
    assert path.read_text() == "old\n"
    (tmp_path / f".list.netinit-{os.getpid()}").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        replace_list(path, "new\n")
    assert not path.exists()
