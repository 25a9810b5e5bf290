"""`netinit lint` as a command line: its whole output, its exit codes, --minimal."""

from __future__ import annotations

import json

import pytest

PODS = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: one, annotations: {netinit.io/accepted-findings: "NI104 = the cluster grants it"}}
  spec:
    initContainers: [{name: istio-init, args: [istio-iptables, -i, "*", -b, "*", -d, "15090,15021,15020"]}]
    containers: [{name: app}, {name: istio-proxy, image: proxy}]
- apiVersion: v1
  kind: Pod
  metadata: {name: two}
  spec:
    initContainers:
    - name: istio-init
      args: [istio-iptables, -i, "*", -b, "15006"]
      securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}}
    containers: [{name: app}]
- apiVersion: v1
  kind: Pod
  metadata: {name: three}
  spec: {containers: [{name: app}]}
"""
TUNNEL = (
    "warning NI014: --inbound-tunnel-port: 15008 is left to the proxy's tunnel (HBONE), which nothing in the pod's environment "
    "enables: an application that listens there is reached directly; use --inbound-tunnel-port 0, or ISTIO_META_ENABLE_HBONE=true"
)
NO_INIT_CONTAINER = (
    "warning NI102: it is not known whether the pod is injected: it has no label that decides, and its Namespace is not in the "
    "files; give the Namespace too, or --assume injected, cni or none"
)
OWN_PORT = (
    "error NI006: --istio-inbound-ports: 15006 is the proxy's own (--inbound-capture-port): connections to it would be handed to "
    "the proxy a second time; remove it"
)
NOT_EXCLUDED = (
    "warning NI007: --istio-inbound-ports: 15090, 15021, 15020 are captured, where Istio's proxy answers probes and metrics "
    "itself; exclude them with -d 15090,15021,15020"
)
UNNAMED = (
    "warning NI002: --redirect-dns: its name servers are not in the manifest: name them with --dns-servers, DNS counts as not "
    "captured without"
)
NOT_ALL_NAMED = (
    "warning NI011: --redirect-dns: the cluster's name servers, which its pods ask first, are not in the manifest: name all with "
    "--dns-servers"
)
MINIMAL = "--minimal: prints options and no findings; leave out --strict, --ignore…, --format and --json"


@pytest.fixture
def pods(tmp_path):
    file = tmp_path / "pods.yaml"
    file.write_text(PODS)
    return file


def test_the_findings_of_each_pod_are_below_its_name(run, pods):
    done = run(f"netinit lint {pods}")
    assert (done.code, done.err) == (1, "")
    assert done.out == f"""\
Pod "one"
  {pods}:9:22: {TUNNEL}
Pod "two"
  {pods}:17:39: {OWN_PORT}
Pod "three"
  {pods}:22:14: {NO_INIT_CONTAINER}
