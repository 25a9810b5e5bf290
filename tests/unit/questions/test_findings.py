"""One issue for all pods of which the same is not known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netinit.inject.deciding.podfile import DOUBT
from netinit.questions.findings import MAX_NAMED, NOT_PROGRAMMED, list_doubts


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
