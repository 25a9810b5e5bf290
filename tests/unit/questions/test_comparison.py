"""How a comparison is told: one line for each pair of rules, in one pod's words or in many's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netinit.base.errors import ParseError
from netinit.options import Options
from netinit.questions.comparison import (
    MAX_SHOWN,
    THIS_HOST,
    Compared,
    compare_all,
    compare_with_plan,
    render_text,
    to_object,
)
from netinit.questions.rule_sources import find_planned

CHANGE = {"who": ["TCP outbound"], "before": "captured", "after": "direct", "because_before": "", "because_after": "no rule", "example": "TCP to 192.0.2.1:80"}
PAIR = {"name": "web", "result": "different", "families": ["IPv4", "IPv6"], "differences": [], "unseen": []}


@pytest.mark.parametrize(
    ("result", "number", "said"),
    [
        ("equal", 0, "= web: no packet is treated differently: proved for all packets of IPv4 and IPv6, in and out"),
        ("unknown", 0, "? web: the rules treat no packet differently, but routing differs from what the plan expects"),
        ("unknown", 1, "? web: it is unknown whether 1 kind of packets are treated differently; no other is"),
        ("different", 1, "≠ web: 1 kind of packets is treated differently"),
        ("different", 2, "≠ web: 2 kinds of packets are treated differently"),
        ("only before", 0, "- web: only before"), ("only after", 0, "+ web: only after"),
    ],
)  # fmt: skip
def test_a_pair_begins_with_what_was_found(result, number, said):
    text = render_text([{**PAIR, "result": result, "differences": [CHANGE] * number}], full=False)
    assert str(text).splitlines()[0] == said


def test_a_change_is_shown_before_and_after_with_its_reason_and_what_is_not_shown_is_counted():
    unseen = [{**CHANGE, "unseen": "that cannot be sent"}] * 2
    text = str(render_text([{**PAIR, "differences": [CHANGE] * (MAX_SHOWN + 1), "unseen": unseen, "routing": ["eth0 is missing"]}, {**PAIR, "result": "equal"}], full=False))
    assert text.splitlines()[1:7] == [
        "  eth0 is missing", "  not counted: 2 kinds of packets that cannot be sent", "  TCP outbound", "    before: captured",
        "    after:  direct, because no rule", "    example: TCP to 192.0.2.1:80",
    ]  # fmt: skip
    assert text.count("example:") == MAX_SHOWN
    assert "  and 1 kind more, of packets that are less ordinary (--full shows all)" in text
    assert text.splitlines()[-1] == "2 pods: 1 equal, 1 not"
    assert str(render_text([{**PAIR, "result": one} for one in ("equal", "only after", "equal", "equal", "unknown")], full=True)).splitlines()[-1] == "5 pods: 3 equal, 2 not"
    assert str(render_text([{**PAIR, "differences": [CHANGE] * (MAX_SHOWN + 1)}], full=True)).count("example:") == MAX_SHOWN + 1


@pytest.mark.parametrize(
    ("words", "known", "whose"),
    [([], False, "the plan of the options that the rules show"), (["-b", "81"], False, "the plan of the recorded options"), (["-b", "81"], True, "the plan")],
)
def test_live_rules_are_compared_with_the_plan_of_the_options_that_they_should_have_or_show(words, known, whose):
    there, wanted = (find_planned(Options.from_argv(["-i", "*", "--ipv6", "on", *more])) for more in (["-b", "80"], words or ["-b", "80"]))
    live = replace(there, rules=replace(there.rules, wanted=wanted.rules.made_by if words else None))
    pair = compare_with_plan(live, known=known)
    assert (pair.name, pair.after, pair.routing, pair.before.notes) == (f"{whose} and the live rules", live, (), (THIS_HOST,))
    assert pair.before.rules.rulesets == wanted.rules.rulesets
    with pytest.raises(ParseError, match="the rules do not show any: give them, or the pod with --pod"):
        compare_with_plan(replace(there, rules=replace(there.rules, options={}, wanted=None)), known=known)


@pytest.mark.parametrize(("sides", "result"), [(("before",), "only before"), (("after",), "only after")])
def test_a_pod_that_is_on_one_side_alone_has_no_packets_to_compare(sides, result):
    there = find_planned(Options.from_argv(["-i", "*", "--ipv6", "on"]))
    report = compare_all([Compared("web", **{"before": None, "after": None, **dict.fromkeys(sides, there)})])
    (found,) = report.to_object()["compared"]
    assert (found["result"], found["families"], found["differences"]) == (result, [], [])
    assert to_object(report.pairs[0]) == found
    assert str(report.text).splitlines()[0].endswith(f" web: {result}")
