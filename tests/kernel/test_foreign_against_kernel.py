"""Random foreign rules and routes beside ours: verify and the simulator never call captured what really escapes.

Each trial adds foreign base chains of nf_tables, rules of iptables (nft and legacy), policy rules or routes to a pod, and makes
real connections: TCP and DNS, of IPv4 and IPv6. NETINIT_CONNECTIONS sets how many, NETINIT_SEED repeats a run.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from attempts import CONNECTIONS, forget_connections

from core import plan
from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.base.net import FAMILIES, IPV4, IPV6, Network
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.lab import APP_ID
from netinit.live.host import LOST, find_devices, is_simple, surroundings_of
from netinit.live.in_force import find_deviations
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import Options
from netinit.rules.model import ESCAPING
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.ruleset import load_plan
from netinit.simulate.stand_ins import make_inbound
from netinit.simulate.trace import CAPTURED
from programming import needs, run_tool
from randomness import SEED

pytestmark = [pytest.mark.netns, pytest.mark.timeout(3600)]
NFT, LEGACY, NATIVE = "iptables-nft", "iptables-legacy", "nftables"
OUTSIDE, POD, CLIENT = ("198.51.100.7", "203.0.113.7"), "10.77.0.2", "10.77.0.1"
OUTSIDE6, POD6, CLIENT6 = ("2001:db8::7", "2001:db8::8"), "fd77::2", "fd77::1"
NAME_SERVERS = (OUTSIDE[1], OUTSIDE6[0])
SIDECAR = ("-p", "15001", "-z", "15006", "-u", "1337", "-b", "*", "-i", "*", "--ipv6", "on", "--redirect-dns", "--dns-servers", ",".join(NAME_SERVERS))
PLANS = {NFT: (*SIDECAR, "--istio-exact"), LEGACY: SIDECAR, NATIVE: (*SIDECAR, "-m", "TPROXY", "--istio-exact")}
PORTS = {"out": 15001, "in": 15006, "dns": 15053}
TRANSPARENT = {NATIVE: (15006,)}
EACH = 20  # connections of a trial
TRIALS = {backend: max(CONNECTIONS // (3 * EACH), 5) for backend in PLANS}
APP_PORTS = (80, 443, 8080, 8081)
SILENCE = 0.35

MATCHES = (
    "", "", "tcp dport 80", "tcp dport {{ 80, 8080 }}", "tcp dport != 80", "ip daddr {out}", "ip daddr {pod}", "ip daddr 203.0.113.0/24",
    "ip saddr {client}", "ip saddr {pod}", "meta l4proto tcp", "ip protocol tcp", "ct state new", "ct state established,related", "ct status dnat",
    "meta mark 1", "meta mark & 3 == 1", "ct mark 1", "fib daddr type local", "limit rate 1/second", "limit rate over 1000/second",
    "tcp flags syn / fin,syn,rst,ack", "ip ttl 64", "ip dscp 0", "th dport 80", "iifname eth0", "oifname eth0", "iifname lo", "oifname lo",
    "meta length > 40", "numgen random mod 2 0", "ip version 4", "ct direction original", "meta pkttype host", "@nh,128,32 0xcb007107", "udp dport 53", "meta l4proto udp",
    "th dport {{ 53, 80 }}", "meta nfproto ipv6", "ip daddr . tcp dport {{ {out} . 80 }}", "socket transparent 0", "ct original proto-dst 80",
)  # fmt: skip
OF_IPV4 = ("ip ttl", "ip dscp", "ip version", "ip protocol", "@nh")
SENDERS = ("meta skuid 1000", "meta skgid 1000", "meta skuid 1337")
HOOKS = {
    "nat": ("prerouting", "input", "output", "postrouting"), "route": ("output",),
    "filter": ("prerouting", "input", "forward", "output", "postrouting"),
}  # fmt: skip
PRIORITIES = (-400, -310, -300, -250, -200, -199, -160, -150, -149, -101, -100, -99, -50, 0, 1, 50, 100, 150, 300)
VERDICTS = {
    "nat": {
        "dnat": ("dnat ip to {out}", "dnat ip to {out}:80", "dnat ip to {pod}", "dnat ip to {pod}:8080", "dnat ip to 127.0.0.1:8080", "redirect to :8080", "redirect to :15053",
                 "redirect to :15001", "redirect", "accept", "return", "drop", "jump more", "counter"),
        "snat": ("masquerade", "snat ip to {pod}", "accept", "drop", "return"),
    },
    "filter": ("accept", "drop", "return", "reject", "notrack", "ct zone set 7", "meta mark set 1", "meta mark set meta mark | 2", "ct mark set 1", "counter",
               "tcp dport set 8081", "ip daddr set {out}", "jump more", "goto more", 'log prefix "x"', "ip dscp set cs1", "meta nftrace set 1",
               "tcp option maxseg size set 1300", "meta priority set 1:1", "meta mark set 1337", "ct mark set meta mark", "meta mark set ct mark"),
}  # fmt: skip
IPTABLES = {
    "raw": (("PREROUTING", "OUTPUT"), ("CT --notrack", "CT --zone 7", "ACCEPT", "DROP")),
    "mangle": (("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"), ("MARK --set-mark 1", "ACCEPT", "DROP", "CONNMARK --save-mark", "CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80", "DSCP --set-dscp 1", "MARK --set-mark 1337")),
    "nat": (("PREROUTING", "OUTPUT"), ("DNAT --to-destination {out}", "DNAT --to-destination {pod}:8080", "REDIRECT --to-ports 8080", "ACCEPT", "RETURN")),
    "filter": (("INPUT", "OUTPUT"), ("ACCEPT", "DROP", "REJECT", "RETURN")),
}  # fmt: skip
IPTABLES_MATCHES = (
    "-p tcp", "-p tcp --dport 80", "-p tcp -m multiport --dports 80,8080", "-p tcp -m multiport --ports 80", "-d {out}", "-s {client}", "-p tcp --syn",
    "-m conntrack --ctstate NEW", "-m conntrack --ctstate DNAT", "-m iprange --dst-range 203.0.113.1-203.0.113.9", "-m addrtype --dst-type LOCAL", "-m mark --mark 1",
    "-m time --timestart 00:00 --timestop 23:59", "-m statistic --mode random --probability 0.5", "",
)  # fmt: skip
SELECTORS = (
    "from {pod}", "to {out}", "not to {out}", "fwmark 1", "fwmark 1/3", "uidrange 1000-1000", "uidrange 0-999", "iif lo", "ipproto tcp", "ipproto udp dport 53",
    "ipproto tcp dport 80", "ipproto tcp sport 1-65000",
)  # fmt: skip
ACTIONS = ("lookup 100", "lookup 100", "lookup 101", "lookup main suppress_prefixlength 0", "prohibit", "lookup 102")
ROUTES = ("local {out} dev lo", "{out} via {client} metric 900", "{net} dev lo", "blackhole {out}", "default via {client} metric 5", "throw {out} table 100")
TABLES = "; ".join(
    f"ip {version} route flush table 100; ip {version} route flush table 101; ip {version} route add default via {gateway} dev eth0 table 100;"
    f"ip {version} route add local default dev lo table 101"
    for version, gateway in (("-4", CLIENT), ("-6", CLIENT6))
)


@dataclass
class Trial:
    """What somebody adds beside our rules, and how it goes away again."""

    script: str = ""
    commands: list[str] = field(default_factory=list)
    undo: list[str] = field(default_factory=list)


def fill(text, random, version=4):
    if version == 4:
        return text.format(out=random.choice(OUTSIDE), pod=POD, client=CLIENT, net="203.0.113.0/24")
    for word in ("ip daddr", "ip saddr", "dnat ip", "snat ip"):
        text = text.replace(word, word.replace("ip", "ip6"))
    out = random.choice(OUTSIDE6)
    for host in ("{out}", "{pod}", "127.0.0.1"):  # before a port
        text = text.replace(f"{host}:", f"[{host}]:")
    text = text.replace("127.0.0.1", "::1").replace("203.0.113.0/24", "2001:db8::/32").replace("203.0.113.1-203.0.113.9", "2001:db8::1-2001:db8::9")
    return text.format(out=out, pod=POD6, client=CLIENT6, net="2001:db8::/64")


def fitting(texts, version):
    return [one for one in texts if version == 4 or not one.startswith(OF_IPV4)]


def make_chain(random, trial, number):
    """A foreign base chain with a few rules."""
    family = random.choice(("ip", "ip", "ip6", "inet", "inet", "netdev"))
    version = 6 if family == "ip6" or (family != "ip" and random.random() < 0.4) else 4
    kind = "filter" if family == "netdev" else random.choice(("nat", "filter", "route"))
    hook = random.choice(("ingress", "egress")) if family == "netdev" else random.choice(HOOKS[kind])
    priority = random.choice([one for one in PRIORITIES if kind != "nat" or one > -200])
    device = f"device {random.choice(('eth0', 'eth0', 'lo'))} " if family == "netdev" else ""
    policy = " policy drop;" if kind == "filter" and random.random() < 0.03 else ""
    rules = []
    for _ in range(random.randint(1, 3)):
        matches = [fill(random.choice(fitting(MATCHES, version)), random, version) for _ in range(random.choice((0, 1, 1, 2)))]
        if hook in ("output", "postrouting") and random.random() < 0.3:
            matches.append(random.choice(SENDERS))
        if kind == "nat":
            verdict = random.choice(VERDICTS["nat"]["dnat" if hook in ("prerouting", "output") else "snat"])
            if ":" in verdict and not any("tcp" in one for one in matches):
                matches.append("meta l4proto tcp")
        else:
            verdict = random.choice(fitting(VERDICTS["filter"], version))
            if verdict.startswith("tcp ") and not any("tcp" in one for one in matches):
                matches.append("meta l4proto tcp")
        rules.append(" ".join([*filter(None, matches), fill(verdict, random, version)]))
    more = [" ".join([fill(random.choice(fitting(MATCHES, version)), random, version), random.choice(("accept", "drop", "return", "counter"))]) for _ in range(2)]
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
        program, table, version = random.choice((NFT, LEGACY)), random.choice([*IPTABLES]), random.choice((4, 4, 6))
        hooks, targets = IPTABLES[table]
        match, target = (fill(random.choice(texts), random, version) for texts in (IPTABLES_MATCHES, targets))
        spec = f"-t {table} {{}} {random.choice(hooks)} {match} -j {target}"
        program = program if version == 4 else program.replace("ip", "ip6", 1)
        trial.commands.append(f"{program} -w " + spec.format(random.choice(("-A", "-I"))))
        trial.undo.append(f"{program} -w " + spec.format("-D"))
    if random.random() < 0.35:
        version = random.choice((4, 4, 6))
        if random.random() < 0.7:
            what = fill(f"rule {{}} pref {random.choice((5, 500))} {random.choice(SELECTORS)} {random.choice(ACTIONS)}".replace("{}", "{{}}"), random, version)
        else:
            what = fill(f"route {{}} {random.choice(ROUTES)}".replace("{}", "{{}}"), random, version)
        trial.commands.append(f"ip -{version} {what.format('add')}")
        trial.undo.append(f"ip -{version} {what.format('del')}")
    return trial


def connections(random):
    """Of the application to outside, to a name server, and of a client to the pod: (direction, probe)."""
    found = []
    for outside, pod in ((OUTSIDE, POD), (OUTSIDE6, POD6)):
        tcp = [(host, port, user) for host in outside for port in random.sample(APP_PORTS[:3], 2) for user in (APP_ID, 0)]
        found += [("out", Probe(host, port, uid=user, gid=user, timeout=SILENCE)) for host, port, user in random.sample(tcp, 6)]
        server = outside[1] if outside is OUTSIDE else outside[0]
        found.append(("dns", Probe(server, 53, udp=True, uid=APP_ID, gid=APP_ID, timeout=SILENCE)))
        found += [("in", Probe(pod, port, timeout=SILENCE)) for port in (80, 8080, 443)]
    return found


def tell(arrival, port):
    if arrival.outcome != "answered":
        return "gone"
    return "captured" if (arrival.server, arrival.port) == ("proxy", port) else "escaped"


def send(pod, asked):
    """What happens to connections, in their order. With TPROXY the proxy sees the port that was asked for."""
    found = {}
    for source, directions in ((pod, ("out", "dns")), (pod.client, ("in",))):
        numbers = [number for number, (direction, _) in enumerate(asked) if direction in directions]
        arrived = source.probe([asked[number][1] for number in numbers]) if numbers else []
        found |= {number: tell(one, PORTS[asked[number][0]]) for number, one in zip(numbers, arrived, strict=True)}
    return [found[number] for number in range(len(asked))]


def family_of_probe(probe):
    return IPV6 if ":" in probe.host else IPV4


def packet_of(direction, probe, around, number):
    protocol = "udp" if probe.udp else "tcp"
    if direction != "in":
        return make_outbound(around, probe.host, probe.port, protocol=protocol, uid=probe.uid, gid=probe.gid, source_port=40000 + number)
    return make_inbound(around, CLIENT6 if ":" in probe.host else CLIENT, probe.host, probe.port, interface="eth0", source_port=40000 + number)


def predict(snapshot, packet, joint, around):
    """The verdicts that are possible, as explain has them: one for each way that the packet may take."""
    if packet.in_interface or is_simple(snapshot, packet.family):
        return {simulate(packet, joint, around).verdict}
    ways = find_devices(snapshot, packet)
    if LOST in ways:
        return {simulate(packet, joint, around).verdict}
    host = Network((packet.family.version, packet.destination, packet.family.bits))
    return {simulate(packet, joint, around.replace(routes=((host, way),), doubtful=())).verdict for way in ways}


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
    differences, warnings = find_deviations(snapshot, planned, backend, ())
    escaping = [one for one in differences if one.kind == ESCAPING]
    held = load_snapshot(snapshot, [planned])
    around = {family: surroundings_of(snapshot, family) for family in FAMILIES}
    joint = {family: held.join(family, backend) for family in FAMILIES}
    alone = {family: load_plan(planned, family) for family in FAMILIES}
    plain = {family: one.replace(routes=tuple(each for each in one.routes if each[1] != "lo"), doubtful=()) for family, one in around.items()}
    truth = send(pod, asked)
    wrong = []
    escaped = 0  # of what the plan captures
    for number, ((direction, probe), real) in enumerate(zip(asked, truth, strict=True)):
        family = family_of_probe(probe)
        packet = packet_of(direction, probe, plain[family], number)
        said = predict(snapshot, packet, joint[family], around[family])
        counted[real] += 1
        counted[f"{direction} {family.name}"] += 1
        counted["not predicted"] += said not in ({"captured"}, {"direct"}, {"dropped"})
        what = f"{direction} {probe.host}:{probe.port} by {probe.uid}"
        planned_so = simulate(packet, alone[family], plain[family]).verdict == CAPTURED
        escaped += planned_so and real == "escaped"
        if planned_so and real == "escaped" and not escaping:
            wrong.append(f"{what} escapes, verify says nothing: {warnings}")
        if (real == "escaped" and said == {CAPTURED}) or (real == "captured" and said == {"direct"}):
            wrong.append(f"{what}: {said}, and in fact {real}")
    counted["alarms"] += bool(escaping)
    counted["alarms that are sure"] += any("captured packets escape there" in one.describe() for one in escaping)
    if escaping and not escaped:
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
        assert send(pod, connections(Random(0))) == ["captured"] * EACH, "something foreign is left"
    with capsys.disabled():
        print(f"\n{backend}: {dict(counted)}, seed {SEED}")
    assert not found, f"{len(found)} trials:\n" + "\n\n".join(found[:10])
