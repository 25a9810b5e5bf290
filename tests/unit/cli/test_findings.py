"""Findings of lint and audit for pipelines: their codes, what is accepted, and the formats."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import netinit

PACKAGE = Path(netinit.__file__).parent
SCHEMA = json.loads((PACKAGE / "data" / "findings.schema.json").read_text())
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: "a%b,c:d", annotations: {{traffic.sidecar.istio.io/excludeInboundPort: "80"{more}}}}}
spec: {{containers: [{{name: app, image: i}}]}}
"""


@pytest.fixture
def pod(tmp_path):
    """A file with a pod that has two findings, NI102 and NI106."""
    file = tmp_path / "pod.yaml"
    file.write_text(POD.format(more=""))
    return file


def test_findings_are_an_object_that_the_schema_describes(run, pod):
    found = json.loads(run(f"netinit lint {pod} --json").out)
    Draft202012Validator(SCHEMA).validate(found)
    page = f"https://netinit.io/docs/{netinit.__version__}/findings.html"
    assert [(one["code"], one["file"], one["line"], one["column"], one["page"]) for one in found["findings"]] == [
        ("NI106", str(pod), 4, 43, f"{page}#ni106"), ("NI102", str(pod), 4, 12, f"{page}#ni102"),
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["lint", "audit"])
def test_sarif_names_rule_file_and_pod(run, pod, command):
    (sarif,) = json.loads(run(f"netinit {command} {pod} --format sarif").out)["runs"]
    rules = {one["id"] for one in sarif["tool"]["driver"]["rules"]}
    assert sarif["results"]
    for one in sarif["results"]:
        (place,) = one["locations"]
        assert (one["ruleId"] in rules, one["level"]) == (True, "warning")
        assert place["physicalLocation"]["artifactLocation"]["uri"] == str(pod)
        assert place["physicalLocation"]["region"] == {"startLine": 4, "startColumn": 43 if one["ruleId"] == "NI106" else 12}
        assert place["logicalLocations"] == [{"fullyQualifiedName": 'Pod "a%b,c:d"'}]


def test_junit_has_a_case_for_each_pod_and_a_failure_for_each_finding(run, pod, tmp_path):
    (tmp_path / "good.yaml").write_text(POD.format(more="").replace("a%b,c:d", "good & <other>").replace("traffic.sidecar.istio.io/excl", "x/excl"))
    suite = ET.fromstring(run(f"netinit lint {tmp_path} --ignore NI102 --format junit").out)
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failures = {case.get("name"): [one.get("type") for one in case.findall("failure")] for case in suite}
    assert failures == {'Pod "a%b,c:d"': ["NI106"], 'Pod "good & <other>"': []}
    assert {(case.tail or "").strip() for case in suite} == {""}


def test_a_workflow_command_cannot_be_broken_by_a_name(run, pod):
    first, *_ = run(f"netinit lint {pod} --format github").out.splitlines()
    assert first.startswith(f'::warning file={pod},line=4,col=43,title=NI106 unknown-annotation::Pod "a%25b,c:d": ')


def test_a_workflow_command_names_a_file_only_where_there_is_one(run):
    done = run("netinit audit -i * -b * -x 10.0.0.0/8 --format github")
    assert "file=" not in done.out
    assert "::warning title=NI209 " in done.out


def test_what_is_accepted_does_not_count_and_stays_with_its_reason(run, pod, tmp_path):
    assert run(f"netinit lint {pod} --strict").code == 1
    assert run(f"netinit lint {pod} --strict --ignore NI102").code == 1
    done = run(f"netinit lint {pod} --strict --ignore NI102 --ignore ni106")
    assert (done.code, done.out) == (0, "no problems found in 1 pod, 2 accepted\n")
    file = tmp_path / "accepted.txt"
    file.write_text("NI102: the plugin does it\nNI106: an old name\n")
    found = json.loads(run(f"netinit lint {pod} --strict --ignore-file {file} --json").out)["findings"]
    assert [one["accepted"] for one in found] == ["an old name", "the plugin does it"]
    pod.write_text(POD.format(more=', netinit.io/accepted-findings: "NI102 = the plugin; NI106 = an old name"'))
    assert run(f"netinit lint {pod} --strict").code == 0
    (sarif,) = json.loads(run(f"netinit lint {pod} --format sarif").out)["runs"]
    assert [one["suppressions"][0]["justification"] for one in sarif["results"]] == ["an old name", "the plugin"]


def test_a_bypass_that_is_accepted_does_not_fail(run, pod):
    line = f"netinit audit {pod} --fail-on bypass --assume none"
    assert (run(line).code, run(f"{line} --ignore NI205").code) == (4, 0)


@pytest.mark.parametrize(
    ("words", "text", "complaint"),
    [
        ("--ignore NI999", "", "--ignore: 'NI999' is not a finding's code"),
        ("--ignore-file {}", "NI102:", "--ignore-file: 'NI102' has no reason"),
        ("--ignore-file {}", "[NI102]", "is not a mapping; write `CODE: reason`"),
        ("--ignore-file {}", "all: of them", "'all' is not a finding's code"),
    ],
)
def test_nothing_is_accepted_without_a_code_and_a_reason(run, pod, tmp_path, words, text, complaint):
    file = tmp_path / "accepted.txt"
    file.write_text(text)
    done = run(f"netinit lint {pod} {words.format(file)}")
    assert (done.code, complaint in done.err) == (2, True), done


def test_an_annotation_that_accepts_without_a_reason_is_refused(run, pod):
    pod.write_text(POD.format(more=', netinit.io/accepted-findings: "NI102"'))
    done = run(f"netinit lint {pod}")
    said = "error NI112: annotation netinit.io/accepted-findings: must be codes of findings with a reason each"
    assert (done.code, said in done.out) == (1, True), done
