"""How bad it is who listens where a connection arrives, what --require-listener counts, and what is asked of a pod."""

from __future__ import annotations

import pytest

from netinit.base.listeners import Listener, Listeners
from netinit.base.net import IPV4, HostAddress, number_of
from netinit.base.snapshot import Device, Snapshot
from netinit.live.listeners import (
    ABSENT,
    ACCEPTED,
    ELSEWHERE,
    FULL,
    LOOPBACK_ONLY,
    OPAQUE,
    REFUSED,
    UNKNOWN,
    UNREAD,
    Delivery,
    Reception,
)
from netinit.live.recipients import APPLICATION, PROXY, RESOLVER, Recipient
from netinit.options import Options, offline
from netinit.questions.listening import describe, examine_pod, require, severity_of, to_object
from netinit.rules.layouts import plan

SOCKET = Listener(protocol="tcp", family=IPV4.number, address=bytes(4), port=15001, uid=1337, transparent=True, backlog=1)
ARRIVING = Delivery(family=IPV4, protocol="tcp", address=number_of("127.0.0.1"), port=15001, device="lo")


def recipient(who, problem):
    outcome = UNKNOWN if problem == UNREAD else REFUSED if problem else ACCEPTED
    full = SOCKET.replace(waiting=2) if problem == FULL else SOCKET
    found = Reception(delivery=ARRIVING, outcome=outcome, problem=problem, listeners=() if problem in (ABSENT, UNREAD) else (full,), reason="why")
    return Recipient(who=who, reception=found, proxy_uids=(1337,))


@pytest.mark.parametrize(
    ("who", "problem", "severity", "is_required"),
    [
        (PROXY, ABSENT, "warning", True), (RESOLVER, ABSENT, "warning", True), (PROXY, ELSEWHERE, "warning", True), (PROXY, OPAQUE, "warning", True),
        (PROXY, FULL, "warning", True), (PROXY, UNREAD, "note", True), (APPLICATION, UNREAD, "note", True), (APPLICATION, FULL, "warning", True),
        (APPLICATION, ABSENT, "note", False), (APPLICATION, LOOPBACK_ONLY, "note", False), (APPLICATION, ELSEWHERE, "note", False),
    ],
)  # fmt: skip
def test_what_keeps_connections_from_the_proxy_or_may_is_required_and_what_the_application_may_want_so_is_a_note(who, problem, severity, is_required):
    one = recipient(who, problem)
    assert severity_of(one) == severity
    assert [(found.kind, found.where, found.rule, found.purpose, found.origin) for found in require([one])] == [
        ("listener", "sockets", one.text, f"netinit help {one.kind.code}", "--require-listener")
    ] * is_required
    assert describe(one) == f"then: {one.text} ({one.kind.code})"
    assert (to_object(one)["code"], to_object(one)["severity"]) == (one.kind.code, severity)


@pytest.mark.parametrize("who", [PROXY, RESOLVER, APPLICATION])
def test_who_accepts_a_connection_is_named_without_a_finding(who):
    one = recipient(who, "")
    assert (require([one]), describe(one)) == ((), "then: 0.0.0.0:15001 (uid 1337) gets it: the connection is accepted")
    assert to_object(one) == {
        "who": who, "address": "127.0.0.1:15001", "protocol": "tcp", "outcome": "accepted", "code": None, "severity": None,
        "text": "0.0.0.0:15001 (uid 1337) gets it: the connection is accepted", "users": [1337], "sockets": ["0.0.0.0:15001 (uid 1337)"],
    }  # fmt: skip


def pod(*sockets):
    own = HostAddress(family=IPV4.number, address="10.77.0.2", length=24, index=2)
    return Snapshot(links=(Device(index=1, name="lo"), Device(index=2, name="eth0")), addresses=(own,), listeners=Listeners(sockets=sockets))


def planned(*words):
    return plan(Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "off", *words]).settle(offline()))


def test_a_pod_is_asked_about_each_port_that_its_plan_redirects_to_if_it_was_looked_who_listens():
    assert [one.address for one in examine_pod(pod(), planned(), "iptables-nft")] == ["127.0.0.1:15001", "10.77.0.2:15006"]
    assert [one.address for one in examine_pod(pod(SOCKET), planned(), "iptables-nft")] == ["10.77.0.2:15006"]
    for unasked in (None, pod().replace(listeners=None)):
        assert examine_pod(unasked, planned(), "iptables-nft") == ()


@pytest.mark.parametrize(
    ("backend", "words", "is_passed"),
    [("nftables", ["--istio-exact"], True), ("nftables", [], False), ("iptables-nft", ["--istio-exact"], False), ("iptables-legacy", [], False)],
)
def test_tproxy_lets_pass_what_no_socket_takes_in_tables_of_nft_as_istio_makes_them(backend, words, is_passed):
    found = examine_pod(pod(SOCKET), planned("-m", "TPROXY", *words), backend)
    assert [one.outcome for one in found] == ["passed" if is_passed else "unanswered"]


@pytest.mark.parametrize(("uid", "words", "codes"), [(1337, [], []), (1000, [], ["NI380"]), (1000, ["-u", "1000"], [])])
def test_somebody_else_on_the_proxy_s_port_is_told_where_the_proxy_is_known_by_its_user(uid, words, codes):
    found = examine_pod(pod(*[SOCKET.replace(port=port, uid=uid) for port in (15001, 15006, 15008)]), planned(*words), "iptables-nft")
    assert [one.kind.code for one in found][:1] == codes
    ambient = plan(Options.from_argv(["--layout", "ambient", "--ipv6", "off"]).settle(offline()))
    assert "NI380" not in [one.kind.code for one in examine_pod(pod(*[SOCKET.replace(port=port, uid=uid) for port in (15001, 15006, 15008)]), ambient, "iptables-nft")]
