"""The parts of an injection, one by one: owner, images, probes, metrics, order, status, ids, mesh."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ConfigError, InjectionError
from netinit.inject import MeshConfig, PodOwner, inject_pod, load_config
from netinit.inject.adding.merged_containers import Overrides, normalize, reorder, write_status
from netinit.inject.adding.mesh_messages import duration
from netinit.inject.adding.rendering import image_of
from netinit.inject.adding.settings import proxy_ids
from netinit.inject.adding.status_port import merge_metrics, rewrite, scrape_target_warnings
from netinit.inject.deciding.annotations import read_switch
from netinit.inject.deciding.injection_status import read_status
from netinit.inject.deciding.webhooks import Selector
from sweeps import together


def pod(kind, name, *, labels=None, version="apps/v1", generate="x-"):
    reference = {"apiVersion": version, "kind": kind, "name": name, "controller": True}
    others = [{"kind": "Other", "name": "o"}, reference]
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "generateName": generate,
            "labels": labels,
            "ownerReferences": others,
        }
    }


@pytest.mark.parametrize(
    ("given", "owner"),
    [
        (pod("ReplicaSet", "web-abc", labels={"pod-template-hash": "abc"}), ("web", "Deployment", "apps/v1")),
        (pod("ReplicaSet", "web-abc", labels={"pod-template-hash": "xyz"}), ("web-abc", "ReplicaSet", "apps/v1")),
        (pod("ReplicaSet", "web-abc"), ("web-abc", "ReplicaSet", "apps/v1")),
        (pod("ReplicaSet", "web-abc", labels={"rollouts-pod-template-hash": "abc"}), ("web", "Rollout", "v1alpha1")),
        (pod("ReplicationController", "web-1", labels={"deploymentconfig": "web"}, version="v1"), ("web", "DeploymentConfig", "v1")),
        (pod("Job", "report-27845670", version="batch/v1"), ("report", "CronJob", "batch/v1")),
        (pod("Job", "report-2784567", version="batch/v1"), ("report-2784567", "Job", "batch/v1")),
        (pod("Job", "report-12345678901", version="batch/v1"), ("report-12345678901", "Job", "batch/v1")),
        (pod("DaemonSet", "agent"), ("agent", "DaemonSet", "apps/v1")),
        (pod("ReplicaSet", "web-abc", labels={"pod-template-hash": "abc"}, generate=""), ("p", "Pod", "v1")),
        ({"metadata": {"name": "p", "namespace": "ns", "generateName": "x-"}}, ("p", "Pod", "v1")),
    ],
)  # fmt: skip
def test_the_workload_behind_a_pod(given, owner):
    found = PodOwner.of_pod(given)
    assert (found.name, found.kind, found.api_version, found.namespace) == (*owner, "ns")


@pytest.mark.parametrize(
    ("tag", "variant", "annotated", "configured", "tags"),
    [
        ("1.2", "", "", "", ("1.2", "1.2")),
        ("1.2", "distroless", "", "", ("1.2-distroless", "1.2-distroless")),
        ("1.2", "", "", "debug", ("1.2-debug", "1.2")),
        ("1.2-debug", "", "", "distroless", ("1.2-distroless", "1.2-debug")),
        ("1.2-debug", "", "distroless", "debug", ("1.2-distroless", "1.2-distroless")),
        ("1.2-debug", "", "default", "", ("1.2", "1.2")),
    ],
)
def test_the_images_are_put_together_as_istio_does(tag, variant, annotated, configured, tags):
    values = {
        "global": {
            "hub": "hub",
            "tag": tag,
            "variant": variant,
            "proxy": {"image": "proxyv2"},
            "proxy_init": {"image": "proxyv2"},
        }
    }
    assert image_of(values, "proxy", annotated or configured or None) == f"hub/proxyv2:{tags[0]}"
    assert image_of(values, "proxy_init", annotated or None) == f"hub/proxyv2:{tags[1]}"


def probed(**probes):
    ports = [{"name": "http", "containerPort": 80}]
    return {"containers": [{"name": "istio-proxy"}, {"name": "app", "ports": ports, **probes}]}


def saved(spec):
    (variable,) = spec["containers"][0]["env"]
    assert variable["name"] == "ISTIO_KUBE_APP_PROBERS"
    return json.loads(variable["value"])


@pytest.mark.parametrize(
    ("probe", "entry"),
    [
        ({"httpGet": {"port": 8080}}, {"httpGet": {"port": 8080}}),
        ({"httpGet": {"port": "http", "path": "/x"}}, {"httpGet": {"path": "/x", "port": 80}}),
        ({"httpGet": {"port": "8080"}}, {"httpGet": {"port": 8080}}),
        (
            {"httpGet": {"port": 1, "scheme": "HTTPS", "host": "h"}},
            {"httpGet": {"port": 1, "scheme": "HTTPS", "host": "h"}},
        ),
        ({"tcpSocket": {"port": "http"}, "timeoutSeconds": 3}, {"tcpSocket": {"port": 80}, "timeoutSeconds": 3}),
        ({"grpc": {"port": 5}}, {"grpc": {"port": 5, "service": None}}),
        ({"grpc": {"port": 5, "service": "s"}}, {"grpc": {"port": 5, "service": "s"}}),
    ],
)
def test_every_kind_of_probe_is_saved_and_sent_to_the_agent(probe, entry):
    for key, word in (("readinessProbe", "readyz"), ("livenessProbe", "livez"), ("startupProbe", "startupz")):
        spec = probed(**{key: {**probe, "periodSeconds": 7}})
        rewrite(spec, {}, 15020, injected_before=False)
        assert saved(spec) == {f"/app-health/app/{word}": entry}
        made = spec["containers"][1][key]
        assert (made["httpGet"]["path"], made["httpGet"]["port"]) == (f"/app-health/app/{word}", 15020)
        assert made["httpGet"].get("scheme") in (None, "HTTP")
        assert made["periodSeconds"] == 7
        assert not made.keys() & {"tcpSocket", "grpc"}


def test_hooks_of_the_lifecycle_go_to_the_agent_too():
    spec = probed(lifecycle={"preStop": {"httpGet": {"port": 91}}, "postStart": {"tcpSocket": {"port": 93}}})
    rewrite(spec, {"status.sidecar.istio.io/port": " 123 "}, 15020, injected_before=False)
    assert saved(spec) == {
        "/app-lifecycle/app/poststartz": {"tcpSocket": {"port": 93}},
        "/app-lifecycle/app/prestopz": {"httpGet": {"port": 91}},
    }
    assert spec["containers"][1]["lifecycle"]["preStop"] == {
        "httpGet": {"path": "/app-lifecycle/app/prestopz", "port": 123}
    }


@pytest.mark.parametrize("probe", [{"exec": {"command": ["x"]}}, {"httpGet": {"port": "nowhere"}}])
def test_what_the_agent_cannot_ask_stays_as_it_is(probe):
    spec = probed(readinessProbe=dict(probe))
    rewrite(spec, {}, 15020, injected_before=False)
    assert spec == probed(readinessProbe=probe)


def test_existing_entries_win_when_a_pod_is_injected_again():
    spec = probed(readinessProbe={"httpGet": {"port": 9}}, livenessProbe={"httpGet": {"port": 10}})
    old = {"/app-health/app/readyz": {"httpGet": {"port": 1}}}
    spec["containers"][0]["env"] = [{"name": "ISTIO_KUBE_APP_PROBERS", "value": json.dumps(old)}]
    rewrite(spec, {}, 15020, injected_before=True)
    assert saved(spec) == {**old, "/app-health/app/livez": {"httpGet": {"port": 10}}}


def test_the_annotation_decides_on_the_rewrite_only_where_it_is_a_boolean():
    key = "sidecar.istio.io/rewriteAppHTTPProbers"
    assert [read_switch({key: value}, key, default=True) for value in ("false", "0", "no", "")] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    "key", ["prometheus.io/port", "prometheus.io.port", "prometheus_io/port", "prometheus-io-port"]
)
def test_every_spelling_of_the_scrape_settings_counts(key):
    spec, annotations = probed(), {key: "8080", "prometheus.io/scrape": "true"}
    merge_metrics(spec, annotations, 15020, enabled=True)
    assert annotations == {
        "prometheus.io/port": "15020",
        "prometheus.io/path": "/stats/prometheus",
        "prometheus.io/scrape": "true",
    }
    (variable,) = spec["containers"][0]["env"]
    assert variable == {"name": "ISTIO_PROMETHEUS_ANNOTATIONS", "value": '{"scrape":"true","path":"","port":"8080"}'}


@pytest.mark.parametrize(
    ("annotations", "enabled"),
    [
        ({"prometheus.io/scrape": "false"}, True),
        ({"prometheus.istio.io/merge-metrics": "false"}, True),
        ({}, False),
        ({"prometheus.io/port": "15020"}, True),
    ],
)
def test_metrics_are_left_alone_where_somebody_says_so(annotations, enabled):
    spec, after = probed(), dict(annotations)
    merge_metrics(spec, after, 15020, enabled=enabled)
    assert (spec, after) == (probed(), annotations)


@together("port", ["15000", "15001", "15004", "15006", "15008", "15020", "15021", "15053", "15090"])
@pytest.mark.parametrize("key", ["prometheus.io/port", "prometheus.istio.io/scrape-targets"])
def test_a_scrape_port_of_the_proxy_is_an_error(key, port):
    with pytest.raises(InjectionError, match=f"invalid value '{port}' for annotation '{key}': port {port} belongs"):
        merge_metrics(probed(), {key: port}, 15999, enabled=True)


@together("key", ["prometheus.io/port", "prometheus.istio.io/scrape-targets"])
@pytest.mark.parametrize("port", ["abc", "0", "70000", "-1", "8_0", "99999999999999999999999", "\u0663"])
def test_a_scrape_port_that_is_none_is_an_error(key, port):
    with pytest.raises(InjectionError, match="is not a port from 1 to 65535"):
        merge_metrics(probed(), {key: port}, 15020, enabled=True)


def test_the_name_of_a_port_is_refused_with_its_number_if_a_container_declares_it():
    for annotation, text in (("prometheus.io/port", "http"), ("prometheus.istio.io/scrape-targets", "http:/metrics")):
        with pytest.raises(InjectionError, match=r"not a port from 1 to 65535; give the number of the container's port 'http', 80$"):
            merge_metrics(probed(), {annotation: text}, 15020, enabled=True)
    with pytest.raises(InjectionError, match=r"not a port from 1 to 65535$"):
        merge_metrics(probed(), {"prometheus.io/port": "other"}, 15020, enabled=True)
    with pytest.raises(InjectionError, match=r"not a port from 1 to 65535$"):
        merge_metrics({"containers": [{"ports": [{"name": "http", "containerPort": "x\n"}]}]}, {"prometheus.io/port": "http"}, 15020, enabled=True)


def test_of_two_spellings_of_a_scrape_annotation_the_first_applies():
    spec = probed()
    merge_metrics(spec, {"prometheus.io/port": "9102", "prometheus-io/port": "9001"}, 15020, enabled=True)
    assert json.loads(spec["containers"][0]["env"][0]["value"])["port"] == "9102"


def test_a_blank_belongs_to_the_port_of_an_annotation_but_not_to_that_of_a_target():
    with pytest.raises(InjectionError, match="' 8080' is not a port"):
        merge_metrics(probed(), {"prometheus.io/port": " 8080"}, 15020, enabled=True)
    merge_metrics(probed(), {"prometheus.istio.io/scrape-targets": " 8080 : /m "}, 15020, enabled=True)


def test_the_agents_own_port_is_refused_as_a_target_in_any_spelling():
    for key in ("prometheus.io/port", "prometheus.istio.io/scrape-targets"):
        with pytest.raises(InjectionError, match="8085 is the agent's own port"):
            merge_metrics(probed(), {key: "08085"}, 8085, enabled=True)


@pytest.mark.parametrize("key", ["prometheus.istio.io/scrape-targets", "prometheus_istio_io-scrape.targets"])
def test_scrape_targets_are_handed_to_the_agent(key):
    spec, annotations = probed(), {key: "8080:/metrics, 9100 : /custom,,9200", "prometheus.io/path": "/old"}
    merge_metrics(spec, annotations, 15020, enabled=True)
    assert annotations == {
        "prometheus.io/port": "15020",
        "prometheus.io/path": "/stats/prometheus",
        "prometheus.io/scrape": "true",
    }
    assert spec["containers"][0]["env"][0]["value"] == (
        '{"scrape":"","path":"/metrics","port":"8080","targets":[{"port":"8080","path":"/metrics"},'
        '{"port":"9100","path":"/custom"},{"port":"9200","path":"/metrics"}]}'
    )


def test_targets_without_a_port_are_ignored_with_a_warning():
    spec, annotations = probed(), {"prometheus.istio.io/scrape-targets": "8080,:/m", "prometheus.io/port": "9"}
    (said,) = scrape_target_warnings(annotations)
    assert said.endswith("'8080,:/m' has a target without a port and is ignored; write PORT:PATH")
    merge_metrics(spec, annotations, 15020, enabled=True)
    assert spec["containers"][0]["env"][0]["value"] == '{"scrape":"","path":"","port":"9"}'
    assert "prometheus.istio.io/scrape-targets" not in annotations


def test_the_secure_metrics_port_becomes_an_annotation():
    spec, annotations = probed(), {"prometheus.istio.io/merge-metrics": "false"}
    spec["containers"][0]["env"] = [{"name": "ENVOY_SECURE_MERGED_METRICS_PORT", "value": "15443"}]
    merge_metrics(spec, annotations, 15020, enabled=True)
    assert annotations["prometheus.istio.io/secure-port"] == "15443"


@pytest.mark.parametrize("value", ["0", ""])
def test_a_secure_metrics_port_of_zero_is_none(value):
    spec, annotations = probed(), {"prometheus.istio.io/merge-metrics": "false"}
    spec["containers"][0]["env"] = [{"name": "ENVOY_SECURE_MERGED_METRICS_PORT", "value": value}]
    merge_metrics(spec, annotations, 15020, enabled=True)
    assert "prometheus.istio.io/secure-port" not in annotations


def test_a_secure_metrics_port_in_another_spelling_is_kept():
    spec = probed()
    annotations = {"prometheus.istio.io/merge-metrics": "false", "prometheus_istio_io/secure-port": "1"}
    spec["containers"][0]["env"] = [{"name": "ENVOY_SECURE_MERGED_METRICS_PORT", "value": "15443"}]
    merge_metrics(spec, annotations, 15020, enabled=True)
    assert "prometheus.istio.io/secure-port" not in annotations


def listed(*names):
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("given", "first", "wanted"),
    [
        (("a", "istio-proxy", "b"), False, ["a", "b", "istio-proxy"]),
        (("a", "istio-proxy", "b"), True, ["istio-proxy", "a", "b"]),
    ],
)
def test_the_proxy_is_last_or_first(given, first, wanted):
    spec = {"containers": listed(*given)}
    reorder(spec, proxy_first=first)
    assert [item["name"] for item in spec["containers"]] == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            ("u", "enable-core-dump", "istio-proxy", "istio-init"),
            ["istio-init", "istio-proxy", "enable-core-dump", "u"],
        ),
        (("u", "istio-proxy", "istio-validation"), ["istio-validation", "istio-proxy", "u"]),
        (("istio-init", "u", "enable-core-dump", "v"), ["u", "v", "istio-init", "enable-core-dump"]),
        (("u", "istio-validation"), ["istio-validation", "u"]),
    ],
)
def test_init_containers_start_in_an_order_that_gives_them_a_network(given, wanted):
    spec = {"initContainers": listed(*given)}
    reorder(spec, proxy_first=False)
    assert [item["name"] for item in spec["initContainers"]] == wanted


def test_numbers_among_arguments_become_strings():
    spec = {"containers": [{"args": ["-p", 15001, True, None, 1.5], "env": [{"name": "A", "value": 8}, {"name": "B"}]}]}
    normalize(spec)
    assert spec["containers"][0] == {
        "args": ["-p", "15001", "true", "", "1.5"],
        "env": [{"name": "A", "value": "8"}, {"name": "B"}],
    }


def with_status(text):
    return {"metadata": {"annotations": {"sidecar.istio.io/status": text}}}


@pytest.mark.parametrize("text", ["", "x", "[]", "1", "null", '{"containers": 5}', '{"containers": [1, {}]}'])
def test_a_forged_status_names_nothing(text):
    status = read_status(with_status(text))
    assert status is None or not any(status.values())


def test_a_status_is_read_as_it_is_written():
    text = write_status({"initContainers": [{"name": "a"}], "volumes": [{"name": "v"}, {"name": "w"}]})
    assert text == '{"initContainers":["a"],"containers":null,"volumes":["v","w"],"imagePullSecrets":null,"revision":"default"}'
    assert read_status(with_status(text)) == {"initContainers": ["a"], "containers": [], "volumes": ["v", "w"], "imagePullSecrets": []}
    assert write_status({"initContainers": [{"name": "a"}]}, version="abc").startswith('{"version":"abc","initContainers":["a"]')


@pytest.mark.parametrize(
    ("annotations", "ids"),
    [
        ({}, None),
        ({"openshift.io/sa.scc.uid-range": "1000620000/10000"}, (1000629999, 1000629999)),
        (
            {"openshift.io/sa.scc.uid-range": "1000-1999", "openshift.io/sa.scc.supplemental-groups": "5/10,7/1"},
            (1999, 14),
        ),
        ({"openshift.io/sa.scc.supplemental-groups": "5/10"}, (1337, 14)),
        ({"openshift.io/sa.scc.uid-range": " 1000/\t10 "}, (1009, 1009)),
        ({"openshift.io/sa.scc.uid-range": "1000-2000 ", "openshift.io/sa.scc.supplemental-groups": "0-2147483647"}, (2000, 2147483647)),
        ({"openshift.io/sa.scc.uid-range": "1/2/3"}, (2, 2)),
        ({"openshift.io/sa.scc.uid-range": "1000/10,2000/10"}, (1009, 1009)),
    ],
)
def test_openshift_gives_the_last_ids_of_its_ranges(annotations, ids):
    assert proxy_ids(annotations) == ids


FORM, TOO_HIGH = "give start/size or a-b", "is above 2147483647, the highest that Kubernetes takes"
BAD_RANGES = {
    "": FORM, "x": FORM, "5": FORM, "1000 /10": FORM, "+1/5": FORM, "1000\n/3": FORM, "1000--5": FORM, "１０/３": FORM,
    "9-5": "the range is empty", "5/0": "the range is empty", "4294967295/2": f"its last id, 4294967296, {TOO_HIGH}", "2147483640/9": TOO_HIGH,
}  # fmt: skip


@pytest.mark.parametrize(("value", "said"), BAD_RANGES.items())
def test_a_bad_range_of_ids_is_a_clear_error(value, said):
    for given, key in (
        ({"openshift.io/sa.scc.uid-range": value}, "uid-range"),
        ({"openshift.io/sa.scc.uid-range": "1000/10", "openshift.io/sa.scc.supplemental-groups": value}, "supplemental-groups"),
    ):
        with pytest.raises(InjectionError) as caught:
            proxy_ids(given)
        assert f"{value!r} for annotation 'openshift.io/sa.scc.{key}' of the namespace: " in str(caught.value)
        assert str(caught.value).endswith(said)


def test_a_slash_anywhere_means_that_a_range_has_a_size():
    with pytest.raises(InjectionError, match=FORM):
        proxy_ids({"openshift.io/sa.scc.uid-range": "1000-2000,3/4"})


def test_a_bad_range_behind_the_first_of_groups_is_an_error():
    with pytest.raises(InjectionError, match=r"'5/10,7' for annotation 'openshift[.]io/sa[.]scc[.]supplemental-groups'"):
        proxy_ids({"openshift.io/sa.scc.supplemental-groups": "5/10,7"})


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "[" * 100_000])
def test_bad_overrides_are_a_clear_error(text):
    with pytest.raises(InjectionError, match=r"proxy\.istio\.io/overrides"):
        Overrides({"proxy.istio.io/overrides": text})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("45s", 45),
        ("1m30s", 90),
        ("1.5h", 5400),
        ("100ms", 0.1),
        ("0", 0),
        ("-1s", -1),
        ("1", None),
        ("", None),
        ("s", None),
        ("1s ", None),
    ],
)
def test_durations_are_those_of_go(text, value):
    assert duration(text) == (None if value is None else value * 10**9)


def test_the_mesh_of_the_user_goes_over_the_defaults():
    mesh = MeshConfig.load(
        "defaultConfig: {drainDuration: 23s, proxyMetadata: {A: '1', B: x}, novel: [1]}\ntrustDomain: td\ninboundTrafficPolicy: {mode: LOCALHOST}"
    )
    proxy = mesh.proxy.overlaid({"proxyMetadata": {"B": "why"}, "tracing": {}, "interceptionMode": 1, "concurrency": 0})
    assert mesh.fields["trustDomain"] == "td"
    assert mesh.fields["proxyListenPort"] == 15001
    assert mesh.inbound_policy == "localhost"
    failover = {"failover": [{"from": "x", "to": "y"}]}
    assert MeshConfig.load({"localityLbSetting": failover}).fields["localityLbSetting"] == failover, "a field is replaced whole"
    assert proxy.changed() == {
        "drainDuration": "23s", "concurrency": 0, "interceptionMode": "TPROXY", "tracing": {}, "proxyMetadata": {"A": "1", "B": "why"},
    }  # fmt: skip
    assert list(proxy.changed()) == ["drainDuration", "concurrency", "interceptionMode", "tracing", "proxyMetadata"]
    assert MeshConfig.load(classic=True).proxy.fields["discoveryAddress"] == "istio-pilot:15007"
    stored = MeshConfig.load({"kind": "ConfigMap", "data": {"mesh": "enableTracing: true"}}, classic=True)
    assert (stored.fields["enableTracing"], stored.proxy.fields["discoveryAddress"]) == (True, "istio-pilot:15007")


@pytest.mark.parametrize(
    "text", ["[]", "a: [", "defaultConfig: 1", "defaultConfig: {concurrency: many}", "proxyListenPort: x"]
)
def test_a_bad_mesh_is_a_clear_error(text):
    with pytest.raises(ConfigError, match="mesh"):
        MeshConfig.load(text)


SELECTORS = [
    ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
    ({"matchLabels": {"a": "1", "b": "1"}}, {"a": "1"}, False),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
    ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
    ({}, {"a": ""}, True),
]


@pytest.mark.parametrize(("selector", "labels", "matches"), SELECTORS)
def test_selectors_are_those_of_kubernetes(selector, labels, matches):
    parsed = Selector.parse(selector)
    assert parsed.matches(labels) is matches
    assert str(parsed)


@pytest.mark.parametrize(
    "selector",
    [[], "a", {"matchLabels": []}, {"matchExpressions": [{}]}, {"matchExpressions": [{"key": "a", "operator": "Is"}]},
     {"matchExpressions": [{"key": "a", "operator": "In"}]}, {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}],
)  # fmt: skip
def test_a_bad_selector_is_a_clear_error(selector):
    with pytest.raises(ConfigError, match="selector"):
        Selector.parse(selector)


def otel(
    annotations=None,
    labels=None,
    namespace="ns",
    image="i:1.0",
    enrichment="OTEL_SEMANTIC_CONVENTIONS",
    names=("c",),
):
    template = "metadata: {annotations: {otel: '{{ otelResourceAttributes .MeshConfig .ObjectMeta.Annotations .ObjectMeta.Labels .DeploymentMeta.Namespace .Spec.Containers }}'}}"
    mesh = {"extensionProviders": [{"name": "o", "opentelemetry": {"serviceAttributeEnrichment": enrichment}}]}
    pod = {
        "metadata": {"namespace": namespace, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {"containers": [{"name": name, "image": image} for name in names]},
    }
    return inject_pod(pod, load_config({"templates": {"sidecar": template}}, mesh=mesh))["metadata"]["annotations"].get(
        "otel"
    )


INSTANCE = "service.instance.id=ns.$(POD_NAME).c"


@together(
    ("given", "wanted"),
    [
        ({"enrichment": "ISTIO_CANONICAL"}, ""),
        ({}, f"service.namespace=ns,service.version=1.0,{INSTANCE}"),
        ({"image": "registry:5000/i"}, f"service.namespace=ns,{INSTANCE}"),
        ({"image": "r/n:1@sha256:cd"}, f"service.namespace=ns,service.version=1@sha256:cd,{INSTANCE}"),
        ({"image": "registry:5000/n@sha256:cd"}, f"service.namespace=ns,service.version=sha256:cd,{INSTANCE}"),
        ({"image": ""}, f"service.namespace=ns,{INSTANCE}"),
        ({"names": ("c", "d")}, f"service.namespace=ns,{INSTANCE}"),
        ({"names": ("istio-proxy",)}, "service.namespace=ns,service.version=1.0,service.instance.id=ns.$(POD_NAME).istio-proxy"),
        ({"names": ()}, "service.namespace=ns"),
        (
            {"labels": {"app.kubernetes.io/version": "v1.2.3"}, "namespace": ""},
            "service.version=v1.2.3,service.instance.id=.$(POD_NAME).c",
        ),
        (
            {
                "annotations": {
                    f"resource.opentelemetry.io/service.{key}": f"my-{key}"
                    for key in ("namespace", "version", "instance.id")
                }
            },
            "service.namespace=my-namespace,service.version=my-version,service.instance.id=my-instance.id",
        ),
        (
            {"annotations": {"resource.opentelemetry.io/service.version": "a,b=c d"}},
            f"service.namespace=ns,service.version=a,b=c d,{INSTANCE}",
        ),
    ],
)
def test_resource_attributes_follow_the_semantic_conventions(given, wanted):
    assert otel(**given) == wanted
