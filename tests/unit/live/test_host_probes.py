"""A node's rules for the kubelet's probes of ambient pods, as a snapshot has them; tests/netns has them beside real probes."""

from __future__ import annotations

import pytest

from netinit.base.net import FAMILIES, IPV4, IPV6, HostAddress, number_of
from netinit.base.snapshot import Device, RoutingRule, TableRoute
from netinit.live.host import LOCAL, LOOK_UP, MAIN, UNICAST
from netinit.live.host_probes import find_holder, judge_probes, list_senders
from netinit.options.interception import BROKEN, EXEMPT, HOST_PROBES, UNKNOWN
from netinit.rules.nft.listing_objects import read_objects
from netinit.rules.nft.listing_text import read_listing

SOURCES = dict(zip(FAMILIES, HOST_PROBES, strict=True))
POD, POD6 = "10.77.0.2", "fd77::2"
TEXT = f"""table inet istio-ambient-nat {{
	set istio-inpod-probes-v4 {{
		type ipv4_addr
		elements = {{ {POD} }}
	}}
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		meta l4proto tcp skuid 0 ip daddr @istio-inpod-probes-v4 counter packets 0 bytes 0 snat ip to {SOURCES[IPV4]}
	}}
}}
"""


def node(text=TEXT, *, routes=(), rules=()):
    """A node with these tables of nft, an address on eth0 and the usual policy rules beside `rules`."""
    links = tuple([Device(index=at, name=name, flags=1) for at, name in enumerate(("lo", "eth0", "vpc"), 1)])
    addresses = (HostAddress(family=IPV4.number, address="10.77.0.1", length=24, index=2), HostAddress(family=IPV6.number, address="fd77::1", length=64, index=2))
    usual = [TableRoute(family=one.number, table=MAIN, kind=UNICAST, destination=(0, 0), hops=(2,)) for one in FAMILIES]
    own = TableRoute(family=IPV4.number, table=LOCAL, kind=2, destination=(number_of("10.77.0.1"), 32), hops=(2,))
    lookups = [RoutingRule(family=one.number, priority=at, action=LOOK_UP, table=table) for one in FAMILIES for at, table in ((20, LOCAL), (32766, MAIN))]
    snapshot, _ = read_objects(read_listing(text)[0])
    return snapshot.replace(
        links=links, addresses=addresses, routes=(*usual, own, *routes), routing_rules=tuple(sorted([*rules, *lookups], key=lambda rule: rule.priority))
    )  # fmt: skip


def judge(snapshot, address=POD, sender=0):
    (found,) = judge_probes(snapshot, (address,), SOURCES, sender)
    assert found.address == address
    return found.state, found.detail, found.is_routing


@pytest.mark.parametrize(
    ("old", "new", "state", "detail"),
    [
        ("", "", EXEMPT, ""),
        (f"{{ {POD} }}", "{ 10.77.0.3 }", BROKEN, "it is missing in the set istio-inpod-probes-v4"),
        ("skuid 0", "skuid 7", BROKEN, f"no rule gives probes a source: they keep the node's address instead of {SOURCES[IPV4]}"),
        (f"snat ip to {SOURCES[IPV4]}", "snat ip to 192.0.2.1", BROKEN, f"gives probes another source instead of {SOURCES[IPV4]}"),
        (f"snat ip to {SOURCES[IPV4]}", "drop", BROKEN, "a probe of it is dropped: "),
        ("counter packets 0 bytes 0", "limit rate 1/second", UNKNOWN, "it cannot be known here"),
    ],
)  # fmt: skip
def test_a_probe_is_exempt_where_the_rules_give_it_the_source(old, new, state, detail):
    assert old in TEXT
    found = judge(node(TEXT.replace(old, new)))
    assert (found[0], detail in found[1], bool(detail) == bool(found[1]), found[2]) == (state, True, True, False), found


def test_without_a_set_of_ipv6_the_mesh_may_have_it_off():
    assert judge(node(), POD6) == (UNKNOWN, "there is no set istio-inpod-probes-v6: the mesh may have IPv6 off", False)
    assert judge(node(TEXT.replace("meta l4proto", "limit rate 1/second meta l4proto")), sender=None)[0] == UNKNOWN


def test_the_senders_are_the_users_whose_probes_the_rules_give_the_source():
    assert list_senders(node(), SOURCES) == {0}
    assert list_senders(node(TEXT.replace("skuid 0", "skuid 998")), SOURCES) == {998}
    assert list_senders(node(TEXT.replace(SOURCES[IPV4], "192.0.2.1")), SOURCES) == frozenset()


def iptables(*chains):
    return "table ip nat {\n" + "".join(f"\tchain {chain} {{\n\t\tcounter\n\t}}\n" for chain in chains) + "}\n"


@pytest.mark.parametrize(
    ("text", "held", "holder"),
    [
        (TEXT, (), "nftables"), (iptables("ISTIO_POSTRT"), (), "iptables-nft"), (iptables("OTHER"), (), ""), ("", (), ""),
        (iptables("OTHER"), (("9", "istio-inpod-probes-v4"),), "iptables-nft"), ("", (("9", "istio-inpod-probes-v4"),), "iptables-nft"),
        ("", (("9", "other"),), ""), (TEXT.replace("inpod-probes-v4", "other"), (), ""),
    ],
)  # fmt: skip
def test_what_the_agent_left_says_which_backend_it_uses(text, held, holder):
    assert find_holder(node(text).replace(address_sets=held)) == holder


BRANCH = (
    TableRoute(family=IPV4.number, table=101, kind=UNICAST, destination=(number_of(POD), 32), hops=(2,)),
    TableRoute(family=IPV4.number, table=101, kind=UNICAST, destination=(0, 0), hops=(3,)),
    TableRoute(family=IPV4.number, table=MAIN, kind=UNICAST, destination=(number_of(POD), 31), hops=(3,)),
)
FROM_DEVICE = RoutingRule(family=IPV4.number, priority=10, action=LOOK_UP, table=101, in_interface="eth0")
TO_POD = RoutingRule(family=IPV4.number, priority=5, action=LOOK_UP, table=101, destination=(number_of(POD), 32))
TO_NODE = RoutingRule(family=IPV4.number, priority=9, action=LOOK_UP, table=LOCAL, in_interface="eth0")


@pytest.mark.parametrize(
    ("rules", "state", "missing"),
    [
        ((), BROKEN, f"probes of it do not leave through its device eth0: the policy rule `to {POD} lookup 101 priority 512` is missing; "),
        ((TO_POD,), BROKEN, "answers to its probes are not delivered to the node: the policy rule `iif eth0 lookup local priority 9` is missing; "),
        ((TO_POD, TO_NODE), EXEMPT, ""),
    ],
)
def test_a_pod_behind_a_branch_interface_needs_two_policy_rules(rules, state, missing):
    found = judge(node(routes=BRANCH, rules=(FROM_DEVICE, *rules)))
    assert (found[0], found[1].startswith(missing), found[2]) == (state, True, state == BROKEN), found
