"""What would change the fate of a connection: each change is planned once for all packets that are asked about."""

from __future__ import annotations

import pytest

from allpackets import around
from core import IPV4, Options, make_outbound, plan, settled
from netinit.questions import explain as explaining
from netinit.questions.answers import explain_connection
from netinit.questions.connections import Question
from netinit.questions.rule_sources import find_planned
from netinit.simulate.ruleset import load_plan


def test_the_plans_of_changed_options_are_made_once_for_all_packets(monkeypatch):
    made, options = [], settled(Options(outbound_cidrs="*", exclude_outbound_ports=(8080, 8181)))
    monkeypatch.setattr(explaining, "plan", lambda given: made.append(given) or plan(given))
    explaining._load.cache_clear()
    ruleset, place = load_plan(plan(options), IPV4), around(IPV4)
    answers = []
    for uid in (1000, 1001):
        packet = make_outbound(place, "10.9.9.9", 8080, uid=uid, gid=uid)
        answers.append(explaining.explain(packet, ruleset, place, options=options).changes)
        assert len(made) == len({*made}) > 5
    assert answers[0] == answers[1]
    assert ("remove 8080 from --istio-local-outbound-ports-exclude", "captured") in answers[0]


@pytest.mark.parametrize(
    ("given", "own", "to", "change"),
    [
        ({}, "10.1.1.1", "2001:db8::1", ("IPv6 addresses of the pod", "captured")),
        ({"ipv6": "off"}, "10.1.1.1", "2001:db8::1", ("IPv6 addresses of the pod", "direct")),
        ({}, "2001:db8::9", "192.0.2.1", ("IPv4 addresses of the pod", "captured")),
    ],
)
def test_a_pod_without_a_family_reaches_nobody_of_it(given, own, to, change):
    source = find_planned(Options(outbound_cidrs="*", **given), pod_ip=(own,))
    answer = explain_connection([source], Question(to=to, to_port="80")).answers[0].answer
    assert answer.sentence.startswith("dropped: it is refused, with a notice to its sender, because the pod has no IPv")
    assert answer.changes == (change,)


@pytest.mark.parametrize("to", ["::1", "fe80::1", "ff02::1"])
def test_addresses_that_every_device_has_reach_their_neighbours(to):
    source = find_planned(Options(outbound_cidrs="*"), pod_ip=("10.1.1.1",))
    assert explain_connection([source], Question(to=to, to_port="80")).verdict == "direct"
