"""What the simulator says is what the kernel does.

Hypothesis makes options and connections. The rules are programmed in a pod, every connection is simulated and really
made by a process with that uid and gid, and compared are its fate (who answered, at which address, with which original
destination and source) and the counters of every rule.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from attempts import (
    BATCH,
    CONNECTIONS,
    DIALECTS,
    FOREIGN,
    NEIGHBOUR,
    SEED,
    Attempt,
    compare_counters,
    compare_fates,
    disagree,
    disagree_each_time,
    forget_connections,
    made_attempts,
    predict,
    program,
    read_counters,
    render_foreign,
    report,
    send,
)
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from core import plan
from laboratory import Pod
from netinit.base.net import FAMILIES
from netinit.options import Options
from netinit.options.interception import AMBIENT
from netinit.rules.model import Plan
from netinit.simulate.ruleset import load_plan
from strategies import made_ambient_options, made_options

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1800)]

ANY = st.one_of(*[made_options(interfaces=(NEIGHBOUR,))] * 3, made_ambient_options(interfaces=(NEIGHBOUR,)))


def test_every_connection_ends_where_the_simulator_says(dialect, pod, capsys, record_property):
    made = Counter()

    @seed(SEED)
    @settings(
        max_examples=-(-CONNECTIONS // BATCH), database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
    )  # fmt: skip
    @given(ANY, st.lists(made_attempts(), min_size=BATCH, max_size=BATCH))
    def hold(options: Options, attempts: list[Attempt]) -> None:
        wanted = plan(options)
        if options.layout != AMBIENT:
            attempts = [replace(one, mark=0) for one in attempts]
        if not wanted.addresses:
            attempts = [one for one in attempts if "::6" not in (one.host, one.source)]
        made["connections"] += len(attempts)
        found = disagree(pod, dialect, wanted, attempts)
        if not found:
            return
        made["repeated"] += 1  # a late packet, a port taken twice: what is real shows again
        assert disagree_each_time(pod, dialect, wanted, attempts) == [], report(pod, dialect, options, wanted, attempts)

    try:
        hold()
    finally:
        record_property("connections", made["connections"])
        with capsys.disabled():
            print(f"\n{dialect}: {made['connections']} connections, {made['repeated']} batches repeated, seed {SEED}")


def disagree_beside_others(
    pod: Pod, dialect: str, wanted: Plan, chosen: list[tuple[str, str, bool]], attempts: list[Attempt]
) -> list[str]:
    """The same for foreign rules beside ours, read back from the kernel as a listing."""
    program(pod, dialect, wanted)
    planned = {family: load_plan(wanted, family) for family in FAMILIES}
    for family in FAMILIES:
        restore = f"{dialect.replace('iptables', family.program)}-restore"
        pod.run([restore, "-w", "--noflush"], stdin=render_foreign(chosen, family), check=True)
    rulesets = {
        family: replace(read_counters(pod, dialect, family), local_marks=planned[family].local_marks)
        for family in FAMILIES
    }
    talks = predict(rulesets, wanted, attempts)
    forget_connections(pod)
    arrivals = send(pod, attempts)
    live = {family: read_counters(pod, dialect, family) for family in FAMILIES}
    return compare_fates(attempts, talks, arrivals) + compare_counters(live, attempts, talks)


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if one != "nftables"], indirect=True)  # tables of others are not read
def test_rules_of_others_beside_ours_are_understood_from_the_listing(dialect, pod, capsys):
    made = Counter()

    @seed(SEED)
    @settings(
        max_examples=-(-CONNECTIONS // BATCH // 2), database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
    )  # fmt: skip
    @given(
        made_options(interfaces=(NEIGHBOUR,)),
        st.lists(st.tuples(st.sampled_from(FOREIGN), st.booleans()), max_size=6),
        st.lists(made_attempts(), min_size=BATCH, max_size=BATCH),
    )
    def hold(options: Options, others: list[tuple[tuple[str, str], bool]], attempts: list[Attempt]) -> None:
        wanted = plan(options)
        chosen = [(table, rule, first) for (table, rule), first in others]
        attempts = [replace(one, mark=0) for one in attempts]
        if not wanted.addresses:
            attempts = [one for one in attempts if "::6" not in (one.host, one.source)]
        made["connections"] += len(attempts)
        if not disagree_beside_others(pod, dialect, wanted, chosen, attempts):
            return
        made["repeated"] += 1
        alone = [  # a late packet is counted once; what is real shows again
            (one, disagree_beside_others(pod, dialect, wanted, chosen, [one]) and disagree_beside_others(pod, dialect, wanted, chosen, [one]))
            for one in attempts
        ]
        assert not any(found for _, found in alone), "\n".join(
            [f"{dialect}, seed {SEED}, options {' '.join(options.to_argv())}, others {chosen}"]
            + [f"{one}\n  " + "\n  ".join(found) for one, found in alone if found]
        )

    try:
        hold()
    finally:
        with capsys.disabled():
            print(
                f"\n{dialect} beside others: {made['connections']} connections, {made['repeated']} batches repeated, seed {SEED}"
            )
