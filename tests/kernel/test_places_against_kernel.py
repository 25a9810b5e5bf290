"""Rules of ours in one place of the kernel and foreign ones in another: what the simulator says is what the kernel does.

The kernel asks both at each hook. A connection whose verdict depends on the order in which it does so is not predicted; of all
others the prediction is held to what really happens.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from attempts import (
    BATCH,
    CONNECTIONS,
    DIALECTS,
    FOREIGN,
    NEIGHBOUR,
    SEED,
    compare_fates,
    forget_connections,
    made_attempts,
    make_pod,
    predict,
    program,
    read_counters,
    render_foreign,
    send,
)
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from core import plan
from netinit.base.net import FAMILIES
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import TABLES
from netinit.simulate.ruleset import join_backends, load_plan
from netinit.simulate.trace import UNKNOWN
from programming import needs
from strategies import made_options

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1800)]
PAIRS = [(ours, theirs) for ours, theirs in product(DIALECTS, DIALECTS[:2]) if ours != theirs]
POLICIES = ("OUTPUT", "", "", "INPUT", "FORWARD")  # of filter, which drops; what is drawn first comes up for sure


@pytest.fixture(params=PAIRS, ids=[f"{ours} beside {theirs}" for ours, theirs in PAIRS])
def places(request):
    for name in request.param:
        needs(name)
    return request.param


@pytest.fixture
def pod(places):
    with make_pod() as made:
        yield made


def disagree(pod, places, wanted, theirs, attempts, counted):
    """Every difference between prediction and kernel."""
    ours, other = places
    chosen, policy = theirs
    program(pod, ours, wanted)
    rulesets = {}
    for family in FAMILIES:
        policies = "".join(f":{hook} {'DROP' if hook == policy else 'ACCEPT'} [0:0]\n" for hook in POLICIES if hook)
        foreign = render_foreign(chosen, family).replace("*filter\n", f"*filter\n{policies}")
        empty = "".join(f"*{table}\nCOMMIT\n" for table in TABLES)
        pod.run([f"{other.replace('iptables', family.program)}-restore", "-w"], stdin=empty + foreign, check=True)
        found = {ours: {family: load_plan(wanted, family)}, other: {family: read_counters(pod, other, family)}}
        rulesets[family] = join_backends(found, family, ours)
    talks = predict(rulesets, wanted, attempts)
    known = [number for number, talk in enumerate(talks) if talk.outcome != UNKNOWN]
    forget_connections(pod)
    arrivals = send(pod, attempts)
    counted["connections"] += len(attempts)
    counted["not predicted"] += len(attempts) - len(known)
    counted["dropped by theirs"] += sum(other in talk.first.reason and talk.outcome != UNKNOWN for talk in talks)
    return compare_fates([attempts[at] for at in known], [talks[at] for at in known], [arrivals[at] for at in known])


def test_rules_in_two_places_do_together_what_the_simulator_says(pod, places, capsys):
    counted = Counter()

    @seed(SEED)
    @settings(
        max_examples=-(-CONNECTIONS // BATCH // 4), database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
    )  # fmt: skip
    @given(
        made_options(interfaces=(NEIGHBOUR,)),
        st.lists(st.tuples(st.sampled_from(FOREIGN), st.booleans()), max_size=6),
        st.sampled_from(POLICIES),
        st.lists(made_attempts(), min_size=BATCH, max_size=BATCH),
    )
    def hold(options, others, policy, attempts):
        wanted = plan(options)
        theirs = ([(table, rule, first) for (table, rule), first in others], policy)
        attempts = [replace(one, mark=0) for one in attempts]
        if not wanted.addresses:
            attempts = [one for one in attempts if "::6" not in (one.host, one.source)]
        if not disagree(pod, places, wanted, theirs, attempts, counted):
            return
        alone = [(one, disagree(pod, places, wanted, theirs, [one], counted)) for one in attempts]  # a late packet is not seen again
        assert not any(found for _, found in alone), "\n".join(
            [f"{places}, seed {SEED}, options {' '.join(options.to_argv())}, theirs {theirs}"]
            + [f"{one}\n  " + "\n  ".join(found) for one, found in alone if found]
            + ["\n".join(f"{t} {c} {r.text}" for t, cs in write_plan(wanted, FAMILIES[0]).items() for c, x in cs.items() for r in x.rules)]
        )

    try:
        hold()
    finally:
        with capsys.disabled():
            print(f"\n{' beside '.join(places)}: {dict(counted)}, seed {SEED}")
    assert counted["dropped by theirs"]
