"""Real connections over IPv6 where it is refused, and where it is left as Istio leaves it in a pod whose first address is IPv4.

`make test` takes one backend after the other, in each layout or mode once; `make prove` takes each with each.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import struct
import threading
from contextlib import closing

import pytest

from lab_probes import Probe
from laboratory import Listener, start_servers
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.options.interception import NODE_PROXY_MARK
from programming import apply_in, arrivals, call_on, check_same, differences_in, needs, remove_in, run_tool, state
from sweeps import choose, in_turn, pairs

POD, CLIENT = "fd77::2", "fd77::1"
FIRST, SECOND = "2001:db8::7", "2001:db8::8"
APP, PROXY = {"uid": APP_ID, "gid": APP_ID}, {"uid": PROXY_ID, "gid": PROXY_ID}
OUTSIDE, REFUSED = ("outside", 80), "refused"
INBOUND, OUTBOUND = ("proxy", 15006), ("proxy", 15001)
LAYOUTS = {"current": ("-o", "443", "-z", "15006"), "classic": ("-z", "15006"), "ambient": ()}
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
backends = in_turn("backend", BACKENDS)
sidecars = in_turn(("backend", "layout"), list(itertools.product(BACKENDS, ("current", "classic"))), 2)
modes = in_turn(("backend", "mode"), list(itertools.product(BACKENDS, ("REDIRECT", "TPROXY"))), 2)


def asked(backend, layout, *arguments, ipv6="reject"):
    needs(backend)
    everything = () if layout == "ambient" else ("-b", "*", "-i", "*")
    return Options.from_argv(["--layout", layout, "--backend", backend, "--ipv6", ipv6, *everything, *LAYOUTS[layout], *arguments])


def program(pod, options):
    outcome = apply_in(pod, options)
    assert differences_in(pod, options) == []
    return outcome


@sidecars
def test_tcp_is_refused_in_both_directions_but_for_what_is_excluded(pod, backend, layout):
    start_servers(pod, app=(80, 8080), proxy=(15001, 15006, 15008))
    before = state(pod)
    options = asked(backend, layout, "-x", f"{SECOND}/128", "-d", "8080")
    assert program(pod, options).changed
    assert not apply_in(pod, options).changed, "a second run has nothing to do"

    assert arrivals(pod.client, Probe(POD, 80), Probe(POD, 8080)) == [REFUSED, ("app", 8080)]
    assert arrivals(pod, Probe(FIRST, 80, **APP), Probe(SECOND, 80, **APP)) == [REFUSED, OUTSIDE]
    assert arrivals(pod, Probe(FIRST, 80, **PROXY), Probe(FIRST, 80, uid=PROXY_ID, gid=APP_ID), Probe(FIRST, 80, uid=APP_ID, gid=PROXY_ID)) == [OUTSIDE] * 3
    itself = [Probe(host, 80, **user) for host in ("::1", POD) for user in (APP, PROXY)]
    assert arrivals(pod, *itself) == [("app", 80)] * 4, "what the pod sends to itself"
    assert arrivals(pod, Probe(FIRST, 53, udp=True, **APP)) == [("outside", 53)], "UDP is left alone"
    if layout == "current":
        assert arrivals(pod, Probe(FIRST, 443, **APP)) == [("outside", 443)]
        assert arrivals(pod.client, Probe(POD, 15008)) == [("proxy", 15008)]
    assert arrivals(pod.client, Probe("10.77.0.2", 80), Probe("10.77.0.2", 8080)) == [INBOUND, ("app", 8080)]
    assert arrivals(pod, Probe("203.0.113.7", 80, **APP)) == [OUTBOUND]

    assert remove_in(pod).changed
    check_same(state(pod), before, "remove takes everything away")
    assert arrivals(pod.client, Probe(POD, 80)) == [("app", 80)]


@backends
def test_in_an_ambient_mesh_the_node_s_proxy_and_its_tunnel_are_not_refused(pod, backend):
    start_servers(pod, app=(80,), proxy=(15001, 15006, 15008))
    before = state(pod)
    program(pod, asked(backend, "ambient", "--host-probe-address", SECOND))
    assert arrivals(pod.client, Probe(POD, 80), Probe(POD, 15008), Probe(POD, 80, source=SECOND)) == [REFUSED, ("proxy", 15008), ("app", 80)]
    assert arrivals(pod, Probe(FIRST, 80, **APP), Probe(FIRST, 80, mark=NODE_PROXY_MARK), Probe(POD, 80, mark=NODE_PROXY_MARK)) == [REFUSED, OUTSIDE, ("app", 80)]
    assert arrivals(pod.client, Probe("10.77.0.2", 80)) == [INBOUND]
    remove_in(pod)
    check_same(state(pod), before, "remove takes everything away")


@backends
def test_lists_of_ports_and_networks_refuse_exactly_those(pod, backend):
    start_servers(pod, app=(80, 8080))
    needs(backend)
    program(pod, Options.from_argv(["--backend", backend, "--ipv6", "reject", "-b", "80", "-i", f"{FIRST}/128", "-q", "443"]))
    assert arrivals(pod.client, Probe(POD, 80), Probe(POD, 8080)) == [REFUSED, ("app", 8080)]
    assert arrivals(pod, Probe(FIRST, 80, **APP), Probe(SECOND, 80, **APP), Probe(SECOND, 443, **APP)) == [REFUSED, OUTSIDE, REFUSED]


@sidecars
def test_the_live_rules_show_that_ipv6_is_refused(pod, backend, layout):
    start_servers(pod)
    options = asked(backend, layout, "-x", f"{SECOND}/128,10.9.0.0/16", "-d", "8080")
    program(pod, options)
    found = run_tool(pod, "verify", "--json")
    shown = json.loads(found.stdout)
    assert (found.returncode, shown["ok"], "--ipv6 reject" in shown["options"]) == (0, True, True), found
    (networks,) = re.findall(r"-x (\S+)", shown["options"])
    assert sorted(networks.split(",")) == ["10.9.0.0/16", f"{SECOND}/128"], "networks of both families are read back"
    for words, verdict in (
        (("--to", f"[{FIRST}]:80"), "dropped"), (("--to", f"[{SECOND}]:80"), "direct"), (("--to", f"[{FIRST}]:80", "--uid", "1337"), "direct"),
        (("--from", CLIENT, "--to-port", "80"), "dropped"), (("--from", CLIENT, "--to-port", "8080"), "direct"), (("--to", "[::1]:80"), "direct"),
    ):  # fmt: skip
        answer = run_tool(pod, "explain", "--live", *words).stdout
        assert answer.startswith(f"{verdict}: "), f"{words}: {answer}"
    answer = run_tool(pod, "explain", "--live", "--to", f"[{FIRST}]:80").stdout
    assert "--ipv6 on: captured" in answer, answer
    kinds = {row["kind"] for row in json.loads(run_tool(pod, "audit", "--live", "--json").stdout)["pods"][0]["traffic"]}
    assert "dropped" not in kinds, "what is refused is no bypass"
    assert not kinds & {"ipv6", "uncaptured", "foreign", "unknown"}, kinds
    live = run_tool(pod, "verify", "--live", "--json")
    wrong = [row for row in json.loads(live.stdout)["probes"] if row["ok"] is False]
    assert wrong == [], live.stderr


def connect_from(namespace, port, to, *, reset=False):
    """Connects from a source port of one's own: what the server answered, or the error; closed by a reset where that is asked."""
    with namespace.entered():
        connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    with closing(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind((CLIENT, port))
        try:
            connection.connect((POD, to))
            answer = connection.recv(4096)
        except OSError as error:
            return type(error).__name__
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return json.loads(answer)["name"]


@pytest.mark.parametrize(("backend", "case"), pairs(BACKENDS, (("current", "reject"), ("classic", "reject"), ("classic", "off"))))
def test_a_source_port_whose_old_connection_is_still_tracked_opens_nothing(pod, backend, case):
    """A reset leaves an entry for 10 seconds, in which a new SYN counts as ESTABLISHED (nf_conntrack_proto_tcp.c)."""
    layout, ipv6 = case
    start_servers(pod, app=(22, 80))
    program(pod, asked(backend, layout, "-d", "22", ipv6="on"))
    assert connect_from(pod.client, 41000, 22, reset=True) == "app", "port 22 is excluded"
    program(pod, asked(backend, layout, *(("-d", "80") if layout == "current" else ("-b", "22")), "--reconcile", ipv6=ipv6))
    assert connect_from(pod.client, 41000, 22) == "ConnectionRefusedError"
    assert connect_from(pod.client, 41001, 22) in {"ConnectionRefusedError", "PermissionError"}


@backends
def test_connections_from_before_and_those_of_exclusions_live_on(pod, backend):
    start_servers(pod, app=(80, 8080))
    with pod.entered(), closing(socket.create_server((POD, 9000), family=socket.AF_INET6)) as server:
        with pod.client.entered():
            old = socket.create_connection((POD, 9000))
        accepted, _ = server.accept()
        with closing(old), closing(accepted):
            program(pod, asked(backend, "current"))
            old.sendall(b"x" * 100_000)
            with accepted.makefile("rb") as received:
                assert len(received.read(100_000)) == 100_000
            accepted.sendall(b"y")
            assert old.recv(1) == b"y"


def send_fragments(namespace, size):
    """A SYN to the pod's port 80 in IPv6 fragments, the first with `size` bytes of TCP's header; whether it was answered by SYN and ACK."""
    source, target = (socket.inet_pton(socket.AF_INET6, one) for one in (CLIENT, POD))
    segment = struct.pack("!HHIIBBHHH16x", 42000, 80, 1, 0, 5 << 4, 2, 65535, 0, 0)  # with data, as TCP Fast Open has it
    words = struct.unpack(f"!{(len(source) * 2 + 8 + len(segment)) // 2}H", source + target + struct.pack("!II", len(segment), 6) + segment)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    segment = segment[:16] + struct.pack("!H", checksum) + segment[18:]
    with namespace.entered():
        raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
        heard = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP)
    with closing(raw), closing(heard):
        heard.settimeout(0.5)
        for at, part, more in ((0, segment[:size], 1), (size, segment[size:], 0)):
            payload = struct.pack("!BBHI", 6, 0, at | more, 77) + part
            raw.sendto(struct.pack("!IHBB", 6 << 28, len(payload), 44, 64) + source + target + payload, (POD, 0))
        try:
            while True:
                answer = heard.recv(100)
                if struct.unpack("!HH", answer[:4]) == (80, 42000):
                    return answer[13] & 0x12 == 0x12
        except TimeoutError:
            return False


