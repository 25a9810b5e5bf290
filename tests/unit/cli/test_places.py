"""A finding names the line and the column of the key that it is about, in every format, also where the text is from stdin."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET

import pytest

REPOSITORY = """\
apiVersion: v1
kind: Service
metadata: {name: none}
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: web
    annotations:
      traffic.sidecar.istio.io/excludeOutboundPorts: "5432"
  spec:
    template:
      metadata:
        labels: {sidecar.istio.io/inject: "true"}
        annotations:
          traffic.sidecar.istio.io/excludeOutboundPort: "5432"
          traffic.sidecar.istio.io/excludeOutboundIPRanges: 10.9.0.0/16
          netinit.io/reject-quic: true
      spec:
        containers:
        - name: app
          securityContext:
            runAsUser: 1337
        - name: admin
          securityContext: {privileged: true}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  jobTemplate:
    spec:
      template:
        metadata:
          labels: {sidecar.istio.io/inject: "true"}
          annotations:
            traffic.sidecar.istio.io/excludeOutboundPorts: x
        spec: {containers: [{name: job}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host}
spec:
  containers: [{name: c}]
  hostNetwork: true
---
apiVersion: v1
kind: Pod
metadata:
  name: injected
spec:
  initContainers:
  - name: istio-init
    args:
    - istio-iptables
    - -b
    - "80"
    - --istio-local-exclude-ports=8080
    env:
    - name: INVALID_DROP
      value: "true"
  - name: istio-late
    image: x
  containers:
  - name: app
    image: a
  - name: istio-proxy
    image: p
---
apiVersion: v1
kind: Pod
metadata: {name: wrong}
spec:
  initContainers:
  - name: istio-init
    args: [istio-iptables,
           --envoy-port, x]
  containers: [{name: c}]
"""
PLACES = [  # what lint says, and the text at its place
    ("NI017", "app: container", "runAsUser"), ("NI108", "admin: container", "privileged"), ("NI106", "excludeOutboundPort", "traffic.sidecar.istio.io/excludeOutboundPort:"),
    ("NI107", "excludeOutboundPorts", 'traffic.sidecar.istio.io/excludeOutboundPorts: "5432"'), ("NI112", "netinit.io/reject-quic", "netinit.io/reject-quic"),
    ("NI112", "invalid value 'x'", "traffic.sidecar.istio.io/excludeOutboundPorts: x"), ("NI101", "hostNetwork", "hostNetwork: true"),
    ("NI002", "--istio-local-exclude-ports", "--istio-local-exclude-ports=8080"), ("NI104", "istio-init", "name: istio-init"),
    ("NI103", "arguments", "--envoy-port"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.yaml").write_text(REPOSITORY)
    return tmp_path


@pytest.fixture
def piped(monkeypatch):
    """`piped(text)`: the text is what is read from stdin."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def at(line, column):
    return REPOSITORY.splitlines()[line - 1][column - 1 :]


@pytest.mark.parametrize(("code", "words", "text"), PLACES)
def test_a_finding_stands_where_its_key_is(run, folder, code, words, text):
    found = json.loads(run("netinit lint all.yaml --json").out)["findings"]
    ((line, column),) = {(one["line"], one["column"]) for one in found if one["code"] == code and words in f"{one['option']}: {one['message']}"}
    assert at(line, column).startswith(text)


def test_every_format_has_the_same_places(run, folder):
    found = json.loads(run("netinit lint all.yaml --json").out)["findings"]
    places = sorted((one["line"], one["column"]) for one in found)
    assert len(places) >= len(PLACES)
    text = re.findall(r"^  all\.yaml:(\d+):(\d+): (?:error|warning) NI", run("netinit lint all.yaml").out, re.MULTILINE)
    github = re.findall(r"file=all\.yaml,line=(\d+),col=(\d+),", run("netinit lint all.yaml --format github").out)
    junit = re.findall(r">all\.yaml:(\d+):(\d+): ", run("netinit lint all.yaml --format junit").out)
    (sarif,) = json.loads(run("netinit lint all.yaml --format sarif").out)["runs"]
    regions = [one["locations"][0]["physicalLocation"]["region"] for one in sarif["results"]]
    for numbers in (text, github, junit, [(one["startLine"], one["startColumn"]) for one in regions]):
        assert sorted((int(line), int(column)) for line, column in numbers) == places
    suite = ET.fromstring(run("netinit lint all.yaml --format junit").out)
    assert {case.get("file") for case in suite} == {"all.yaml"}


def test_a_bypass_stands_where_its_option_is_set(run, folder):
    (folder / "web.yaml").write_text(REPOSITORY.partition("---\n")[2].partition("---\n")[0].replace("reject-quic: true", "reject-quic: 'true'"))
    lines = (folder / "web.yaml").read_text().splitlines()
    (pod,) = json.loads(run("netinit audit web.yaml --json").out)["pods"]
    found = {row["kind"]: (row["line"], row["column"]) for row in pod["traffic"]}
    assert pod["file"] == "web.yaml"
    for kind, text in (("network", "traffic.sidecar.istio.io/excludeOutboundIPRanges"), ("shared-owner", "runAsUser"), ("perhaps-ipv6", None)):
        line, column = found[kind]
        assert (line and lines[line - 1][column - 1 :].startswith(text)) or (line, text) == (None, None)
    line, column = found["network"]
    assert f"    at: web.yaml:{line}:{column}\n" in run("netinit audit web.yaml").out
    assert f"file=web.yaml,line={line},col={column},title=NI209" in run("netinit audit web.yaml --format github").out


@pytest.mark.parametrize(("text", "place"), [
    ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n   labels: {}\n", (5, 10)),
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: 5\n", (4, 1)),
    ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Values.name }}\n", (4, 9)),
])  # fmt: skip
def test_what_cannot_be_read_is_where_the_reader_stopped(run, folder, text, place):
    (folder / "all.yaml").write_text(text)
    (found,) = json.loads(run("netinit lint all.yaml --json").out)["findings"]
    assert (found["line"], found["column"]) == place


