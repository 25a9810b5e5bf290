"""What lint says of options that are handed in, and how a report is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netinit.options import Options
from netinit.options.command_line import write_command
from netinit.questions.findings import UNCAPTURED_IPV6, Issue
from netinit.questions.lint.effect_proof import minimise
from netinit.questions.lint.report import examine_options, lint_options, render_text


@pytest.mark.parametrize(("has_tunnel", "kinds"), [(None, []), (True, []), (False, ["open-tunnel"])])
def test_the_tunnels_port_is_a_problem_where_the_pod_has_none(has_tunnel, kinds):
    options = Options.from_argv(["-i", "*", "-b", "*", "-d", "15090,15021,15020"], {})
    assert [one.kind.name for one in lint_options(options, has_tunnel)] == kinds
    assert has_tunnel is not None or lint_options(options) == ()


def test_ipv6_that_the_first_address_leaves_uncaptured_is_a_problem():
    options = Options.from_argv(["-i", "*", "-b", "80"], {})
    (found,) = lint_options(options, addresses=("10.0.0.1", "fd00::1"))
    assert (found.severity, found.kind.name, found.option) == ("warning", "ipv6", "--ipv6")
    assert "IPv6 is not captured" in found.message
    assert lint_options(options, addresses=("fd00::1", "10.0.0.1")) == ()


def test_pods_of_one_name_in_two_files_are_two_blocks():
    issues = [
        Issue(UNCAPTURED_IPV6, "warning", "--ipv6", "first", "Pod a", "1.yaml"),
        Issue(UNCAPTURED_IPV6, "error", "--ipv6", "second", "Pod a", "1.yaml"),
        Issue(UNCAPTURED_IPV6, "warning", "", "third", "Pod a", "2.yaml"),
        Issue(UNCAPTURED_IPV6, "error", "--ipv6", "fourth", "Pod a", "2.yaml", "a reason"),
    ]  # fmt: skip
    assert render_text(issues, ["Pod a", "Pod a"]).splitlines() == [
        "Pod a", "  warning NI203: --ipv6: first", "  error NI203: --ipv6: second", "Pod a", "  warning NI203: third",
        "1 error, 2 warnings in 2 pods, 1 accepted; netinit help CODE explains them",
    ]  # fmt: skip
    assert render_text([], ["Pod a"]) == "no problems found in 1 pod\n"


OF_FILE = Issue(UNCAPTURED_IPV6, "error", "", "of a file", "", "1.yaml")
NOTED = Issue(UNCAPTURED_IPV6, "note", "", "noted", "", "2.yaml")


@pytest.mark.parametrize(
    ("issues", "pods", "passed", "lines"),
    [
        ([], [""], None, ["no problems found"]), ([], [""], "1 file holds no pods", ["nothing to check: 1 file holds no pods"]), ([], [""], "", ["nothing to check: "]),
        ([], ["Pod a"], "1 file holds no pods", ["no problems found in 1 pod; 1 file holds no pods"]),
        ([OF_FILE], [""], "1 file holds no pods", ["1.yaml: error NI203: of a file", "1 error, 0 warnings; 1 file holds no pods; netinit help CODE explains them"]),
        ([NOTED, OF_FILE], ["Pod a"], None, ["1.yaml: error NI203: of a file", "2.yaml: note NI203: noted", "1 error, 0 warnings, 1 note in 1 pod; netinit help CODE explains them"]),
        ([replace(OF_FILE, accepted="why")], ["Pod a"], None, ["no problems found in 1 pod, 1 accepted"]),
        ([replace(OF_FILE, pod="Pod a", line=3), replace(OF_FILE, pod="Pod a", line=4)], ["Pod a"], None,
         ["Pod a", "  1.yaml:3: error NI203: of a file", "  1.yaml:4: error NI203: of a file", "2 errors, 0 warnings in 1 pod; netinit help CODE explains them"]),
        ([replace(OF_FILE, pod="Pod a", line=3), replace(OF_FILE, pod="Pod b", line=4), replace(OF_FILE, pod="Pod c")], ["Pod a", "Pod b", "Pod c"], None,
         ["3 pods: Pod a, Pod b, Pod c", "  error NI203: of a file", "    at: 1.yaml:3, 1.yaml:4", "3 errors, 0 warnings in 3 pods; netinit help CODE explains them"]),
    ],
)  # fmt: skip
def test_a_report_has_a_line_for_each_finding_that_counts_and_one_that_sums_up(issues, pods, passed, lines):
    assert render_text(issues, pods, passed).splitlines() == lines


def test_options_alone_are_a_report_with_what_is_accepted():
    options = Options.from_argv(["-i", "*", "-b", "15001"], {})
    found = examine_options(options, {})
    assert {(one.severity, one.subject, one.pod, one.file, one.accepted) for one in found.issues} == {(one.severity, one.option, "", "", "") for one in lint_options(options)}
    assert [one.message for one in found.issues] == [one.message for one in lint_options(options)]
    assert [one.severity for one in found.errors] == ["error"]
    accepted = examine_options(options, dict.fromkeys([one.code for one in found.issues], "by hand"))
    assert ({one.accepted for one in accepted.issues}, accepted.errors) == ({"by hand"}, ())
    assert (found.pods, found.notes, found.passed, [name for name, _ in found.linted]) == ((), (), None, [""])
    assert found.minimal == write_command(minimise(found.linted[0][1]).given) + "\n"
    assert replace(found, linted=(("Pod a", found.linted[0][1]),)).minimal == f"# Pod a\n{found.minimal}"
    assert [one["message"] for one in found.to_object()["findings"]] == [one.message for one in found.issues]