# The kernel itself drops a first fragment without the whole header (RFC 8200, 4.5).
@pytest.mark.parametrize("size", [24, 32])
@backends
def test_a_connection_whose_first_packet_comes_in_pieces_is_refused_too(pod, backend, size):
    start_servers(pod)
    assert send_fragments(pod.client, size), "without rules it is answered"
    program(pod, asked(backend, "current"))
    assert not send_fragments(pod.client, size)


@backends
def test_from_one_value_to_another_nothing_slips_past(pod, backend):
    """The application is never reached from outside, nor anybody outside by it, while capture becomes refusal and comes back."""
    start_servers(pod)
    program(pod, asked(backend, "current", ipv6="on"))
    stop, inbound, outbound = threading.Event(), [], []
    callers = [
        threading.Thread(target=call_on, args=(pod.client, POD, 0, stop, inbound)),
        threading.Thread(target=call_on, args=(pod, FIRST, APP_ID, stop, outbound)),
    ]
    for caller in callers:
        caller.start()
    try:
        for ipv6 in ("reject", "on", "reject", "inet", "reject", "on"):
            program(pod, asked(backend, "current", "--reconcile", ipv6=ipv6))
    finally:
        stop.set()
        for caller in callers:
            caller.join()
    assert {"proxy 15006"} == {one for one in inbound if not one.startswith(POD)}
    assert {"proxy 15001"} == {one for one in outbound if not one.startswith(FIRST)}


