"""Which socket gets a connection, where the kernel tells less than it decides by. tests/netns/test_listeners.py asks a kernel."""

from __future__ import annotations

import pytest

from netinit.base.listeners import Listener, Listeners
from netinit.base.net import IPV4, IPV6, HostAddress, number_of
from netinit.base.snapshot import AttachedProgram, Device, Snapshot
from netinit.live.listeners import (
    ABSENT,
    ACCEPTED,
    ELSEWHERE,
    FULL,
    LOOPBACK_ONLY,
    OPAQUE,
    PASSED,
    REFUSED,
    UNANSWERED,
    UNKNOWN,
    UNREAD,
    Delivery,
    Reception,
    is_on_loopback,
    receive,
)

V4, V6 = IPV4.number, IPV6.number
POD = number_of("10.77.0.2")
TO_POD = Delivery(family=IPV4, protocol="tcp", address=POD, port=80, device="eth0")
BY_TPROXY = TO_POD.replace(by_tproxy=True)
ANY = Listener(protocol="tcp", family=V4, address=bytes(4), port=80, transparent=False, backlog=1)
DUAL = ANY.replace(family=V6, address=bytes(16), v6only=False)
CLEAR, SILENT = ANY.replace(transparent=True), ANY.replace(transparent=None)
LOCAL = ANY.replace(address=bytes((127, 0, 0, 1)))
CROWDED = ANY.replace(waiting=2)


def pod(*sockets, unread=(), **more):
    links = (Device(index=1, name="lo"), Device(index=2, name="eth0"))
    addresses = (HostAddress(family=V4, address="10.77.0.2", length=24, index=2),)
    return Snapshot(**{"links": links, "addresses": addresses, "listeners": Listeners(sockets=sockets, unread=unread), **more})


@pytest.mark.parametrize(("sockets", "delivery", "expected"), [
    ((), TO_POD, (REFUSED, ABSENT)),
    ((ANY.replace(port=81), ANY.replace(protocol="udp")), TO_POD, (REFUSED, ABSENT)),
    ((ANY,), TO_POD, (ACCEPTED, "")),
    ((DUAL,), TO_POD, (ACCEPTED, "")),
    ((DUAL.replace(v6only=True),), TO_POD, (REFUSED, ELSEWHERE)),
    ((DUAL.replace(v6only=None),), TO_POD, (UNKNOWN, UNREAD)),
    ((DUAL.replace(v6only=None), ANY.replace(address=bytes((10, 77, 0, 2)))), TO_POD, (ACCEPTED, "")),
    ((LOCAL,), TO_POD, (REFUSED, LOOPBACK_ONLY)),
    ((LOCAL, ANY.replace(device=1)), TO_POD, (REFUSED, ELSEWHERE)),
    ((ANY.replace(device=2),), TO_POD.replace(device="lo"), (ACCEPTED, "")),
    ((ANY.replace(device=1),), TO_POD.replace(device="lo"), (REFUSED, ELSEWHERE)),
    ((CROWDED,), TO_POD, (UNANSWERED, FULL)),
    ((CROWDED, ANY), TO_POD, (UNKNOWN, FULL)),
    ((CROWDED.replace(protocol="udp"),), TO_POD.replace(protocol="udp"), (ACCEPTED, "")),
    ((), TO_POD.replace(protocol="udp", is_silent=True), (UNANSWERED, ABSENT)),
    ((), BY_TPROXY, (UNANSWERED, ABSENT)),
    ((CLEAR,), BY_TPROXY, (ACCEPTED, "")),
    ((ANY,), BY_TPROXY, (UNANSWERED, OPAQUE)),
    ((ANY,), BY_TPROXY.replace(continues=True), (PASSED, OPAQUE)),
    ((ANY, CLEAR), BY_TPROXY, (UNKNOWN, OPAQUE)),
    ((SILENT,), BY_TPROXY, (UNKNOWN, UNREAD)),
    ((SILENT,), TO_POD, (ACCEPTED, "")),
])  # fmt: skip
def test_what_becomes_of_a_connection_follows_from_the_sockets_or_is_not_known(sockets, delivery, expected):
    found = receive(pod(*sockets), delivery)
    assert (found.outcome, found.problem) == expected
    assert (found.problem == UNREAD) <= bool(found.reason), "why it is not known"


