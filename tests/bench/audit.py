"""How long all packets take: excluded networks by the thousand, with 50 ports in each direction, and how much memory.

    python tests/bench/audit.py [--networks 0 1000 10000]

Budgets: 1,000 networks under a second and 10,000 under ten, as processor time, and the growth
from one to the other as a ratio, which does not depend on the machine. What is over its budget ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from netinit.base.net import FAMILIES, Network, number_of
from netinit.options import Options, offline
from netinit.questions.audit.bypasses import audit
from netinit.questions.pod_rules import PodRules
from netinit.rules.layouts import plan
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.ruleset import load_plan

POD = ("192.0.2.10", "2001:db8::10")
PORTS = tuple(range(2000, 2100, 2))
BUDGETS = {1000: 1.0, 10_000: 10.0}  # seconds
MOST_GROWTH = 25  # of the time, for ten times the networks


def networks(count: int) -> tuple[Network, ...]:
    """Networks that do not touch each other."""
    return tuple(Network((4, (11 << 24) + (at << 13), 24)) for at in range(count))


def measure(count: int) -> tuple[float, float, int]:
    """Seconds until all packets are in parts, seconds until these are lines, and the number of parts."""
    options = Options(
        inbound_ports="*", outbound_cidrs="*", exclude_inbound_ports=PORTS, exclude_outbound_ports=PORTS, ipv6="on",
        exclude_outbound_cidrs=networks(count),
    ).settle(offline())  # fmt: skip
    made = plan(options)
    rulesets = {"plan": {family: load_plan(made, family) for family in FAMILIES}}
    around = {
        family: Surroundings(family=family, addresses=(("eth0", number_of(address)),))
        for family, address in zip(FAMILIES, POD, strict=True)
    }
    subject = PodRules(rulesets, around, {"plan": options})
    start = time.process_time()
    parts = sum(len(one.parts) for one in subject.partitions)
    divided = time.process_time()
    audit(subject)
    return divided - start, time.process_time() - divided, parts


def main() -> int:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", type=int, nargs="+", default=[0, 1000, 10_000])
    times: dict[int, float] = {}
    for count in parser.parse_args().networks:
        times[count], lines, parts = measure(count)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{count:>6} networks, 50 ports: {times[count]:.2f} s to {parts} parts, {lines:.2f} s to lines, {memory:.0f} MB")
    over = [f"{count} networks: {times[count]:.2f} s of {budget:.0f}" for count, budget in BUDGETS.items() if times.get(count, 0) > budget]
    if {1000, 10_000} <= times.keys() and times[10_000] > MOST_GROWTH * times[1000]:
        over.append(f"ten times the networks take {times[10_000] / times[1000]:.0f} times as long, more than {MOST_GROWTH}")
    for text in over:
        print(f"over the budget: {text}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
