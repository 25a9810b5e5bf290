"""Rules of iptables-nft are removed by netlink: no program is started, foreign rules stay, and a change meanwhile stops it."""

from __future__ import annotations

import re

import pytest

from laboratory import Pod
from netinit import backends
from netinit.base.errors import ApplyError
from netinit.base.net import FAMILIES
from netinit.kernel import run
from netinit.options import IPTABLES_NFT, Options
from netinit.pods.apply import apply, remove
from netinit.rules.model import EMPTY_PLAN
from programming import needs
from sweeps import crossed

FOREIGN = {
    "nothing": (),
    "rules beside ours": (
        "iptables-nft -t nat -A OUTPUT -p udp --dport 9 -j ACCEPT", "ip6tables-nft -t nat -A PREROUTING -i eth9 -j RETURN",
        "iptables-nft -t mangle -N THEIRS", "iptables-nft -t mangle -A THEIRS -j MARK --set-mark 7", "iptables-nft -t mangle -A OUTPUT -j THEIRS",
    ),
    "chains of other programs": (
        "nft add table ip nat", "nft add chain ip nat theirs '{ type nat hook output priority 5; }'", "nft add rule ip nat theirs tcp dport 7 accept",
    ),
    "an empty table": ("nft add table ip6 nat", "nft add chain ip6 nat OUTPUT '{ type nat hook output priority -100; }'"),
    "a policy": ("iptables-nft -P OUTPUT DROP",),
}  # fmt: skip
SETTINGS = {
    "a usual sidecar": (),
    "TPROXY": ("-m", "TPROXY"),
    "excluded interfaces": ("-c", "eth7,eth8"),
    "DNS and invalid packets": ("--redirect-dns", "--capture-all-dns", "--drop-invalid"),
}


def ruleset(pod):
    """What is in the kernel, without counters."""
    return re.sub(r"counter packets \d+ bytes \d+", "counter", pod.run(["nft", "list", "ruleset"], check=True).stdout)


def options_of(*words):
    return Options.from_argv(("-p", "15001", "-z", "15006", "-u", "1337", "-b", "*", "-i", "*", "--ipv6", "on", *words, "--backend", IPTABLES_NFT), {})


@crossed(foreign=FOREIGN, words=SETTINGS)
def test_without_a_program_all_is_as_before(foreign, words, require_netns, monkeypatch):
    needs(IPTABLES_NFT)
    with Pod() as pod:
        for command in FOREIGN[foreign]:
            pod.run(["sh", "-ec", command], check=True)
        before = ruleset(pod)
        with pod.entered():
            assert apply(options_of(*SETTINGS[words])).changed
            assert "ISTIO_OUTPUT" in ruleset(pod)
            with monkeypatch.context() as patch:
                patch.setattr(run, "start", None)
                assert remove(options_of()).changed
            assert not remove(options_of()).changed
        assert ruleset(pod) == before


MEANWHILE = {
    "a rule of ours is replaced": "H=$(nft -a list chain ip nat OUTPUT | sed -n 's/.*jump ISTIO_OUTPUT.*handle //p'); nft delete rule ip nat OUTPUT handle $H; nft add rule ip nat OUTPUT udp dport 9 accept",
    "a foreign rule jumps to a chain of ours": "iptables-nft -t nat -N THEIRS; iptables-nft -t nat -A THEIRS -p udp -j ISTIO_OUTPUT",
}


@pytest.mark.parametrize("command", MEANWHILE.values(), ids=MEANWHILE)
def test_a_change_between_look_and_commit_stops_the_removal(command, require_netns):
    needs(IPTABLES_NFT)
    with Pod() as pod, pod.entered():
        apply(options_of())
        backend = backends.load(IPTABLES_NFT, options_of(), FAMILIES)
        removal = backend.observe().removal(EMPTY_PLAN)
        pod.run(["sh", "-ec", command], check=True)
        before = ruleset(pod)
        with pytest.raises(ApplyError, match="they have changed meanwhile, or foreign rules jump to them"):
            backend.commit(removal)
        assert ruleset(pod) == before


def test_a_foreign_rule_that_comes_into_a_chain_of_iptables_meanwhile_stays(require_netns):
    needs(IPTABLES_NFT)
    with Pod() as pod, pod.entered():
        apply(options_of())
        backend = backends.load(IPTABLES_NFT, options_of(), FAMILIES)
        removal = backend.observe().removal(EMPTY_PLAN)
        pod.run(["nft", "add", "rule", "ip", "nat", "OUTPUT", "udp", "dport", "9", "accept"], check=True)
        backend.commit(removal)
        left = ruleset(pod)
        assert "udp dport 9 accept" in left
        assert "ISTIO" not in left


def test_a_removal_that_is_put_back_is_as_before(require_netns):
    needs(IPTABLES_NFT)
    with Pod() as pod, pod.entered():
        apply(options_of())
        before = pod.run(["iptables-nft-save"], check=True).stdout.splitlines()
        backend = backends.load(IPTABLES_NFT, options_of(), FAMILIES)
        removal = backend.observe().removal(EMPTY_PLAN)
        backend.commit(removal)
        assert "ISTIO" not in ruleset(pod)
        backend.roll_back(removal)
        after = pod.run(["iptables-nft-save"], check=True).stdout.splitlines()
        assert sorted(line for line in after if line[0] in "-*") == sorted(line for line in before if line[0] in "-*")
