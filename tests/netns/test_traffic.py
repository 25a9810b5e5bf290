"""Real connections through the rules: where each one arrives, in both families and both ways of capture."""

from __future__ import annotations

import socket
import struct

import pytest

from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from programming import SIDECAR, apply_in, arrivals, needs, remove_in, run_tool

OUTSIDE = {4: ("198.51.100.7", "203.0.113.7", "203.0.113.8"), 6: ("2001:db8::7", "2001:db8::8")}
POD = {4: "10.77.0.2", 6: "fd77::2"}
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
LOOP = {4: "127.0.0.1", 6: "::1"}
PASS = {4: "127.0.0.6", 6: "::6"}
families = pytest.mark.parametrize("family", [4, 6])
variants = pytest.mark.parametrize("variant", ["iptables-nft", "iptables-legacy"])

APP = {"uid": APP_ID, "gid": APP_ID}
PROXY = {"uid": PROXY_ID, "gid": PROXY_ID}
INBOUND, OUTBOUND, RESOLVER = ("proxy", 15006), ("proxy", 15001), ("proxy", 15053)


def program(pod, *arguments, variant="iptables-nft", env=None):
    needs(variant)
    apply_in(pod, Options.from_argv([*arguments, "--ipv6", "on", "--backend", variant], env))


@families
@variants
def test_a_sidecar_captures_what_it_should_and_nothing_else(pod, family, variant):
    start_servers(pod, app=(80, 8080, 15020, 15090))
    program(pod, *SIDECAR, variant=variant)

    inbound = pod.client.probe([Probe(POD[family], 80), Probe(POD[family], 9), Probe(POD[family], 15020), Probe(POD[family], 15090)])
    assert [(a.server, a.port) for a in inbound] == [INBOUND, INBOUND, ("app", 15020), ("app", 15090)]
    assert inbound[0].original_destination == address(POD[family], 80)
    assert inbound[1].original_destination == address(POD[family], 9)

    to = OUTSIDE[family][0]
    outbound = pod.probe([Probe(to, 80, **APP), Probe(to, 80, **PROXY), Probe(to, 80, uid=PROXY_ID, gid=APP_ID), Probe(to, 80, uid=APP_ID, gid=PROXY_ID), Probe(to, 9, **APP)])
    assert [(a.server, a.port) for a in outbound] == [OUTBOUND, *[("outside", 80)] * 3, OUTBOUND]
    assert outbound[0].original_destination == address(to, 80)
    assert outbound[4].original_destination == address(to, 9)

    assert arrivals(
        pod,
        Probe(POD[family], 80, **APP),  # to itself by its endpoint address: direct
        Probe(LOOP[family], 80, **APP),
        Probe(LOOP[family], 80, **PROXY),
        Probe(POD[family], 80, **PROXY),  # its own service, after the proxy chose this pod: inbound again
        Probe(POD[family], 80, source=PASS[family], **PROXY),  # what the proxy passes on to the application
    ) == [("app", 80), ("app", 80), ("app", 80), INBOUND, ("app", 80)]
    assert arrivals(pod, Probe(to, 53, udp=True, **APP)) == [("outside", 53)], "UDP is not captured"