@pytest.mark.parametrize("form", ["text", "sarif", "github", "junit"])
@pytest.mark.parametrize("command", ["lint", "audit"])
def test_what_is_read_from_stdin_has_the_name_that_is_given(run, piped, command, form):
    piped(REPOSITORY)
    done = run(f"netinit {command} - --stdin-name deploy/all.yaml --format {form}")
    assert "deploy/all.yaml" in done.out
    assert "stdin" not in done.out


def test_an_answer_about_stdin_names_it_as_given(run, piped):
    piped("a: [")
    done = run("netinit explain --pod - --stdin-name deploy/all.yaml --to 10.1.2.3:80")
    assert "deploy/all.yaml:2:1: " in done.err


@pytest.mark.parametrize("command", ["lint", "audit", "explain --to 10.1.2.3:80 --pod"])
def test_a_name_for_stdin_where_nothing_is_read_from_it_is_refused(run, folder, command):
    done = run(f"netinit {command} all.yaml --stdin-name x.yaml")
    assert (done.code, done.out) == (2, "")
    assert "--stdin-name: 'x.yaml' names what is read from stdin; give - for it, or remove it" in done.err


def test_the_name_of_a_file_is_a_reference_in_sarif_whatever_it_holds(run, folder):
    (folder / "all.yaml").rename(folder / "a: 100%#ü.yaml")
    (sarif,) = json.loads(run(["netinit", "lint", "a: 100%#ü.yaml", "--format", "sarif"]).out)["runs"]
    assert {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in sarif["results"]} == {"a%3A%20100%25%23%C3%BC.yaml"}


def test_a_library_user_gets_the_places_too(folder):
    import netinit

    (folder / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  hostNetwork: true\n  containers: []\n")
    assert [(one.line, one.column) for one in netinit.lint(pod="pod.yaml").issues] == [(5, 3)]


def test_every_finding_of_manifests_is_in_a_file_for_code_scanning(run, tmp_path):
    """GitHub refuses a whole SARIF file for one result without a file: "expected artifact location"."""
    file = tmp_path / "web.yaml"
    init = "  initContainers: [{name: istio-init, image: netinit, args: [-b, '*', -i, '*']}]"
    file.write_text(f"kind: Pod\nmetadata: {{name: web}}\nspec:\n{init}\n  containers: [{{name: a, image: i}}, {{name: istio-proxy, image: p}}]\n")
    results = json.loads(run(["netinit", "audit", "--format", "sarif", str(file)]).out)["runs"][0]["results"]
    assert "NI116" in [one["ruleId"] for one in results]
    assert all("physicalLocation" in place for one in results for place in one["locations"])


def test_a_file_that_is_named_twice_is_read_once(run, tmp_path):
    file = tmp_path / "web.yaml"
    file.write_text("kind: Pod\nmetadata: {name: web}\nspec: {hostNetwork: true, containers: [{name: a, image: i}]}\n")
    again = [str(file), f"{tmp_path}/./web.yaml", str(tmp_path), f"{tmp_path}/*.yaml"]
    assert run(["netinit", "lint", str(file)]).out == run(["netinit", "lint", *again]).out
