"""Remedies in the words of the pod's author: annotations, Helm values, flags."""

from __future__ import annotations

import pytest

from netinit.questions.option_names import translate

NAMES = {
    "exclude_outbound_ports": "annotation a/excludeOutboundPorts", "ipv6": "annotation n/ipv6", "redirect_dns": "annotation n/dns",
    "outbound_cidrs": "value global.proxy.includeIPRanges", "tunnel_port": "annotation n/tunnel", "inbound_mode": "annotation n/mode",
}  # fmt: skip


@pytest.mark.parametrize(("text", "translated"), [
    ("remove 80 from --istio-local-outbound-ports-exclude", "remove 80 from annotation a/excludeOutboundPorts"),
    ("remove 80 from -o", "remove 80 from annotation a/excludeOutboundPorts"),
    ("--ipv6 on captures it, --ipv6 reject refuses it", 'annotation n/ipv6: "on" captures it, annotation n/ipv6: "reject" refuses it'),
    ("leave out -m NONE, or add -i '*'", 'leave out annotation n/mode: "NONE", or add value global.proxy.includeIPRanges: "*"'),
    ("--redirect-dns", 'annotation n/dns: "true"'), ("--redirect-dns=false", 'annotation n/dns: "false"'),
    ("without --redirect-dns", "without annotation n/dns"), ("--inbound-tunnel-port 0", 'annotation n/tunnel: "0"'),
    ("--istio-exact is not --ipv6-x, nor -osmosis", "--istio-exact is not --ipv6-x, nor -osmosis"), ("no option", "no option"),
])  # fmt: skip
def test_options_are_called_what_the_author_wrote(text, translated):
    assert translate(text, NAMES) == translated
    assert translate(text, {}) == text


POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {sidecar.istio.io/inject: "true"}, annotations: {ANNOTATIONS}}
spec: {containers: [{name: app, image: a}]}
"""
EXCLUDED = 'traffic.sidecar.istio.io/excludeOutboundPorts: "5433"'
INCLUDED = 'traffic.sidecar.istio.io/includeOutboundIPRanges: "10.0.0.0/8"'
VALUES = 'global: {proxy: {excludeOutboundPorts: "5433"}}'
FLAGS = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers: [{name: istio-init, image: i, args: [istio-iptables, -b, "*", -i, "*", -d, "15020", -o, "5433"]}]
  containers: [{name: app, image: a}, {name: istio-proxy, image: p}]
"""
TRAFFIC = "annotation traffic.sidecar.istio.io"


@pytest.mark.parametrize(("pod", "values", "to", "cause", "remedy"), [
    (POD.replace("ANNOTATIONS", EXCLUDED), "", "10.2.3.4:5433", f"({TRAFFIC}/excludeOutboundPorts)", f"remove 5433 from {TRAFFIC}/excludeOutboundPorts: captured"),
    (POD.replace("ANNOTATIONS", INCLUDED), "", "8.8.8.8:443", "no rule captures it", f"add 8.8.8.8/32 to {TRAFFIC}/includeOutboundIPRanges: captured"),
    (POD.replace("ANNOTATIONS", "a: b"), VALUES, "10.2.3.4:5433", "(value global.proxy.excludeOutboundPorts)", "remove 5433 from value global.proxy.excludeOutboundPorts: captured"),
    (POD.replace("ANNOTATIONS", EXCLUDED), VALUES, "10.2.3.4:5433", f"({TRAFFIC}/excludeOutboundPorts)", f"remove 5433 from {TRAFFIC}/excludeOutboundPorts: captured"),
    (FLAGS, "", "10.2.3.4:5433", "(--istio-local-outbound-ports-exclude)", "remove 5433 from --istio-local-outbound-ports-exclude: captured"),
    (POD.replace("ANNOTATIONS", "a: b"), "", "10.2.3.4:53 --udp", "no rule captures", 'proxyMetadata ISTIO_META_DNS_CAPTURE: "true": captured'),
])  # fmt: skip
def test_explain_audit_and_lint_name_what_was_written(run, tmp_path, pod, values, to, cause, remedy):
    (tmp_path / "pod.yaml").write_text(pod)
    (tmp_path / "values.yaml").write_text(values)
    more = ["--valuesFile", f"{tmp_path}/values.yaml"] if values else []
    done = run(["netinit", "explain", "--pod", f"{tmp_path}/pod.yaml", *more, "--to", *to.split()])
    assert cause in done.out.splitlines()[0]
    told = done.out.partition("what would change it:")[2]
    assert remedy in told, done.out
    assert ("--" in told) is (pod is FLAGS)
    audited = run(["netinit", "audit", f"{tmp_path}/pod.yaml", *more, "--all"]).out
    if "5433" in to:
        assert f"to close it: remove them from {remedy.partition(' from ')[2].partition(':')[0]}\n" in audited


@pytest.mark.parametrize(("text", "written"), [
    ("use --inbound-tunnel-port 0, or X", 'use T: "0", or X'), ("use --inbound-tunnel-port=0.", 'use T: "0".'), ("--inbound-tunnel-port 0: it", 'T: "0": it'),
    ("(--inbound-tunnel-port)", "(T)"), ("--istio-service-cidr 10.0.0.0/8,fd00::/8, as", 'S: "10.0.0.0/8,fd00::/8", as'),
    ("--istio-service-cidr '*'; remove", 'S: "*"; remove'), ("--istio-service-cidr=*,", 'S: "*",'),
])  # fmt: skip
def test_the_punctuation_of_a_sentence_is_no_part_of_a_value(text, written):
    assert translate(text, {"tunnel_port": "T", "outbound_cidrs": "S"}) == written


def test_lint_names_the_annotation_of_an_option_without_effect(run, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD.replace("ANNOTATIONS", f'{INCLUDED}, traffic.sidecar.istio.io/excludeOutboundIPRanges: "192.168.0.0/16"'))
    out = run(["netinit", "lint", f"{tmp_path}/pod.yaml"]).out
    assert f"{TRAFFIC}/excludeOutboundIPRanges: 192.168.0.0/16: no packet is treated differently without it: nothing in {TRAFFIC}/includeOutboundIPRanges is" in out
    assert "--" not in out


def test_what_the_template_writes_for_a_plugin_is_not_taken_for_the_authors(run, tmp_path):
    """With the CNI plugin, injection itself writes the traffic annotations into the pod."""
    (tmp_path / "pod.yaml").write_text(POD.replace("ANNOTATIONS", "a: b"))
    (tmp_path / "values.yaml").write_text(f"{VALUES}\nistio_cni: {{enabled: true}}\n")
    done = run(["netinit", "explain", "--pod", f"{tmp_path}/pod.yaml", "--valuesFile", f"{tmp_path}/values.yaml", "--to", "10.2.3.4:5433"])
    assert "(value global.proxy.excludeOutboundPorts)" in done.out, done.out + done.err


def test_warnings_about_a_pods_options_name_its_annotations(run, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD.replace("ANNOTATIONS", "a: b") + 'status: {podIPs: [{ip: 10.0.0.9}, {ip: "fd00::9"}]}\n')
    done = run(["netinit", "explain", "--pod", f"{tmp_path}/pod.yaml", "--to", "10.2.3.4:80"])
    assert 'annotation netinit.io/ipv6: "on", so that the proxy gets it' in done.err
    assert "--" not in done.err
