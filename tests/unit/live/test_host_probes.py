"""A node's rules for the kubelet's probes of ambient pods, as a snapshot has them; tests/netns has them beside real probes."""

from __future__ import annotations

import pytest

from netinit.base.net import FAMILIES, IPV4, IPV6, HostAddress, number_of
from netinit.base.snapshot import AddressSet, AddressSetElement, Device, LegacyTable, RoutingRule, TableRoute
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
    snapshot, _ = read_objects(read_listing(text))
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


@pytest.mark.parametrize(
    ("to_pod", "to_node", "state"),
    [
        ({}, {}, EXEMPT),
        ({"ip_protocol": 6, "destination_ports": (8080, 8080)}, {"ip_protocol": 6, "source_ports": (8080, 8080)}, EXEMPT),
        ({"ip_protocol": 17}, {}, BROKEN),
        ({}, {"ip_protocol": 17}, BROKEN),
        ({}, {"source_ports": (80, 80)}, BROKEN),
        ({}, {"source": (number_of(POD), 32), "destination": (number_of("10.77.0.1"), 32)}, EXEMPT),
        ({}, {"source": (number_of("10.77.0.1"), 32)}, BROKEN),
        ({}, {"in_interface": "vpc"}, BROKEN),
        ({"others": (99,)}, {}, UNKNOWN),
        ({}, {"others": (99,)}, UNKNOWN),
        ({}, {"destination_ports": (1, 9)}, UNKNOWN),  # that of the probe's socket
        ({"users": (0, 0)}, {}, EXEMPT),
        ({"users": (7, 7)}, {}, BROKEN),
    ],
)
def test_probes_and_answers_are_tcp_from_a_port_of_the_node_to_one_of_the_pod(to_pod, to_node, state):
    found = judge(node(routes=BRANCH, rules=(FROM_DEVICE, TO_POD.replace(**to_pod), TO_NODE.replace(**to_node))))
    assert (found[0], found[2]) == (state, state != EXEMPT), found
    if state == UNKNOWN:
        assert found[1] == f"which of its policy rules and routes the node takes to {POD}, and for the answers, is not known"


@pytest.mark.parametrize(
    "changes",
    [
        {"family": IPV6.number}, {"action": 3}, {"is_inverted": True}, {"table": LOCAL}, {"table": 253}, {"table": MAIN}, {"in_interface": ""},
        {"in_interface": "vpc"}, {"table": 102},
    ],
)  # fmt: skip
def test_only_a_policy_rule_for_the_pod_s_device_and_a_table_with_its_route_is_of_a_branch(changes):
    """The node without the two rules of the agent, which is broken behind a branch interface."""
    found = judge(node(routes=BRANCH[:1], rules=(FROM_DEVICE.replace(**changes),)))
    assert not found[2], found


@pytest.mark.parametrize("changes", [{"kind": 2}, {"destination": (number_of(POD), 31)}, {"destination": (number_of("10.77.0.3"), 32)}, {"family": IPV6.number}])
def test_a_table_without_a_route_to_the_pod_alone_is_of_no_branch(changes):
    assert not judge(node(routes=(BRANCH[0].replace(**changes),), rules=(FROM_DEVICE,)))[2]


def test_the_missing_rules_are_named_with_the_device_and_the_priority_before_its_own():
    detail = judge(node(routes=BRANCH, rules=(FROM_DEVICE.replace(priority=0), TO_POD)))[1]
    assert "`iif eth0 lookup local priority 0` is missing; the mesh's agent adds it for AWS security groups for pods (Istio 1.31 or later" in detail


def test_rules_that_cannot_be_read_leave_every_address_unknown():
    broken = LegacyTable(version=4, name="nat", valid_hooks=0, hook_entries=(0,) * 5, entries=b"x")
    found = judge_probes(node().replace(legacy=(broken, broken.replace(name="filter"))), (POD, POD6), SOURCES, 0)
    assert [(one.address, one.state, one.is_routing) for one in found] == [(POD, UNKNOWN, False), (POD6, UNKNOWN, False)]
    assert all(one.detail.startswith("IPv4: ") and "; IPv4: " in one.detail for one in found)


SIXTH = TEXT.replace("table inet", "table ip6").replace("-v4", "-v6").replace("ipv4_addr", "ipv6_addr").replace(POD, POD6).replace("ip daddr", "ip6 daddr")


def test_addresses_are_judged_by_the_rules_and_the_set_of_their_family():
    """A table of the family alone: the set is looked for by the name of its table, whatever its family."""
    text = TEXT + SIXTH.replace(f"snat ip to {SOURCES[IPV4]}", f"snat to {SOURCES[IPV6]}")
    found = judge_probes(node(text), (POD6, POD, "fd77::3"), SOURCES, 0)
    assert [(one.address, one.state, one.detail) for one in found] == [
        (POD, EXEMPT, ""), (POD6, EXEMPT, ""), ("fd77::3", BROKEN, "it is missing in the set istio-inpod-probes-v6"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "state", "detail"),
    [
        ({}, BROKEN, "it is missing in the set istio-inpod-probes-v4"), ({"is_complete": False}, BROKEN, "no rule gives probes a source"),
        ({"elements": (AddressSetElement(address=bytes((10, 77, 0, 2))),)}, BROKEN, "no rule gives probes a source"),
        ({"elements": (AddressSetElement(address=bytes((10, 77, 0, 3))),)}, BROKEN, "it is missing in the set istio-inpod-probes-v4"),
        ({"kind": "hash:net"}, BROKEN, "no rule gives probes a source"), ({"name": "other"}, BROKEN, "no rule gives probes a source"),
    ],
)  # fmt: skip
def test_the_set_of_ipset_counts_if_it_is_of_addresses_and_was_read_whole(changes, state, detail):
    held = AddressSet(number=1, name="istio-inpod-probes-v4", kind="hash:ip", is_complete=True).replace(**changes)
    found = judge(node(iptables("ISTIO_POSTRT")).replace(foreign_sets=(held,)))
    assert found[0] == state
    assert found[1].startswith(detail), found
