"""`netinit explain`, `lint` and `draw` as command lines: what is refused, what a pod's manifest says."""

from __future__ import annotations

import json

import pytest

from sweeps import choose

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: shop
  annotations:
    traffic.sidecar.istio.io/excludeOutboundIPRanges: 10.0.0.0/8
    traffic.sidecar.istio.io/includeInboundPorts: "80"
spec:
  initContainers:
  - name: istio-init
    args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, 10.0.0.0/8, -b, "80"]
  containers:
  - name: app
status:
  podIP: 10.44.0.9
  podIPs: [{ip: 10.44.0.9}]
"""


@pytest.mark.parametrize("line", ["netinit explain --{}", "netinit explain --{}=1", "netinit explain --color={}", "netinit {}"])
def test_a_word_without_an_end_is_shortened_where_an_error_names_it(run, line):
    done = run(line.format("long" * 9999))
    assert (done.code, "longlong" in done.err, len(done.err) < 2000) == (2, True, True), done.err


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("explain", "--to: the destination is missing"),
        ("explain --to fd00::1:443", "is 443 the port? write [fd00::1]:443"),
        ("explain --to example.com:443", "rules know no names: give its address"),
        ("audit --assert captured", 'a sentence has the word "is"'),
        ("trace --timeout soon", "use 5, 0.5, 5s or 1m30s"),
        ("trace --timeout -1 --to 1.2.3.4:80", "--timeout: '-1' is not a time"),
        ("watch --interval nan", "use 5, 0.5, 5s or 1m30s"),
        ("explain --to 1.2.3.4", "--to-port: the port is missing"),
        ("explain --to 1.2.3.4:0", "--to: '1.2.3.4:0' is not a port"),
        ("explain --to nobody:80", "--to: 'nobody:80' is not an IP address"),
        ("explain --to [::1:80", "--to: '[::1:80' is not an endpoint"),
        ("explain --to-port 80 outbound", "--to: the destination is missing"),
        ("explain --to 1.2.3.4:80 --from ::1", "--from: '::1' is not of the address family"),
        ("explain --to 1.2.3.4:80 --uid nobody-at-all", "--uid: 'nobody-at-all' is not a user"),
        ("explain --to 1.2.3.4:80 --pod /no/such/file", "--pod: '/no/such/file' does not exist"),
        ("explain --to 1.2.3.4:80 --select web", "--select: names a pod of --pod"),
        ("explain --to 1.2.3.4:80 --to-port 90", "--to-port: '90' contradicts --to '1.2.3.4:80'"),
        ("draw outbound -b *", "outbound: needs a connection"),
        ("lint --select web", "--select: names a pod of --pod"),
        ("explain sideways --to 1.2.3.4:80", "'sideways' is not one of"),
        ("explain --from 9.9.9.9 --to-port 80 --interface a/b", "--interface: 'a/b' is not an interface name"),
        ("draw --to [::1]:80 --family ipv4", "--family: the connection in question is IPv6"),
        ("draw --format gif", "'gif' is not one of"),
        ("lint -b 0", "-b: '0' is not a port"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_says_what_is_missing(run, line, complaint):
    done = run(f"netinit {line}")
    assert done.code == 2
    assert any(complaint in error for error in done.errors), done.err


def test_a_pod_s_own_options_answer_and_its_annotations_are_named(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    done = run(f"netinit explain --to 10.1.2.3:443 --pod {file}")
    assert done.out.splitlines()[0] == (
        "direct: goes out to 10.1.2.3:443 through eth0, because these networks are not captured "
        "(annotation traffic.sidecar.istio.io/excludeOutboundIPRanges)"
    )
    told = json.loads(run(f"netinit explain --from 9.9.9.9 --to-port 80 --pod {file} --json").out)
    assert (told["verdict"], told["original_destination"]) == ("captured", "10.44.0.9:80")
    assert told["path"][-1]["origin"] == "--inbound-capture-port"
    assert "annotation traffic.sidecar.istio.io/includeInboundPorts" in [step["origin"] for step in told["path"]]


@pytest.mark.parametrize(
    ("first", "second", "extra", "verdict"),
    [
        ("10.44.0.9", "fd00::9", "", "direct"),
        ("fd00::9", "10.44.0.9", "", "captured"),
        ("10.44.0.9", "fd00::9", ", --dual-stack", "captured"),
        ("10.44.0.9", "fd00::9", ", --native-nftables", "captured"),
        ("10.44.0.9", "fd00::9", ", --ipv6=reject", "dropped"),
        ("10.44.0.9", "fd00::9", ", --ipv6=off, --native-nftables", "direct"),
    ],
)
def test_ipv6_of_a_manifest_s_pod_is_decided_by_its_first_address_as_apply_does(run, tmp_path, first, second, extra, verdict):
    text = POD.replace("podIPs: [{ip: 10.44.0.9}]", f"podIPs: [{{ip: {first}}}, {{ip: '{second}'}}]".replace("{ip: fd00::9}", "{ip: 'fd00::9'}"))
    path = tmp_path / "pod.yaml"
    path.write_text(text.replace('-b, "80"]', f'-b, "80"{extra}]'))
    for words in ("--to [2001:db8::7]:443", "--from fd00::7 --to-port 80"):
        done = run(f"netinit explain --pod {path} {words}")
        assert done.out.startswith(f"{verdict}: "), done.out + done.err
        told = "the pod's first address is IPv4, and fd00::9 is here too" in done.err
        assert told == (first == "10.44.0.9" and extra in {"", ", --native-nftables"}), done.err
    assert ("warning NI203: --ipv6: IPv6 is not captured" in run(f"netinit lint --pod {path}").out) == told
    assert run(f"netinit audit --pod {path} --fail-on bypass:ipv6").code == (4 if verdict == "direct" else 0)


DEPENDS = "depends on the pod's addresses (--ipv6 auto): captured where the first is IPv6, direct where it is IPv4"
IPV4_FIRST = "where the pod's first address is IPv4 (--ipv6 auto)"
CAPTURED_OUT = "tcp not by proxy not to pod is captured"


def test_ipv6_auto_is_answered_for_both_cases_where_no_address_is_known(run):
    rules = ["-b", "*", "-i", "*"]
    for words in (["--to", "[2a00::1]:443"], ["--from", "2a00::1", "--to-port", "80"]):
        done = run(["netinit", "explain", *rules, *words])
        assert done.out.splitlines()[0] == f"unknown: {DEPENDS}"
        assert "--ipv6 on: captured" in done.out
    assert run(["netinit", "explain", *rules, "--to", "1.2.3.4:443"]).out.startswith("captured: ")
    for family, code in (("ipv4 ", 0), ("ipv6 ", 4), ("", 4)):
        done = run(["netinit", "audit", *rules, "--all", "--fail-on", "bypass:ipv6", "--assert", f"outbound {family}{CAPTURED_OUT}"])
        assert (done.code, DEPENDS in done.out) == (code, bool(code)), done.out
        assert f"because: no rule captures IPv6, {IPV4_FIRST}" in done.out
    for decided in (["--ipv6", "on"], ["--dual-stack"], ["--pod-ip", "10.1.1.1"], ["--pod-ip", "fd00::7"]):
        done = run(["netinit", "audit", *rules, *decided, "--assert", f"outbound {CAPTURED_OUT}", "--fail-on", "bypass:ipv6"])
        assert (done.code, IPV4_FIRST in done.out) == (0, False), done.out


def test_an_assertion_holds_or_is_refuted_where_the_pod_s_addresses_make_no_difference(run):
    rules = ["audit", "-b", "*", "-i", "*", "-o", "99"]
    for assertion, ruling in (
        ("outbound ipv6 tcp not by proxy is captured or direct or dropped", "proved"),
        ("outbound ipv6 tcp port 99 not by proxy not to pod is captured", "refuted"),
        ("outbound ipv6 tcp port 99 not by proxy not to pod is direct", "proved"),
        ("outbound tcp port 99 not by proxy not to pod is captured", "refuted"),
        ("outbound ipv6 tcp port 98 not by proxy not to pod is direct", "unknown"),
    ):
        done = run(["netinit", *rules, "--assert", assertion])
        assert f"{ruling}: {assertion}" in done.out, done.out


def test_diff_compares_both_cases_of_ipv6_auto(run):
    done = run(["netinit", "diff", "apply -b * -i *", "apply -b * -i * --dual-stack"])
    assert done.code == 3
    assert next(line for line in done.out.splitlines() if line.startswith("  IPv6: TCP outbound")).endswith(f", {IPV4_FIRST}")
    assert "IPv4: " not in done.out
    assert run(["netinit", "diff", "apply -b * -i *", "apply -i * -b *"]).code == 0
    done = run(["netinit", "diff", "apply -b * -i *", "apply -b * -i * --ipv6 on"])
    assert IPV4_FIRST in done.out
    done = run(["netinit", "diff", "apply -b * -i * --ipv6 off", "apply -b * -i *"])
    assert (done.code, IPV4_FIRST in done.out) == (3, False)  # it differs where the first address is IPv6


def test_a_pod_with_a_proxy_and_no_init_container_is_read_as_the_cni_plugin_reads_it(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(POD.replace("istio-init", "migrate").replace("istio-iptables", "sh").replace("- name: app", "- name: app\n  - name: istio-proxy\n    image: docker.io/istio/proxyv2:1.27.0"))
    done = run(f"netinit explain --from 9.9.9.9 --to-port 81 --pod {file}")
    assert done.out.startswith("direct: arrives at port 81 as it is")
    assert "no init container of a mesh" in done.err
    assert run(f"netinit explain --from 9.9.9.9 --to-port 80 --pod {file}").out.startswith("captured")


def test_a_deployment_in_a_list_as_json_will_do(run, tmp_path):
    template = {"spec": {"initContainers": [{"name": "istio-init", "args": ["-i", "*"]}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment]}))
    assert run(f"netinit explain --to 1.2.3.4:80 --pod {file}").out.startswith("captured")
    file.write_text("kind: ConfigMap")
    refused = run(f"netinit explain --to 1.2.3.4:80 --pod {file}")
    assert (refused.code, "no pod, and nothing that makes pods" in refused.err) == (1, True)


def test_lint_ends_with_1_for_errors_and_with_0_for_warnings_unless_strict(run):
    assert run("netinit lint -i * -b * -d 15090,15021,15020").out == "no problems found\n"
    assert run("netinit lint -b 80 -d 81").code == 0
    assert run("netinit lint -b 80 -d 81 --strict").code == 1
    done = run("netinit lint -b 15006 --json")
    assert done.code == 1
    assert {one["code"] for one in json.loads(done.out)["findings"]} == {"NI006"}


def test_draw_puts_the_sentence_above_the_picture(run):
    done = run("netinit draw -i * --to 1.2.3.4:80 --table nat")
    assert done.code == 0
    assert done.out.startswith("captured: goes to the proxy on 15001")


@pytest.mark.parametrize(("line", "drawn", "others"), [
    ("-i * -b *", ["nat"], "filter"),
    ("-i * -b * --to 1.2.3.4:80", ["nat"], "filter"),
    ("-i * -b * -m TPROXY --from 10.0.0.9 --to-port 80", ["mangle", "nat"], "filter"),
    ("-i * -b * --table filter", ["filter"], ""),
    ("-i * -b * --table all", ["nat", "filter"], ""),
])  # fmt: skip
def test_draw_shows_the_tables_that_decide_and_names_the_others(run, line, drawn, others):
    printed = run(f"netinit draw --ipv6 off {line}").out.splitlines()
    assert [text.removeprefix("table ") for text in printed if text.startswith("table ")] == drawn
    title = next(text for text in printed if text.startswith("IPv4 rules"))
    assert title == "IPv4 rules, as the options plan them" + (f"; --table all also draws {others}" if others else "")


PODS = """
apiVersion: v1
kind: Pod
metadata: {name: good}
spec:
  initContainers:
  - {name: istio-init, args: [istio-iptables, -i, "*", -b, "*", -d, "15090,15021,15020"], securityContext: {capabilities: {add: [NET_ADMIN]}}}
  containers: [{name: app}]
