"""Which connections the probes of a pod make: for each kind of rule, one that matches and one that does not."""

from __future__ import annotations

import pytest

from netinit.base.net import IPV4, IPV6
from netinit.options import Options, offline
from netinit.pods.probe.matrix import plan_inbound, plan_outbound

SIDECAR = ["-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021"]


def options(*more, environ=None):
    return Options.from_argv([*SIDECAR, *more], environ or {}).settle(offline())


def tell_inbound(*more, family=IPV4, own="10.1.1.1", listening=()):
    asks = plan_inbound(options(*more), family, own, listening, "eth0")
    assert {(one.direction, one.family, one.protocol, one.who, one.destination, one.uid, one.gid, one.source, one.interface) for one in asks} <= {
        ("inbound", family, "tcp", "a peer", own, 0, 0, "", "eth0")}  # fmt: skip
    return [(one.port, one.target) for one in asks]


PORT, EXCLUDED, TUNNEL = "a port of the pod", "an excluded port of the pod", "the tunnel's port of the pod"


@pytest.mark.parametrize(
    ("more", "listening", "asks"),
    [
        ([], (), [(8080, PORT), (15090, EXCLUDED), (15021, EXCLUDED), (15008, TUNNEL)]),
        ([], (8080, 9080), [(18080, PORT), (15090, EXCLUDED), (15021, EXCLUDED), (15008, TUNNEL)]),
        (["-d", "8080"], (), [(9080, PORT), (8080, EXCLUDED), (15008, TUNNEL)]),
        (["-d", "1,2,3,4"], (), [(8080, PORT), (1, EXCLUDED), (2, EXCLUDED), (3, EXCLUDED), (15008, TUNNEL)]),
        (["-d", "15008"], (), [(8080, PORT), (15008, EXCLUDED)]),
        (["-b", "80,81,82,83", "-d", ""], (), [(80, PORT), (81, PORT), (82, PORT), (8080, PORT), (15008, TUNNEL)]),
        (["-b", "80,81,82,83", "-d", ""], (80, 81), [(82, PORT), (83, PORT), (80, PORT), (8080, PORT), (15008, TUNNEL)]),
        (["-m", "NONE"], (), []),
    ],
)  # fmt: skip
def test_from_outside_captured_ports_without_a_listener_come_first_then_excluded_ones_and_the_tunnel(more, listening, asks):
    assert tell_inbound(*more, listening=listening) == asks


def test_from_outside_an_ipv6_pod_is_asked_at_its_address():
    assert tell_inbound(family=IPV6, own="fd00::1")[0] == (8080, PORT)


def tell_outbound(*more, family=IPV4, own="", environ=None):
    asks = list(plan_outbound(options(*more, environ=environ), family, own))
    assert {(one.direction, one.family, one.interface) for one in asks} == {("outbound", family, "")}
    return [(one.who, one.target, one.destination, one.port, one.protocol, one.uid, one.gid, one.source) for one in asks]


def asked(who, target, destination, port, protocol="tcp", user=(1000, 1000), source=""):
    return who, target, destination, port, protocol, *user, source


OUTSIDE, PROXY = "an address outside", (1337, 1337)
FIRST = [
    asked("app", OUTSIDE, "192.0.2.1", 80), asked("proxy's uid", OUTSIDE, "192.0.2.1", 80, user=(1337, 1000)),
    asked("proxy's gid", OUTSIDE, "192.0.2.1", 80, user=(1000, 1337)),
]  # fmt: skip
ITSELF = [
    asked("app", "localhost", "127.0.0.1", 8080), asked("proxy", "localhost", "127.0.0.1", 8080, user=PROXY),
    asked("proxy", "the passthrough address", "127.0.0.6", 8080, user=PROXY, source="127.0.0.1"),
]  # fmt: skip
SERVERS = [asked("app", "another name server", "192.0.2.53", 53, "udp"), asked("proxy", "another name server", "192.0.2.53", 53, "udp", PROXY)]


def test_in_the_pod_the_application_and_the_proxy_connect_outside_to_the_pod_itself_and_to_a_name_server():
    assert tell_outbound() == [*FIRST, *ITSELF, *SERVERS]
    own = tell_outbound(own="10.1.1.1")
    assert [one for one in own if one not in tell_outbound()] == [
        asked("app", "the pod's own address", "10.1.1.1", 8080), asked("proxy", "the pod's own address", "10.1.1.1", 8080, user=PROXY)]  # fmt: skip


def test_in_the_pod_the_addresses_are_those_of_the_family():
    found = tell_outbound(family=IPV6, own="fd00::1")
    assert [one[2] for one in found] == ["2001:db8::1"] * 3 + ["::1"] * 2 + ["fd00::1"] * 2 + ["::6"] + ["2001:db8::53"] * 2


@pytest.mark.parametrize(
    ("more", "asks"),
    [
        (["-o", "80,1-2,3,4"], [asked("app", "an excluded port", "192.0.2.1", port) for port in (80, 1, 3)]),
        (["-q", "9,10,11,12"], [asked("app", "an included port", "192.0.2.1", port) for port in (9, 10, 11)]),
        (["-x", "10.0.0.0/8,10.9.9.9/32,172.16.0.0/31,10.4.4.0/24,fd00::/8"], [asked("app", "an excluded network", host, 80) for host in ("10.255.255.254", "10.9.9.9", "172.16.0.0")]),
        (["-i", "10.0.0.0/30"], [asked("app", "an included network", "10.0.0.2", 80)]),
    ],
    ids=str,
)  # fmt: skip
def test_in_the_pod_of_each_list_three_are_tried(more, asks):
    found = tell_outbound(*more)
    assert [one for one in found if one[1] == asks[0][1]] == asks
    assert found[0][3] == (8080 if "80,1-2,3,4" in more else 80), "a port that is not excluded"


def test_in_the_pod_captured_dns_is_asked_by_both_protocols_of_a_known_server_and_another_one():
    found = tell_outbound("--redirect-dns", "--dns-servers", "10.96.0.10,10.96.0.11,fd00::a")
    servers = [("a name server of resolv.conf", "10.96.0.10"), ("another name server", "192.0.2.53")]
    assert [one for one in found if one[3] == 53] == [
        asked(who, what, server, 53, protocol, user) for what, server in servers for protocol in ("udp", "tcp") for who, user in (("app", (1000, 1000)), ("proxy", PROXY))
    ]  # fmt: skip
    assert ("a name server of resolv.conf", "fd00::a") in {one[1:3] for one in tell_outbound("--redirect-dns", "--dns-servers", "10.96.0.10,fd00::a", family=IPV6)}


@pytest.mark.parametrize("variable", ["ISTIO_OUTBOUND_OWNER_GROUPS", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"])
def test_in_the_pod_groups_that_are_captured_or_not_are_tried_as_the_application(variable):
    found = tell_outbound(environ={variable: "7,8,9,10"})
    assert [one for one in found if "group" in one[0]] == [asked(f"app in group {gid}", OUTSIDE, "192.0.2.1", 80, user=(1000, gid)) for gid in (7, 8, 9)]


def test_in_the_pod_the_application_is_a_user_who_is_not_the_proxy():
    assert tell_outbound("-u", "1000,65534")[0][5:7] == (4242, 4242)
    assert tell_outbound("-u", "1000", "-g", "65534,4242")[0][5:7] == (5000, 5000)
