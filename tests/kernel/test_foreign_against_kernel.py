"""Random foreign rules and routes beside ours: verify and the simulator never call captured what really escapes.

Each trial adds foreign base chains of nf_tables, rules of iptables (nft and legacy), policy rules or routes to a pod, and makes
real connections. NETINIT_CONNECTIONS sets how many, NETINIT_SEED repeats a run.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from attempts import CONNECTIONS, forget_connections

from netinit.base.net import IPV4
from netinit.kernel.snapshot.reading import read_snapshot
from netinit.lab import APP_ID, Pod, Probe, start_servers
from netinit.options import Options
from netinit.rules.layouts import plan
from netinit.rules.model import ESCAPING
from netinit.simulate.endpoints import make_inbound, make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.host import is_simple, surroundings_of
from netinit.simulate.in_force import find_departures
from netinit.simulate.ruleset import load_plan
from netinit.simulate.snapshot_rules import load_snapshot
from netinit.simulate.trace import CAPTURED
from programming import needs, run_tool
from randomness import SEED

pytestmark = [pytest.mark.netns, pytest.mark.timeout(3600)]
NFT, LEGACY, NATIVE = "iptables-nft", "iptables-legacy", "nftables"
SIDECAR = ("-p", "15001", "-z", "15006", "-u", "1337", "-b", "*", "-i", "*", "--ipv6", "off")
PLANS = {NFT: (*SIDECAR, "--istio-exact"), LEGACY: SIDECAR, NATIVE: (*SIDECAR, "-m", "TPROXY", "--istio-exact")}
TRANSPARENT = {NATIVE: (15006,)}
TRIALS = {backend: max(CONNECTIONS // 33, 5) for backend in PLANS}  # of 11 connections each
OUTSIDE, POD, CLIENT = ("198.51.100.7", "203.0.113.7"), "10.77.0.2", "10.77.0.1"
APP_PORTS = (80, 443, 8080, 8081)
SILENCE = 0.35

MATCHES = (
    "", "", "tcp dport 80", "tcp dport {{ 80, 8080 }}", "tcp dport != 80", "ip daddr {out}", "ip daddr {pod}", "ip daddr 203.0.113.0/24",
    "ip saddr {client}", "ip saddr {pod}", "meta l4proto tcp", "ip protocol tcp", "ct state new", "ct state established,related", "ct status dnat",
    "meta mark 1", "meta mark & 3 == 1", "ct mark 1", "fib daddr type local", "limit rate 1/second", "limit rate over 1000/second",
    "tcp flags syn / fin,syn,rst,ack", "ip ttl 64", "ip dscp 0", "th dport 80", "iifname eth0", "oifname eth0", "iifname lo", "oifname lo",
    "meta length > 40", "numgen random mod 2 0", "ip version 4", "ct direction original", "meta pkttype host", "@nh,128,32 0xcb007107",
)  # fmt: skip
SENDERS = ("meta skuid 1000", "meta skgid 1000", "meta skuid 1337")
HOOKS = {
    "nat": ("prerouting", "input", "output", "postrouting"), "route": ("output",),
    "filter": ("prerouting", "input", "forward", "output", "postrouting"),
}  # fmt: skip
PRIORITIES = (-400, -310, -300, -250, -200, -199, -160, -150, -149, -101, -100, -99, -50, 0, 1, 50, 100, 150, 300)
VERDICTS = {
    "nat": {
        "dnat": ("dnat ip to {out}", "dnat ip to {out}:80", "dnat ip to {pod}", "dnat ip to {pod}:8080", "dnat ip to 127.0.0.1:8080", "redirect to :8080",
                 "redirect to :15001", "redirect", "accept", "return", "drop", "jump more", "counter"),
        "snat": ("masquerade", "snat ip to {pod}", "accept", "drop", "return"),
    },
    "filter": ("accept", "drop", "return", "reject", "notrack", "ct zone set 7", "meta mark set 1", "meta mark set meta mark | 2", "ct mark set 1", "counter",
               "tcp dport set 8081", "ip daddr set {out}", "jump more", "goto more", 'log prefix "x"', "ip dscp set cs1", "meta nftrace set 1",
               "tcp option maxseg size set 1300", "meta priority set 1:1", "meta mark set 1337", "ct mark set meta mark", "meta mark set ct mark"),
}  # fmt: skip
IPTABLES = {
    "raw": (("PREROUTING", "OUTPUT"), ("CT --notrack", "CT --zone 7", "ACCEPT", "DROP")),
    "mangle": (("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"), ("MARK --set-mark 1", "ACCEPT", "DROP", "CONNMARK --save-mark", "DSCP --set-dscp 1", "MARK --set-mark 1337")),
    "nat": (("PREROUTING", "OUTPUT"), ("DNAT --to-destination {out}", "DNAT --to-destination {pod}:8080", "REDIRECT --to-ports 8080", "ACCEPT", "RETURN")),
    "filter": (("INPUT", "OUTPUT"), ("ACCEPT", "DROP", "REJECT", "RETURN")),
}  # fmt: skip
IPTABLES_MATCHES = (
    "-p tcp", "-p tcp --dport 80", "-p tcp -m multiport --dports 80,8080", "-p tcp -m multiport --ports 80", "-d {out}", "-s {client}", "-p tcp --syn",
    "-m conntrack --ctstate NEW", "-m conntrack --ctstate DNAT", "-m iprange --dst-range 203.0.113.1-203.0.113.9", "-m addrtype --dst-type LOCAL", "-m mark --mark 1",
    "-m time --timestart 00:00 --timestop 23:59", "-m statistic --mode random --probability 0.5", "",
)  # fmt: skip
ROUTES = (
    ("rule add from {pod} lookup 100", "rule del from {pod} lookup 100"), ("rule add to {out} lookup 100", "rule del to {out} lookup 100"),
    ("rule add fwmark 1 lookup 100", "rule del fwmark 1 lookup 100"), ("rule add uidrange 1000-1000 lookup 100", "rule del uidrange 1000-1000 lookup 100"),
    ("rule add fwmark 1 lookup 101", "rule del fwmark 1 lookup 101"), ("rule add to {out} lookup 101", "rule del to {out} lookup 101"),
    ("route add local {out} dev lo", "route del local {out} dev lo"), ("route add {out} via 10.77.0.1 metric 900", "route del {out} via 10.77.0.1 metric 900"),
    ("route add 203.0.113.0/24 dev lo", "route del 203.0.113.0/24 dev lo"), ("rule add iif lo lookup 101", "rule del iif lo lookup 101"),
)  # fmt: skip
TABLES = "ip route flush table 100; ip route flush table 101; ip route add default via 10.77.0.1 table 100; ip route add local default dev lo table 101"


@dataclass
class Trial:
    """What somebody adds beside our rules, and how it goes away again."""

    script: str = ""
    commands: list[str] = field(default_factory=list)
    undo: list[str] = field(default_factory=list)


def fill(text, random):
    return text.format(out=random.choice(OUTSIDE), pod=POD, client=CLIENT)


def make_chain(random, trial, number):
    """A foreign base chain with a few rules."""
    family = random.choice(("ip", "ip", "inet", "netdev"))
    kind = "filter" if family == "netdev" else random.choice(("nat", "filter", "route"))
    hook = random.choice(("ingress", "egress")) if family == "netdev" else random.choice(HOOKS[kind])
    priority = random.choice([one for one in PRIORITIES if kind != "nat" or one > -200])
    device = f"device {random.choice(('eth0', 'eth0', 'lo'))} " if family == "netdev" else ""
    policy = " policy drop;" if kind == "filter" and random.random() < 0.03 else ""
    rules = []
    for _ in range(random.randint(1, 3)):
        matches = [fill(random.choice(MATCHES), random) for _ in range(random.choice((0, 1, 1, 2)))]
        if hook in ("output", "postrouting") and random.random() < 0.3:
            matches.append(random.choice(SENDERS))
        if kind == "nat":
            verdict = random.choice(VERDICTS["nat"]["dnat" if hook in ("prerouting", "output") else "snat"])
            if ":" in verdict and not any("tcp" in one for one in matches):
                matches.append("meta l4proto tcp")
        else:
            verdict = random.choice(VERDICTS["filter"])
            if verdict.startswith("tcp ") and not any("tcp" in one for one in matches):
                matches.append("meta l4proto tcp")
        rules.append(" ".join([*filter(None, matches), fill(verdict, random)]))
    more = [" ".join([fill(random.choice(MATCHES), random), random.choice(("accept", "drop", "return", "counter"))]) for _ in range(2)]
    table = f"{family} trial{number}"
    inside = "\n".join(rules)
    trial.script += f"""table {table} {{
chain more {{
{chr(10).join(more)}
}}
chain base {{
type {kind} hook {hook} {device}priority {priority};{policy}
{inside}
}}
}}
"""
    trial.undo.append(f"nft delete table {table}")


def make_trial(random):
    trial = Trial()
    for number in range(random.choice((0, 1, 1, 1, 2, 3))):
        make_chain(random, trial, number)
    if random.random() < 0.4 or not trial.script:
        program, table = random.choice((NFT, LEGACY)), random.choice([*IPTABLES])
        hooks, targets = IPTABLES[table]
        spec = f"-t {table} {{}} {random.choice(hooks)} {fill(random.choice(IPTABLES_MATCHES), random)} -j {fill(random.choice(targets), random)}"
        trial.commands.append(f"{program} -w " + spec.format(random.choice(("-A", "-I"))))
        trial.undo.append(f"{program} -w " + spec.format("-D"))
    if random.random() < 0.25:
        add, delete = (fill(text, Random(SEED)) for text in random.choice(ROUTES))
        trial.commands.append(f"ip {add}")
        trial.undo.append(f"ip {delete}")
    return trial


def connections(random):
    """Of the application to outside, and of a client to the pod: (direction, probe)."""
    found = [
        ("out", Probe(host, port, uid=user, gid=user, timeout=SILENCE))
        for host in OUTSIDE
        for port in random.sample(APP_PORTS[:3], 2)
        for user in (APP_ID, 0)
    ]
    return [*found, *[("in", Probe(POD, port, timeout=SILENCE)) for port in (80, 8080, 443)]]


def tell(arrival, port):
    if arrival.outcome != "answered":
        return "gone"
    return "captured" if (arrival.server, arrival.port) == ("proxy", port) else "escaped"


def send(pod, asked):
    """What becomes of connections; those out come first. With TPROXY the proxy sees the port that was asked for."""
    out, into = ([probe for direction, probe in asked if direction == which] for which in ("out", "in"))
    return [*[tell(one, 15001) for one in pod.probe(out)], *[tell(one, 15006) for one in pod.client.probe(into)]]


def packet_of(direction, probe, around, number):
    if direction == "out":
        return make_outbound(around, probe.host, probe.port, uid=probe.uid, gid=probe.gid, source_port=40000 + number)
    return make_inbound(around, CLIENT, probe.host, probe.port, interface="eth0", source_port=40000 + number)


EXAMPLE = re.compile(r"for example TCP from (?:10\.77\.0\.2|192\.0\.2\.1) to ([\d.]+):(\d+), (?:sent by uid (\d+), gid (\d+)|coming in through eth0)(?=[;)]|$)")


def example_of(line):
    """The connection that a line of verify names; None where none can be sent."""
    found = EXAMPLE.search(line)
    if not found or int(found[2]) not in APP_PORTS or (found[1] not in OUTSIDE if found[3] else found[1] != POD):
        return None
    ids = {"uid": int(found[3]), "gid": int(found[4])} if found[3] else {}
    return ("out" if found[3] else "in", Probe(found[1], int(found[2]), timeout=SILENCE, **ids))


def judge(pod, planned, backend, trial, asked, counted):
    """What netinit says that is not so."""
    with pod.entered():
        snapshot = read_snapshot()
    departures = find_departures(snapshot, planned, backend, ())
    escaping = [one for one in departures.differences if one.kind == ESCAPING]
    around = surroundings_of(snapshot, IPV4)
    joint = load_snapshot(snapshot, [planned]).join(IPV4, backend)
    alone = load_plan(planned, IPV4)
    plain = around.replace(routes=tuple(one for one in around.routes if one[1] != "lo"))
    packets = [packet_of(*one, plain, number) for number, one in enumerate(asked)]
    wanted = [simulate(one, alone, plain).verdict == CAPTURED for one in packets]
    said = [simulate(one, joint, around).verdict for one in packets]
    truth = send(pod, asked)
    wrong = []
    for (direction, probe), planned_so, verdict, real in zip(asked, wanted, said, truth, strict=True):
        counted[real] += 1
        counted["not predicted"] += verdict == "unknown"
        what = f"{direction} {probe.host}:{probe.port} by {probe.uid}"
        if planned_so and real == "escaped" and not escaping:
            wrong.append(f"{what} escapes, verify says nothing: {departures.warnings}")
        if is_simple(snapshot, IPV4) and (real, verdict) in {("escaped", CAPTURED), ("captured", "direct")}:
            wrong.append(f"{what}: {verdict}, and in fact {real}")
    counted["alarms"] += bool(escaping)
    counted["alarms that are sure"] += any("captured packets escape there" in one.describe() for one in escaping)
    if escaping and "escaped" not in truth:
        counted["alarms without an escape among the connections"] += 1
        for one in escaping:
            example = example_of(one.describe())
            if "captured packets escape there" in one.describe() and example:
                (real,) = send(pod, [example])
                counted[f"examples of these: {real}"] += 1
                if real == "captured":
                    wrong.append(f"false alarm: {one.describe()}")
    return wrong


@pytest.mark.parametrize("backend", PLANS)
def test_what_escapes_beside_random_foreign_rules_is_never_called_captured(backend, require_netns, capsys):
    for name in {backend, NFT, LEGACY}:
        needs(name)
    planned = plan(Options.from_argv(PLANS[backend], {}))
    counted, found = Counter(), []
    with Pod() as pod:
        start_servers(pod, app=APP_PORTS, transparent=TRANSPARENT.get(backend, ()))
        done = run_tool(pod, "apply", *PLANS[backend], "--backend", backend)
        assert done.returncode == 0, done.stderr
        pod.run(["sh", "-c", TABLES], check=True)
        number = 0
        while counted["trials"] < TRIALS[backend]:
            number += 1
            random = Random(f"{SEED} {backend} {number}")
            trial = make_trial(random)
            made = pod.run(["nft", "-f", "-"], stdin=trial.script) if trial.script else None
            if made and made.returncode:
                counted["refused by nft"] += 1
                continue
            for command in trial.commands:
                counted["refused"] += bool(pod.run(["sh", "-c", command]).returncode)
            counted["trials"] += 1
            wrong = judge(pod, planned, backend, trial, connections(random), counted)
            for command in reversed(trial.undo):
                pod.run(["sh", "-c", command])
            forget_connections(pod)  # what escaped leaves entries on which later connections would
            if wrong:
                found.append("\n".join([f"{backend}, seed {SEED}, trial {number}", trial.script, *trial.commands, *wrong]))
        assert send(pod, connections(Random(0))) == ["captured"] * 11, "something foreign is left"
    with capsys.disabled():
        print(f"\n{backend}: {dict(counted)}, seed {SEED}")
    assert not found, f"{len(found)} trials:\n" + "\n\n".join(found[:10])
