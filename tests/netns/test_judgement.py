"""A look at a pod with the judgement of an earlier one finds what a look without it finds: whatever has changed is judged anew."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from bpf import attach_xdp, attached, cgroup, rewrite_port
from in_force_cases import CAPTURED, DROPS, ESCAPES, HARMLESS, LEGACY, NATIVE, NFT, OPTIONS, connect, do, programmed
from live_commands import look
from netinit.options import Options
from programming import needs
from sweeps import choose

TABLE = (
    "nft add table inet x; nft add chain inet x o '{ type filter hook output priority raw; }'; nft add set inet x s '{ type ipv4_addr; }';"
    " nft add rule inet x o ip daddr @s drop"
)
CHANGES = {  # each on what the one before has left, and each of another kind
    "a foreign table": TABLE,
    "an element of a set": "nft add element inet x s { 203.0.113.9 }",
    "a rule's order": "nft insert rule inet x o udp dport 9 drop",
    "a rule of ours": "nft insert rule ip nat ISTIO_OUTPUT tcp dport 81 return",
    "a rule's handle": "H=$(nft -a list chain ip nat ISTIO_OUTPUT | sed -n 's/.*dport 81 .*handle //p'); nft replace rule ip nat ISTIO_OUTPUT handle $H tcp dport 82 return",
    "a chain's policy": "nft add chain ip filter OUTPUT '{ type filter hook output priority 0; policy drop; }' || (nft add table ip filter; nft add chain ip filter OUTPUT '{ type filter hook output priority 0; policy drop; }')",
    "a table's flags": "nft 'add table ip nat { flags dormant; }'",
    "a named object": "nft add counter inet x c",
    "a route": "ip route add 203.0.113.0/24 dev lo table 77",
    "a policy rule": "ip rule add to 203.0.113.0/24 lookup 77",
    "an address": "ip address add 10.99.0.1/32 dev lo",
    "a device": "ip link add d0 type veth peer name d9",
    "a device's name": "ip link set d0 name d1",
    "a device's flags": "ip link set d1 up",
    "tc": "tc qdisc add dev d1 clsact",
    "a sysctl": "sysctl -qw net.ipv4.conf.all.route_localnet=1",
    "an IPsec policy": "ip xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir out tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode tunnel",
    "a table of the older interface": "iptables-legacy -w -t nat -A OUTPUT -p tcp --dport 81 -j ACCEPT",
    "an entry of it": "iptables-legacy -w -t nat -R OUTPUT 1 -p tcp --dport 82 -j ACCEPT",
}  # fmt: skip
SITUATIONS = [(what, case.commands, case.backends[0], case.options) for what, case in {**ESCAPES, **DROPS}.items()]
SITUATIONS += [(what, commands, NFT, ()) for what, commands in HARMLESS.items()]


def options_of(backend, more=()):
    return Options.from_argv((*OPTIONS, *more, "--backend", backend), {})


def same(one, other):
    return replace(one, judgement="") == replace(other, judgement="")


def test_every_kind_of_change_is_judged_anew(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        last = look(pod, options_of(NFT))
        assert (last.error, last.differences, bool(last.judgement)) == ("", (), True)
        for what, command in CHANGES.items():
            pod.run(["sh", "-ec", command], check=True)
            found, anew = look(pod, options_of(NFT), last.judgement), look(pod, options_of(NFT))
            assert found.judgement != last.judgement, f"{what} goes unnoticed"
            assert found == anew, what
            last = found
        pod.call(attach_xdp, "d1")
        assert look(pod, options_of(NFT), last.judgement).judgement != last.judgement
    finally:
        pod.__exit__(None, None, None)


def test_a_program_of_a_cgroup_is_judged_anew(require_netns):
    needs(NFT)
    pod = programmed(NFT)
    try:
        with cgroup(f"netinit-judgement-{os.getpid()}/c1") as folder, pod.popen(["sh", "-c", f"echo $$ > {folder}/cgroup.procs; echo in; exec sleep 600"]) as process:
            try:
                assert process.stdout.readline() == "in\n"
                first = look(pod, options_of(NFT))
                assert look(pod, options_of(NFT), first.judgement).judgement == first.judgement
                with attached(folder, "connect4", rewrite_port(80, 443)):
                    found = look(pod, options_of(NFT), first.judgement)
                assert "BPF" in str(found.differences), found
            finally:
                process.kill()
    finally:
        pod.__exit__(None, None, None)


@pytest.mark.parametrize("backend", [NFT, LEGACY, NATIVE])
def test_packets_alone_change_no_judgement(backend, require_netns):
    needs(backend)
    pod = programmed(backend)
    try:
        first = look(pod, options_of(backend))
        assert [connect(pod, direction) for direction in ("out", "in")] == [CAPTURED["out"], CAPTURED["in"]]
        assert look(pod, options_of(backend)).judgement == first.judgement
        forged = first.judgement.replace('"warnings":[]', '"warnings":["from memory"]')
        assert "from memory" in look(pod, options_of(backend), forged).warnings, "the judgement is made anew though nothing has changed"
    finally:
        pod.__exit__(None, None, None)


@pytest.mark.parametrize(("what", "commands", "backend", "options"), choose(SITUATIONS[::8], SITUATIONS), ids=lambda one: one if isinstance(one, str) else "")
def test_a_look_with_a_judgement_finds_what_a_look_without_finds(what, commands, backend, options, require_netns):
    needs(backend)
    pod = programmed(backend, options)
    try:
        wanted = options_of(backend, options)
        before = look(pod, wanted)
        do(pod, commands, backend)
        found, anew = look(pod, wanted, before.judgement), look(pod, wanted)
        assert same(found, anew), what
        assert found.judgement != before.judgement
        again = look(pod, wanted, found.judgement)
        assert same(again, anew), what
    finally:
        pod.__exit__(None, None, None)
