"""Answers of all captured packets at once: each member of each part is answered as the simulator of one packet says."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from allpackets import anywhere, around, corner, highest, lowest
from core import FAMILIES, parse_listing, plan
from netinit.base.errors import TooManyPartsError
from netinit.simulate.answers import follow_answer
from netinit.simulate.engine import simulate
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import with_plan
from netinit.simulate.symbolic.answer_walk import find_loss, follow_answers, is_known, list_askers
from netinit.simulate.symbolic.boxes import list_boxes
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.space import packet_of
from netinit.simulate.trace import CAPTURED, DELIVERED, DIRECT, SENT
from randomness import SEED
from strategies import made_options

pytestmark = pytest.mark.timeout(3600)
SETS = min(int(os.environ.get("NETINIT_OPTION_SETS", "3")), 200)
PROXY = (1337, 1337)
FOREIGN = {
    "raw": (("PREROUTING", "OUTPUT"), ("CT --zone 3", "CT --notrack", "DROP")),
    "mangle": (
        ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
        ("MARK --set-xmark 0x539/0xffffffff", "CONNMARK --set-xmark 0x539/0xffffffff", "DROP"),
    ),
    "nat": (("POSTROUTING", "INPUT"), ("MASQUERADE", "SNAT --to-source {other}")),
    "filter": (("INPUT", "OUTPUT"), ("DROP", "REJECT", "ACCEPT")),
}
CONDITIONS = (
    "-s {net}", "! -d {net}", "-d {net}", "-p tcp -m tcp --sport 8080", "-p tcp -m tcp --dport 1:1024", "-p udp", "-i lo", "-o eth0", "-i eth0",
    "-m conntrack --ctstate ESTABLISHED", "-m conntrack --ctstate INVALID", "-m conntrack --ctstate DNAT", "-m conntrack --ctdir REPLY",
    "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK", "-m owner --uid-owner 1337", "-m mark --mark 0x539",
    "-m connmark --mark 0x539", "-m addrtype --src-type LOCAL", "-m addrtype ! --src-type LOCAL", "-m socket", "",
)  # fmt: skip
NETWORKS = {4: ("198.51.100.0/24", "192.0.2.10/32", "100.64.0.0/10"), 6: ("2001:db8::/32", "fd00::/8", "2001:db8::10/128")}
OTHER = {4: "192.0.2.77", 6: "2001:db8::77"}


@st.composite
def made_foreign_rules(draw):
    """A few rules of others for each table, in a family, as a listing."""
    family = draw(st.sampled_from(FAMILIES))
    lines = []
    for table, (hooks, targets) in FOREIGN.items():
        lines += [f"*{table}", *[f":{hook} ACCEPT [0:0]" for hook in hooks]]
        for _ in range(draw(st.integers(0, 2))):
            hook, condition, target = (draw(st.sampled_from(choices)) for choices in (hooks, CONDITIONS, targets))
            sees = {"-i": hook in ("PREROUTING", "INPUT"), "-o": hook in ("OUTPUT", "POSTROUTING"), "-m owner": hook in ("OUTPUT", "POSTROUTING")}
            if all(possible or not condition.startswith(begin) for begin, possible in sees.items()):
                text = f"-A {hook} {condition} -j {target}".replace("  ", " ")
                lines.append(text.format(net=draw(st.sampled_from(NETWORKS[family.version])), other=OTHER[family.version]))
        lines.append("COMMIT")
    return family, "\n".join(lines) + "\n"


def check(options, family, text, counted):
    ruleset = with_plan(load_listing(parse_listing(text), family), plan(options))
    random = Random(SEED)
    for space in make_spaces([{family: ruleset}], {family: around(family)}, free=False):
        for part in divide(space, ruleset, marks_matter=False).parts:
            asked = list_askers(part)
            if (part.verdict, part.fate) not in ((CAPTURED, DELIVERED), (DIRECT, DELIVERED), (DIRECT, SENT)) or not asked:
                continue
            owner = PROXY if part.verdict == CAPTURED else None
            for end in follow_answers(ruleset, replace(part, region=asked), owner):
                box = next(iter(list_boxes(end.region)))
                for choose in (lowest, highest, anywhere(random)):
                    packet, host = packet_of(space, corner(space, box, choose))
                    met = simulate(packet, ruleset, host)
                    answer = follow_answer(met, ruleset, host, owner=owner)
                    assert answer is not None, (text, packet)
                    counted["answers"] += 1
                    if not is_known(end):
                        counted["unknown"] += 1
                        continue
                    lost = bool(find_loss(end, part))
                    counted["lost"] += lost
                    assert answer.arrives is not lost, f"{text}{options}\n{packet}\n{end}\n{answer.reason}"
                    assert lost or answer.trace.fate == end.fate, (text, packet)


def test_answers_of_all_packets_are_those_of_each(capsys):
    counted = Counter()

    @seed(SEED)
    @settings(
        max_examples=4 * SETS, database=None, deadline=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
    )  # fmt: skip
    @given(made_options(), made_foreign_rules())
    def hold(options, foreign):
        try:
            check(options, *foreign, counted)
        except TooManyPartsError:
            counted["not proved"] += 1

    hold()
    assert counted["lost"], "some are lost"
    with capsys.disabled():
        print(f"\nanswers of all packets: {dict(counted)}, seed {SEED}")
