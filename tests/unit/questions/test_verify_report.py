"""How a comparison with the plan is said: a line for each difference, one that sums up, and what counts as right."""

from __future__ import annotations

import pytest

from core import plan
from netinit.base.net import IPV4, IPV6, number_of
from netinit.live.listeners import ABSENT, REFUSED, Delivery, Reception
from netinit.live.recipients import PROXY, Recipient
from netinit.options import Options
from netinit.questions.listening import require
from netinit.questions.plan_comparison import Report
from netinit.questions.release_comparison import ReleaseComparison
from netinit.questions.verify import MAX_SHOWN, VerifyReport, describe_older, render_text, to_object
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import Difference
from schemas import check_schema

PLAN = plan(Options(inbound_ports="80", ipv6="on"))
MISSING = Difference(kind="missing", where="IPv4", table="nat", chain="OUTPUT", number=1, rule="-j ISTIO_OUTPUT", purpose="why", origin="always")


def number_of_rules(family):
    return sum(len(chain.rules) for chains in write_plan(PLAN, family).values() for chain in chains.values())


RULES = number_of_rules(IPV4) + number_of_rules(IPV6)
EQUAL = Report(backend="iptables-nft", plan=PLAN, differences=())
DIFFERENT = EQUAL.replace(differences=(MISSING,))


def test_differences_are_a_line_each_and_one_that_sums_up():
    found = render_text(DIFFERENT)
    assert found == f"{MISSING.describe()}\n1 difference from the plan of {RULES} rules (iptables-nft)\n"
    found = render_text(Report(backend="nftables", plan=PLAN, differences=(MISSING, MISSING)))
    assert found == f"{MISSING.describe()}\n{MISSING.describe()}\n2 differences from the plan of {RULES} rules (nftables)\n"


def test_no_difference_is_said_in_a_line():
    assert render_text(EQUAL) == f"as planned: {RULES} rules for IPv4 and IPv6 (iptables-nft)\n"
    alone = plan(Options(inbound_ports="80", ipv6="off"))
    assert render_text(EQUAL.replace(plan=alone)) == f"as planned: {number_of_rules(IPV4)} rules for IPv4 (iptables-nft)\n"


def test_a_namespace_without_any_rule_of_the_plan_is_a_line():
    nothing = f"no rules of netinit here: all {RULES} rules of the plan are missing (iptables-nft)\n"
    assert render_text(DIFFERENT.replace(ours=False)) == nothing
    assert render_text(DIFFERENT.replace(ours=True)) != nothing
    others = DIFFERENT.replace(ours=False, differences=(MISSING, MISSING.replace(kind="shadowing")))
    assert render_text(others).endswith(f"2 differences from the plan of {RULES} rules (iptables-nft)\n")


def test_without_rules_and_options_nothing_was_compared_which_is_not_right():
    nothing = VerifyReport(report=None, options=None)
    assert (nothing.ok, nothing.differences, nothing.warnings, nothing.backend, nothing.plan) == (False, (), (), "", None)
    assert nothing.text == "no rules of netinit here\n"
    assert nothing.to_object() == {
        "version": 1, "ok": False, "backend": None, "hash": None, "differences": None, "warnings": [], "options": None, "istio": None,
        "listeners": [],
    }  # fmt: skip


def test_a_doubt_counts_where_it_is_asked_for():
    doubtful = EQUAL.replace(doubts=("a foreign rule drops captured packets",))
    assert VerifyReport(report=doubtful, options=None).ok
    strict = VerifyReport(report=doubtful.with_doubts(), options=None)
    assert (strict.ok, strict.differences) == (False, (Difference(kind="doubt", where="kernel", rule="a foreign rule drops captured packets"),))
    assert (strict.to_object(), strict.to_object()["backend"]) == ({"version": 1, **to_object(strict.report)}, "iptables-nft")


ARRIVING = Delivery(family=IPV4, protocol="tcp", address=number_of("127.0.0.1"), port=15001, device="lo")
NOBODY = Recipient(who=PROXY, reception=Reception(delivery=ARRIVING, outcome=REFUSED, problem=ABSENT))


def test_who_does_not_listen_is_said_once_and_is_in_the_object():
    said = "nothing listens on 15001 (the proxy is not up): the connection is refused"
    report = EQUAL.replace(listening=(NOBODY,))
    assert render_text(report).splitlines()[1:] == [f"then: {said} (NI301)"]
    assert VerifyReport(report=report, options=None).listeners == (NOBODY,)
    found = VerifyReport(report=report, options=None).to_object()
    check_schema(found, "verify")
    assert found["listeners"] == [
        {"who": "proxy", "address": "127.0.0.1:15001", "protocol": "tcp", "outcome": "refused", "code": "NI301", "severity": "warning", "text": said, "users": [], "sockets": []}
    ]  # fmt: skip
    required = report.replace(differences=require((NOBODY,)))
    assert [said in line for line in render_text(required).splitlines()] == [True, False]


OLDER = ReleaseComparison(releases="Istio 1.5", options="netinit apply -b '*'")


@pytest.mark.parametrize(
    ("changes", "said", "equal"),
    [
        ({}, ["rules of Istio 1.5, equal for all packets to the current ones (netinit apply -b '*'): proved"], True),
        ({"doubt": "too many parts"}, ["rules of Istio 1.5; too many parts"], False),
        ({"differences": ("one",)}, ["rules of Istio 1.5; the current ones (netinit apply -b '*') treat 1 kind of packets differently:", "  one"], False),
        ({"differences": ("x",) * (MAX_SHOWN + 1)},
         [f"rules of Istio 1.5; the current ones (netinit apply -b '*') treat {MAX_SHOWN + 1} kinds of packets differently:", *["  x"] * MAX_SHOWN, "  and 1 kind more"], False),
    ],
)  # fmt: skip
def test_rules_of_an_earlier_release_are_named_with_what_differs_from_today_s(changes, said, equal):
    older = OLDER.replace(**changes)
    assert describe_older(older) == said
    report = EQUAL.replace(older=older)
    assert render_text(report).splitlines()[1:] == said
    assert to_object(report)["istio"] == {"releases": "Istio 1.5", "equal": equal, "differences": [*older.differences]}
