"""Who gets what a plan captures, in words, and what is wrong there."""

from __future__ import annotations

from functools import partial

import pytest

from netinit.base.listeners import Listener, Listeners
from netinit.base.net import IPV4, IPV6, HostAddress
from netinit.base.snapshot import Device, Snapshot
from netinit.live import recipients
from netinit.live.host import surroundings_of
from netinit.live.listeners import UNANSWERED, receive
from netinit.live.recipients import APPLICATION, LISTENER, OF_ALL, OF_ONE, PROXY, RESOLVER, examine, follow
from netinit.options import Options, offline
from netinit.questions.listening import describe, examine_pod, require, severity_of
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.layouts import plan
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import load_plan
from netinit.simulate.stand_ins import make_inbound

V4, V6 = IPV4.number, IPV6.number
DUAL = Listener(protocol="tcp", family=V6, address=bytes(16), port=15001, uid=1337, v6only=False, transparent=True, backlog=1)
PROXIES = (DUAL, DUAL.replace(port=15006))
LOCAL = DUAL.replace(family=V4, address=bytes((127, 0, 0, 1)), port=8080, uid=1000)


def pod(*sockets, unread=(), ipv6=True):
    addresses = [HostAddress(family=V4, address="10.77.0.2", length=24, index=2), HostAddress(family=V6, address="fe80::2", length=64, index=2, scope=253)]
    addresses += [HostAddress(family=V6, address="fd77::2", length=64, index=2)] if ipv6 else []
    links = (Device(index=1, name="lo"), Device(index=2, name="eth\x1b[2J0"))
    return Snapshot(links=links, addresses=tuple(addresses), listeners=Listeners(sockets=sockets, unread=unread))


def planned(*words):
    return plan(Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "on", *words]).settle(offline()))


def told(snapshot, *words):
    return [describe(one) for one in examine_pod(snapshot, planned(*words), "iptables-nft")]


def test_a_pod_with_its_proxy_has_nothing_to_be_said():
    assert told(pod(*PROXIES, DUAL.replace(port=9090, uid=1000), LOCAL.replace(port=15000, uid=1337))) == []


@pytest.mark.parametrize(("uid", "code"), [(1000, "NI380"), (1337, ""), (0, ""), (201337, "")])
def test_a_program_of_another_user_on_the_proxy_s_port_is_said_unless_it_may_be_the_proxy_by_its_group(uid, code):
    said = told(pod(DUAL.replace(uid=uid), DUAL.replace(port=15006)))
    assert ["NI380" in line and "15001 (uid 1000) gets it, and the proxy's user is 1337" in line for line in said] == [True] * bool(code), said
    assert [one.rule for one in require(examine_pod(pod(DUAL.replace(uid=uid), PROXIES[1]), planned(), "nftables"))] == [
        "[::]:15001 (uid 1000) gets it, and the proxy's user is 1337: the connection is accepted"
    ] * bool(code)


def test_what_is_the_same_for_several_families_and_ways_is_said_once():
    assert told(pod()) == [
        "then: nothing listens on 15001 (the proxy is not up): the connection is refused (NI301)",
        "then: nothing listens on 15006 (the proxy is not up): the connection is refused (NI301)",
    ]
    assert told(pod(unread=(("tcp", "t"), ("udp", "t"))), "--redirect-dns", "--dns-servers", "10.0.0.10") == [
        "then: who listens is not known: t (NI309)"
    ]


def test_a_proxy_of_ipv4_alone_lacks_nothing_where_the_pod_has_no_address_of_ipv6():
    proxies = [one.replace(family=V4, address=bytes(4), v6only=None) for one in PROXIES]
    assert told(pod(*proxies, ipv6=False)) == []
    assert [line.rpartition("(")[2] for line in told(pod(*proxies))] == ["NI302)", "NI302)"]


