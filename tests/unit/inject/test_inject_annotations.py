"""What each annotation accepts, and the words in which it is refused."""

from __future__ import annotations

import pytest

from netinit.base.errors import InjectionError
from netinit.inject import inject_pod
from netinit.inject.annotations import CHECKS, validate
from netinit.inject.config import load_config
from netinit.inject.pod_options import find_init, options_of
from netinit.options import Options
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
    *((T + name, value) for name in ("excludeInterfaces", "kubevirtInterfaces") for value in ("", "eth0", "net1,net.2", "a-b_c")),
    ("istio.io/reroute-virtual-interfaces", "abcdefghijklmno"),
    *(("prometheus.istio.io/merge-metrics", value) for value in ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")),
    ("proxy.istio.io/config", ""),
    ("proxy.istio.io/config", "concurrency: 2\nholdApplicationUntilProxyStarts: true\nunknown: {a: b}"),
    *(("sidecar.istio.io/proxyCPU", value) for value in ("1", "100m", "0.5", ".5", "1e3", "2Ki")),
    *(("sidecar.istio.io/proxyMemoryLimit", value) for value in ("128Mi", "1G", "1E", "5e-1")),
    *((f"netinit.io/exclude-outbound-for-{kind}", value) for kind in ("uids", "gids") for value in ("", "tcp:22,80:1000-2000;udp:53:3000")),
    *(("netinit.io/exclude-inbound-cidrs", value) for value in ("", "10.9.0.0/16,fd09::/64")),
    *((f"netinit.io/{name}", value) for name in ("exclude-cloud-metadata", "reject-quic", "log-rules", "istio-exact", "reset-existing", "require-capture") for value in ("true", "false")),
    *(("netinit.io/ipv6", value) for value in ("reject", "inet", "auto", "on", "off")),
    *(("netinit.io/log-group", value) for value in ("5", "0")),
    *(("netinit.io/inbound-tunnel-port", value) for value in ("0", "15008")),
    *(("netinit.io/accepted-findings", value) for value in ("", "NI102 = the plugin", "NI102=a;NI105 = b;")),
]  # fmt: skip
BAD = [
    *(("sidecar.istio.io/interceptionMode", value) for value in ("", "redirect", "TPROXY ", "MAGIC")),
    *(("status.sidecar.istio.io/port", value) for value in ("", "65536", "-1", "+1", "0x50", "80a", "٣")),
    *((R + "periodSeconds", value) for value in ("", " 1", "1 ", "4294967296", "-1", "1.0")),
    *((T + "includeOutboundIPRanges", value) for value in ("**", "10.0.0.0", "10.0.0.0/33", " 10.0.0.0/8", "10.0.0.0/8, 11.0.0.0/8", "10.0.0.0/8,", "x", "::1%lo/128", "10.0.0.0/255.0.0.0", "010.0.0.0/8", "10.0.0.0/08")),
    *((T + "excludeOutboundIPRanges", value) for value in ("*", "bad")),
    *((T + "includeInboundPorts", value) for value in ("80,", ",80", "80,,443", "*,80", "70000", "http", "90-80", "80-", "80\n443")),
    *((T + name, value) for name in PORT_LISTS for value in ("*", "80,", "bad", '80"')),
    *((T + "excludeInterfaces", value) for value in ("abcdefghijklmnop", "0eth", "eth0,", "eth 0", "eth0\nnet1", "-c")),
    *(("prometheus.istio.io/merge-metrics", value) for value in ("", "yes", "tRUE", "2")),
    *(("proxy.istio.io/config", value) for value in ("[1]", "a: [", "concurrency: lots", "drainDuration: soon", "interceptionMode: MAGIC", "proxyMetadata: [a]", "tracing: 1", "a: &a [*a]")),
    *((f"netinit.io/exclude-outbound-for-{kind}", value) for kind in ("uids", "gids") for value in ("tcp:22", "icmp:1:1", "tcp:22:1\n")),
    *(("netinit.io/exclude-inbound-cidrs", value) for value in ("*", "10.9.0.0", "10.9.0.0/16 x")),
    *((f"netinit.io/{name}", value) for name in ("exclude-cloud-metadata", "reject-quic", "log-rules", "istio-exact", "reset-existing", "require-capture") for value in ("", "yes")),
    *(("netinit.io/ipv6", value) for value in ("", "refuse")),
    *(("netinit.io/log-group", value) for value in ("", "65536", "x")),
    *(("netinit.io/inbound-tunnel-port", value) for value in ("", "-1", "65536")),
    *(("netinit.io/accepted-findings", value) for value in ("NI102", "NI102 =", "102 = a", "NI1020 = a")),
    *(("sidecar.istio.io/proxyCPU", value) for value in ("", "lots", "1 ", "1\n2", "100mm", "1Kii", "--1")),
]  # fmt: skip


@together(("key", "value"), GOOD)
def test_these_values_are_accepted(key, value):
    validate({key: value})


@together(("key", "value"), BAD)
def test_these_values_are_refused_in_istios_words(key, value):
    with pytest.raises(InjectionError) as caught:
        validate({key: value})
    assert str(caught.value).startswith(f"invalid value {value!r} for annotation {key!r}: ")


def test_every_annotation_of_the_table_has_a_good_and_a_bad_example():
    assert {key for key, _ in GOOD} | {"sidecar.istio.io/proxyMemory", "sidecar.istio.io/proxyCPULimit"} == set(CHECKS)


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