---
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  initContainers:
  - {name: istio-init, args: [istio-iptables, -b, "80,15090", -d, "8080", -i, "*"]}
  - {name: late}
  containers: [{name: app, securityContext: {runAsUser: 1337}}, {name: istio-proxy}]
---
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  hostNetwork: true
  initContainers: [{name: istio-init, args: [istio-iptables, -i, "*"]}]
  containers: [{name: app}]
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: nginx}]}
"""


@pytest.fixture
def pods(tmp_path):
    file = tmp_path / "pods.yaml"
    file.write_text(PODS)
    return file


def test_lint_looks_at_every_pod_and_at_the_pod_itself(run, pods):
    done = run(f"netinit lint --pod {pods} --json")
    assert done.code == 1
    found = {(one["pod"].split('"')[1], one["kind"]) for one in json.loads(done.out)["findings"]}
    assert found == {
        ("bad", "missing-capability"), ("bad", "no-network"), ("bad", "proxy-owner"), ("bad", "no-effect"), ("bad", "health-ports"),
        ("host", "host-network"), ("plain", "no-init-container"),
    }  # fmt: skip
    told = run(f"netinit lint --pod {pods}").out.splitlines()
    assert told[-1] == "3 errors, 4 warnings in 4 pods; netinit help CODE explains them"
    assert not any("good" in line for line in told)
    assert not any(": : " in line for line in told), "a finding about the pod as a whole names no part of it"


def test_an_answer_from_options_alone_is_about_no_pod(run):
    assert json.loads(run("netinit explain -b * -i * --to 1.2.3.4:80 --json").out)["pod"] == ""


def test_lint_of_one_pod_among_several(run, pods):
    assert run(f"netinit lint --pod {pods} --select good").out == "no problems found in 1 pod\n"
    assert run(f"netinit lint --pod {pods} --select host").code == 1
    assert "nobody" in run(f"netinit lint --pod {pods} --select nobody").err


def test_a_connection_is_answered_for_every_pod_and_one_can_be_chosen(run, pods):
    done = run(f"netinit explain --to 1.2.3.4:80 --pod {pods}")
    heads = [line for line in done.out.splitlines() if line.startswith(("Pod ", "captured", "direct", "unknown"))]
    assert (done.code, [line.partition(":")[0] for line in heads]) == (0, [
        'Pod "good"', "captured", 'Pod "bad"', "direct", 'Pod "host"', "direct", 'Pod "plain"', "unknown",
    ])  # fmt: skip
    answers = json.loads(run(f"netinit explain --to 1.2.3.4:80 --pod {pods} --json").out)
    others = [(one["pod"], one["verdict"]) for one in answers["others"]]
    assert [(answers["pod"], answers["verdict"]), *others] == [
        ('Pod "good"', "captured"), ('Pod "bad"', "direct"), ('Pod "host"', "direct"), ('Pod "plain"', "unknown"),
    ]  # fmt: skip
    assert run(f"netinit explain --to 1.2.3.4:80 --pod {pods} --select good").out.startswith("captured")


@pytest.fixture
def repository(pods):
    """A folder with the four pods in one file, the same four in a folder below, and an object that makes no pods."""
    below = pods.parent / "below"
    below.mkdir()
    (below / "more.yml").write_text(PODS)
    (pods.parent / "config.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")
    return pods.parent


FILES = ["--pod {0} --pod {1}", "--pod {2}", "--pod {2}/**/*.y*ml"]


@pytest.mark.parametrize("words", FILES)
def test_a_connection_is_answered_for_every_pod_of_every_file(run, repository, words):
    words = words.format(repository / "pods.yaml", repository / "below" / "more.yml", repository)
    answers = json.loads(run(f"netinit explain --to 1.2.3.4:80 {words} --json").out)
    assert 1 + len(answers["others"]) == 8
    for one_alone in ("verify --netns shop", "draw", "explain --to 1.2.3.4:80 --netns shop"):
        done = run(f"netinit {one_alone} {words}")
        assert (done.code, "8 pods are in" in done.err, "choose one with --select" in done.err) == (2, True, True), done


@pytest.mark.parametrize("words", choose(["{2}"], [*FILES, "{0} {1}", "{2}"]))
def test_every_pod_of_every_file_is_looked_at(run, repository, words):
    words = words.format(repository / "pods.yaml", repository / "below" / "more.yml", repository)
    linted = run(f"netinit lint {words}")
    passed = "; no pod in 1 file" if words.endswith(str(repository)) or "*" in words else ""
    assert (linted.code, linted.out.splitlines()[-1]) == (1, f"6 errors, 7 warnings in 8 pods{passed}; netinit help CODE explains them")
    audited = json.loads(run(f"netinit audit {words} --json").out)
    assert len(audited["pods"]) == 8, "pods of one name in two files are two"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("lint {0}/config.yaml --require-pods", "no pod, and nothing that makes pods"),
        ("explain --to 1.2.3.4:80 --pod {0}/config.yaml", "--pod: no pod, and nothing that makes pods"),
        ("lint --pod {0}/*.json", "no file matches"),
        ("lint - --pod -", "netinit: '-' is given twice"),
        ("lint nofile.yaml", "netinit: 'nofile.yaml' does not exist"),
        ("audit nofile.yaml", "netinit: 'nofile.yaml' does not exist"),
        ("explain --to 1.2.3.4:80 --to 1.2.3.5:80", "--to: is given twice"),
        ("verify --pod {0}", "choose one with --select"),
        ("lint --netns shop -b 80", "--netns: lint ignores it; remove it"),
        ("audit --pod {0} -b 80", "-b: the pod of --pod has its own options"),
    ],
)
def test_nothing_that_is_given_is_dropped_in_silence(run, repository, line, complaint):
    done = run(f"netinit {line.format(repository)}")
    assert (done.code in {1, 2}, complaint in done.err) == (True, True), done


@pytest.mark.parametrize(("name", "verdict", "reason"), [
    ("host", "direct: goes out to 1.2.3.4:80", 'warning: Pod "host": hostNetwork: true'),
    ("plain", "unknown: it is not known whether the pod is injected", 'note: Pod "plain": it is not known whether'),
])  # fmt: skip
def test_no_connection_of_a_pod_without_interception_is_called_captured(run, pods, name, verdict, reason):
    done = run(f"netinit explain --to 1.2.3.4:80 --pod {pods} --select {name}")
    assert done.out.startswith(verdict)
    assert reason in done.err


RESOLV_CONF = "nameserver 10.255.255.53\n"


def test_the_name_servers_are_those_that_apply_would_find(run, monkeypatch):
    monkeypatch.setattr("netinit.kernel.detect.read_resolv_conf", lambda: RESOLV_CONF)
    line = "-i * -b * -d 15090,15021,15020 --redirect-dns"
    assert run(f"netinit lint {line}").out == "no problems found\n"
    asked = run(f"netinit explain {line} --to 10.255.255.53:53 --udp")
    assert asked.out.startswith("captured: goes to the proxy's resolver on 15053")
    assert "10.255.255.53/32" in run(f"netinit draw {line}").out
    monkeypatch.setattr("netinit.kernel.detect.read_resolv_conf", lambda: "")
    assert "no name server in /etc/resolv.conf or --dns-servers" in run(f"netinit lint {line}").out


def test_the_name_servers_of_a_manifest_s_pod_are_not_those_of_this_machine(run, monkeypatch, tmp_path):
    monkeypatch.setattr("netinit.kernel.detect.read_resolv_conf", lambda: RESOLV_CONF)
    file = tmp_path / "pod.yaml"
    file.write_text(POD.replace('-p, "15001"', "--redirect-dns"))
    asked = run(f"netinit explain --to 10.255.255.53:53 --udp --pod {file}")
    assert asked.out.startswith("direct")
    assert "name them with --dns-servers" in asked.err
    assert "name them with --dns-servers" in run(f"netinit lint --pod {file}").out
    known = run(f"netinit explain --to 10.255.255.53:53 --udp --pod {file} --dns-servers 10.255.255.53")
    assert known.out.startswith("captured: goes to the proxy's resolver")


DNS_CONFIG = POD.replace('-p, "15001"', "--redirect-dns").replace("spec:\n", "spec:\n  dnsPolicy: POLICY\n  dnsConfig: {nameservers: [10.9.9.9, typo]}\n", 1)


def test_the_name_servers_of_a_pod_s_dns_config_are_its_own(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(DNS_CONFIG.replace("POLICY", "None"))
    linted = run(f"netinit lint --pod {file}").out
    assert "--redirect-dns" not in linted, linted
    asked = run(f"netinit explain --to 10.9.9.9:53 --udp --pod {file}")
    assert asked.out.startswith("captured: goes to the proxy's resolver on 15053")
    assert "name all with --dns-servers" not in asked.err


def test_a_dns_config_adds_to_servers_that_only_the_cluster_knows(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(DNS_CONFIG.replace("POLICY", "ClusterFirst"))
    for line in ("lint", "explain --to 10.9.9.9:53 --udp"):
        done = run(f"netinit {line} --pod {file}")
        assert "the cluster's name servers, which its pods ask first, are not in the manifest" in done.out + done.err
    assert done.out.startswith("captured: goes to the proxy's resolver on 15053")
    whole = run(f"netinit lint --pod {file} --dns-servers 10.96.0.10,10.9.9.9").out
    assert "--redirect-dns" not in whole, whole


def test_an_ipv6_server_of_a_dns_config_that_rules_for_ipv4_alone_miss_is_found(run, tmp_path):
    file = tmp_path / "pod.yaml"
    text = DNS_CONFIG.replace("POLICY", "None").replace("10.9.9.9, typo", '"fd00::53"').replace("--redirect-dns", "--redirect-dns, --ipv6, 'off'")
    file.write_text(text)
    assert "IPv6 servers have no effect, since IPv6 is off" in run(f"netinit lint --pod {file}").out


def test_a_change_names_the_option_that_it_requires_too(run):
    asked = run("netinit explain -i * -b * --to 10.1.2.3:53 --udp --dns-servers 9.9.9.9")
    changes = asked.out.partition("what would change it:\n")[2].splitlines()
    assert "  --redirect-dns --capture-all-dns: captured" in changes


def test_old_conntrack_entries_are_closed_by_rules_of_ours(run):
    asked = run("netinit explain -i * -b * --istio-exact --to 10.1.2.3:443")
    assert "on a conntrack entry that another connection left; to close it: netinit apply --reconcile, without --istio-exact" in asked.err


def test_warnings_for_people_are_no_log_lines(run):
    done = run("netinit explain --to 10.255.255.53:53 --udp --redirect-dns --dns-servers 1.2.3.4 -b 80 --log_as_json")
    assert "\t" not in done.err
    assert not done.err.startswith("{")


SHARED = """
apiVersion: v1
kind: Pod
metadata: {name: out}
spec:
  initContainers:
  - name: istio-init
    image: i
    args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, "", -b, "*", -d, "15090,15021,15020"]
    securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}}
  containers:
  - {name: istio-proxy, image: p, securityContext: {runAsUser: 1337, runAsGroup: 1337}}
  - {name: app, image: a, securityContext: {runAsUser: 1337, runAsGroup: 5}}
  - {name: web, image: a, securityContext: {runAsUser: 2000}}
  - {name: side, image: a, securityContext: {runAsUser: 3000}}