def address(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@families
@variants
def test_a_connection_to_the_proxy_s_own_port_reaches_it(pod, family, variant):
    """nat translates it into what it is, and leaves no status on its conntrack entry that would say so."""
    start_servers(pod)
    program(pod, *SIDECAR, variant=variant)
    assert arrivals(pod.client, Probe(POD[family], INBOUND[1])) == [INBOUND]


@families
def test_the_tunnel_port_is_never_redirected(pod, family):
    start_servers(pod, proxy=(15001, 15006, 15008))
    program(pod, "-b", "*")

    assert arrivals(pod.client, Probe(POD[family], 15008), Probe(POD[family], 80)) == [("proxy", 15008), INBOUND]


@families
def test_lists_of_ports_and_networks_capture_exactly_those(pod, family):
    start_servers(pod)
    one, two = OUTSIDE[family][:2]
    length = 32 if family == 4 else 128
    program(pod, "-b", "8080", "-i", f"{one}/{length}", "-q", "443", "-o", "80")

    assert arrivals(pod.client, Probe(POD[family], 8080), Probe(POD[family], 80)) == [INBOUND, ("app", 80)]
    assert arrivals(
        pod, Probe(one, 8080, **APP), Probe(one, 80, **APP), Probe(two, 443, **APP), Probe(two, 80, **APP)
    ) == [OUTBOUND, ("outside", 80), OUTBOUND, ("outside", 80)]


@families
def test_excluded_networks_go_out_as_they_are(pod, family):
    start_servers(pod)
    one, two = OUTSIDE[family][:2]
    program(pod, "-i", "*", "-x", f"{one}/{32 if family == 4 else 128}")

    assert arrivals(pod, Probe(one, 80, **APP), Probe(two, 80, **APP)) == [("outside", 80), OUTBOUND]


def test_without_lists_nothing_but_the_calls_to_itself_is_captured(pod):
    start_servers(pod)
    program(pod)

    for family in (4, 6):
        assert arrivals(pod.client, Probe(POD[family], 80)) == [("app", 80)]
        assert arrivals(pod, Probe(OUTSIDE[family][0], 80, **APP)) == [("outside", 80)]
        assert arrivals(pod, Probe(POD[family], 80, **PROXY)) == [INBOUND]


@families
@variants
def test_tproxy_keeps_both_addresses(pod, family, variant):
    start_servers(pod, transparent=(15006,))
    program(pod, "-m", "TPROXY", "-b", "*", "-d", "8080", "-i", "*", variant=variant)

    source = OUTSIDE[family][1]
    captured, excluded = pod.client.probe([Probe(POD[family], 80, source=source), Probe(POD[family], 8080, source=source)])

    assert (captured.server, captured.port) == INBOUND
    assert captured.local == address(POD[family], 80)
    assert captured.peer == captured.source
    assert captured.source.startswith(address(source, 0)[:-1])
    assert (excluded.server, excluded.port) == ("app", 8080)
    assert arrivals(
        pod, Probe(OUTSIDE[family][0], 80, **APP), Probe(OUTSIDE[family][0], 80, **PROXY), Probe(POD[family], 80, **APP)
    ) == [OUTBOUND, ("outside", 80), ("app", 80)]
    assert arrivals(pod, Probe(POD[family], 80, source=PASS[family], **PROXY)) == [("app", 80)]
    assert arrivals(pod, Probe(LOOP[family], 80, **PROXY)) == [("app", 80)]


@families
def test_tproxy_of_a_list_of_ports_holds_long_connections(pod, family):
    start_servers(pod, transparent=(15006,))
    program(pod, "-m", "TPROXY", "-b", "80,81", "-t", "4242", "-r", "99")

    assert arrivals(pod.client, Probe(POD[family], 80), Probe(POD[family], 8080)) == [INBOUND, ("app", 8080)]
    with pod.client.entered():
        stream = socket.create_connection((POD[family], 80))
    with stream, stream.makefile("rwb") as lines:
        for _ in range(3):  # an answer when it is accepted, and one for everything that it sends
            assert b'"proxy"' in lines.readline()
            lines.write(b"x" * 1000)
            lines.flush()


@families
def test_owner_groups_choose_whose_traffic_is_captured(family):
    to = OUTSIDE[family][0]
    members, strangers = Probe(to, 80, uid=APP_ID, gid=4001), Probe(to, 80, uid=APP_ID, gid=4002)
    for variable, wanted in (
        ("ISTIO_OUTBOUND_OWNER_GROUPS", [OUTBOUND, ("outside", 80)]),
        ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", [("outside", 80), OUTBOUND]),
    ):
        with Pod() as pod:
            start_servers(pod)
            program(pod, "-i", "*", env={variable: "4001"})
            assert arrivals(pod, members, strangers) == wanted, variable


@families
@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
def test_excluded_interfaces_are_captured_neither_in_nor_out(family, mode):
    with Pod(interfaces=["eth1"]) as pod:
        start_servers(pod, transparent=(15006,) if mode == "TPROXY" else ())
        near = pod.neighbours["eth1"].serve("neighbour", [_listener(80, family)])
        program(pod, "-b", "*", "-i", "*", "-m", mode, "-c", "eth1")
        there = "10.78.0.1" if family == 4 else "fd78::1"
        here = "10.78.0.2" if family == 4 else "fd78::2"

        assert arrivals(pod.neighbours["eth1"], Probe(here, 80)) == [("app", 80)]
        assert arrivals(pod, Probe(there, 80, **APP)) == [(near.name, 80)]
        assert arrivals(pod.client, Probe(POD[family], 80)) == [INBOUND]
        assert arrivals(pod, Probe(OUTSIDE[family][0], 80, **APP)) == [OUTBOUND]


def _listener(port, family):
    from laboratory import Listener

    return Listener(port, family)


@families
def test_what_a_machine_behind_the_pod_sends_is_outbound(family):
    one, two = OUTSIDE[family][:2]
    length = 32 if family == 4 else 128
    for networks, wanted in (("*", [OUTBOUND, OUTBOUND]), (f"{one}/{length}", [OUTBOUND, ("outside", 80)])):
        with Pod(interfaces=["net1"]) as pod:
            start_servers(pod)
            program(pod, "-b", "*", "-i", networks, "-k", "net1")
            assert arrivals(pod.neighbours["net1"], Probe(one, 80), Probe(two, 80)) == wanted, networks
            assert arrivals(pod.client, Probe(POD[family], 80)) == [INBOUND]


@pytest.mark.parametrize("variant", ["iptables-nft", "iptables-legacy", "libiptc", "nftables"])
@pytest.mark.parametrize("layout", ["current", "classic", "ambient"])
@families
def test_a_prefix_of_names_is_every_bridge_that_docker_makes_and_no_other_device(family, layout, variant):
    """Docker calls its bridges br- and twelve random digits; `br-+` is what iptables makes of that."""
    here = {4: "10.78.0.2/24", 6: "fd78::2/64"}[family]
    captured, left = (("-b", "81", "-i", "*"), ("outside", 80)) if layout != "ambient" else ((), ("proxy", 15006))
    with Pod(interfaces=["net1", "br"]) as pod:
        start_servers(pod)
        bridge = ["ip link add br-5f0c1d2e3a4b type bridge", f"ip address del {here} dev net1", "ip link set net1 master br-5f0c1d2e3a4b"]
        for command in (*bridge, f"ip address add {here} dev br-5f0c1d2e3a4b nodad", "ip link set br-5f0c1d2e3a4b up"):
            pod.run(command.split(), check=True)
        probe = Probe(OUTSIDE[family][0], 80)
        assert any(arrivals(pod.neighbours["net1"], probe) == [("outside", 80)] for _ in range(10)), "a new bridge needs a moment for IPv6"
        program(pod, *captured, "-k", "br-+,tap0,br-0", "--layout", layout, variant=variant)
        behind = {name: arrivals(pod.neighbours[name], probe) for name in ("net1", "br")}
        assert behind == {"net1": [OUTBOUND], "br": [left]}
        found = run_tool(pod, "verify", "--backend", variant)
        assert (found.returncode, found.stdout.startswith("as planned")) == (0, True), found.stdout + found.stderr
        assert "br-+" in found.stderr, "the options that the rules show"
        remove_in(pod, Options.from_argv(["--backend", variant, "-k", "br-+", "--layout", layout]))
        assert arrivals(pod.neighbours["net1"], probe) == [("outside", 80)]


@pytest.mark.parametrize("variant", ["iptables-nft", "iptables-legacy", "libiptc", "nftables"])
@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
@families
def test_a_prefix_of_names_excludes_every_interface_that_begins_so(family, mode, variant):
    there, here = ("10.78.0.1", "10.78.0.2") if family == 4 else ("fd78::1", "fd78::2")
    with Pod(interfaces=["net7", "xnet"]) as pod:
        start_servers(pod, transparent=(15006,) if mode == "TPROXY" else ())
        near = pod.neighbours["net7"].serve("neighbour", [_listener(80, family)])
        program(pod, "-b", "*", "-i", "*", "-m", mode, "-c", "net+,net7", variant=variant)
        assert arrivals(pod.neighbours["net7"], Probe(here, 80)) == [("app", 80)]
        assert arrivals(pod, Probe(there, 80, **APP)) == [(near.name, 80)]
        assert arrivals(pod.neighbours["xnet"], Probe("10.79.0.2" if family == 4 else "fd79::2", 80)) == [INBOUND]
        assert arrivals(pod, Probe(OUTSIDE[family][0], 80, **APP)) == [OUTBOUND]
        assert run_tool(pod, "verify", "--backend", variant).stdout.startswith("as planned")


@families
@pytest.mark.parametrize("udp", [False, True], ids=["tcp", "udp"])
def test_dns_to_a_listed_server_goes_to_the_resolver_and_is_answered(pod, family, udp):
    start_servers(pod)
    listed, unlisted = OUTSIDE[family][:2]
    program(pod, "-i", "", "--redirect-dns", "--dns-servers", listed)

    assert arrivals(
        pod,
        Probe(listed, 53, udp=udp, **APP),
        Probe(unlisted, 53, udp=udp, **APP),
        Probe(listed, 53, udp=udp, **PROXY),  # the resolver's own query
        Probe(listed, 53, udp=udp, **APP),
    ) == [RESOLVER, ("outside", 53), ("outside", 53), RESOLVER]


@families
@pytest.mark.parametrize("udp", [False, True], ids=["tcp", "udp"])
def test_all_dns_goes_to_the_resolver_where_that_is_wanted(pod, family, udp):
    start_servers(pod)
    program(pod, "-i", "", "--redirect-dns", "--capture-all-dns")

    for server in OUTSIDE[family]:
        assert arrivals(pod, Probe(server, 53, udp=udp, **APP), Probe(server, 53, udp=udp, **PROXY)) == [RESOLVER, ("outside", 53)]


def test_queries_of_app_and_resolver_from_one_port_stay_apart(pod):
    """The zones' purpose: both use the same addresses and ports at the same time."""
    start_servers(pod)
    server = OUTSIDE[4][0]
    program(pod, "-i", "", "--redirect-dns", "--dns-servers", server)
    answers = pod.call(_ask_twice, server)

    assert ['"proxy"' in answers[0], '"outside"' in answers[1]] == [True, True], answers


def _ask_twice(server):
    """Answers to the app and to the proxy, whose datagrams both leave from port 5353."""
    from netinit.kernel.sockets import creating_as

    sockets = []
    for user in (APP_ID, PROXY_ID):
        with creating_as(user, user):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("10.77.0.2", 5353))
        made.connect((server, 53))
        made.send(b"?")
        sockets.append(made.recv(4096).decode())
        made.close()
    return sockets