@pytest.mark.parametrize(("exact", "end"), [((), "times out"), (("--istio-exact",), "nft's tproxy lets the connection pass, not captured")])
def test_without_a_proxy_tproxy_drops_unless_the_nft_rules_are_those_of_istio(exact, end):
    made = planned("-m", "TPROXY", *exact)
    for backend, expected in (("iptables-nft", "times out"), ("nftables", end)):
        inbound = [one for one in examine_pod(pod(), made, backend) if one.reception.delivery.by_tproxy]
        assert [one.text.endswith(expected) for one in inbound] == [True]


def test_a_proxy_that_is_bound_to_another_device_is_elsewhere():
    outbound, inbound = PROXIES
    assert told(pod(outbound.replace(device=1), inbound)) == [], "what goes out comes back through lo"
    for bound in (pod(outbound.replace(device=2), inbound), pod(outbound, inbound.replace(device=1))):
        assert [line.rpartition("(")[2] for line in told(bound)] == ["NI302)"]


def test_where_foreign_rules_send_a_connection_to_another_port_of_the_pod_its_listener_gets_it():
    snapshot = pod(*PROXIES, LOCAL.replace(address=bytes((10, 77, 0, 2)), port=81))
    around = surroundings_of(snapshot, IPV4)
    sends = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.77.0.9 -p tcp -j DNAT --to-destination 10.77.0.2:81\nCOMMIT\n"
    trace = simulate(make_inbound(around, "203.0.113.7", "10.77.0.9", 80), load_listing(parse_listing(sends), IPV4), around)
    (one,) = follow(trace, snapshot)
    assert (one.who, one.outcome, one.address) == ("application", "accepted", "10.77.0.2:81")


def test_the_listener_that_redirected_udp_goes_to_is_named_as_such():
    words, listener = ("--redirect-outbound-udp", "514:10514"), DUAL.replace(protocol="udp", port=10514)
    assert told(pod(*PROXIES), *words) == ["then: nothing listens on 10514/udp (the pod's listener is not up): the datagram is refused (ICMP) (NI301)"]
    assert told(pod(*PROXIES, listener), *words) == []
    outside = listener.replace(family=V4, address=bytes((10, 77, 0, 2)), v6only=None, uid=1000)
    assert "the pod's listener listens on 10.77.0.2:10514 (uid 1000) alone, not on 127.0.0.1:10514" in str(told(pod(*PROXIES, outside), *words))


def test_the_application_is_noted_where_no_address_of_the_pod_reaches_it():
    assert told(pod(*PROXIES, LOCAL)) == [
        "then: the application listens on 127.0.0.1:8080 (uid 1000) alone, not on 10.77.0.2:8080: the connection is refused (NI305)"
    ]
    assert told(pod(*PROXIES, LOCAL, LOCAL.replace(port=9090, family=V6, address=bytes(15) + b"\1"))) == [
        "then: the application listens on 127.0.0.1:8080 (uid 1000), [::1]:9090 (uid 1000) alone, not on the pod's address: the connection is refused (NI305)"
    ]
    assert told(pod(*PROXIES, LOCAL, LOCAL.replace(address=bytes(4)))) == []
    assert told(pod(*PROXIES, LOCAL.replace(address=bytes(4)))) == [], "for IPv4 it is there: that may be all it wants"


OUT, IN = {"to": "203.0.113.7", "port": 443}, {"source": "203.0.113.7", "to": "10.77.0.2"}
ELSEWHERE = "the application listens on 127.0.0.1:8080 (uid 1000) alone, and the proxy connects to 10.77.0.2:8080: the connection is refused"


