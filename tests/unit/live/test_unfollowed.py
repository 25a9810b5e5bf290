"""Every family, hook, type, kind and number that the kernel has gets a verdict: followed, without effect, or told as not followed."""

from __future__ import annotations

from itertools import product
from struct import pack

import pytest

from netinit.base.net import FAMILIES, HostAddress
from netinit.base.netlink_attributes import write_attribute
from netinit.base.snapshot import (
    ARP,
    BRIDGE,
    DORMANT,
    INET,
    IP,
    IP6,
    NETDEV,
    AttachedProgram,
    Device,
    LegacyTable,
    NftChain,
    NftRule,
    NftTable,
    RoutingRule,
    Snapshot,
    TableRoute,
    TrafficControl,
    Unknown,
)
from netinit.live.snapshot_rules import load_snapshot
from netinit.live.unfollowed import find_unfollowed, hook_of, list_hidden, warn_of_hidden
from netinit.rules.expressions.rule_reader import References, decode_rule

LO, ETH0, ETH1 = 1, 2, 3
LINKS = (Device(index=LO, name="lo", flags=9), Device(index=ETH0, name="eth0", kind="veth"), Device(index=ETH1, name="br0", kind="bridge"))
# linux/netfilter.h: NFPROTO_UNSPEC to _IPV6, those that are gone (DECnet), and what a newer kernel may have
NFPROTO = (0, INET, IP, ARP, 4, NETDEV, 6, BRIDGE, IP6, 12, 13, 255)
HOOKS = range(8)  # NF_INET_PRE_ROUTING to _INGRESS, NF_BR_BROUTING, and more
TYPES = ("filter", "nat", "route", "of a newer kernel")
EVERYWHERE = {(INET, hook) for hook in range(6)} | {(family, hook) for family in (IP, IP6) for hook in range(5)} | {(NETDEV, 0), (NETDEV, 1)}
# Those of rtnl_link_ops in Linux 6.18, and what a newer one may have
LINK_KINDS = ["amt", "bareudp", "batadv", "bond", "bridge", "caif", "can", "dsa", "dummy", "erspan", "geneve", "gre", "gretap", "gtp", "hsr", "ifb", "ip6erspan", "ip6gre", "ip6gretap", "ip6tnl", "ipip", "ipoib", "ipvlan", "ipvtap", "lowpan", "macsec", "macvlan", "macvtap", "netdevsim", "netkit", "nlmon", "openvswitch", "ovpn", "pfcp", "ppp", "rmnet", "sit", "team", "tun", "vcan", "veth", "virt_wifi", "vlan", "vrf", "vsockmon", "vti", "vti6", "vxcan", "vxlan", "wireguard", "wwan", "xfrm", "newer"]
NOT_FOLLOWED = {
    "amt", "batadv", "caif", "dsa", "hsr", "lowpan", "netdevsim", "openvswitch", "pfcp", "rmnet", "virt_wifi", "vrf", "wwan", "newer",
}  # fmt: skip
# linux/lwtunnel.h: LWTUNNEL_ENCAP_MPLS to _XFRM, and one more
ENCAPSULATIONS = dict(enumerate(("mpls", "ip", "ila", "ip6", "seg6", "bpf", "seg6local", "rpl", "ioam6", "xfrm", "number 11"), 1))
# linux/netfilter/nf_tables.h: NFT_OBJECT_UNSPEC to _SYNPROXY, and one more. Counters, helpers, timeouts and expectations leave the packet
# as it is; what a helper expects is captured or refused: tests/netns/test_bypass_sockets.py.
OBJECTS = range(12)
WITHOUT_EFFECT = {1, 3, 7, 9}


def pod(**more):
    return Snapshot(**{
        "links": LINKS, "addresses": (HostAddress(family=2, address="10.0.0.2", length=24, index=ETH0),),
        "routing_rules": tuple(RoutingRule(family=2, priority=at, action=1, table=table) for at, table in ((0, 255), (32766, 254))),
        "routes": (TableRoute(family=2, table=254, kind=1, destination=(0, 0), hops=(ETH0,)),), **more,
    })  # fmt: skip


