"""The kernel's way of a packet laid beside the predicted one: where they agree, where not, and where nobody can say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import IPV4, Options, Packet, Surroundings, load_plan, number_of, plan, simulate
from netinit.rules.marking_targets import LogTarget
from netinit.rules.model import Rule
from netinit.rules.targets import Drop, Redirect
from netinit.simulate.ruleset import LoadedRule
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, REFUSED, SENT, UNKNOWN, VANISHED, TraceStep
from netinit.simulate.trace_alignment import (
    AS_KNOWN,
    BOTH,
    FOREIGN,
    KERNEL_ONLY,
    PREDICTED_ONLY,
    align,
    describe_end,
    rules_of,
    trace_observed,
)

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
RULES = load_plan(plan(Options.from_argv(["--ipv6=off", "-b", "*", "-i", "*", "-o", "22"], {})), IPV4)


def packet(port=443, uid=1000):
    return Packet(
        family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000, destination=number_of("1.2.3.4"),
        destination_port=port, has_socket=True, uid=uid, gid=uid,
    )  # fmt: skip


def as_predicted(port=443):
    """A packet that did what is predicted of it, and the prediction."""
    trace = simulate(packet(port), RULES, POD)
    return trace_observed(packet(port), trace.last, trace.fate, met_in(trace)), trace


def met_in(trace):
    return tuple(replace(step, outcome="") for step in trace.hits)


def foreign(**more):
    return TraceStep("OUTPUT", "drop", "nft table ip others", "c", number=1, **more)


@pytest.mark.parametrize(("port", "verdict", "said"), [(443, "captured", "captured: goes to the proxy on 15001"), (22, "direct", "direct: goes out to 1.2.3.4:22 through eth0")])
def test_the_same_way_and_the_same_end_agree(port, verdict, said):
    observed, trace = as_predicted(port)
    folded = align(observed, trace)
    assert (folded.agrees, folded.differences, folded.notes) == (True, (), ())
    assert {kind for _, kind in folded.lines} == {BOTH}
    assert [line.place for line, _ in folded.lines] == [one.place for one in observed.steps]
    assert (observed.verdict, describe_end(observed)) == (verdict, said)


def test_a_rule_that_was_met_and_not_predicted_is_marked_where_it_was_met():
    observed, trace = as_predicted()
    more = replace(observed.steps[1], rule=replace(observed.steps[1].rule, number=3))
    folded = align(replace(observed, steps=(observed.steps[0], more, *observed.steps[1:])), trace)
    assert folded.agrees is False
    assert [kind for _, kind in folded.lines][:3] == [BOTH, KERNEL_ONLY, BOTH]
    assert folded.differences == ("rule 3 of nat ISTIO_OUTPUT (OUTPUT) was hit, and not predicted",)


def test_a_rule_that_was_predicted_and_not_met_is_marked_in_its_place():
    observed, trace = as_predicted()
    first, _, *rest = observed.steps
    folded = align(replace(observed, steps=(first, *rest), last=packet(443)), trace)
    assert folded.agrees is False
    assert [kind for _, kind in folded.lines][:3] == [BOTH, PREDICTED_ONLY, BOTH]
    assert "was predicted, and not hit" in folded.differences[0]
    assert folded.differences[-1] == "predicted: it goes to 127.0.0.1:15001; the kernel: to 1.2.3.4:443"


def test_another_end_is_a_disagreement_though_every_rule_is_the_same():
    observed, trace = as_predicted(22)
    folded = align(replace(observed, fate=DELIVERED), trace)
    assert (folded.agrees, folded.differences) == (False, (f"predicted: {SENT}; the kernel: {DELIVERED}",))


def test_a_foreign_table_that_drops_is_shown_and_disagrees():
    observed, trace = as_predicted(22)
    dropped = replace(observed, steps=(*observed.steps, foreign()), fate=DROPPED)
    folded = align(dropped, trace)
    assert folded.agrees is False
    assert folded.lines[-1][1] == FOREIGN
    assert (dropped.verdict, describe_end(dropped)) == ("dropped", "dropped by nft table ip others c, rule 1")


def test_a_foreign_table_that_lets_go_on_agrees():
    observed, trace = as_predicted()
    assert align(replace(observed, steps=(foreign(), *observed.steps)), trace).agrees is True


def test_nat_that_is_not_asked_again_agrees_if_the_packet_goes_where_it_was_predicted_to_go():
    observed, trace = as_predicted()
    folded = align(replace(observed, steps=()), trace)
    assert (folded.agrees, folded.notes) == (True, (AS_KNOWN,))
    assert [(line.place, kind) for line, kind in folded.lines] == [(one.place, PREDICTED_ONLY) for one in observed.steps]
    elsewhere = align(replace(observed, steps=(), last=packet(443), fate=SENT), trace)
    assert elsewhere.agrees is False


def test_a_packet_that_vanishes_between_the_rules_is_not_as_predicted():
    observed, trace = as_predicted(22)
    lost = replace(observed, fate=VANISHED)
    assert align(lost, trace).agrees is False
    assert lost.verdict == "unknown"
    assert "rp_filter" in describe_end(lost)


def test_what_nobody_forwards_vanishes_as_predicted():
    stray = packet(22).replace(in_interface="eth0", has_socket=False, uid=None, gid=None)
    trace = simulate(stray, load_plan(plan(Options.from_argv(["--ipv6=off", "-b", "80"], {})), IPV4), POD)
    assert (trace.fate, trace.decider) == (DROPPED, None)
    assert align(trace_observed(stray, stray, VANISHED, met_in(trace)), trace).agrees is True


def test_where_nothing_is_predicted_and_where_events_are_lost_nobody_is_wrong():
    observed, trace = as_predicted()
    unknown = align(observed, replace(trace, fate=UNKNOWN, reason="it is Tuesday", steps=trace.steps[:1]))
    assert (unknown.agrees, unknown.notes) == (None, ("this was not predicted: it is Tuesday",))
    lossy = align(trace_observed(observed.first, observed.last, observed.fate, observed.steps[:1], whole=False), trace)
    assert lossy.agrees is None
    assert lossy.notes == ("some events of the kernel were lost, so that this is not the whole way",)
    for found, kinds in ((unknown, [KERNEL_ONLY] * 3), (lossy, [BOTH, PREDICTED_ONLY, PREDICTED_ONLY])):
        assert [(line.place, kind) for line, kind in found.lines] == [(one.place, kind) for one, kind in zip(observed.steps, kinds, strict=True)]


def test_a_rule_that_may_hold_and_only_looks_need_not_be_met():
    observed, trace = as_predicted(22)
    rule = Rule(target=LogTarget(prefix="x"), comment="", origin=None)
    loaded = LoadedRule(9, "-j LOG", rule)
    maybe = replace(trace.hits[0], rule=loaded, holds=None)
    assert align(observed, replace(trace, steps=(*trace.steps, maybe))).agrees is True
    assert align(replace(observed, steps=(*observed.steps, replace(maybe, outcome=""))), replace(trace, steps=(*trace.steps, maybe))).agrees is True


def test_the_last_rule_that_captures_says_where_to():
    observed, _ = as_predicted()
    assert observed.redirect_port == 15001
    none = TraceStep("OUTPUT", "", "filter", "OUTPUT", LoadedRule(1, "-j DROP", Rule(target=Drop(), comment="", origin=None)))
    assert trace_observed(observed.first, observed.last, observed.fate, (none,)).redirect_port == 0


def test_rules_are_found_by_table_chain_and_number():
    found = rules_of(RULES, "nat", "ISTIO_OUTPUT")
    assert [*found] == [*range(1, len(RULES.tables["nat"]["ISTIO_OUTPUT"].rules) + 1)]
    assert found[1] is RULES.tables["nat"]["ISTIO_OUTPUT"].rules[0]
    assert rules_of(RULES, "nat", "nowhere") == rules_of(RULES, "nowhere", "ISTIO_OUTPUT") == {}


@pytest.mark.parametrize(("fate", "changes", "said"), [
    (DELIVERED, {}, "direct: arrives at 1.2.3.4:22"), (FORWARDED, {"out_interface": "eth1"}, "direct: is forwarded to 1.2.3.4:22 through eth1"),
    (SENT, {"out_interface": "eth1", "destination_port": 0}, "direct: goes out to 1.2.3.4 through eth1"), (DROPPED, {}, "dropped"),
])  # fmt: skip
def test_an_end_without_a_rule_is_said_with_its_place(fate, changes, said):
    first = packet(22)
    assert describe_end(trace_observed(first, first.replace(**changes), fate, ())) == said


def test_a_drop_by_a_policy_or_by_a_rule_of_ours_says_what_it_was_by():
    observed, _ = as_predicted(22)
    last = observed.steps[-1]
    assert describe_end(replace(observed, fate=DROPPED)) == f"dropped by {last.table} {last.chain}, rule {last.rule.number}"
    policy = TraceStep("OUTPUT", "the policy is DROP", "filter", "OUTPUT")
    assert describe_end(replace(observed, fate=DROPPED, steps=(*observed.steps, policy))) == "dropped"


def test_a_capture_is_the_last_one_that_the_packet_met():
    observed, _ = as_predicted()
    captures = [replace(one, rule=replace(one.rule, rule=Rule(target=Redirect(port=port)))) for one, port in zip(observed.steps, (1, 2), strict=False)]
    for steps, port in ((captures, 2), (captures[::-1], 1), ([*captures, foreign()], 2), ([*captures, observed.steps[0]], 2)):
        found = trace_observed(observed.first, observed.last, observed.fate, tuple(steps))
        assert (found.redirect_port, found.reason) == (port, "")


@pytest.mark.parametrize(("predicted", "seen", "agrees"), [
    (REFUSED, DROPPED, True), (DROPPED, DROPPED, True), (DROPPED, VANISHED, False), (REFUSED, VANISHED, False), (SENT, FORWARDED, False), (FORWARDED, FORWARDED, True),
])  # fmt: skip
def test_what_ends_by_a_rule_ends_alike_whether_its_sender_is_told(predicted, seen, agrees):
    observed, trace = as_predicted(22)
    found = align(replace(observed, fate=seen), replace(trace, fate=predicted, decider=trace.hits[-1]))
    kernel = {REFUSED: DROPPED}.get(predicted, predicted)
    assert (found.agrees, found.differences) == (agrees, () if agrees else (f"predicted: {kernel}; the kernel: {seen}",))


@pytest.mark.parametrize(("changes", "agrees"), [({"destination": None}, True), ({"destination": number_of("1.2.3.5")}, False), ({"destination_port": 23}, False)])
@pytest.mark.parametrize("fate", [DELIVERED, SENT, FORWARDED, DROPPED])
def test_the_ends_of_what_arrives_are_compared_where_they_are_known(changes, agrees, fate):
    observed, trace = as_predicted(22)
    found = align(replace(observed, fate=fate), replace(trace, fate=fate, decider=trace.hits[-1], last=trace.last.replace(**changes)))
    assert found.agrees is (agrees or fate == DROPPED)


def test_nothing_but_rules_of_nat_may_be_missed_where_nat_is_not_asked_again():
    observed, trace = as_predicted()
    other = replace(trace.hits[0], table="filter")
    for met, expected, agrees in (((), (), True), ((other,), (other,), True), ((), (other,), False), (observed.steps[:1], (), False)):
        found = align(replace(observed, steps=met), replace(trace, steps=(*trace.steps, *expected)))
        assert (found.agrees, found.notes) == (agrees, (AS_KNOWN,) if agrees else ())


def test_rules_of_each_backend_are_laid_beside_those_that_were_expected_of_it():
    observed, trace = as_predicted()
    nft, legacy = ([replace(one, source=source) for one in observed.steps] for source in ("nft", "legacy"))
    expected = [step for pair in zip(nft, legacy, strict=True) for step in pair]
    found = align(replace(observed, steps=(*legacy, *nft)), replace(trace, steps=tuple(expected)))
    assert [(line.source, kind) for line, kind in found.lines] == [("legacy", BOTH)] * 3 + [("nft", BOTH)] * 3
    lacking = align(replace(observed, steps=tuple(nft)), replace(trace, steps=tuple(expected)))
    assert [(line.source, kind) for line, kind in lacking.lines if line.source == "legacy"] == [("legacy", PREDICTED_ONLY)] * 3


def test_rules_of_tables_that_the_kernel_does_not_report_and_that_do_not_match_are_not_expected():
    observed, trace = as_predicted()
    more = (replace(trace.hits[0], table="ip theirs"), replace(trace.hits[0], holds=False), replace(trace.hits[0], rule=None, holds=None))
    found = align(observed, replace(trace, steps=(*more, *trace.steps)))
    assert (found.agrees, [line.place for line, _ in found.lines]) == (True, [one.place for one in observed.steps])


def test_what_was_predicted_stands_before_the_rule_that_was_met_after_it():
    observed, trace = as_predicted()
    found = align(replace(observed, steps=observed.steps[-1:]), trace)
    assert [(line.place, kind) for line, kind in found.lines] == [(one.place, kind) for one, kind in zip(observed.steps, (PREDICTED_ONLY, PREDICTED_ONLY, BOTH), strict=True)]
    assert {line.outcome for line, _ in found.lines} == {""}
    ends = align(replace(observed, steps=(foreign(), *observed.steps[:1])), trace)
    assert [kind for _, kind in ends.lines] == [FOREIGN, BOTH, PREDICTED_ONLY, PREDICTED_ONLY]