@pytest.mark.parametrize(
    ("sockets", "packet", "words", "said"),
    [
        (PROXIES, OUT, (), [("proxy", "accepted", "[::]:15001 (uid 1337) gets it: the connection is accepted")]),
        ((), OUT, (), [("proxy", "refused", "nothing listens on 15001 (the proxy is not up): the connection is refused")]),
        (PROXIES, {**OUT, "uid": 1337}, (), []),  # it leaves the pod
        ((*PROXIES, LOCAL), {**IN, "port": 8080}, (), [("proxy", "accepted", "[::]:15006 (uid 1337) gets it: the connection is accepted"), ("application", "refused", ELSEWHERE)]),
        ((*PROXIES, LOCAL.replace(address=bytes(4))), {**IN, "port": 8080}, ("-d", "8080"), [("application", "accepted", "0.0.0.0:8080 (uid 1000) gets it: the connection is accepted")]),
        ((*PROXIES, LOCAL), {**IN, "port": 9090}, ("-d", "9090"), [("application", "refused", "nothing listens on 9090 (the application listens on 127.0.0.1:8080 (uid 1000)): the connection is refused")]),
        ((DUAL, LOCAL), {**IN, "port": 8080}, (), [("proxy", "refused", "nothing listens on 15006 (the proxy is not up): the connection is refused")]),
    ],
)  # fmt: skip
def test_a_connection_is_followed_to_who_gets_it_and_behind_the_proxy(sockets, packet, words, said):
    snapshot, packet = pod(*sockets), dict(packet)
    around = surroundings_of(snapshot, IPV4)
    make = partial(make_inbound, around, packet.pop("source")) if "source" in packet else partial(make_outbound, around, uid=packet.pop("uid", 1000), gid=1000)
    trace = simulate(make(packet["to"], packet["port"]), load_plan(planned("-u", "1337", *words), IPV4), around)
    assert [(one.who, one.outcome, one.text) for one in follow(trace, snapshot, proxy_uids=(1337,))] == said


def test_a_full_queue_is_a_warning_whoever_has_it():
    (one,) = examine_pod(pod(*PROXIES, DUAL.replace(port=9090, uid=1000, waiting=2)), planned(), "iptables-nft")
    assert (one.outcome, severity_of(one)) == (UNANSWERED, "warning")
    assert describe(one) == (
        "then: the accept queue of [::]:9090 (uid 1000) is full (2 wait, backlog 1): the connection is not answered, and times out (NI307)"
    )


def test_a_pod_with_thousands_of_listeners_is_judged_at_once_and_on_one_line(monkeypatch):
    crowd = [LOCAL.replace(port=port) for port in range(20_000, 28_000)]
    seen = []
    monkeypatch.setattr(recipients, "receive", lambda snapshot, delivery: (seen.extend(snapshot.listeners.sockets), receive(snapshot, delivery))[1])
    (one,) = examine_pod(pod(*PROXIES, *crowd), planned(), "iptables-nft")
    assert len(seen) < 3 * len(crowd), "the work grows with the number of listeners, not with its square"
    assert one.text.startswith("the application listens on 127.0.0.1:20000 (uid 1000), 127.0.0.1:20001 (uid 1000)")
    assert " and 7996 more alone, not on the pod's address" in one.text
    assert len(one.sockets) == 50


def test_names_of_devices_are_not_shown_raw():
    (one,) = examine_pod(pod(*PROXIES, DUAL.replace(port=9090, uid=1000, device=2, waiting=2)), planned(), "iptables-nft")
    assert "\x1b" not in one.text
    assert r"[::]:9090 on eth\x1b[2J0 (uid 1000)" in one.text


def test_only_what_keeps_connections_from_the_proxy_counts_where_a_listener_is_required():
    def kinds(snapshot):
        return [one.rule.partition(":")[0] for one in require(examine_pod(snapshot, planned(), "iptables-nft"))]

    assert kinds(pod(*PROXIES, LOCAL)) == []
    assert kinds(pod(PROXIES[0], LOCAL)) == ["nothing listens on 15006 (the proxy is not up)"]
    assert kinds(pod(unread=(("tcp", "t"),))) == ["who listens is not known"], "what is not known is not fine"


def test_a_snapshot_that_did_not_ask_who_listens_has_no_findings():
    assert examine_pod(pod().replace(listeners=None), planned(), "iptables-nft") == ()
    assert examine_pod(None, planned(), "iptables-nft") == ()


