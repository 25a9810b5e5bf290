"""`netinit why` on files, and on the file of a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubectl_calls import AGENTS, ASKED, POD, WEB
from schemas import check_schema

FILES = """
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {selector: {app: db}, ports: [{port: 3307, targetPort: 3306, name: db}]}
"""


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "all.yaml"
    path.write_text(FILES)
    return str(path)


def test_the_cause_comes_first_with_its_remedy_and_the_exit_code_is_that_of_a_difference(run, manifest):
    done = run(["netinit", "why", manifest, "--to", "db:3307"])
    assert done.code == 3, done
    assert done.out.startswith('✘ protocol: Service "shop/db": port 3307 has no protocol by name')
    assert done.out.splitlines()[1].startswith("  remedy: set appProtocol: tcp for port 3307 of the Service")


def test_json_has_the_published_form(run, manifest):
    for words in (["--json"], ["--format", "json"]):
        tree = json.loads(run(["netinit", "why", manifest, "--to", "db:3307", *words]).out)
        check_schema(tree, "why")
        assert tree["cause"]["code"] == "NI326"


def test_without_a_cause_the_exit_code_is_zero_and_what_is_not_known_is_named(run, manifest):
    done = run(["netinit", "why", manifest])
    assert (done.code, done.out.splitlines()[0]) == (0, "✔ no cause found: every step is as it should be")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "PATH: is missing"), (["FILE", "--report", "r.md"], "--report: is read alone"), (["--report", "r.md", "--select", "web"], "--select: is about files"),
        (["FILE", "--select", "db"], "no workload"), (["FILE", "--to", "db"], '--to: "db" has no port'), (["FILE", "-b", "80"], "no effect"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_by_its_name(run, manifest, words, told):
    done = run(["netinit", "why", *[manifest if word == "FILE" else word for word in words]])
    assert told in done.err, done


def test_one_of_several_pods_must_be_chosen(run, manifest, tmp_path):
    (tmp_path / "more.yaml").write_text(FILES.split("---")[1].replace("name: web, namespace", "name: api, namespace"))
    done = run(["netinit", "why", str(tmp_path)])
    assert (done.code, "choose one with --select" in done.err) == (2, True), done
    assert run(["netinit", "why", str(tmp_path), "--select", "api"]).code == 0


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(run, tmp_path):
    (tmp_path / "bad.yaml").write_text("a: [")
    done = run(["netinit", "why", str(tmp_path / "bad.yaml")])
    assert (done.code, "bad.yaml" in done.err) == (1, True), done


VERIFY = {"words": f"{ASKED}verify*", "stdout": json.dumps({"code": 3, "answer": "NOT as planned\nmissing nat ISTIO_OUTPUT -j ISTIO_REDIRECT\n", "notes": ""}) + "\n"}
LISTEN = {"words": f"{ASKED}verify*", "stdout": json.dumps({"code": 0, "answer": "as planned: 37 rules\nwarning: nothing listens on 15001 (the proxy is not up): the connection is refused (NI301)\n", "notes": ""}) + "\n"}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n", "the output of iptables-save"),
        ('{"nftables": [{"table": {"family": "ip", "name": "nat", "handle": 1}}]}', "the output of nft -j list"),
    ],
)
def test_a_file_of_rules_is_refused_as_such_with_what_reads_it(run, tmp_path, text, form):
    path = tmp_path / "rules.txt"
    path.write_text(text)
    done = run(["netinit", "why", str(path), "--to", "192.0.2.1:80"])
    assert (done.code, done.err.strip()) == (
        2, f"netinit: {path} holds rules ({form}), and no pod; ask about a connection with netinit explain --rules {path}",
    )  # fmt: skip



@pytest.fixture
def report(kubectl, tmp_path):
    def write(*answers):
        done = kubectl(f"report {WEB} -n shop", {"words": POD, "file": "pod-web.json"}, *AGENTS, *answers)
        path = tmp_path / "report.md"
        path.write_text(done.out)
        return str(path)

    return write


def test_a_report_s_comparison_that_failed_is_the_cause(run, report):
    done = run(["netinit", "why", "--report", report(VERIFY)])
    assert (done.code, done.out.startswith("✘ rules: the live rules are not those that the pod asks for")) == (3, True), done


def test_who_listens_is_read_of_a_report_by_the_finding_s_code(run, report):
    done = run(["netinit", "why", "--report", report(LISTEN), "--json"])
    tree = json.loads(done.out)
    check_schema(tree, "why")
    assert (tree["cause"]["code"], "nothing listens on 15001" in tree["cause"]["text"]) == ("NI301", True), tree


def test_a_finding_about_the_pod_is_read_of_a_report_by_its_code(run, report, tmp_path):
    path = tmp_path / "changed.md"
    written = Path(report())
    lines = written.read_text().replace("## Pod\n", "## Pod\nfinding: container NAME-1 runs as root; choose another (NI017)\nfinding: of another version\n", 1)
    path.write_text(lines)
    assert written.read_text() != lines
    steps = json.loads(run(["netinit", "why", "--report", str(path), "--json"]).out)["steps"]
    found = [(one["outcome"], one["code"], one["text"], one["remedy"]) for one in steps if one["step"] == "manifest"]
    assert found == [("failed", "NI017", "container NAME-1 runs as root", "choose another"), ("failed", None, "of another version", None)]


def test_a_report_s_options_answer_what_is_asked_about_an_address(run, report):
    done = run(["netinit", "why", "--report", report(), "--to", "203.0.113.7:443"])
    assert "rules: to 203.0.113.7:443: captured" in done.out, done
    assert done.out.count("  ? rules: ") == 1, "without a live comparison the rules are not known"
    named = run(["netinit", "why", "--report", report(), "--to", "db:443"])
    assert "a report has no Services" in named.out


def test_another_text_is_no_report(run, tmp_path):
    (tmp_path / "x.md").write_text("# Something\n")
    done = run(["netinit", "why", "--report", str(tmp_path / "x.md")])
    assert (done.code, "is not a report" in done.err) == (1, True), done