def start_proxy_of_ipv4(pod):
    """The usual servers, but a proxy that listens on IPv4 alone, as Istio's does in such a pod."""
    start_servers(pod, proxy=(), proxy_dns=None)
    pod.start("envoy", [Listener(port, 4, transparent=port == 15006) for port in (15001, 15006)], uid=PROXY_ID, gid=PROXY_ID).wait()


# What Istio 1.28's own rules come to in the same pod: those for iptables have none for IPv6, the native ones redirect it.
OPEN, CLOSED = (("app", 80), OUTSIDE), (REFUSED, REFUSED)


@pytest.mark.parametrize(
    ("backend", "mode", "wanted"),
    [
        ("iptables-nft", "REDIRECT", OPEN), ("libiptc", "REDIRECT", OPEN), ("nftables", "REDIRECT", CLOSED),
        ("iptables-legacy", "TPROXY", OPEN), ("nftables", "TPROXY", (("app", 80), REFUSED)),
        *choose([], [("iptables-legacy", "REDIRECT", OPEN), ("iptables-nft", "TPROXY", OPEN)]),
    ],
)  # fmt: skip
def test_where_ipv4_is_first_ipv6_is_as_istio_leaves_it_on_each_backend(pod, backend, mode, wanted):
    needs(backend)
    start_proxy_of_ipv4(pod)
    before = state(pod)
    options = Options.from_argv(["--backend", backend, "-b", "*", "-i", "*", "-m", mode])
    outcome = program(pod, options)
    (warning,) = [one for one in outcome.warnings if "IPv6" in one]
    assert f"the pod's first address is IPv4, and {POD} is here too" in warning
    assert ("the proxy and mTLS" in warning) == (wanted != CLOSED)
    assert all(remedy in warning for remedy in ("--dual-stack", "--ipv6 on", "--ipv6 reject"))

    assert (*arrivals(pod.client, Probe(POD, 80)), *arrivals(pod, Probe(FIRST, 80, **APP))) == wanted
    assert arrivals(pod, Probe("::1", 80, **APP), Probe(POD, 80, **APP), Probe(FIRST, 80, **PROXY)) == [("app", 80), ("app", 80), OUTSIDE]
    assert arrivals(pod.client, Probe("10.77.0.2", 80)) == [("envoy", 15006)]
    shown = json.loads(run_tool(pod, "verify", "--json").stdout)
    assert shown["ok"], shown
    assert f"--ipv6 {'inet' if backend == 'nftables' else 'off'}" in shown["options"], "what the rules show"
    for words, arrived in ((("--from", CLIENT, "--to-port", "80"), wanted[0]), (("--to", f"[{FIRST}]:80"), wanted[1])):
        answer = run_tool(pod, "explain", "--live", *words).stdout
        assert answer.startswith("captured: " if arrived == REFUSED else "direct: "), answer
    remove_in(pod)
    check_same(state(pod), before, "remove takes everything away")


@modes
def test_refusing_closes_what_istio_leaves_open(pod, backend, mode):
    start_proxy_of_ipv4(pod)
    program(pod, asked(backend, "current", "-m", mode))
    assert arrivals(pod.client, Probe(POD, 80)) + arrivals(pod, Probe(FIRST, 80, **APP)) == [REFUSED] * 2
