"""`watch`: the sum of its rows is the connections that were made, over random options and connections.

The counters are those of the rules that simulated connections meet, which tests/kernel compares with the kernel's own.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allpackets import POD, around
from core import FAMILIES, load_plan, plan
from netinit.base.net import bounds_of
from netinit.live.verdict_counters import INBOUND, LOOPBACK_TOO, OUTBOUND, Place, count_rules, find_fates
from netinit.options import TPROXY
from netinit.options.command_line import write_command
from netinit.rules.model import MANGLE, PREROUTING
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.stand_ins import make_inbound
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED
from randomness import some
from strategies import PORTS, USERS, made_options

pytestmark = pytest.mark.timeout(3600)
SOURCE = "iptables-nft"
OUTSIDE = {4: ("198.51.100.7", "203.0.113.7", "10.1.2.3"), 6: ("2001:db8::7", "fd77::9")}
CONNECTIONS = 60


def draw_connections(family, host, random):
    """TCP of users of the pod to outside, and of somebody outside to the pod."""
    for number in range(CONNECTIONS):
        port, far = random.choice(PORTS), random.choice(OUTSIDE[family.version])
        if random.random() < 0.5:
            yield make_inbound(host, far, POD[family], port, interface="eth0", source_port=40000 + number)
        else:
            uid, gid = random.choice(USERS), random.choice(USERS)
            yield make_outbound(host, far, port, uid=uid, gid=gid, source_port=40000 + number)


def sum_rows(rulesets, hits):
    """The sum of the rows of each direction and verdict, the directions in which a rule captures (others count nothing as direct),
    and whether a row says that it includes what comes back over lo."""
    counters = {place: (text, hits[place]) for place, (text, _) in count_rules(rulesets, frozenset()).items()}
    found = Counter()
    fates = find_fates(rulesets, frozenset())
    for fate in fates:
        found[fate.direction.split("+")[0], fate.verdict] += fate.count(counters)  # nothing is forwarded here
    return found, {fate.direction for fate in fates if fate.verdict == CAPTURED}, any(LOOPBACK_TOO in fate.because for fate in fates)


def _captures_again(options):
    """Whether TPROXY's rules of inbound ports name the proxy's: they meet what NAT redirects there over lo, counted in OUTPUT already."""
    listed = (*options.exclude_inbound_ports, *(options.inbound_ports if options.inbound_ports != "*" else ()))
    ports = (options.outbound_port, options.inbound_port)
    return options.inbound_mode == TPROXY and any(bounds_of(one)[0] <= port <= bounds_of(one)[1] for one in listed for port in ports)


@settings(max_examples=some(60), suppress_health_check=list(HealthCheck))
@given(made_options(interfaces=()), st.integers(0, 1 << 30), st.sampled_from(FAMILIES))
def test_the_sum_of_the_rows_is_the_connections_that_were_made(options, number, family):
    made = plan(options)
    if family not in made.families or _captures_again(options):
        return
    ruleset = load_plan(made, family)
    host = ruleset.place_on(around(family))
    hits, ended, back = Counter(), Counter(), 0
    for packet in draw_connections(family, host, Random(number)):
        trace = simulate(packet, ruleset, host)
        for step in trace.hits:
            hits[Place(SOURCE, family.name, step.table, step.chain, step.rule.number)] += 1
        ended[INBOUND if packet.in_interface else OUTBOUND, trace.verdict] += 1
        back += bool(not packet.in_interface and any((step.hook, step.table) == (PREROUTING, MANGLE) for step in trace.hits))
    found, capturing, includes_loopback = sum_rows({SOURCE: {family: ruleset}}, hits)
    if includes_loopback:  # as its row says
        ended[INBOUND, DIRECT] += back
    for direction in (INBOUND, OUTBOUND):
        for verdict in (CAPTURED, DROPPED, *((DIRECT,) if direction in capturing else ())):
            assert found[direction, verdict] == ended[direction, verdict], (direction, verdict, write_command(options))
