"""Assertions about the pods of manifests, for the tests of those who deploy them: each is a proof over all packets, no sample.

    from netinit.testing import assert_captured, assert_holds

    def test_everything_that_the_shop_sends_goes_through_the_proxy():
        assert_captured("manifests/", "outbound tcp not by proxy not to pod")

    def test_the_database_is_reached_past_the_proxy():
        assert_holds("manifests/shop.yaml", "outbound tcp to 10.2.3.4 on port 5432 is direct", select="shop")

The sentences are those of `netinit audit --assert`. pytest shows the packet that refutes one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from netinit.library.parameters import choose_pods
from netinit.questions.audit.assertions import parse_assertion, rule_on
from netinit.questions.rule_sources import find_planned

__all__ = ["assert_captured", "assert_holds"]


def assert_captured(pod: str | os.PathLike[str] | Mapping[str, Any], packets: str, *, select: str = "") -> None:
    """All of these packets go to the proxy; see `assert_holds`."""
    __tracebackhide__ = True
    assert_holds(pod, f"{packets} is captured", select=select)


def assert_holds(pod: str | os.PathLike[str] | Mapping[str, Any], sentence: str, *, select: str = "") -> None:
    """A sentence holds for every packet of every pod, under the rules that its init container programs.

    `pod` is a manifest's file, a folder, a pattern such as `pods/*.yaml`, or one object as a mapping; `select` leaves the pods
    of this name: NAME, NAMESPACE/NAME or KIND/NAME. Raises AssertionError, which names the pod, a packet and what would change
    it, where the sentence is refuted or it cannot be known; OptionError and ParseError where the sentence, or a pod, cannot be read.
    """
    __tracebackhide__ = True
    assertion = parse_assertion(sentence)
    refuted = []
    for facts in choose_pods(pod, select, None).read():
        (ruling,) = rule_on(find_planned(facts=facts).rules, [assertion])
        if ruling.holds is not True:
            refuted.append(f"{facts.name}: {ruling.why_not_proved}")
    if refuted:
        raise AssertionError("\n".join([f"{sentence!r} does not hold", *refuted]))