def test_invalid_packets_are_dropped_where_that_is_wanted():
    """Istio's own rules answer an ACK out of nowhere with a reset, unless it is dropped as belonging to no connection."""
    for arguments, answered in (((), False), (("--istio-exact",), True), (("--istio-exact", "--drop-invalid"), False)):
        with Pod(ipv6=False) as pod:
            start_servers(pod)
            pod.set_sysctl("net.netfilter.nf_conntrack_tcp_loose", 0)
            needs("iptables-nft")
            apply_in(pod, Options.from_argv(["-b", "*", *arguments]))
            assert pod.client.call(_answer_to_stray_ack) is answered, arguments
            assert arrivals(pod.client, Probe(POD[4], 80)) == [INBOUND]


def _answer_to_stray_ack():
    """Whether anything comes back for a TCP ACK that nobody waits for."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.settimeout(0.4)
        header = struct.pack("!HHIIBBHHH", 40000, 80, 7, 7, 5 << 4, 0x10, 1024, 0, 0)
        pseudo = socket.inet_aton(CLIENT[4]) + socket.inet_aton(POD[4]) + struct.pack("!BBH", 0, 6, len(header))
        header = header[:16] + struct.pack("!H", _checksum(pseudo + header)) + header[18:]
        raw.bind((CLIENT[4], 0))
        raw.sendto(header, (POD[4], 0))
        try:
            while True:
                packet = raw.recv(200)
                if packet[12:16] == socket.inet_aton(POD[4]) and packet[22:24] == struct.pack("!H", 40000):
                    return True
        except TimeoutError:
            return False


def _checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@variants
def test_the_classic_layout_captures_and_refuses_ipv6(pod, variant):
    needs(variant)
    start_servers(pod, app=(22, 80, 8080))
    apply_in(pod, Options.from_argv(["--layout", "classic", "-i", "*", "-b", "*", "-d", "8080", "-u", "1337", "--ipv6", "off", "--backend", variant]))

    assert arrivals(pod.client, Probe(POD[4], 80), Probe(POD[4], 22), Probe(POD[4], 8080)) == [
        OUTBOUND,
        ("app", 22),
        ("app", 8080),
    ], "one port serves both directions"
    assert arrivals(pod, Probe(OUTSIDE[4][0], 80, **APP), Probe(OUTSIDE[4][0], 80, **PROXY)) == [OUTBOUND, ("outside", 80)]
    # Refused is neighbour discovery too, as in Istio 1.0, so that the client may learn of nothing at all.
    assert pod.client.connect(POD[6], 80, timeout=0.3).outcome in ("refused", "unreachable", "timeout")
    assert arrivals(pod, Probe(LOOP[6], 80, **APP)) == [("app", 80)]


@families
def test_the_classic_layout_captures_a_family_that_is_on(pod, family):
    start_servers(pod)
    program(pod, "--layout", "classic", "-i", "*", "-b", "80", "-u", "1337", "-z", "15006")

    assert arrivals(pod.client, Probe(POD[family], 80), Probe(POD[family], 8080)) == [INBOUND, ("app", 8080)]
    assert arrivals(pod, Probe(OUTSIDE[family][0], 80, **APP), Probe(OUTSIDE[family][0], 80, **PROXY)) == [OUTBOUND, ("outside", 80)]


def test_the_classic_layout_knows_tproxy(pod):
    start_servers(pod, transparent=(15001,))
    program(pod, "--layout", "classic", "-m", "TPROXY", "-i", "*", "-b", "80", "-u", "1337")

    captured = pod.client.connect(POD[4], 80, source=OUTSIDE[4][1])
    assert (captured.server, captured.port, captured.local) == ("proxy", 15001, "10.77.0.2:80")
    assert captured.peer == captured.source
