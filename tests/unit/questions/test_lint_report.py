"""What lint says of options that are handed in, and how a report is written."""

from __future__ import annotations

import pytest

from netinit.options import Options
from netinit.questions.findings import UNCAPTURED_IPV6, Issue
from netinit.questions.lint.report import lint_options, render_text


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