"""


@pytest.fixture
def shared(tmp_path):
    """A pod with a container that runs as the proxy's user, and two that do not."""
    file = tmp_path / "out.yaml"
    file.write_text(SHARED)
    return file


def test_explain_asks_for_the_users_of_the_pods_own_containers(run, shared):
    line = f"netinit explain --pod {shared} --to 10.2.3.4:5432"
    first = json.loads(run(f"{line} --json").out)
    (other,) = first["others"]
    assert [(one["containers"], one["verdict"], one["packet"]["uid"]) for one in (first, other)] == [
        (["app"], "direct", 1337), (["web", "side"], "captured", 2000),
    ]  # fmt: skip
    shown = run(line).out.splitlines()
    assert [line for line in shown if line.startswith("container")] == ['container "app":', 'containers "web", "side":']
    assert json.loads(run(f"{line} --uid 2000 --json").out)["others"] == [], "whoever names a user asks about him alone"


def test_a_container_that_runs_as_the_proxy_is_a_bypass_by_configuration(run, shared):
    done = run(f"netinit audit {shared} --fail-on bypass:shared-owner --json")
    (row,) = [one for one in json.loads(done.out)["pods"][0]["traffic"] if one["kind"] == "shared-owner"]
    assert (done.code, row["by"], row["closes"]) == (4, "configuration", 'choose another runAsUser for "app"')
    shared.write_text(SHARED.replace("{runAsUser: 1337, runAsGroup: 5}", "{runAsUser: 2001}"))
    assert run(f"netinit audit {shared} --fail-on bypass:shared-owner").code == 0


