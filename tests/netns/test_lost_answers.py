"""Answers that foreign rules drop or policy rules send elsewhere: explain, audit and verify say what real sockets meet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lab_probes import Probe
from laboratory import Pod, start_servers
from programming import needs, run_tool
from sweeps import choose, in_turn, pairs, together

FAR, SHARED, SERVER = "203.0.113.7", "100.64.7.7", "203.0.113.53"
OPTIONS = ("-b", "*", "-i", "*", "--redirect-dns", "--dns-servers", SERVER)
BACKENDS = ("iptables-nft", "nftables", "iptables-legacy")
MODES = ("REDIRECT", "TPROXY")
TAILSCALE = 'table ip ts {\n chain input { type filter hook input priority 0; ip saddr 100.64.0.0/10 iifname != "tailscale0" drop; }\n}'
FULL_TUNNEL = (
    'table ip wg {\n chain preraw { type filter hook prerouting priority -300;'
    ' iifname != "wg0" ip daddr 10.9.0.2 fib saddr type != local drop; }\n}'
)  # fmt: skip
ROUTES = (
    "ip link add wg0 type veth peer name wg1", "ip link set wg1 up", "ip addr add 10.9.0.2/32 dev wg0", "ip link set wg0 up",
    "ip route add default dev wg0 table 51820", "ip rule add not fwmark 51820 table 51820", "ip rule add table main suppress_prefixlength 0",
)  # fmt: skip
ZONE_IN = "table inet z {\n chain input { type filter hook prerouting priority -300; ct zone set 5; }\n}"
ZONE_OUT = "table inet z {\n chain output { type filter hook output priority -300; tcp sport 1-65535 ct zone set 5; }\n}"
MARK = "table inet m {\n chain input { type filter hook input priority 0; ct mark set 1337; }\n}"
FOREIGN_SOURCE = "table ip s {\n chain post { type nat hook postrouting priority 100; meta l4proto tcp snat to 203.0.113.99; }\n}"
MASQUERADE = "table ip q {\n chain post { type nat hook postrouting priority 100; meta l4proto tcp masquerade; }\n}"
HARMLESS = "table ip h {\n chain input { type filter hook input priority 0; ip saddr 192.0.2.128/25 tcp dport 9 accept; }\n}"
WRITES = f"table ip w {{\n chain output {{ type filter hook output priority -300; ip daddr {FAR} tcp dport 80 ip daddr set {SHARED}; }}\n}}"
RULES = {
    "tailscale": (TAILSCALE,), "a full tunnel": (*ROUTES, FULL_TUNNEL), "policy rules alone": ROUTES, "a zone of what comes in": (ZONE_IN,),
    "a zone of what goes out": (ZONE_OUT,), "a mark of connections": (MARK,), "tailscale and masquerading": (TAILSCALE, MASQUERADE),
    "masquerading": (MASQUERADE,), "harmless rules": (HARMLESS,), "a destination without NAT": (WRITES,),
    "a source that the pod does not have": (FOREIGN_SOURCE,),
}  # fmt: skip
CONNECTIONS = {  # question, and the packet that asks the same; the client of the pod has a route of its own to it
    "to a shared address": (("--to", f"{SHARED}:80"), False, Probe(SHARED, 80)),
    "to far away": (("--to", f"{FAR}:80"), False, Probe(FAR, 80)),
    "a query": (("--udp", "--to", f"{SERVER}:53"), False, Probe(SERVER, 53, udp=True)),
    "from outside": (("inbound", "--from", "10.77.0.1", "--to-port", "8080"), True, Probe("10.77.0.2", 8080)),
}  # fmt: skip


def add(pod: Pod, *steps: str) -> None:
    for step in steps:
        if step.startswith("table"):
            pod.run(["nft", "-f", "-"], stdin=step, check=True)
        else:
            pod.run(step.split(), check=True)


def start(pod: Pod, mode: str, backend: str) -> None:
    start_servers(pod, transparent={15006} if mode == "TPROXY" else ())
    done = run_tool(pod, "apply", *OPTIONS, "-m", mode, "--backend", backend)
    assert done.returncode == 0, done.stderr


EACH = [(rules, mode, BACKENDS[(number + at) % 3]) for number, rules in enumerate(RULES) for at, mode in enumerate(MODES)]


@together(("rules", "mode", "backend"), choose([EACH[2 * number + number % 2] for number in range(len(RULES))], EACH))
def test_explain_says_of_each_connection_whether_its_answers_come_back(require_netns, rules, mode, backend):
    needs(backend)
    with Pod(outside=(FAR, SHARED, SERVER)) as pod:
        start(pod, mode, backend)
        add(pod, *RULES[rules])
        for what, (words, is_inbound, probe) in CONNECTIONS.items():
            done = run_tool(pod, "explain", "--live", "--json", *words)
            told = json.loads(done.stdout)
            if told["verdict"] == "unknown":  # the order of two chains that set zones is not known
                assert (rules, what) == ("a zone of what goes out", "a query")
                continue
            assert told["verdict"] == "captured", told["sentence"]
            patience = 10 if told["answer"]["arrives"] else 1  # seconds: an answer takes its time on a busy machine
            (arrived,) = (pod.client if is_inbound else pod).probe([replace(probe, timeout=patience)])
            assert told["answer"]["arrives"] is (arrived.outcome == "answered"), f"{what}: {arrived} {told['sentence']}"
            assert ("; but its answer does not come back: " in told["sentence"]) is (arrived.outcome != "answered")


LOST = {  # mode, what verify and audit say of the answers, and of which packet
    "tailscale": (MODES, "drops the answers to connections that the proxy captures, for example TCP from {own} to 100.64."),
    "a full tunnel": (MODES, "drops the answers to connections that the proxy captures, for example TCP from 10.9.0.2"),
    "a zone of what comes in": (("REDIRECT",), "the kernel does not find their connection in the zone of the answers, for example TCP from "),
    "a zone of what goes out": (("REDIRECT",), "the kernel does not find their connection in the zone of the answers, for example TCP from "),
    "a mark of connections": (("TPROXY",), "their mark is routed to this pod, for example TCP from "),
    "a destination without NAT": (
        MODES, "they are translated back to a destination that a rule wrote into the packets, for example TCP from {own} to 203.0.113.7:80",
    ),
    "a source that the pod does not have": (MODES, "through another device than lo (unless route_localnet is set), for example TCP from "),
    "tailscale and masquerading": (MODES, "drops the answers to connections that the proxy captures, for example TCP from {own} to 100.64."),
}  # fmt: skip


@together(("rules", "mode"), choose(
    [(rules, MODES[number % 2] if len(modes) == 2 else modes[0]) for number, rules in enumerate(RULES) for modes in [LOST.get(rules, (MODES, ""))[0]]],
    [(rules, mode) for rules in RULES for mode in MODES],
))  # fmt: skip
def test_verify_and_audit_name_the_rule_that_keeps_answers_from_coming_back(require_netns, rules, mode):
    with Pod(outside=(FAR, SHARED, SERVER)) as pod:
        start(pod, mode, "iptables-nft")
        add(pod, *RULES[rules])
        verified = run_tool(pod, "verify")
        audited = json.loads(run_tool(pod, "audit", "--live", "--json").stdout)
        rows = [one for one in audited["pods"][0]["traffic"] if one["kind"] == "unanswered"]
        modes, words = LOST.get(rules, ((), ""))
        if mode in modes:
            assert words.format(own=pod.address) in verified.stderr
            assert rows
            assert all("answers to connections that the proxy captures" in one["because"][0] for one in rows)
        else:
            assert "the answers to connections that the proxy" not in verified.stderr
            assert not rows
        diverted = "policy rules send the answers to connections that come in through eth0 elsewhere: through wg0"
        assert (diverted in verified.stderr) is (rules in ("a full tunnel", "policy rules alone"))


@in_turn("sources", ("MASQUERADE", "SNAT --to-source 10.77.0.2"))
def test_the_example_of_a_rule_that_drops_by_source_has_such_a_source(require_netns, sources):
    with Pod(outside=(FAR, SHARED)) as pod:
        add(
            pod, "iptables -N t", "iptables -A INPUT -j t", "iptables -A t -s 100.64.0.0/10 -j DROP",
            f"iptables -t nat -A POSTROUTING -p tcp -j {sources}",
        )  # fmt: skip
        start(pod, "REDIRECT", "iptables-nft")
        verified = run_tool(pod, "verify")
        assert verified.returncode == 0
        dropped = [line for line in verified.stderr.splitlines() if "packets that the plan captures" in line]
        assert len(dropped) == 1, verified.stderr
        assert "for example TCP from 100.64.0.1 to" in dropped[0]
        done = run_tool(pod, "explain", "--live", "--to", f"{FAR}:80")
        assert done.stdout.startswith("captured: goes to the proxy")
        assert "does not come back" not in done.stdout
        (arrived,) = pod.probe([Probe(FAR, 80)])
        assert (arrived.server, arrived.port) == ("proxy", 15001)


@pytest.mark.parametrize("mode", MODES)
def test_a_pod_without_foreign_rules_loses_no_answer(require_netns, mode):
    with Pod(outside=(FAR, SHARED, SERVER)) as pod:
        start(pod, mode, "nftables")
        for words, _, _ in CONNECTIONS.values():
            told = json.loads(run_tool(pod, "explain", "--live", "--json", *words).stdout)
            assert told["answer"] == {"arrives": True, "reason": ""}


BLOCKLIST = f"table ip b {{\n chain input {{ type filter hook input priority 0; ip saddr {SHARED} tcp sport 9000 drop; }}\n}}"
ZONE_OF_ANSWERS = (
    f"table ip b {{\n chain pre {{ type filter hook prerouting priority -300; ip saddr {SHARED} ct zone set 7; }}\n"
    " chain post { type nat hook postrouting priority 100; oifname eth0 snat to 10.77.0.9; }\n}"
)  # fmt: skip
EXCLUDED = {"a blocklist of sources": BLOCKLIST, "answers in another zone": ZONE_OF_ANSWERS}


@together(("what", "backend"), pairs(EXCLUDED, BACKENDS))
def test_lost_answers_to_excluded_connections_are_told_too(require_netns, what, backend):
    needs(backend)
    options = ("-b", "*", "-i", "*", "-o", "9000", "--backend", backend)
    with Pod(outside=(FAR, SHARED)) as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *options).returncode == 0
        assert "answers" not in run_tool(pod, "verify", *options).stderr
        add(pod, "ip addr add 10.77.0.9/24 dev eth0", EXCLUDED[what])
        (arrived,) = pod.probe([Probe(SHARED, 9000, timeout=1)])
        told = json.loads(run_tool(pod, "explain", "--live", "--json", "--to", f"{SHARED}:9000").stdout)
        assert (told["verdict"], told["answer"]["arrives"]) == ("direct", False)
        assert arrived.outcome != "answered"
        verified = run_tool(pod, "verify", *options)
        warnings = [line for line in verified.stderr.splitlines() if "the answers to direct connections" in line]
        assert warnings
        assert all("nft table ip b" in one and "for example " in one for one in warnings)
        rows = json.loads(run_tool(pod, "audit", "--live", "--json", *options).stdout)["pods"][0]["traffic"]
        assert "unanswered-direct" in {one["kind"] for one in rows}
        assert any(one["kind"] == "port" for one in rows), "its packets still leave past the proxy"
