"""Options that are simulated are the pod that is programmed with them: rules, and what a plan adds besides."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st

import netinit
from laboratory import Pod
from netinit.base.errors import NetinitError
from netinit.options import Options
from netinit.options.command_line import format_options
from programming import apply_in, needs, remove_in
from randomness import SEED
from strategies import made_any_options
from sweeps import in_turn

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
SETS = int(os.environ.get("NETINIT_OPTION_SETS", "4"))
FROM_THE_PROXYS_ADDRESS = "outbound ipv6 tcp from ::6 to pod not by proxy is dropped"


@in_turn("backend", BACKENDS)
def test_no_packet_is_treated_differently_by_options_and_by_the_pod_programmed_with_them(require_netns, backend, capsys):
    needs(backend)
    counted = Counter()

    @seed(SEED)
    @settings(
        max_examples=SETS, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )  # fmt: skip
    @given(made_any_options(), st.booleans())
    def hold(options, exact):
        with Pod() as pod:
            counted["tried"] += 1
            same(pod, options.replace(backend=backend, istio_exact=exact), counted)

    hold()
    assert counted["compared"] > counted["tried"] / 2, counted
    with capsys.disabled():
        print(f"\n{backend}: options and live pods treat all packets alike: {dict(counted)}, seed {SEED}")


def same(pod: Pod, options: Options, counted: Counter[str]) -> None:
    try:
        apply_in(pod, options)
    except NetinitError:
        reject()
    report = netinit.diff(options, "live", netns=pod.path)
    assert report.equal, f"{format_options(options)}\n{report.text}"
    audited = [partial(netinit.audit, assertions=[FROM_THE_PROXYS_ADDRESS]) for _ in range(2)]
    planned = audited[0](options, pod_ip=[pod.address, pod.address6]).pods[0].rulings[0].holds
    live = audited[1](netns=pod.path).pods[0].rulings[0].holds
    assert planned is live, format_options(options)
    counted["compared"] += 1
    remove_in(pod, options)
