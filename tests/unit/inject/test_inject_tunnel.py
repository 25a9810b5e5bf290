"""Whether a manifest shows that a pod's proxy listens for tunnelled connections, and what the own templates make of that."""

from __future__ import annotations

import pytest

from core import Options
from netinit.inject import inject_pod
from netinit.inject.adding.config import load_config
from netinit.inject.deciding.init_container import find_init, options_of
from netinit.inject.deciding.podfile import has_tunnel
from sweeps import together

VARIABLE = "ISTIO_META_ENABLE_HBONE"


def pod_with(*env, native=False, **more):
    proxy = {"name": "istio-proxy", "image": "proxy:1", "env": list(env), **more}
    lists = {"containers": [{"name": "app"}], "initContainers": [proxy]} if native else {"containers": [{"name": "app"}, proxy]}
    return {"metadata": {"name": "web"}, "spec": lists}


@together("native", [False, True])
@pytest.mark.parametrize(
    ("env", "known"),
    [
        ([], False),
        ([{"name": VARIABLE, "value": "true"}], True),
        ([{"name": VARIABLE, "value": "1"}], True),
        ([{"name": VARIABLE, "value": "false"}], False),
        ([{"name": VARIABLE, "value": ""}], False),
        ([{"name": VARIABLE, "value": "true"}, {"name": VARIABLE, "value": "false"}], False),
        ([{"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], None),
        ([{"name": "ISTIO_METAJSON_MORE", "value": '{"ENABLE_HBONE": "true"}'}], None),
    ],
    ids=str,
)
def test_the_proxy_s_environment_shows_whether_it_has_a_tunnel(env, known, native):
    assert has_tunnel(pod_with(*env, native=native)) is known


def test_an_environment_that_stands_elsewhere_is_not_known():
    assert has_tunnel(pod_with(envFrom=[{"configMapRef": {"name": "settings"}}])) is None


@pytest.mark.parametrize(
    ("config", "known"),
    [("", None), ("concurrency: 2", None), ("proxyMetadata: {ISTIO_META_ENABLE_HBONE: 'true'}", True), ("a: [", None)],
)
def test_before_the_injection_an_annotation_alone_shows_it(config, known):
    pod = {"metadata": {"name": "web", "annotations": {"proxy.istio.io/config": config}}, "spec": {"containers": [{"name": "app"}]}}
    assert has_tunnel(pod) is known


ON = {"proxy.istio.io/config": 'proxyMetadata: {ISTIO_META_ENABLE_HBONE: "true"}'}
OFF = {"proxy.istio.io/config": 'proxyMetadata: {ISTIO_META_ENABLE_HBONE: "false"}'}


@together(
    ("metadata", "containers", "port"),
    [
        ({}, [], 0),
        ({"annotations": OFF}, [], 0),
        ({"annotations": ON}, [], 15008),
        ({"annotations": ON | {"netinit.io/inbound-tunnel-port": "0"}}, [], 0),
        ({"annotations": {"netinit.io/inbound-tunnel-port": "4190"}}, [], 4190),
        ({"labels": {"networking.istio.io/tunnel": "http"}}, [], 15008),
        ({}, [{"name": "istio-proxy", "image": "auto", "env": [{"name": VARIABLE, "value": "true"}]}], 15008),
    ],
    ids=str,
)
@pytest.mark.parametrize("plugin", [False, True])
def test_the_own_template_leaves_no_port_to_a_tunnel_that_the_proxy_does_not_serve(metadata, containers, port, plugin):
    from netinit.node.decision import decide, read_pod

    pod = {"metadata": {"name": "web", "namespace": "shop", **metadata}, "spec": {"containers": [{"name": "app", "image": "app:1"}, *containers]}}
    injected = inject_pod(pod, load_config(values={"pilot": {"cni": {"enabled": plugin}}}))
    options = decide(read_pod(injected), Options()).options if plugin else options_of(find_init(injected["spec"]))
    assert options.tunnel_port == port


def test_the_template_for_pods_with_a_proxy_of_their_own_knows_nothing_of_its_tunnel():
    pod = {"metadata": {"name": "web", "annotations": {"inject.istio.io/templates": "init"}}, "spec": {"containers": [{"name": "app", "image": "a:1"}]}}
    assert options_of(find_init(inject_pod(pod, load_config())["spec"])).tunnel_port == 15008
