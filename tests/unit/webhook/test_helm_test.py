"""The pod that `helm test` starts: Helm takes it, the webhook injects it, every PodSecurity level admits it."""

from __future__ import annotations

import pytest

from helm import ask_helm, find_test_pods, needs_helm, render_chart
from netinit.inject import Settings, inject_pod
from netinit.inject.deciding.init_container import find_init, options_of
from netinit.inject.deciding.usual_webhooks import firing
from netinit.inject.deciding.webhooks import parse_webhooks
from netinit.webhook.configuration import Texts, load
from podsecurity import offences

pytestmark = needs_helm
SHOP = "test.namespace=shop"


def test_without_a_namespace_there_is_no_test():
    assert find_test_pods() == []


@pytest.mark.parametrize("given", [(), ("revision=canary",), ("openshift=true",), ("node.enabled=true",)], ids=",".join)
def test_helm_finds_nothing_wrong_with_the_test(given):
    done = ask_helm(SHOP, *given, verb="lint")
    assert done.returncode == 0, done.stdout
    (pod,) = find_test_pods(SHOP, *given)
    assert (pod["kind"], pod["metadata"]["namespace"]) == ("Pod", "shop")
    assert offences(pod, "restricted") == set()


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ((), {}),
        ((), {"istio-injection": "enabled"}),
        (("revision=canary",), {}),
        (("revision=canary",), {"istio.io/rev": "canary"}),
        (("webhook.flavour=classic",), {"istio-injection": "enabled"}),
        (("webhook.flavour=kubesphere",), {"kubesphere.io/workspace": "w"}),
    ],
)
def test_the_webhook_takes_the_pod(given, labels):
    (pod,) = find_test_pods(SHOP, *given)
    (configuration,) = [tree for tree in render_chart(*given) if tree["kind"] == "MutatingWebhookConfiguration"]
    namespace = {"kubernetes.io/metadata.name": "shop", **labels}
    assert len(firing(parse_webhooks(configuration), namespace, pod["metadata"]["labels"])) == 1


def test_what_is_injected_captures_the_one_port_and_excludes_the_other():
    (pod,) = find_test_pods(SHOP)
    (values,) = [tree["data"]["values"] for tree in render_chart() if tree["kind"] == "ConfigMap"]
    injected = inject_pod(pod, load(Texts(values=values), Settings()).config)
    options = options_of(find_init(injected["spec"]))
    assert options == options.replace(outbound_cidrs="192.0.2.1/32", exclude_outbound_ports="9")
    (proxy,) = [one for one in injected["spec"]["initContainers"] if one["name"] == "istio-proxy"]
    assert proxy["restartPolicy"] == "Always", "beside another kind of sidecar the test would never end"


@pytest.mark.parametrize(("given", "why"), [("injection.nativeSidecars=false", "needs injection.nativeSidecars"), ("test.namespace=mesh", "own namespace")])
def test_values_under_which_the_test_could_not_end_are_refused(given, why):
    done = ask_helm(SHOP, given)
    assert done.returncode == 1
    assert why in done.stderr
