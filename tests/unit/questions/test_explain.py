"""What would change the fate of a connection: each change is planned once for all packets that are asked about."""

from __future__ import annotations

from allpackets import around
from core import IPV4, Options, make_outbound, plan, settled
from netinit.questions import explain as explaining
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
