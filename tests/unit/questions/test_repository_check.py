"""What a check of a repository says of the findings of lint and audit: what fails, each finding once with its pods, and the baseline."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netinit.base.findings import FindingKind
from netinit.inject.deciding.warnings import NOT_PROGRAMMED
from netinit.questions.audit.report import ASSERTION
from netinit.questions.findings import UNCAPTURED_IPV6, Issue, format_issue
from netinit.questions.lint.report import LintReport
from netinit.questions.repository_check import CheckReport, Entry, examine_repository, make_baseline

OF_RULES = FindingKind("NI001", "of-rules", "")
EXPLAINED = "netinit help CODE explains them"


def issue(severity="error", *, kind=OF_RULES, text="it is wrong", pod="", file="", accepted="", line=0):
    return Issue(kind, severity, "", text, pod, file, accepted, line)


def report(*issues, pods=("Pod a", "Pod b"), failing=(), **more):
    return CheckReport(issues, pods, frozenset(failing), **more)


@pytest.mark.parametrize(
    ("found", "failing", "code", "of_strict"),
    [
        ([], [], 0, 0), ([issue("note")], [], 0, 0), ([issue("warning")], [], 0, 1), ([issue()], [], 1, 1), ([issue(accepted="why")], [], 0, 0),
        ([issue("warning", kind=UNCAPTURED_IPV6)], ["ipv6"], 4, 4), ([issue("warning", kind=UNCAPTURED_IPV6)], ["foreign"], 0, 1),
        ([issue(), issue("note", kind=UNCAPTURED_IPV6)], ["ipv6"], 4, 4), ([issue(), issue("note", kind=UNCAPTURED_IPV6, accepted="why")], ["ipv6"], 1, 1),
        ([issue("note", kind=ASSERTION)], [], 4, 4), ([issue("warning", kind=NOT_PROGRAMMED)], [], 0, 1), ([issue("warning", kind=NOT_PROGRAMMED)], ["ipv6"], 4, 4),
    ],
)  # fmt: skip
def test_errors_fail_and_so_does_traffic_that_is_asked_for_and_what_strict_counts(found, failing, code, of_strict):
    assert report(*found, failing=failing).exit_code == code
    assert report(*found, failing=failing, strict=True).exit_code == of_strict


@pytest.mark.parametrize(
    ("found", "more", "lines"),
    [
        ([], {}, ["✔ 2 pods: nothing to act on"]), ([], {"pods": (), "passed": "1 file holds no pods"}, ["✔ no pod: nothing to act on; 1 file holds no pods"]),
        ([issue(accepted="why")], {}, ["✔ 2 pods: nothing to act on, 1 accepted"]),
        ([issue("note")], {"pods": ("Pod a",)}, ["✔ 1 pod: nothing to act on", f"  {EXPLAINED}", "· note NI001: it is wrong"]),
        ([issue("warning")], {}, ["✔ 2 pods: nothing to act on, 1 warning", f"  {EXPLAINED}", "! warning NI001: it is wrong"]),
        ([issue("warning")], {"strict": True}, ["✘ 2 pods: 1 finding to act on", f"  {EXPLAINED}", "✘ warning NI001: it is wrong"]),
        ([issue("note", text="n"), issue("warning", text="w"), issue("warning", text="v"), issue("error", text="e"), issue("note", kind=ASSERTION, text="a"), issue(accepted="why")], {"passed": "and more"},
         ["✘ 2 pods: 2 findings to act on, 2 warnings, 1 accepted; and more", f"  {EXPLAINED}", "✘ error NI001: e", "✘ note NI299: a", "! warning NI001: w", "! warning NI001: v", "· note NI001: n"]),
        ([issue(pod="Pod a", file="a.yaml", line=3)], {}, ["✘ 2 pods: 1 finding to act on", f"  {EXPLAINED}", "✘ a.yaml:3: error NI001: Pod a: it is wrong"]),
        ([issue(file="a.yaml"), issue(file="b.yaml")], {}, ["✘ 2 pods: 2 findings to act on", f"  {EXPLAINED}", "✘ a.yaml: error NI001: it is wrong", "✘ b.yaml: error NI001: it is wrong"]),
        ([issue(pod="Pod a", file="a.yaml", line=3), issue(pod="Pod b", file="b.yaml")], {},
         ["✘ 2 pods: 2 findings to act on", f"  {EXPLAINED}", "✘ error NI001: it is wrong", "    in 2 pods: Pod a, Pod b", "    at: a.yaml:3"]),
        ([issue(pod="Pod a"), issue(pod="Pod b"), issue(pod="Pod a", text="else")], {},
         ["✘ 2 pods: 3 findings to act on", f"  {EXPLAINED}", "✘ error NI001: it is wrong", "    in 2 pods: Pod a, Pod b", "✘ error NI001: Pod a: else"]),
    ],
)  # fmt: skip
def test_a_check_says_first_what_to_act_on_and_each_finding_once(found, more, lines):
    assert report(*found, **more).text.splitlines() == lines


def test_a_check_has_the_findings_of_lint_and_audit_once():
    own, of_files = issue(text="of lint"), issue("warning", text="of both")
    ruling = SimpleNamespace(holds=False, assertion=SimpleNamespace(text="tcp is captured", name="no way out"))
    audited = SimpleNamespace(source=SimpleNamespace(name="Pod a", facts=None), traffic=(), rulings=(ruling,), in_doubt=False, accepted={})
    linted = LintReport((own, of_files), pods=("Pod a",), passed=None)
    found = examine_repository(linted, SimpleNamespace(pods=[audited], issues=[of_files, issue(text="of audit")]), {}, frozenset({"ipv6"}), strict=True)
    assert [format_issue(one) for one in found.issues] == [
        "error NI001: of lint", "warning NI001: of both", "error NI299: Pod a: no way out: refuted: tcp is captured", "error NI001: of audit",
    ]  # fmt: skip
    assert (found.pods, found.failing, found.strict, found.passed, found.notes) == (("Pod a",), {"ipv6"}, True, "", ())
    assert examine_repository(LintReport((), passed="all"), SimpleNamespace(pods=[audited], issues=[]), {"NI299": "why"}, frozenset()) == CheckReport(
        (Issue(ASSERTION, "error", "no way out", "refuted: tcp is captured", "Pod a", "", "why"),),
        (), frozenset(), strict=False, passed="all",
    )  # fmt: skip
    assert found.to_object()["findings"][1] == {
        "code": "NI001", "kind": "of-rules", "severity": "warning", "option": "", "message": "of both", "pod": None, "file": None, "line": None, "column": None,
        "accepted": None, "page": found.to_object()["findings"][1]["page"],
    }  # fmt: skip


def test_a_baseline_is_written_with_what_is_not_accepted_otherwise_and_with_files_that_were_not_read():
    kept = [Entry("", "old", "NI001", "of no file"), Entry("a.yaml", "old", "NI001", "of a"), Entry("gone.yaml", "", "NI001", "of none"), Entry("b.yaml", "", "NI001", "kept")]
    found = report(issue(pod="Pod ü\n", file="/at/a.yaml", line=3), issue("warning", file="/at/c.yaml"), issue("note", text="a note"), issue(accepted="why", text="accepted"), issue())
    written = make_baseline(found, kept, {"/at/a.yaml": "a.yaml"}, ["gone.yaml"])
    head = "# Findings that are accepted for now: `netinit check` fails for others. Delete what is fixed; --write-baseline rewrites the file.\nversion: 1\n"
    assert written == f"""{head}findings:
- code: "NI001"
  text: "it is wrong"
- file: "/at/c.yaml"
  code: "NI001"
  text: "it is wrong"
- file: "a.yaml"
  pod: "Pod ü\\\\n"
  code: "NI001"
  text: "it is wrong"
- file: "b.yaml"
  code: "NI001"
  text: "kept"
"""
    assert make_baseline(report(issue("note")), [], {}, []) == f"{head}findings: []\n"