def with_chain(family, hook, kind, *, links=LINKS, policy=1, flags=0, rules=True):
    chain = NftChain(family=family, table="t", name="c", kind=kind, hook=hook, policy=policy)
    held = (NftRule(family=family, table="t", chain="c"),) * rules
    return pod(links=links, tables=(NftTable(family=family, name="t", flags=flags),), chains=(chain,), rules=held)


@pytest.mark.parametrize("family", NFPROTO)
def test_a_chain_of_every_family_hook_and_type_is_simulated_or_told(family):
    for hook, kind in product(HOOKS, TYPES):
        held = with_chain(family, hook, kind)
        told = [what for _, what, _ in find_unfollowed(held)]
        simulated = {one.number for one, chains in load_snapshot(held).foreign.items() if chains}
        is_known = (family, hook) in EVERYWHERE and kind in {"filter", "nat", "route"}
        assert bool(hook_of(held.chains[0])) is is_known, (hook, kind)
        assert simulated == (({one.number for one in FAMILIES} if family in {INET, NETDEV} else {family}) if is_known else set()), (hook, kind)
        assert bool(told) is not (is_known or family == ARP), (hook, kind, told)


def test_a_bridge_s_chain_matters_where_there_is_a_bridge_and_it_decides():
    told = [("nft", "chain c of table bridge t", "its rules see packets before and after those of IP, and may redirect or rewrite them")]
    assert list(find_unfollowed(with_chain(BRIDGE, 0, "filter"))) == told
    assert list(find_unfollowed(with_chain(BRIDGE, 0, "filter", rules=False, policy=0))) == told
    assert list(find_unfollowed(with_chain(BRIDGE, 0, "filter", rules=False))) == []
    assert list(find_unfollowed(with_chain(BRIDGE, 0, "filter", links=LINKS[:2]))) == []
    assert list(find_unfollowed(with_chain(BRIDGE, 0, "filter", flags=DORMANT))) == []


def test_what_a_newer_kernel_has_is_named_by_its_number():
    (told,) = find_unfollowed(with_chain(77, 9, "odd\n"))
    assert told == ("nft", r"chain c of table family 77 t (type odd\n hook 9)", "it may redirect or rewrite packets")


@pytest.mark.parametrize("kind", LINK_KINDS)
def test_a_device_of_every_kind_is_understood_or_told(kind):
    told = list(find_unfollowed(pod(links=(*LINKS, Device(index=9, name="x9", kind=kind)))))
    effect = "packets pass the hooks once more as those of the VRF" if kind == "vrf" else "it may redirect or rewrite packets"
    assert told == [("devices", f"x9, of kind {kind}", effect)] * (kind in NOT_FOLLOWED)


@pytest.mark.parametrize("number", ENCAPSULATIONS)
def test_a_route_in_use_with_any_encapsulation_is_told(number):
    route = TableRoute(family=2, table=254, kind=1, destination=(10 << 24, 8), hops=(ETH0,), encapsulations=(number, 77, number))
    named = f"the route 10.0.0.0/8 of table 254 with encapsulation {ENCAPSULATIONS[number]}, number 77"
    assert list(find_unfollowed(pod(routes=(route,)))) == [("routing", named, "it may redirect or rewrite packets")]
    assert list(find_unfollowed(pod(routes=(route.replace(table=77),)))) == []
    lookup = RoutingRule(family=2, priority=9, action=1, table=77)
    assert len(list(find_unfollowed(pod(routes=(route.replace(table=77),), routing_rules=(lookup,))))) == 1
    sixth = route.replace(family=IP6, table=77, destination=(0x20010DB8 << 96, 32))
    assert list(find_unfollowed(pod(routes=(sixth,), routing_rules=(lookup,)))) == [], "no rule of IPv6 asks for the table"
    (told,) = find_unfollowed(pod(routes=(sixth,), routing_rules=(lookup.replace(family=IP6),)))
    assert told[1] == f"the route 2001:db8::/32 of table 77 with encapsulation {ENCAPSULATIONS[number]}, number 77"


