"""Beside the rules of other software no answer is wrong, and few are unknown: docs/neighbours.md has the whole table."""

from __future__ import annotations

from collections import Counter

import pytest

from neighbours import FILES, OF_A_RUN, ORDERS, WAYS, measure
from programming import needs
from randomness import SEED
from sweeps import choose

pytestmark = [pytest.mark.netns, pytest.mark.timeout(3600)]
EACH = [(name, way, order) for name in FILES for way in WAYS for order in ORDERS]
COVERING = [(name, WAYS[at % len(WAYS)], ORDERS[at // len(WAYS) % len(ORDERS)]) for at, name in enumerate(FILES)]  # each once
OF_COVERING = 10  # connections of a run
MOST_UNKNOWN = choose((0.05,), (0.02,))[0]  # of the covering set, in which the few programs that have any weigh more, and of all


def test_beside_other_software_no_answer_is_wrong_and_few_are_unknown(require_netns, capsys):
    for name in {backend for backend, _ in WAYS}:
        needs(name)
    whole, wrong = Counter(), []
    for name, way, order in choose(COVERING, EACH):
        counted, found = measure(name, way, order, choose((OF_COVERING,), (OF_A_RUN,))[0])
        whole += counted
        wrong += found
    sent, unknown, false = whole["sent"], whole["not predicted"], whole["false alarms"]
    with capsys.disabled():
        print(f"\n{sent} connections beside {len(FILES)} rule sets in {whole['runs']} runs: {len(wrong) - false} wrong, {unknown} unknown "
              f"({100 * unknown / sent:.1f} %), {whole['alarms']} alarms, {false} of them false; seed {SEED}")  # fmt: skip
    assert not wrong, "\n".join(wrong)
    assert sent >= choose((200,), (5000,))[0]
    assert unknown < MOST_UNKNOWN * sent
