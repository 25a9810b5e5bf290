"""From any backend to any other while connections are made: none bypasses, none is captured twice, none is refused."""

from __future__ import annotations

import itertools
import threading

import pytest

from netinit.host.lab import APP_ID, PROXY_ID, furnish
from netinit.options import Options
from programming import SIDECAR, VARIANTS, apply_in, call_on, differences_in, needs, remove_in, state

BACKENDS = (*VARIANTS, "nftables")
# Every ordered pair of backends is a step of this tour: legacy -> nft -> native -> legacy -> native -> nft -> legacy.
TOUR = ("iptables-nft", "nftables", "iptables-legacy", "nftables", "iptables-nft", "iptables-legacy")


def options_for(backend, *more):
    return Options.from_argv([*SIDECAR, "--ipv6", "on", "--reconcile", "--backend", backend, *more])


def test_the_tour_takes_every_way_between_two_backends():
    ways = set(itertools.pairwise((TOUR[-1], *TOUR)))
    assert ways == set(itertools.permutations(BACKENDS, 2))


@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
def test_changing_the_backend_under_traffic_loses_and_spares_no_connection(pod, mode):
    for backend in VARIANTS:
        needs(backend)
    furnish(pod, transparent=(15006,) if mode == "TPROXY" else ())
    apply_in(pod, options_for(TOUR[-1], "-m", mode))
    stop = threading.Event()
    callers = []
    arrivals = {}
    for namespace, target, user, must in (
        (pod.client, "10.77.0.2", 0, "proxy 15006"),
        (pod.client, "fd77::2", 0, "proxy 15006"),
        (pod, "203.0.113.7", APP_ID, "proxy 15001"),
        (pod, "2001:db8::7", APP_ID, "proxy 15001"),
        (pod, "203.0.113.7", PROXY_ID, "outside 80"),
        (pod, "2001:db8::7", PROXY_ID, "outside 80"),
    ):
        seen = arrivals[f"uid {user} -> {target}: {must}"] = []
        callers.append(threading.Thread(target=call_on, args=(namespace, target, user, stop, seen)))
        callers[-1].start()
    try:
        for backend in TOUR * 2:
            options = options_for(backend, "-m", mode)
            assert apply_in(pod, options).changed
            assert differences_in(pod, options) == []
    finally:
        stop.set()
        for caller in callers:
            caller.join()

    strays = {who: sorted({text for text in seen if text != who.rpartition(": ")[2]}) for who, seen in arrivals.items()}
    assert {who: texts for who, texts in strays.items() if texts} == {}, {who: len(seen) for who, seen in arrivals.items()}
    assert min(len(seen) for seen in arrivals.values()) > 20


@pytest.mark.parametrize("backend", BACKENDS)
def test_native_and_iptables_rules_leave_nothing_behind(pod, backend):
    before = state(pod)
    for other in BACKENDS:
        apply_in(pod, options_for(other))
    apply_in(pod, options_for(backend))
    assert differences_in(pod, options_for(backend)) == []
    remove_in(pod)
    assert state(pod) == before


def test_without_reconcile_the_other_backends_rules_are_named_and_left(pod):
    apply_in(pod, options_for("nftables"))
    before = state(pod)
    with pytest.raises(Exception, match=r"(?s)--reconcile.*leftover: nftables"):
        apply_in(pod, options_for("iptables-nft").replace(reconcile=False))
    assert state(pod) == before
    again = apply_in(pod, options_for("auto").replace(reconcile=False))
    assert (again.backend, again.changed) == ("nftables", False), "auto stays with what holds the rules"