def test_each_kind_of_problem_has_a_code():
    kinds = {*OF_ONE.values(), *OF_ALL.values()}
    assert sorted(kind.code for kind in kinds) == [f"NI30{number}" for number in range(1, 10)]
    assert {who for who, _ in OF_ONE} == {PROXY, RESOLVER, LISTENER, APPLICATION}
    assert examine(pod(*PROXIES), planned()) == ()


def test_a_query_that_nobody_answers_times_out_for_its_conntrack_zone_hides_the_refusal():
    (found,) = [one for one in examine_pod(pod(*PROXIES), planned("--redirect-dns", "--dns-servers", "10.0.0.10"), "iptables-nft") if "udp" in one.text]
    assert found.text == "nothing listens on 15053/udp (the proxy's resolver is not up): the datagram is not answered"


@pytest.mark.parametrize(("changes", "named"), [({"v6only": True}, "(IPv6 only, uid 1337)"), ({"device": 9}, "on 9 (uid 1337)")])
def test_why_a_proxy_on_the_port_does_not_get_it_is_in_its_name(changes, named):
    assert told(pod(*[one.replace(**changes) for one in PROXIES])) == [
        f"then: the proxy listens on [::]:{port} {named} alone, not on {place}:{port}: the connection is refused (NI302)"
        for port, place in ((15001, "127.0.0.1"), (15006, "10.77.0.2"))
    ]


ANYWHERE = LOCAL.replace(address=bytes(4))
APP_GETS_IT = ("application", "accepted", "0.0.0.0:8080 (uid 1000) gets it: the connection is accepted")
LOST = "the connection is not answered, and times out"


@pytest.mark.parametrize(
    ("mode", "inbound", "more", "said"),
    [
        ("TPROXY", {}, {}, [("proxy", "accepted", "[::]:15006 (uid 1337) gets it: the connection is accepted"), APP_GETS_IT]),
        ("TPROXY", {"transparent": False}, {}, [("proxy", "unanswered", f"[::]:15006 (uid 1337) is not transparent (IP_TRANSPARENT), which TPROXY needs: {LOST}")]),
        ("TPROXY", {"port": 1}, {}, [("proxy", "unanswered", f"nothing listens on 15006 (the proxy is not up): {LOST}")]),
        (
            "TPROXY", {"port": 1}, {"continues": True},
            [("proxy", "passed", "nothing listens on 15006 (the proxy is not up): nft's tproxy lets the connection pass, not captured"), APP_GETS_IT],
        ),
        ("REDIRECT", {"port": 1}, {"continues": True}, [("proxy", "refused", "nothing listens on 15006 (the proxy is not up): the connection is refused")]),
        (
            "REDIRECT", {}, {"proxy_uids": (7, 8)},
            [("proxy", "accepted", "[::]:15006 (uid 1337) gets it, and the proxy's user is 7, 8: the connection is accepted"), APP_GETS_IT],
        ),
        ("REDIRECT", {"waiting": 2}, {}, [("proxy", "unanswered", f"the accept queue of [::]:15006 (uid 1337) is full (2 wait, backlog 1): {LOST}")]),
        (
            "REDIRECT", {"v6only": None}, {},
            [("proxy", "unknown", "who listens is not known: the kernel does not say which IPv6 sockets take IPv4 too"), APP_GETS_IT],
        ),
    ],
)  # fmt: skip
def test_a_captured_connection_ends_where_the_socket_of_its_mode_takes_it(mode, inbound, more, said):
    snapshot = pod(PROXIES[0], PROXIES[1].replace(**inbound), ANYWHERE)
    around = surroundings_of(snapshot, IPV4)
    trace = simulate(make_inbound(around, "203.0.113.7", "10.77.0.2", 8080), load_plan(planned("-u", "1337", "-m", mode), IPV4), around)
    found = follow(trace, snapshot, **more)
    assert [(one.who, one.outcome, one.text) for one in found] == said
    assert [one.behind_proxy for one in found] == [False, True][: len(found)] or more.get("continues"), "behind a proxy that has it"
