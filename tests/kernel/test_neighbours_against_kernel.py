"""Beside the rules of other software no answer is wrong, and few are unknown: docs/neighbours.md has the whole table."""

from __future__ import annotations

from collections import Counter

import pytest
from test_foreign_against_kernel import LEGACY, NFT, PLANS

from neighbours import FILES, OF_A_RUN, ORDERS, measure
from programming import needs
from randomness import SEED
from sweeps import choose

pytestmark = [pytest.mark.netns, pytest.mark.timeout(3600)]
EACH = [(name, backend, order) for name in FILES for backend in PLANS for order in ORDERS]
COVERING = [(name, [*PLANS][at % len(PLANS)], ORDERS[at // len(PLANS) % len(ORDERS)]) for at, name in enumerate(FILES)]  # each once
OF_COVERING = 20  # connections of a run
MOST_UNKNOWN = choose((0.05,), (0.02,))[0]  # of the covering set, in which the few programs that have any weigh more, and of all


def test_beside_other_software_no_answer_is_wrong_and_few_are_unknown(require_netns, capsys):
    for name in {*PLANS, NFT, LEGACY}:
        needs(name)
    whole, wrong = Counter(), []
    for name, backend, order in choose(COVERING, EACH):
        counted, found = measure(name, backend, order, choose((OF_COVERING,), (OF_A_RUN,))[0])
        whole += counted
        wrong += found
    sent = sum(whole[one] for one in ("captured", "escaped", "gone"))
    unknown, runs = whole["not predicted"], whole["runs"]
    with capsys.disabled():
        false = sum("false alarm" in one for one in wrong)
        print(f"\n{sent} connections beside {len(FILES)} rule sets in {runs} runs: {len(wrong) - false} wrong, {unknown} unknown "
              f"({100 * unknown / sent:.1f} %), {whole['alarms']} alarms, {false} of them false; seed {SEED}")  # fmt: skip
    assert not wrong, "\n".join(wrong)
    assert sent >= choose((400,), (5000,))[0]
    assert unknown < MOST_UNKNOWN * sent
