"""The annotation proxy.istio.io/config, read as the protobuf that it is; the answers were recorded from Istio's injector."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ConfigError, InjectionError
from netinit.inject import Settings, inject_pod, load_config
from netinit.inject.adding.mesh_messages import duration, enum_names, fields_of, has_presence, is_message, read_message
from netinit.inject.adding.meshconfig import MeshConfig
from sweeps import together

CONFIG = load_config(
    {"templates": {"sidecar": "metadata: {annotations: {out: {{ protoToJSON .ProxyConfig | quote }}}}"}}
)


def announced(text):
    """What the proxy is told (PROXY_CONFIG) of a pod with this annotation."""
    pod = {"metadata": {"name": "p", "annotations": {"proxy.istio.io/config": text}}, "spec": {"containers": []}}
    return json.loads(inject_pod(pod, CONFIG, settings=Settings())["metadata"]["annotations"]["out"])


CANONICAL = [
    ("proxy_metadata: {A: b}", {"proxyMetadata": {"A": "b"}}),
    ("drain_duration: 30s", {"drainDuration": "30s"}),
    ("discovery_address: x.y:1", {"discoveryAddress": "x.y:1"}),
    ("drainDuration: 1m", {"drainDuration": "60s"}),
    ("drainDuration: 45s", {}),
    ("terminationDrainDuration: 5.5s", {"terminationDrainDuration": "5.500s"}),
    ("terminationDrainDuration: 10ms", {"terminationDrainDuration": "0.010s"}),
    ("terminationDrainDuration: 1us", {"terminationDrainDuration": "0.000001s"}),
    ("terminationDrainDuration: 1ns", {"terminationDrainDuration": "0.000000001s"}),
    ("terminationDrainDuration: -1.5s", {"terminationDrainDuration": "-1.500s"}),
    ("terminationDrainDuration: 1h1m1s", {"terminationDrainDuration": "3661s"}),
    ("statusPort: '15025'", {"statusPort": 15025}),
    ("statusPort: 15025.0", {"statusPort": 15025}),
    ("statNameLength: 0", {}),
    ("proxyMetadata: {}", {}),
    ("proxyMetadata: {A: null}", {"proxyMetadata": {"A": ""}}),
    ("availabilityZone: ''", {}),
    ("controlPlaneAuthPolicy: NONE", {}),
    ("interceptionMode: 1", {"interceptionMode": "TPROXY"}),
    ("interceptionMode: -2147483648", {"interceptionMode": -2147483648}),
    ("interceptionMode: 2147483647", {"interceptionMode": 2147483647}),
    ("tracing: {}", {"tracing": {}}),
    ("tracing: {sampling: '5'}", {"tracing": {"sampling": 5}}),
    ("tracing: {sampling: 0.5}", {"tracing": {"sampling": 0.5}}),
    ("tracing: {stackdriver: {maxNumberOfAttributes: 5}}", {"tracing": {"stackdriver": {"maxNumberOfAttributes": "5"}}}),
    ("tracing: {custom_tags: {a: {literal: {value: x}}}}", {"tracing": {"customTags": {"a": {"literal": {"value": "x"}}}}}),
    ("tracing: {zipkin: {address: 'z:1'}, datadog: {address: 'd:1'}}", {"tracing": {"datadog": {"address": "d:1"}}}),
    ("serviceCluster: x\ntracingServiceName: CANONICAL_NAME_ONLY", {"tracingServiceName": "CANONICAL_NAME_ONLY"}),
    ("tracingServiceName: APP_LABEL_AND_NAMESPACE", {"tracingServiceName": "APP_LABEL_AND_NAMESPACE"}),
    ("serviceCluster: istio-proxy", {}),
    ("statsCompression: false", {"statsCompression": False}),
    ("sds: {enabled: true}", {"sds": {"enabled": True}}),
    ("connectionSettings: {profile: EDGE, httpIdleTimeout: 1m}", {"connectionSettings": {"profile": "EDGE", "httpIdleTimeout": "60s"}}),
    ("holdApplicationUntilProxyStarts: false", {"holdApplicationUntilProxyStarts": False}),
    ("concurrency: '4'", {"concurrency": 4}),
    ("image: {image_type: distroless}", {"image": {"imageType": "distroless"}}),
    ("gatewayTopology: {forwardClientCertDetails: SANITIZE}", {"gatewayTopology": {"forwardClientCertDetails": "SANITIZE"}}),
    ("proxyHeaders: {requestId: {disabled: true}, preserve_http1_header_case: false}", {"proxyHeaders": {"requestId": {"disabled": True}, "preserveHttp1HeaderCase": False}}),
    ("connectTimeout: 5s", {"connectTimeout": "5s"}),
    ("unknown: {a: 1}", {}),
    ("drainDuration: null", {}),
    ("null", {}),
]  # fmt: skip


@together(("text", "wanted"), CANONICAL)
def test_what_the_annotation_says_reaches_the_proxy_in_protobufs_spelling(text, wanted):
    assert announced(text) == wanted


def test_the_fields_stand_in_the_order_of_the_message():
    assert list(announced("meshId: m\nconcurrency: 2\nconfigPath: /x")) == ["configPath", "concurrency", "meshId"]


REFUSED = [
    "statusPort: 0", "statusPort: -1", "statusPort: 99999", "statusPort: 1.5", "statusPort: x", "proxyAdminPort: 0",
    "proxyAdminPort: 70000", "discoveryAddress: nohost", "discoveryAddress: ''", "discoveryAddress: 'x:99999'",
    "discoveryAddress: 'x:0'", "discoveryAddress: 'a b:1'", "discoveryAddress: '::1:1'", "discoveryAddress: ':1'",
    "configPath: ''", "binaryPath: ''", "serviceCluster: ''", "statsdUdpAddress: x", "envoyMetricsServiceAddress: x",
    "envoyAccessLogService: {address: x}", "envoyMetricsService: {address: x}", "tracing: {zipkin: {address: z}}", "tracing: {zipkin: {}}",
    "drainDuration: 0s", "drainDuration: -1s", "drainDuration: 0.5s", "drainDuration: 1.000000001s", "drainDuration: 5",
    "terminationDrainDuration: x", "terminationDrainDuration: ''", "proxyMetadata: {A: 1}", "proxyMetadata: {A: true}",
    "proxyMetadata: []", "runtimeValues: {a: 1}", "image: {imageType: 5}", "extraStatTags: a", "extraStatTags: [1]",
    "fileFlushMinSizeKb: -1", "interceptionMode: FOO", "interceptionMode: '1'", "tracing: {tlsSettings: {mode: FOO}}",
    "tracing: {tlsSettings: {mode: MUTUAL}}", "tracing: {openCensusAgent: {context: [X]}}", "tracing: {sampling: x}", "tracing: 5",
    "controlPlaneAuthPolicy: INHERIT", "holdApplicationUntilProxyStarts: 'true'", "concurrency: x", "concurrency: true", "meshId: 5",
]  # fmt: skip


@together("text", REFUSED)
def test_what_istio_refuses_is_refused_with_the_field_named(text):
    with pytest.raises(InjectionError) as error:
        announced(text)
    said = str(error.value)
    assert said.startswith("invalid value ")
    assert f"for annotation 'proxy.istio.io/config': {text.partition(':')[0]}" in said


@pytest.mark.parametrize(
    "text", ["discoveryAddress: '[::1]:15012'", "discoveryAddress: '1.2.3.4:1'", "discoveryAddress: 'a.b-c.svc:15012'"]
)
def test_names_and_addresses_of_both_families_are_hosts(text):
    assert announced(text)


def test_a_pods_fields_replace_those_of_the_mesh_and_metadata_and_some_headers_are_merged():
    mesh = MeshConfig.load(
        {
            "defaultConfig": {
                "proxyMetadata": {"A": "1", "B": "2"},
                "tracing": {"sampling": 1, "zipkin": {"address": "z:1"}},
                "proxyHeaders": {"server": {"value": "s"}, "preserveHttp1HeaderCase": True},
            }
        }
    )
    changed = mesh.proxy.overlaid(
        {"proxyMetadata": {"B": "3"}, "tracing": {"sampling": 2}, "proxyHeaders": {"requestId": {"disabled": True}}}
    ).changed()
    assert changed["proxyMetadata"] == {"A": "1", "B": "3"}
    assert changed["tracing"] == {"sampling": 2}
    assert changed["proxyHeaders"] == {"requestId": {"disabled": True}, "server": {"value": "s"}}


def test_a_field_set_to_its_zero_replaces_that_of_the_mesh():
    mesh = MeshConfig.load({"defaultConfig": {"statNameLength": 5, "extraStatTags": ["a"], "meshId": "m"}})
    assert mesh.proxy.overlaid({"statNameLength": 0, "extraStatTags": [], "meshId": ""}).changed() == {}


@together(
    ("text", "nanoseconds"),
    [
        ("0", 0), ("1s", 10**9), ("-2s", -2 * 10**9), ("+1s", 10**9), ("1m30s", 90 * 10**9), ("1.5h", 5400 * 10**9),
        (".5s", 5 * 10**8), ("1.s", 10**9), ("1us", 1000), ("1µs", 1000), ("1ns", 1), ("1h1ms", 3600 * 10**9 + 10**6),
        ("", None), ("s", None), (".s", None), ("1", None), ("1 s", None), ("1d", None), ("--1s", None), (5, None), ("1s" * 200, None),
    ],
)  # fmt: skip
def test_durations_are_read_as_go_reads_them(text, nanoseconds):
    assert duration(text) == nanoseconds


def test_every_type_that_a_message_names_is_known():
    scalars = {
        "string",
        "bool",
        "int32",
        "uint32",
        "double",
        "Duration",
        "Struct",
        "BoolValue",
        "Int32Value",
        "Int64Value",
    }
    scalars |= {"UInt32Value", "UInt64Value"}
    waiting, seen = ["ProxyConfig", "MeshConfig"], set()
    while waiting:
        message = waiting.pop()
        if message in seen:
            continue
        seen.add(message)
        for field in fields_of(message).values():
            plain = field.kind.removeprefix("[]").removeprefix("map[string]")
            is_enum = plain.startswith("enum:") and 0 in enum_names(plain[5:])
            assert plain in scalars or is_enum or is_message(plain), plain
            if is_message(plain):
                waiting.append(plain)
    assert len(seen) > 70


def test_an_error_names_the_whole_path():
    with pytest.raises(ConfigError, match=r"tracing\.customTags\.a\.literal\.value: 5 must be a text"):
        read_message("ProxyConfig", {"tracing": {"customTags": {"a": {"literal": {"value": 5}}}}})
    with pytest.raises(ConfigError, match=r"readinessProbe\.httpGet\.httpHeaders\[0\]: 1 must be a mapping"):
        read_message("ProxyConfig", {"readinessProbe": {"httpGet": {"httpHeaders": [1]}}})


def test_presence_is_that_of_wrappers_messages_and_oneofs():
    known = [has_presence("ProxyConfig", name) for name in ("statusPort", "concurrency", "tracing", "serviceCluster")]
    assert known == [False, True, True, True]
