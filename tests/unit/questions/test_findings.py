"""One issue for all pods of which the same is not known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from netinit.base.version import __version__
from netinit.inject.deciding.podfile import DOUBT
from netinit.questions.findings import (
    MAX_NAMED,
    NOT_PROGRAMMED,
    UNCAPTURED_IPV6,
    Issue,
    explain,
    format_issue,
    list_doubts,
    to_object,
)


def test_a_finding_is_an_object_with_its_page_and_what_is_not_known_is_null():
    found = Issue(UNCAPTURED_IPV6, "error", "--ipv6", "it is off")
    page = f"https://netinit.io/docs/{__version__}/findings.html#ni203"
    empty = dict.fromkeys(("pod", "file", "line", "column", "accepted"))
    assert to_object(found) == {"code": "NI203", "kind": "ipv6", "severity": "error", "option": "--ipv6", "message": "it is off", **empty, "page": page}
    placed = {"pod": "Pod a", "file": "-", "line": 3, "column": 7, "accepted": "why"}
    assert to_object(replace(found, **placed)) == {**to_object(found), **placed}
    assert [format_issue(one) for one in (found, replace(found, **placed), replace(found, **placed, subject="web", message='container "web" is root'))] == [
        "error NI203: --ipv6: it is off", "stdin:3:7: error NI203: Pod a: --ipv6: it is off", 'stdin:3:7: error NI203: Pod a: container "web" is root',
    ]  # fmt: skip
    assert explain("NI203") == "netinit help NI203"


def pod(name, *, in_doubt=True, accepts=False, doubt=DOUBT):
    accepted = {NOT_PROGRAMMED.code: "by hand"} if accepts else {}
    return SimpleNamespace(name=name, in_doubt=in_doubt, doubt=doubt, accepted=accepted, file="", place=None)


@pytest.mark.parametrize(
    ("number", "pods", "text"),
    [
        (1, "p0", DOUBT), (2, "", f"2 pods (p0, p1): {DOUBT}"), (MAX_NAMED, "", f"5 pods (p0, p1, p2, p3, p4): {DOUBT}"),
        (MAX_NAMED + 1, "", f"6 pods (p0, p1, p2, p3, p4 and more): {DOUBT}"),
    ],
)  # fmt: skip
def test_pods_that_may_not_be_injected_are_one_issue(number, pods, text):
    found = list_doubts([pod(f"p{at}") for at in range(number)] + [pod("sure", in_doubt=False)], {})
    assert [(one.kind, one.severity, one.pod, one.text) for one in found] == [(NOT_PROGRAMMED, "warning", pods, text)]


def test_pods_of_which_it_is_not_known_for_different_reasons_are_different_issues():
    found = list_doubts([pod("a"), pod("b", doubt="of Linkerd"), pod("c")], {})
    assert [one.text for one in found] == [f"2 pods (a, c): {DOUBT}", "of Linkerd"]


def test_pods_that_accept_it_are_an_issue_of_their_own_which_does_not_count():
    several = [pod("a"), pod("b", accepts=True), pod("c", accepts=True)]
    found = list_doubts(several, {})
    assert [(one.pod, one.text, one.accepted) for one in found] == [("a", DOUBT, ""), ("", f"2 pods (b, c): {DOUBT}", "by hand")]
    assert [one.accepted for one in list_doubts(several, {NOT_PROGRAMMED.code: "all"})] == ["all", "all"]
    assert list_doubts([], {}) == []