@pytest.mark.parametrize("number", OBJECTS)
def test_a_rule_that_uses_an_object_of_any_type_observes_or_is_not_known(number):
    data = write_attribute(1, pack(">I", number)) + write_attribute(2, b"o\0")
    expression = write_attribute(1, write_attribute(1, b"objref\0") + write_attribute(2, data))
    live = decode_rule(NftRule(family=INET, table="t", chain="c", expressions=expression), References(sets={}, devices={}))
    assert live.rules[0].target.only_observes is (number in WITHOUT_EFFECT)


def test_a_table_of_the_older_interface_that_no_kernel_has_today_is_told():
    def table(name):
        return LegacyTable(version=4, name=name, valid_hooks=0, hook_entries=(0,) * 5, entries=b"")

    known = tuple(map(table, ("raw", "mangle", "nat", "filter", "security")))
    (told,) = find_unfollowed(pod(legacy=(*known, table("newer"))))
    assert told == ("iptables", "the legacy table newer of IPv4", "it may redirect or rewrite packets")


def test_names_from_the_kernel_are_not_shown_raw():
    legacy = LegacyTable(version=6, name="x\n", valid_hooks=0, hook_entries=(0,) * 5, entries=b"")
    told = find_unfollowed(pod(legacy=(legacy,), links=(*LINKS, Device(index=9, name="x\x1b", kind="y\n"))))
    assert [what for _, what, _ in told] == [r"the legacy table x\n of IPv6", r"x\x1b, of kind y\n"]


def test_a_hook_below_zero_is_none_that_is_followed():
    assert hook_of(NftChain(family=IP, table="t", name="c", kind="filter", hook=-1)) == ""
    assert hook_of(NftChain(family=IP, table="t", name="c", kind="filter", hook=0)) == "PREROUTING"


def test_what_is_not_simulated_is_named_with_what_it_may_do():
    snapshot = pod(
        programs=(
            AttachedProgram(where="sk_lookup of the namespace", number=1), AttachedProgram(where="eth0", number=2, name="p"),
            AttachedProgram(where="cgroup connect4", number=3, is_of_node=True),
        ),
        traffic_control=(
            TrafficControl(index=ETH1, what="filter", kind="x"), TrafficControl(index=ETH0, what="filter", kind="x"), TrafficControl(index=ETH0, what="filter", kind="x"),
            TrafficControl(index=LO, what="qdisc", kind="x"),
        ),
        routing_rules=(RoutingRule(family=IP6, priority=5, others=(12, 77), unnamed=(77,)), RoutingRule(family=IP, priority=6, others=(77, 78), unnamed=(77, 78))),
        transforms=2, unknown=(Unknown(place="routes", reason="too many"), Unknown(place="XDP", reason="EPERM", is_forbidden=True)),
    )  # fmt: skip
    assert list(find_unfollowed(snapshot)) == [
        ("BPF", "program 1 (sk_lookup of the namespace)", "it chooses the socket of inbound connections, also of captured ones"),
        ("BPF", 'program 2 "p" (eth0)', "it may redirect or rewrite packets"),
        ("tc", "filters on eth0", "it may redirect or rewrite packets"), ("tc", "filters on br0", "it may redirect or rewrite packets"),
        ("routing", "the policy rule of priority 5 of IPv6", "its attribute 77 is not known"),
        ("routing", "the policy rule of priority 6 of IPv4", "its attribute 77, 78 is not known"),
        ("IPsec", "2 policies (ip xfrm policy)", "they may drop packets, or send them elsewhere"),
        ("kernel", "routes", "it is not read: too many"),
    ]  # fmt: skip
    assert list(warn_of_hidden(snapshot)) == [
        "BPF program 3 (cgroup connect4) acts on every process of the node: it may redirect connections before any rule sees them",
        "XDP may not be read here (EPERM): whether one redirects packets is not known",
    ]
    assert list(find_unfollowed(pod())) == list(warn_of_hidden(pod())) == []
    assert list_hidden(snapshot) == ()
    assert list_hidden(pod(unknown=(Unknown(place="a", reason="x", may_capture=True), Unknown(place="b", reason="x")))) == ("a",)