1 error, 2 warnings in 3 pods, 1 accepted; netinit help CODE explains them
"""


AMBIENT = """
apiVersion: v1
kind: Pod
metadata: {name: quiet, annotations: {ambient.istio.io/redirection: enabled}}
spec: {containers: [{name: app}]}
"""


@pytest.mark.parametrize("words", ["", "--strict"])
def test_what_is_by_design_is_a_note_that_fails_nothing(run, tmp_path, words):
    file = tmp_path / "pod.yaml"
    file.write_text(AMBIENT)
    done = run(f"netinit lint {file} {words}")
    assert done.code == 0
    assert f'  {file}:4:12: note NI109: may keep NET_RAW: "app"; since Linux 5.17 ' in done.out
    assert done.out.endswith("0 errors, 0 warnings, 1 note in 1 pod; netinit help CODE explains them\n")
    done = run(f"netinit audit {file}")
    assert 'note: Pod "quiet": may keep NET_RAW: "app"; ' in done.err


def test_a_container_that_may_change_the_rules_is_a_warning_with_its_name(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(PODS.replace("containers: [{name: app}]", "containers: [{name: app, securityContext: {privileged: true}}]"))
    done = run(f"netinit lint {file} --select two --ignore NI006 --strict")
    assert done.code == 1
    assert done.out.splitlines()[1].startswith(f'  {file}:19:48: warning NI108: container "app" may change the rules: it is privileged; ')


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        ("-b 15006", 1, f"{OWN_PORT}\n1 error, 0 warnings; netinit help CODE explains them\n"),
        ("-b * -i *", 0, f"{NOT_EXCLUDED}\n0 errors, 1 warning; netinit help CODE explains them\n"),
        ("-b * -i * --strict", 1, f"{NOT_EXCLUDED}\n0 errors, 1 warning; netinit help CODE explains them\n"),
        ("-b * -i * --strict --ignore NI007", 0, "no problems found, 1 accepted\n"),
        ("-b 80", 0, "no problems found\n"),
        ("-b 80 --strict", 0, "no problems found\n"),
    ],
)  # fmt: skip
def test_options_alone_are_checked_without_a_pods_name(run, words, code, out):
    done = run(f"netinit lint {words}")
    assert (done.code, done.out, done.err) == (code, out, "")


def test_a_finding_of_a_pod_is_an_object_with_its_pod_file_and_reason(run, pods):
    found = json.loads(run(f"netinit lint {pods} --select one --json").out)["findings"]
    assert [(one["code"], one["pod"], one["file"], one["accepted"]) for one in found] == [
        ("NI104", 'Pod "one"', str(pods), "the cluster grants it"),
        ("NI014", 'Pod "one"', str(pods), None),
    ]  # fmt: skip
    (alone,) = json.loads(run("netinit lint -b 15006 --json").out)["findings"]
    assert (alone["pod"], alone["file"], alone["accepted"]) == (None, None, None)


DNS = """
apiVersion: v1
kind: Pod
metadata: {{name: dns}}
spec:
  {more}
  initContainers:
  - name: istio-init
    args: [istio-iptables, -b, "80", -i, "*", --redirect-dns]
    securityContext: {{capabilities: {{add: [NET_ADMIN, NET_RAW]}}}}
  containers: [{{name: app}}]
"""


@pytest.mark.parametrize(
    ("more", "words", "finding"),
    [
        ("", "", UNNAMED),
        ("dnsConfig: {nameservers: [10.0.0.10]}", "", NOT_ALL_NAMED),
        ("dnsConfig: {nameservers: [10.0.0.10]}\n  dnsPolicy: None", "", ""),
        ("", "--dns-servers 10.0.0.10", ""),
    ],
)
def test_name_servers_that_the_manifest_does_not_name_are_a_problem(run, tmp_path, more, words, finding):
    file = tmp_path / "dns.yaml"
    file.write_text(DNS.format(more=more))
    done = run(f"netinit lint {file} {words}")
    summary = "0 errors, 1 warning in 1 pod; netinit help CODE explains them" if finding else "no problems found in 1 pod"
    assert (done.code, done.out.splitlines()) == (0, [*(['Pod "dns"', f"  {file}:9:47: {finding}"] if finding else []), summary])


def test_minimal_prints_a_line_of_options_for_each_pod_that_programs_rules(run, pods):
    done = run(f"netinit lint --minimal {pods}")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        '# Pod "one"', "netinit apply -b '*' -d 15090,15021,15020 -i '*'", '# Pod "two"', "netinit apply -b 15006 -i '*'",
    ]  # fmt: skip
    assert run("netinit lint --minimal -b 80 -d 81 --ipv6 on").out == "netinit apply -b 80 --ipv6 on\n"


@pytest.mark.parametrize("words", ["--strict", "--ignore NI001", "--json", "--format sarif"])
def test_minimal_has_no_findings_to_judge_or_format(run, words):
    done = run(f"netinit lint --minimal {words}")
    assert (done.code, done.out, done.err) == (2, "", f"netinit: {MINIMAL}\n")


def test_a_stdin_that_is_closed_is_said_to_be(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)  # as Python has it where the shell closed it: netinit lint - <&-
    linted = run("netinit lint -")
    assert (linted.code, "stdin: error NI110: cannot be read: stdin is closed" in linted.out) == (1, True)
    injected = run("netinit inject -f -")
    assert (injected.code, "stdin is closed" in injected.err) == (1, True)


def test_objects_of_a_json_stream_are_checked_where_they_stand(run, tmp_path):
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"hostNetwork": name == "b", "containers": []}} for name in "ab"]
    (tmp_path / "pods.json").write_text("".join(f"{json.dumps(one)}\n" for one in pods))
    found = json.loads(run(f"netinit lint --json --assume injected {tmp_path}/pods.json").out)["findings"]
    assert [(one["code"], one["line"], one["pod"]) for one in found if one["code"] == "NI101"] == [("NI101", 2, 'Pod "b"')]
