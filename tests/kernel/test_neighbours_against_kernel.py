"""Beside the rules of other software no answer is wrong, and few are unknown: docs/neighbours.md has the whole table."""

from __future__ import annotations

from collections import Counter

import pytest
from test_foreign_against_kernel import LEGACY, NFT, PLANS

from neighbours import FILES, ORDERS, measure
from programming import needs
from sweeps import choose

pytestmark = [pytest.mark.netns, pytest.mark.timeout(3600)]
EACH = [(name, backend, order) for name in FILES for backend in PLANS for order in ORDERS]
COVERING = [(name, [*PLANS][at % len(PLANS)], ORDERS[at // len(PLANS) % len(ORDERS)]) for at, name in enumerate(FILES)]  # each once
MOST_UNKNOWN = 0.05  # of the covering set, in which the few programs that have any weigh more


def test_beside_other_software_no_answer_is_wrong_and_few_are_unknown(require_netns, capsys):
    for name in {*PLANS, NFT, LEGACY}:
        needs(name)
    whole, wrong = Counter(), []
    for name, backend, order in choose(COVERING, EACH):
        counted, found = measure(name, backend, order)
        whole += counted
        wrong += found
    assert not wrong, "\n".join(wrong)
    sent = sum(whole[one] for one in ("captured", "escaped", "gone"))
    with capsys.disabled():
        print(f"\n{sent} connections beside {len(FILES)} rule sets: {whole['not predicted']} unknown, {whole['alarms']} alarms")
    assert sent > 400
    assert whole["not predicted"] < MOST_UNKNOWN * sent
