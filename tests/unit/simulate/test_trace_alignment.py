"""The kernel's way of a packet laid beside the predicted one: where they agree, where not, and where nobody can say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import IPV4, Options, Packet, Surroundings, load_plan, number_of, plan, simulate
from netinit.rules.marking_targets import LogTarget
from netinit.rules.model import Rule
from netinit.rules.targets import Drop
from netinit.simulate.loaded_rules import LoadedRule
from netinit.simulate.trace import DELIVERED, DROPPED, SENT, UNKNOWN
from netinit.simulate.trace_alignment import (
    AS_KNOWN,
    BOTH,
    FOREIGN,
    KERNEL_ONLY,
    PREDICTED_ONLY,
    VANISHED,
    ObservedHit,
    TracedPacket,
    align,
)

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
RULES = load_plan(plan(Options.from_argv(["--ipv6=off", "-b", "*", "-i", "*", "-o", "22"], {})), IPV4)
LOCALHOST = number_of("127.0.0.1")


def packet(port=443, uid=1000):
    return Packet(
        family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000, destination=number_of("1.2.3.4"),
        destination_port=port, has_socket=True, uid=uid, gid=uid,
    )  # fmt: skip


def as_predicted(port=443):
    """A packet that did what is predicted of it, and the prediction."""
    trace = simulate(packet(port), RULES, POD)
    met = tuple(ObservedHit(step.hook, step.table, step.chain, step.rule.number, step.rule) for step in trace.hits)
    return TracedPacket(packet(port), met, trace.fate, trace.last.destination, trace.last.destination_port, "eth0"), trace


def foreign(**more):
    return ObservedHit("OUTPUT", "nft table ip others", "c", 1, None, "drop", **more)


@pytest.mark.parametrize(("port", "verdict", "said"), [(443, "captured", "captured: goes to the proxy on 15001"), (22, "direct", "direct: goes out to 1.2.3.4:22 through eth0")])
def test_the_same_way_and_the_same_end_agree(port, verdict, said):
    observed, trace = as_predicted(port)
    folded = align(observed, trace)
    assert (folded.agrees, folded.differences, folded.notes) == (True, (), ())
    assert {line.kind for line in folded.lines} == {BOTH}
    assert [line.number for line in folded.lines] == [one.number for one in observed.met]
    assert (observed.verdict, observed.describe()) == (verdict, said)


def test_a_rule_that_was_met_and_not_predicted_is_marked_where_it_was_met():
    observed, trace = as_predicted()
    more = replace(observed.met[1], number=3)
    folded = align(replace(observed, met=(observed.met[0], more, *observed.met[1:])), trace)
    assert folded.agrees is False
    assert [line.kind for line in folded.lines][:3] == [BOTH, KERNEL_ONLY, BOTH]
    assert folded.differences == ("rule 3 of nat ISTIO_OUTPUT (OUTPUT) was met, and not predicted",)


def test_a_rule_that_was_predicted_and_not_met_is_marked_in_its_place():
    observed, trace = as_predicted()
    first, _, *rest = observed.met
    folded = align(replace(observed, met=(first, *rest), destination=number_of("1.2.3.4"), port=443), trace)
    assert folded.agrees is False
    assert [line.kind for line in folded.lines][:3] == [BOTH, PREDICTED_ONLY, BOTH]
    assert "was predicted, and not met" in folded.differences[0]
    assert folded.differences[-1] == "predicted: it goes to 127.0.0.1:15001; the kernel: to 1.2.3.4:443"


def test_another_end_is_a_disagreement_though_every_rule_is_the_same():
    observed, trace = as_predicted(22)
    folded = align(replace(observed, fate=DELIVERED), trace)
    assert (folded.agrees, folded.differences) == (False, (f"predicted: {SENT}; the kernel: {DELIVERED}",))


def test_a_foreign_table_that_drops_is_shown_and_disagrees():
    observed, trace = as_predicted(22)
    dropped = replace(observed, met=(*observed.met, foreign()), fate=DROPPED)
    folded = align(dropped, trace)
    assert folded.agrees is False
    assert folded.lines[-1].kind == FOREIGN
    assert (dropped.verdict, dropped.describe()) == ("dropped", "dropped by nft table ip others c, rule 1")


def test_a_foreign_table_that_lets_go_on_agrees():
    observed, trace = as_predicted()
    assert align(replace(observed, met=(foreign(), *observed.met)), trace).agrees is True


def test_nat_that_is_not_asked_again_agrees_if_the_packet_goes_where_it_was_predicted_to_go():
    observed, trace = as_predicted()
    folded = align(replace(observed, met=()), trace)
    assert (folded.agrees, folded.notes) == (True, (AS_KNOWN,))
    elsewhere = align(replace(observed, met=(), destination=number_of("1.2.3.4"), port=443, fate=SENT), trace)
    assert elsewhere.agrees is False


def test_a_packet_that_vanishes_between_the_rules_is_not_as_predicted():
    observed, trace = as_predicted(22)
    lost = replace(observed, fate=VANISHED)
    assert align(lost, trace).agrees is False
    assert lost.verdict == "unknown"
    assert "rp_filter" in lost.describe()


def test_what_nobody_forwards_vanishes_as_predicted():
    stray = packet(22).replace(in_interface="eth0", has_socket=False, uid=None, gid=None)
    trace = simulate(stray, load_plan(plan(Options.from_argv(["--ipv6=off", "-b", "80"], {})), IPV4), POD)
    assert (trace.fate, trace.decider) == (DROPPED, None)
    met = tuple(ObservedHit(step.hook, step.table, step.chain, step.rule.number, step.rule) for step in trace.hits)
    assert align(TracedPacket(stray, met, VANISHED, stray.destination, 22), trace).agrees is True


def test_where_nothing_is_predicted_and_where_events_are_lost_nobody_is_wrong():
    observed, trace = as_predicted()
    unknown = align(observed, replace(trace, fate=UNKNOWN, reason="it is Tuesday", steps=trace.steps[:1]))
    assert (unknown.agrees, unknown.notes) == (None, ("this was not predicted: it is Tuesday",))
    lossy = align(replace(observed, whole=False, met=observed.met[:1], destination=LOCALHOST), trace)
    assert lossy.agrees is None
    assert "lost" in lossy.notes[0]


def test_a_rule_that_may_hold_and_only_looks_need_not_be_met():
    observed, trace = as_predicted(22)
    rule = Rule(target=LogTarget(prefix="x"), comment="", origin=None)
    loaded = LoadedRule(9, "-j LOG", rule)
    maybe = replace(trace.hits[0], rule=loaded, holds=None)
    assert align(observed, replace(trace, steps=(*trace.steps, maybe))).agrees is True
    met = (*observed.met, ObservedHit(maybe.hook, maybe.table, maybe.chain, 9, loaded))
    assert align(replace(observed, met=met), replace(trace, steps=(*trace.steps, maybe))).agrees is True


def test_the_last_rule_that_captures_says_where_to():
    observed, _ = as_predicted()
    assert observed.captured_at == 15001
    none = ObservedHit("OUTPUT", "filter", "OUTPUT", 1, LoadedRule(1, "-j DROP", Rule(target=Drop(), comment="", origin=None)))
    assert replace(observed, met=(none,)).captured_at == 0