@pytest.mark.parametrize(("sockets", "delivery", "named", "reason"), [
    ((DUAL.replace(v6only=None),), TO_POD, [0], "the kernel does not say which IPv6 sockets take IPv4 too"),
    ((CROWDED, ANY), TO_POD, [0, 1], "several sockets share the port, and not all of them take it"),
    ((SILENT,), BY_TPROXY, [0], "the kernel does not say whether the socket is transparent"),
    ((SILENT, CLEAR), BY_TPROXY, [0, 1], "several sockets share the port, and not all of them take it"),
    ((ANY, LOCAL), TO_POD, [0], ""),
    ((ANY, ANY.replace(address=bytes((10, 77, 0, 2)))), TO_POD, [1], ""),  # the exact address comes first
    ((LOCAL, ANY.replace(device=1), ANY.replace(port=81)), TO_POD, [0, 1], ""),  # those that have the port, where none gets it
    ((ANY.replace(device=2), ANY.replace(device=1)), TO_POD, [0], ""),
])  # fmt: skip
def test_the_sockets_in_question_are_named_with_the_reason(sockets, delivery, named, reason):
    found = receive(pod(*sockets), delivery)
    assert (found.delivery, found.listeners, found.reason) == (delivery, tuple([sockets[at] for at in named]), reason)


def test_what_the_pod_sends_to_an_address_of_ipv6_reaches_sockets_of_the_device_that_has_it():
    addresses = (HostAddress(family=V4, address="0.0.0.1", length=24, index=3), HostAddress(family=V6, address="::1", length=128, index=1), HostAddress(family=V6, address="fd77::2", length=64, index=2))
    to_itself = Delivery(family=IPV6, protocol="tcp", address=number_of("fd77::2"), port=80, device="lo")
    for device, outcome in ((0, ACCEPTED), (2, ACCEPTED), (1, REFUSED), (3, REFUSED)):
        assert receive(pod(DUAL.replace(device=device), addresses=addresses), to_itself).outcome == outcome
    assert receive(pod(DUAL.replace(device=1), addresses=addresses), to_itself.replace(address=number_of("fd77::9"))).outcome == ACCEPTED, "no device has it"
    assert receive(pod(DUAL.replace(device=1), addresses=addresses), to_itself.replace(device="gone")).outcome == REFUSED


@pytest.mark.parametrize(("address", "family", "beyond"), [
    ("127.0.0.1", V4, True), ("127.255.255.255", V4, True), ("127.0.0.0", V4, True), ("126.255.255.255", V4, False), ("128.0.0.0", V4, False),
    ("::1", V6, True), ("::", V6, False), ("::2", V6, False),
])  # fmt: skip
def test_loopback_is_a_network_of_ipv4_and_one_address_of_ipv6(address, family, beyond):
    version = IPV4 if family == V4 else IPV6
    assert is_on_loopback(ANY.replace(family=family, address=number_of(address).to_bytes(version.bits // 8, "big"))) is beyond


@pytest.mark.parametrize(("snapshot", "reason"), [
    (pod(listeners=None), "sockets were not read"),
    (pod(ANY, unread=(("tcp", "refused"),)), "refused"),
    (
        pod(ANY, programs=(AttachedProgram(where="sk_lookup of the network namespace", number=7),)),
        "a BPF program is attached: it chooses the socket of inbound connections, also of captured ones",
    ),
    (pod(ANY, links=(Device(index=2, name="eth0"), Device(index=3, name="red", kind="vrf"))), "a VRF decides which sockets get it"),
])  # fmt: skip
def test_what_hides_the_sockets_or_chooses_among_them_makes_it_unknown(snapshot, reason):
    found = receive(snapshot, TO_POD)
    assert found == Reception(delivery=TO_POD, outcome=UNKNOWN, problem=UNREAD, reason=reason)


def test_what_one_protocol_does_not_tell_leaves_the_other_known():
    assert receive(pod(ANY, unread=(("udp", "refused"),)), TO_POD).outcome == ACCEPTED
