"""Where something may divert packets that netinit does not follow, no command says that all is well; where nothing does, all do."""

from __future__ import annotations

import os

import pytest

from in_force_cases import CAPTURED, LEGACY, NATIVE, NFT, OPTIONS, connect, do
from laboratory import Pod, start_servers
from live_commands import Connection, ask, ask_apply
from netinit.options import Options
from netinit.pods.apply import apply
from programming import needs
from unfollowed_things import ANSWERS_OF_PREFIX, BRIDGE, REWRITES_ON_BRIDGE, hook_into_prefix

EXCLUDED = ("-d", "8081")  # where the rewritten connections arrive
INBOUND = {"in": Connection("in", "10.77.0.2", 80, interface="eth0")}
APPLICATION = ("app", 8081)


def programmed(pod, backend, *options):
    start_servers(pod, app=(80, 8080, 8081))
    argv = (*OPTIONS, *options, "--backend", backend)
    with pod.entered():
        apply(Options.from_argv(argv, {}), final=False)
    return argv


def told(pod, argv):
    """What each command says of the connection from outside: whether it is not known to be captured, and its words."""
    answers = ask(pod, argv, INBOUND, judged=("in",))
    return {**answers.pod, **answers.connections["in"], **ask_apply(pod, argv)}


@pytest.mark.parametrize("backend", [NFT, LEGACY, NATIVE])
def test_rules_of_a_bridge_that_lead_past_the_proxy_are_told_by_every_command(require_netns, backend):
    needs(backend)
    with Pod() as pod:
        argv = programmed(pod, backend, *EXCLUDED)
        do(pod, (BRIDGE,), backend)
        assert connect(pod, "in") == CAPTURED["in"]
        assert not [one for one, (alarm, _) in told(pod, argv).items() if alarm], "a bridge without rules changes nothing"
        do(pod, REWRITES_ON_BRIDGE[1:], backend)
        assert connect(pod, "in") == APPLICATION
        said = told(pod, argv)
    assert [one for one, (alarm, _) in said.items() if not alarm] == []
    assert "chain p of table bridge x" in said["verify"][1]
    assert "nft: chain p of table bridge x" in said["explain"][1]


@pytest.mark.parametrize("backend", [NFT, NATIVE])
def test_a_chain_of_all_devices_with_a_prefix_is_told_by_every_command(require_netns, backend):
    needs(backend)
    with Pod() as pod:
        argv = programmed(pod, backend, *EXCLUDED)
        do(pod, (ANSWERS_OF_PREFIX,), backend)
        with pod.entered():
            if refused := hook_into_prefix():
                pytest.skip(f"this kernel has no prefixes of devices: {os.strerror(refused)}")
        assert connect(pod, "in") == APPLICATION
        said = told(pod, argv)
    assert [one for one, (alarm, _) in said.items() if not alarm] == []
    assert "nft table netdev evil" in said["verify"][1]


USUAL = {
    "vlan": "ip link add link eth0 name eth0.5 type vlan id 5", "macvlan": "ip link add link eth0 name m0 type macvlan",
    "ipvlan": "ip link add link eth0 name i0 type ipvlan", "vxlan": "ip link add v0 type vxlan id 5 dstport 4789 dev eth0",
    "tun": "ip tuntap add t0 mode tun", "dummy": "ip link add d0 type dummy", "bond": "ip link add b0 type bond",
    "wireguard": "ip link add w0 type wireguard", "bridge": "ip link add docker0 type bridge; ip link set docker0 up",
    "bridge's empty chains": "ebtables-nft -P FORWARD ACCEPT",
    "arp": "nft add table arp a; nft 'add chain arp a i { type filter hook input priority 0; }'; nft add rule arp a i arp operation request accept",
    "a bridge's rules without a bridge": "nft add table bridge x; nft 'add chain bridge x p { type filter hook prerouting priority 0; }'; nft add rule bridge x p tcp dport 80 tcp dport set 8081",
    "a policy rule of one port": "ip rule add ipproto tcp dport 9 lookup 254",
}  # fmt: skip


def test_usual_devices_and_chains_are_no_news(require_netns):
    """Each on what the ones before have left. Kinds that the kernel lacks are left out."""
    needs(NFT)
    tried = []
    with Pod() as pod:
        argv = programmed(pod, NFT)
        for what, command in USUAL.items():
            done = pod.run(["sh", "-ec", command])
            if "Unknown device type" in done.stderr:
                continue
            assert done.returncode == 0, done.stderr
            if what == "a bridge's rules without a bridge":
                pod.run(["sh", "-ec", "ip link del docker0"], check=True)
            tried.append(what)
            answers = ask(pod, argv, INBOUND, judged=("in",), asked=("explain", "audit"))
            alarms = {**answers.pod, **answers.connections["in"]}
            assert not [(one, words) for one, (alarm, words) in alarms.items() if alarm], what
            assert not answers.doubts, what
    assert {"bridge", "arp", "a bridge's rules without a bridge", "a policy rule of one port"} <= {*tried}


