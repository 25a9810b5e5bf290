"""Corners where injection is as Istio's injector has it; each was compared with it."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import InjectionError
from netinit.inject import inject_pod, load_config
from netinit.inject.adding.annotation_checks import validate
from netinit.inject.adding.istio_functions import append_multus_network, omit_nil
from netinit.inject.adding.kubernetes_types import ordered
from netinit.inject.adding.merged_containers import Overrides, reorder
from netinit.inject.adding.status_port import rewrite
from netinit.inject.deciding.manifests import PodOwner, workloads

CONFIG = load_config({"templates": {"sidecar": "spec: {containers: [{name: istio-proxy, image: p}]}"}})


@pytest.mark.parametrize("existing", ['[{"name":"a"},]', "[1]", "{}]", "a]"])
def test_a_multus_annotation_with_brackets_that_is_no_list_of_objects_is_left_alone(existing):
    assert append_multus_network(existing, "default/istio-cni") == existing


def test_a_network_is_known_by_name_and_namespace():
    assert append_multus_network('[{"name":"n"}]', "n") == '[{"name":"n"}]'
    assert append_multus_network('[{"name":"n","namespace":"x"}]', "n").endswith(', {"name": "n"}]')
    assert append_multus_network("[]", "x/n") == '[{"name": "n", "namespace": "x"}]'


def test_what_was_empty_before_stays_empty():
    assert omit_nil({"a": {}, "b": [], "c": {"d": None}, "e": [None, 1]}) == {"a": {}, "b": [], "e": [1]}
    assert omit_nil({}) == {}
    assert omit_nil({"a": None}) is None


def test_a_name_to_be_generated_is_no_owners_name():
    tree = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "web-"}, "spec": {"template": {"spec": {}}}}
    (job,) = workloads(tree)
    assert (job.name, job.owner.name, job.owner.kind) == ("web-", "", "Job")


@pytest.mark.parametrize(
    ("name", "labels", "owner"),
    [
        ("web-5d", {"pod-template-hash": "5d"}, ("web", "Deployment", "apps/v1")),
        ("web-5d", {"rollouts-pod-template-hash": "5d"}, ("web", "Rollout", "v1alpha1")),
        ("web-5d", {"pod-template-hash": "5d", "rollouts-pod-template-hash": "5d"}, ("web", "Deployment", "apps/v1")),
        ("5d", {"pod-template-hash": "5d"}, ("5d", "Deployment", "apps/v1")),
        ("web-5d", {"pod-template-hash": ""}, ("web-5d", "ReplicaSet", "apps/v1")),
    ],
)
def test_the_deployment_behind_a_replica_set_is_found_by_its_hash(name, labels, owner):
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}
    found = PodOwner.of_pod({"metadata": {"generateName": "web-", "labels": labels, "ownerReferences": [reference]}})
    assert (found.name, found.kind, found.api_version) == owner


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((f"traffic.sidecar.istio.io/{name}", " ") for name in ("includeInboundPorts", "excludeInboundPorts", "excludeOutboundPorts")),
        ("traffic.sidecar.istio.io/excludeInterfaces", "eth0\t,\neth1 "),
    ],
)  # fmt: skip
def test_blanks_around_lists_are_no_error(key, value):
    validate({key: value})


def test_an_empty_name_in_a_list_of_interfaces_is_one():
    with pytest.raises(InjectionError, match="' ' is not an interface name"):
        validate({"traffic.sidecar.istio.io/excludeInterfaces": "a, ,b"})


def test_overrides_of_null_are_none():
    assert Overrides({"proxy.istio.io/overrides": "null"}).saved == {"containers": [], "initContainers": []}
    with pytest.raises(InjectionError, match="must be a JSON object"):
        Overrides({"proxy.istio.io/overrides": "[]"})


def test_the_init_container_starts_before_a_validation_and_both_before_the_proxy():
    spec = {"initContainers": [{"name": name} for name in ("user", "istio-proxy", "istio-validation", "istio-init")]}
    reorder(spec, proxy_first=False)
    assert [item["name"] for item in spec["initContainers"]] == ["istio-init", "istio-validation", "istio-proxy", "user"]


def test_overrides_given_by_hand_are_written_anew():
    given = {"containers": [{"image": "x", "name": "istio-proxy", "readinessProbe": {"grpc": {"port": 5}}}, {"name": "other"}]}
    pod = {"metadata": {"annotations": {"proxy.istio.io/overrides": json.dumps(given)}}, "spec": {"containers": []}}
    result = inject_pod(pod, CONFIG)
    assert result["metadata"]["annotations"]["proxy.istio.io/overrides"] == (
        '{"containers":[{"name":"istio-proxy","image":"x","resources":{},'
        '"readinessProbe":{"grpc":{"port":5,"service":null}}}]}'
    )
    assert inject_pod(result, CONFIG) == result


def test_quantities_of_overrides_are_spelled_as_the_api_does():
    written = ordered("v1.Container", {"name": "c", "resources": {"limits": {"memory": "1024Mi", "cpu": "3000m"}}, "env": [{"name": "A", "value": ""}]})
    assert written["resources"] == {"limits": {"cpu": "3", "memory": "1Gi"}}
    assert written["env"] == [{"name": "A"}]


def saved(*containers):
    spec = {"containers": [*containers, {"name": "istio-proxy"}]}
    rewrite(spec, {}, 15020, injected_before=False)
    return json.loads(spec["containers"][-1]["env"][0]["value"])


def test_a_probe_without_a_port_is_saved_with_port_zero():
    assert saved({"name": "a", "readinessProbe": {"httpGet": {"scheme": "HTTP"}}, "livenessProbe": {"grpc": {}}}) == {
        "/app-health/a/readyz": {"httpGet": {"port": 0, "scheme": "HTTP"}},
        "/app-health/a/livez": {"grpc": {"port": 0, "service": None}},
    }


def test_of_two_ports_of_one_name_the_last_is_probed():
    ports = [{"name": "x", "containerPort": 1}, {"name": "x", "containerPort": 2}]
    found = saved({"name": "a", "ports": ports, "readinessProbe": {"tcpSocket": {"port": "x"}}})
    assert found["/app-health/a/readyz"]["tcpSocket"]["port"] == 2


def test_a_variable_that_a_template_gives_twice_stays_twice_as_strategic_merge_has_it():
    template = "spec: {containers: [{name: istio-proxy, env: [{name: A, value: b}, {name: A, valueFrom: {x: 1}}]}]}"
    result = inject_pod({"metadata": {}, "spec": {"containers": [{"name": "c"}]}}, load_config({"templates": {"sidecar": template}}))
    (proxy,) = [item for item in result["spec"]["containers"] if item["name"] == "istio-proxy"]
    assert proxy["env"] == [{"name": "A", "value": "b"}, {"name": "A", "valueFrom": {"x": 1}}]


def test_saved_containers_return_where_the_pod_lacks_them():
    saved = {"containers": [{"name": "istio-proxy", "image": "mine"}, {"name": "c"}], "initContainers": [{"name": "istio-init"}]}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    Overrides({"proxy.istio.io/overrides": json.dumps(saved)}).reinsert(spec)
    assert spec == {"containers": [{"name": "c", "image": "i"}, {"name": "istio-proxy", "image": "mine"}], "initContainers": [{"name": "istio-init"}]}


def test_a_pod_with_a_network_label_and_a_probe_is_injected_once_and_for_all():
    from netinit.inject.adding.config import load_config

    probe = {"httpGet": {"path": "/x", "port": 80}}
    pod = {"metadata": {"labels": {"topology.istio.io/network": "n"}}, "spec": {"containers": [{"name": "a", "readinessProbe": probe}]}}
    once = inject_pod(pod, load_config())
    assert inject_pod(once, load_config()) == once


def test_a_container_without_a_name_has_none_in_the_paths_of_its_probes():
    from netinit.inject.adding.config import load_config

    pod = {"metadata": {}, "spec": {"containers": [{"readinessProbe": {"httpGet": {"path": "/x", "port": 80}}}]}}
    assert inject_pod(pod, load_config())["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/app-health//readyz"


def test_the_merge_key_is_a_text_where_it_is_a_value_and_refused_as_a_key():
    from netinit.inject.adding.config import load_config

    pod = {"metadata": {"annotations": {"a": "<<"}}, "spec": {"containers": []}}
    value, key = ("metadata:\n  annotations:\n    " + text for text in ("x: {{ .ObjectMeta.Annotations.a }}", "{{ .ObjectMeta.Annotations.a }}: x"))
    assert inject_pod(pod, load_config({"templates": {"sidecar": value}}))["metadata"]["annotations"]["x"] == "<<"
    with pytest.raises(InjectionError, match="breaks out"):
        inject_pod(pod, load_config({"templates": {"sidecar": key}}))