MISTAKEN = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "5432"}, labels: {sidecar.istio.io/inject: "true"}}
spec:
  template:
    metadata:
      annotations: {Traffic.sidecar.istio.io/excludeInboundPorts: "1", traffic.example.org/includeOutboundPorts: "2", example.org/own: x}
    spec: {containers: [{name: c, image: i}]}
"""


@pytest.mark.parametrize("line", ["lint {}", "explain --to 10.2.3.4:80 --pod {}", "check-inject -f {}", "inject -f {}"])
def test_misspelt_and_misplaced_annotations_are_named_by_every_command(run, tmp_path, line):
    file = tmp_path / "shop.yaml"
    file.write_text(MISTAKEN)
    done = run(f"netinit {line.format(file)}")
    shown = done.err + done.out
    for sentence in (
        'annotation "Traffic.sidecar.istio.io/excludeInboundPorts" has no effect: nothing reads it; did you mean traffic.sidecar.istio.io/',
        'annotation "traffic.example.org/includeOutboundPorts" has no effect: nothing reads it; did you mean traffic.sidecar.istio.io/',
        'annotation "traffic.sidecar.istio.io/excludeOutboundPorts" of the Deployment has no effect: only the pod\'s own are read; move it to',
        'label "sidecar.istio.io/inject" of the Deployment has no effect: only the pod\'s own are read; move it to spec.template.metadata.labels',
    ):
        assert sentence in shown
    assert 'annotation "example.org/own"' not in shown, "others' annotations are none of ours"