ENCAPSULATED = {
    "seg6": "ip -6 route add 2001:db8:9::/64 encap seg6 mode encap segs fd77::9 dev eth0",
    "seg6local": "ip -6 route add 2001:db8:9::1/128 encap seg6local action End.DT6 table 254 dev eth0",
    "ip": "ip route add 198.51.100.0/24 encap ip id 5 dst 10.77.0.9 dev eth0",
}


@pytest.mark.parametrize("kind", ENCAPSULATED)
def test_a_route_with_an_encapsulation_is_told(require_netns, kind):
    needs(NFT)
    with Pod() as pod:
        argv = (*programmed(pod, NFT), "--ipv6", "on") if "-6" in ENCAPSULATED[kind] else programmed(pod, NFT)
        do(pod, (ENCAPSULATED[kind],), NFT)
        said = told(pod, argv)
    assert [one for one in ("verify", "explain", "audit", "apply --require-capture") if not said[one][0]] == []
    assert f"with encapsulation {kind}" in said["verify"][1]


COPIES = {
    "all of a connection": "nft add table ip m; nft 'add chain ip m p { type filter hook prerouting priority -160; }'; nft add rule ip m p tcp dport 80 dup to 10.77.0.1 device eth0",
    "all but its first packet": "nft add table ip m; nft 'add chain ip m p { type filter hook output priority -160; }'; nft add rule ip m p 'tcp flags & syn == 0 dup to 10.77.0.1'",
    "at a device": "nft add table netdev m; nft 'add chain netdev m p { type filter hook ingress device eth0 priority 0; }'; nft add rule netdev m p ct state established dup to eth0 || nft add rule netdev m p dup to eth0",
    "in a chain for later packets": "nft add table ip m; nft add chain ip m c; nft add rule ip m c dup to 10.77.0.1 device eth0; nft 'add chain ip m p { type filter hook prerouting priority -160; }'; nft add rule ip m p ct state established jump c",
    "by iptables": "iptables-nft -w -t mangle -A PREROUTING -p tcp ! --syn -j TEE --gateway 10.77.0.1",
    "by the older interface": "iptables-legacy -w -t mangle -A PREROUTING -p tcp -j TEE --gateway 10.77.0.1",
}  # fmt: skip
COPIES_OF_OTHERS = {
    "UDP": "nft add table ip m; nft 'add chain ip m p { type filter hook prerouting priority -160; }'; nft add rule ip m p udp dport 9 dup to 10.77.0.1 device eth0",
    "what the proxy sends": "nft add table ip m; nft 'add chain ip m p { type filter hook output priority -160; }'; nft add rule ip m p meta skuid 1337 meta skgid 1337 ip daddr 203.0.113.7 tcp dport 80 dup to 10.77.0.1",
}  # fmt: skip


@pytest.mark.parametrize("what", [*COPIES, *COPIES_OF_OTHERS])
def test_copies_of_captured_packets_are_a_warning_and_strictly_a_difference(require_netns, what):
    needs(NFT)
    with Pod() as pod:
        argv = programmed(pod, NFT)
        do(pod, ({**COPIES, **COPIES_OF_OTHERS}[what],), NFT)
        answers = ask(pod, argv, INBOUND, judged=("in",), asked=())
    assert not answers.pod["verify"][0], answers.pod["verify"]
    assert [one for one in answers.doubts if "copies packets that the plan captures, for example TCP from" in one] == [*answers.doubts]
    assert bool(answers.doubts) is (what in COPIES)


CLASSES = "tc qdisc add dev eth0 root handle 1: htb default 10; tc class add dev eth0 parent 1: classid 1:10 htb rate 1gbit; tc class add dev eth0 parent 1:10 classid 1:11 htb rate 1gbit"
MIRROR = "u32 match u32 0 0 action mirred egress mirror dev eth0"


@pytest.mark.parametrize("filtering", [f"tc filter add dev eth0 parent 1:10 {MIRROR}", f"tc filter add dev eth0 parent 1: {MIRROR}"])
def test_a_filter_of_a_class_is_told_and_classes_alone_are_no_news(require_netns, filtering):
    needs(NFT)
    with Pod() as pod:
        argv = programmed(pod, NFT)
        do(pod, (CLASSES,), NFT)
        assert not ask(pod, argv, INBOUND, judged=("in",), asked=()).pod["verify"][0]
        do(pod, (filtering,), NFT)
        said = told(pod, argv)
    assert [one for one, (alarm, _) in said.items() if not alarm] == []
    assert "tc: filters on eth0" in said["verify"][1]


def test_filters_of_a_block_that_devices_share_are_named_by_the_device(require_netns):
    needs(NFT)
    with Pod() as pod:
        argv = programmed(pod, NFT)
        do(pod, (f"tc qdisc add dev eth0 ingress_block 22 clsact; tc filter add block 22 {MIRROR}",), NFT)
        assert "tc: filters on eth0" in ask(pod, argv, INBOUND, judged=("in",), asked=()).pod["verify"][1]
