"""What each annotation accepts, and the words in which it is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netinit.base.errors import InjectionError
from netinit.inject import inject_pod
from netinit.inject.adding.annotation_checks import CHECKS_OF_INJECTION, validate
from netinit.inject.adding.config import load_config
from netinit.inject.deciding.annotations import known_keys
from netinit.inject.deciding.init_container import find_init, options_of
from netinit.inject.deciding.metadata_findings import annotation_findings
from netinit.options import Options
from option_samples import SAMPLES
from sweeps import together

T, R = "traffic.sidecar.istio.io/", "readiness.status.sidecar.istio.io/"
PORT_LISTS = (
    "excludeInboundPorts",
    "excludeOutboundPorts",
    "includeOutboundPorts",
)
GOOD = [
    *(("sidecar.istio.io/interceptionMode", mode) for mode in ("REDIRECT", "TPROXY", "NONE")),
    *(("status.sidecar.istio.io/port", value) for value in ("0", "15020", "65535", " 80 ", "080")),
    *((R + name, value) for name in ("initialDelaySeconds", "periodSeconds", "failureThreshold") for value in ("0", "4294967295")),
    *((T + "includeOutboundIPRanges", value) for value in ("*", "", "10.0.0.0/8", "10.0.0.1/8,fd00::1/8", "0.0.0.0/0")),
    *((T + "excludeOutboundIPRanges", value) for value in ("", "10.0.0.1/32", "::/0")),
    *((T + "includeInboundPorts", value) for value in ("*", "", "80", "80, 443 ,8080", "80,8000-8100")),
    *((T + name, value) for name in PORT_LISTS for value in ("", "80", "80,443", " 80 , 443")),
    *((T + name, value) for name in ("excludeInterfaces", "kubevirtInterfaces") for value in ("", "eth0", "net1,net.2", "a-b_c", "br-+", "net1,e+")),
    ("istio.io/reroute-virtual-interfaces", "abcdefghijklmno"),
    *(("prometheus.istio.io/merge-metrics", value) for value in ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")),
    ("proxy.istio.io/config", ""),
    ("proxy.istio.io/config", "concurrency: 2\nholdApplicationUntilProxyStarts: true\nunknown: {a: b}"),
    *(("sidecar.istio.io/proxyCPU", value) for value in ("1", "100m", "0.5", ".5", "1e3", "2Ki")),
    *(("sidecar.istio.io/proxyMemoryLimit", value) for value in ("128Mi", "1G", "1E", "5e-1")),
    *((f"netinit.io/exclude-outbound-for-{kind}", value) for kind in ("uids", "gids") for value in ("", "tcp:22,80:1000-2000;udp:53:3000")),
    *(("netinit.io/redirect-outbound-udp", value) for value in ("", "514:10514", "514:10514, 6000-6009:16000")),
    *(("netinit.io/exclude-inbound-cidrs", value) for value in ("", "10.9.0.0/16,fd09::/64")),
    *((f"netinit.io/{name}", value) for name in ("exclude-cloud-metadata", "reject-quic", "redirect-forwarded-dns", "log-rules", "istio-exact", "reset-existing", "require-capture") for value in ("true", "false")),
    *(("netinit.io/ipv6", value) for value in ("reject", "inet", "auto", "on", "off")),
    *(("netinit.io/log-group", value) for value in ("5", "0")),
    *(("netinit.io/inbound-tunnel-port", value) for value in ("0", "15008")),
    *(("netinit.io/uncaptured-init-containers", value) for value in ("", "migrate", "migrate, fetch-config")),
    *(("netinit.io/accepted-findings", value) for value in ("", "NI102 = the plugin", "NI102=a;NI105 = b;")),
]  # fmt: skip
GOOD += [(one.annotation, SAMPLES[one.kind.metavar][0]) for one in Options.flags if one.annotation and one.annotation not in dict(GOOD)]
NO_PORT, NO_NUMBER, NO_QUANTITY = "it must be a port from 0 to 65535", "it must be a whole number from 0 to 4294967295", "it must be a quantity, such as 100m or 128Mi"
NO_MODE, NO_BOOLEAN, NO_SWITCH = "it must be one of REDIRECT, TPROXY, NONE", "it must be true or false", "it is neither true nor false"
NO_CIDR, NO_RANGE = "is not in CIDR notation, such as 10.0.0.0/8 or fd00::/8", f"{NO_PORT}, or two with a dash between, the lower first"
NO_INTERFACE = "is not an interface name: a letter, then letters, digits, '_', '.', '-', at the end '+' for a prefix, at most 15 in all"
NO_OWNERS = "it holds 'tcp', which is not a port or a range of ports: use a decimal number from 1 to 65535, or two with a dash, such as 8000-8100"
NO_PROTOCOL = "it begins with neither tcp nor udp nor *: write protocol:ports:users, such as tcp:22,80:1000-2000; separate several with ;"
NO_REASON = "it must be codes of findings with a reason each, such as: NI212 = the database has TLS of its own"
NO_INBOUND = {
    "*": "it means everything, which cannot be excluded: list CIDRs",
    "10.9.0.0": "it has no prefix length; write it as a CIDR, for example 10.0.0.0/8",
    "10.9.0.0/16 x": "it has a prefix length that is not a number from 0 to 32",
}
NO_REDIRECT = {
    "514": "it names no port of the pod: write the port and the pod's port for it, such as 514:10514",
    "514:0": "it holds '0', which is not a port: use a decimal number from 1 to 65535",
    "514:10514,514:10515": "it lists port 514 twice, for 10514 and for 10515: list each port once",
}
NO_PROXY_CONFIG = {
    "[1]": "it must be the YAML of a ProxyConfig, such as `concurrency: 2`",
    "a: [": "it is not YAML (line 2, column 1: a value is missing here, or a bracket is not closed before this)",
    "concurrency: lots": "concurrency: 'lots' must be a whole number from -2147483648 to 2147483647",
    "drainDuration: soon": "drainDuration: 'soon' is not a duration such as 1m30s",
    "interceptionMode: MAGIC": "interceptionMode: 'MAGIC' must be one of REDIRECT, TPROXY, NONE",
    "proxyMetadata: [a]": "proxyMetadata: ['a'] must be a map",
    "tracing: 1": "tracing: 1 must be a mapping",
    "a: &a [*a]": "it is not YAML (line 1, column 8: the alias *a lies inside its own anchor)",
}
NETWORKS = ("**", "10.0.0.0", "10.0.0.0/33", " 10.0.0.0/8", "10.0.0.0/8, 11.0.0.0/8", "10.0.0.0/8,", "x", "::1%lo/128", "10.0.0.0/255.0.0.0", "010.0.0.0/8", "10.0.0.0/08")
BAD = [
    *(("sidecar.istio.io/interceptionMode", value, NO_MODE) for value in ("", "redirect", "TPROXY ", "MAGIC")),
    *(("status.sidecar.istio.io/port", value, NO_PORT) for value in ("", "65536", "-1", "+1", "0x50", "80a", "٣")),
    *((R + "periodSeconds", value, NO_NUMBER) for value in ("", " 1", "1 ", "4294967296", "-1", "1.0")),
    *((T + "includeOutboundIPRanges", value, f"{value.split(',')[-1]!r} {NO_CIDR}") for value in NETWORKS),
    *((T + "excludeOutboundIPRanges", value, f"{value!r} {NO_CIDR}") for value in ("*", "bad")),
    *((T + "includeInboundPorts", value, f"'' is not a port: {NO_PORT}") for value in ("80,", ",80", "80,,443")),
    (T + "includeInboundPorts", "*,80", f"'*' is not a port: {NO_PORT}"),
    *((T + "includeInboundPorts", value, NO_PORT) for value in ("70000", "http", "80\n443")),
    *((T + "includeInboundPorts", value, NO_RANGE) for value in ("90-80", "80-")),
    *((T + name, value, NO_PORT) for name in PORT_LISTS for value in ("*", "bad", '80"')),
    *((T + name, "80,", f"'' is not a port: {NO_PORT}") for name in PORT_LISTS),
    *((T + "excludeInterfaces", value, f"{value.split(',')[-1]!r} {NO_INTERFACE}") for value in ("abcdefghijklmnop", "0eth", "eth0,", "eth 0", "eth0\nnet1", "-c", "+", "br-++", "a+b", "abcdefghijklmno+", "net1@eth0")),
    *(("prometheus.istio.io/merge-metrics", value, NO_BOOLEAN) for value in ("", "yes", "tRUE", "2")),
    *(("proxy.istio.io/config", value, said) for value, said in NO_PROXY_CONFIG.items()),
    *((f"netinit.io/exclude-outbound-for-{kind}", "tcp:22", NO_OWNERS) for kind in ("uids", "gids")),
    *((f"netinit.io/exclude-outbound-for-{kind}", "icmp:1:1", NO_PROTOCOL) for kind in ("uids", "gids")),
    *((f"netinit.io/exclude-outbound-for-{kind}s", "tcp:22:1\n", f"it holds '1\\n', which is not a {who} here: pass a number") for kind, who in (("uid", "user"), ("gid", "group"))),
    *(("netinit.io/redirect-outbound-udp", value, said) for value, said in NO_REDIRECT.items()),
    *(("netinit.io/exclude-inbound-cidrs", value, said) for value, said in NO_INBOUND.items()),
    *((f"netinit.io/{name}", value, NO_SWITCH) for name in ("exclude-cloud-metadata", "reject-quic", "redirect-forwarded-dns", "log-rules", "istio-exact", "reset-existing", "require-capture") for value in ("", "yes")),
    *(("netinit.io/ipv6", value, "it is not one of auto, on, off, inet, reject") for value in ("", "refuse")),
    *(("netinit.io/log-group", value, "it is not a log group: use a decimal number from 0 to 65535") for value in ("", "65536", "x")),
    *(("netinit.io/inbound-tunnel-port", value, "it is not a port: use a decimal number from 0 to 65535; 0 is none") for value in ("", "-1", "65536")),
    ("netinit.io/uncaptured-init-containers", "a,B c", "'B c' is not the name of a container, such as migrate"),
    *(("netinit.io/accepted-findings", value, NO_REASON) for value in ("NI102", "NI102 =", "102 = a", "NI1020 = a")),
    *(("sidecar.istio.io/proxyCPU", value, NO_QUANTITY) for value in ("", "lots", "1 ", "1\n2", "100mm", "1Kii", "--1")),
]  # fmt: skip


@together(("key", "value"), GOOD)
def test_these_values_are_accepted(key, value):
    validate({key: value})


@together(("key", "value", "said"), BAD)
def test_these_values_are_refused_in_istios_words(key, value, said):
    with pytest.raises(InjectionError) as caught:
        validate({key: value})
    assert str(caught.value) == f"invalid value {value!r} for annotation {key!r}: {said}"


def test_every_annotation_of_the_table_has_a_good_and_a_bad_example():
    assert {key for key, _ in GOOD} | {"sidecar.istio.io/proxyMemory", "sidecar.istio.io/proxyCPULimit"} == set(CHECKS_OF_INJECTION)


def test_all_bad_annotations_are_reported_at_once():
    with pytest.raises(InjectionError) as caught:
        validate({T + "includeInboundPorts": "80,", "sidecar.istio.io/proxyCPU": "lots", "other": "\n"})
    assert len(str(caught.value).splitlines()) == 2


def test_the_first_release_had_no_mode_none():
    with pytest.raises(InjectionError, match="one of REDIRECT, TPROXY"):
        validate({"sidecar.istio.io/interceptionMode": "NONE"}, modes=("REDIRECT", "TPROXY"))


@pytest.mark.parametrize("template", ["sidecar", "init"])
def test_every_annotation_of_our_own_flags_reaches_the_init_container_by_our_templates(template):
    ours = {flag.annotation: flag for flag in Options.flags if flag.annotation}
    good = {key: next(value for name, value in GOOD if name == key and value) for key in ours}
    pod = {"metadata": {"annotations": {**good, "inject.istio.io/templates": template}}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    options = options_of(find_init(inject_pod(pod, load_config())["spec"]))
    assert {key: getattr(options, flag.field) for key, flag in ours.items()} == {key: flag.kind.read(good[key]) for key, flag in ours.items()}
    del pod["metadata"]["annotations"]["netinit.io/reject-quic"]
    assert options_of(find_init(inject_pod(pod, load_config())["spec"])).reject_quic is False


ISTIOS = [
    "ambient.istio.io/bypass-inbound-capture", "ambient.istio.io/dns-capture", "ambient.istio.io/redirection",
    "inject.istio.io/templates", "istio.io/reroute-virtual-interfaces", "istio.io/rev", "prometheus.istio.io/merge-metrics",
    "proxy.istio.io/config", "proxy.istio.io/overrides", "readiness.status.sidecar.istio.io/applicationPorts",
    "readiness.status.sidecar.istio.io/failureThreshold", "readiness.status.sidecar.istio.io/initialDelaySeconds",
    "readiness.status.sidecar.istio.io/periodSeconds", "status.sidecar.istio.io/port", "sidecar.istio.io/agentLogLevel",
    "sidecar.istio.io/bootstrapOverride", "sidecar.istio.io/componentLogLevel", "sidecar.istio.io/discoveryAddress",
    "sidecar.istio.io/enableCoreDump", "sidecar.istio.io/extraStatTags", "sidecar.istio.io/inject",
    "sidecar.istio.io/interceptionMode", "sidecar.istio.io/logLevel", "sidecar.istio.io/nativeSidecar",
    "sidecar.istio.io/proxyCPU", "sidecar.istio.io/proxyCPULimit", "sidecar.istio.io/proxyImage",
    "sidecar.istio.io/proxyImageType", "sidecar.istio.io/proxyMemory", "sidecar.istio.io/proxyMemoryLimit",
    "sidecar.istio.io/rewriteAppHTTPProbers", "sidecar.istio.io/statsCompression", "sidecar.istio.io/statsEvictionInterval",
    "sidecar.istio.io/statsFlushInterval", "sidecar.istio.io/statsHistogramBins", "sidecar.istio.io/statsHistogramBuckets",
    "sidecar.istio.io/statsInclusionPrefixes", "sidecar.istio.io/statsInclusionRegexps",
    "sidecar.istio.io/statsInclusionSuffixes", "sidecar.istio.io/status", "sidecar.istio.io/userVolume",
    "sidecar.istio.io/userVolumeMount", "traffic.sidecar.istio.io/excludeInboundPorts",
    "traffic.sidecar.istio.io/excludeInterfaces", "traffic.sidecar.istio.io/excludeOutboundIPRanges",
    "traffic.sidecar.istio.io/excludeOutboundPorts", "traffic.sidecar.istio.io/includeInboundPorts",
    "traffic.sidecar.istio.io/includeOutboundIPRanges", "traffic.sidecar.istio.io/includeOutboundPorts",
    "traffic.sidecar.istio.io/kubevirtInterfaces",
]  # of pods: istio/api of July 2026


@pytest.mark.parametrize("name", ISTIOS)
def test_istios_annotations_of_pods_are_on_the_page_and_not_called_misspelt(name):
    page = (Path(__file__).parents[3] / "docs" / "annotations.md").read_text("utf-8")
    assert f"`{name}`" in page
    assert not [one for one in annotation_findings({name: "1"}, frozenset(known_keys())) if one.kind.name == "unknown-annotation"]


def test_the_example_of_each_annotation_on_its_page_is_a_value_that_it_takes():
    page = (Path(__file__).parents[3] / "docs" / "annotations.md").read_text("utf-8")
    examples = dict(re.findall(r'Example: `(\S+): "([^"]*)"`', page))
    named = {name for flag in Options.flags for name in (*flag.istio_annotations, flag.annotation) if name}
    assert examples.keys() == named, "tests/reference.py writes the page"
    assert {name: problem for name, value in examples.items() if (problem := CHECKS_OF_INJECTION[name](value))} == {}
