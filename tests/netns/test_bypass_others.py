"""Ways past the proxy that need more than a socket: another interface, a virtual machine, a group, the name of the proxy's pass-through address."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import sys
import time
from pathlib import Path

import pytest

from bypass_outbound import (
    answer_call,
    device,
    dial_from_port_of_reset_proxy,
    dial_from_port_of_unanswered_proxy,
    send_syn,
)
from bypass_world import (
    APP_PORT,
    BACKENDS,
    CAPTURED,
    DEFAULT_IS_EXACT,
    EXACT,
    EXPECTING,
    LEAKED,
    MODES,
    NOBODY,
    NOT_EXPECTING,
    OUTSIDE,
    PAST,
    POD,
    SERVER,
    SERVER_PORT,
    World,
)
from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID, PROXY_ID
from programming import needs
from segments import (
    ACK,
    FIN,
    MD5_OPTION,
    PEER,
    PSH,
    RST,
    SYN,
    find_hardware_address,
    make_packet,
    make_segment,
    read_segment,
)
from sweeps import crossed, in_turn

VERSIONS = (4, 6)
backends = in_turn("backend", BACKENDS)
modes = pytest.mark.parametrize("mode", MODES)
versions = pytest.mark.parametrize("version", VERSIONS)
NO_RULE = pytest.mark.xfail(strict=True, raises=AssertionError, reason="no rule stops it yet")
VM = {4: "10.78.0.1", 6: "fd78::1"}
# What connection tracking calls INVALID where it begins a connection.
ODD = {"SYN and ACK": SYN | ACK, "SYN and FIN": SYN | FIN, "RST": RST, "FIN": FIN}


@contextlib.contextmanager
def listening_below(namespace, interface="eth0"):
    """A socket that sees every packet on an interface."""
    with namespace.entered():
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    with made:
        made.bind((interface, 3))
        yield made


def find_segment(listening, ports, seconds):
    """The next segment with these ports that arrives, or None."""
    while select.select([listening], [], [], seconds)[0]:
        packet, (_, _, direction, *_) = listening.recvfrom(2048)
        seen = None if direction == socket.PACKET_OUTGOING else read_segment(packet)
        if seen and seen.ports == ports:
            return seen
    return None


@crossed(mode=MODES, backend=BACKENDS, version=VERSIONS)
def test_an_entry_made_over_an_excluded_interface_does_not_serve_another(require_netns, request, mode, backend, version):
    needs(backend)
    if DEFAULT_IS_EXACT and version == 4:  # IPv6 has no route to the server over that interface
        request.applymarker(NO_RULE)
    with World(mode, backend, "-c", "net1", interfaces=("net1",)) as world:
        own, server = (POD[version], world.port()), (SERVER[version], SERVER_PORT)
        send_syn(world, version, own, server, device("net1"))
        world.patience = NOT_EXPECTING
        assert world.dial(version, own, server) in (CAPTURED, NOBODY)


@crossed(backend=BACKENDS, version=VERSIONS)
def test_a_call_over_an_excluded_interface_opens_no_way_in_over_another(require_netns, backend, version):
    """A peer in both networks: its SYN over the excluded one, which no listener answers, leaves an entry without a translation."""
    needs(backend)
    for rules, expected in (((EXACT,), {PAST}), ((), {CAPTURED, NOBODY})):
        with World("REDIRECT", backend, "-c", "net1", *rules, interfaces=("net1",)) as world, listening_below(world.pod.neighbours["net1"]) as sending:
            ports = (world.port(), APP_PORT)
            packet = make_packet(PEER[version], POD[version], make_segment(PEER[version], POD[version], ports, SYN, seq=5000, options=MD5_OPTION))
            sending.sendto(packet, ("eth0", {4: 0x0800, 6: 0x86DD}[version], 0, 0, find_hardware_address(world.pod, "net1")))
            world.settle()
            world.peer.send_segment(PEER[version], POD[version], ports, SYN, seq=5000)
            if PAST not in expected:
                world.patience = NOT_EXPECTING
            assert world.shake_hands((PEER[version], POD[version]), ports, 5000) in expected


@backends
def test_a_dns_flow_over_an_excluded_interface_does_not_serve_another(require_netns, backend):
    needs(backend)
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(World("REDIRECT", backend, "-c", "net1", "--redirect-dns", "--capture-all-dns", interfaces=("net1",)))
        proxy = stack.enter_context(make_datagram_socket(world.pod, 4, bind=("127.0.0.1", 15053)))
        outside = stack.enter_context(make_datagram_socket(world.pod.client, 4, bind=(SERVER[4], 53)))
        own = (POD[4], world.port())
        world.as_app(send_datagram, 4, own, (SERVER[4], 53), device("net1"))
        world.as_app(send_datagram, 4, own, (SERVER[4], 53))
        assert outside not in select.select([proxy, outside], [], [], 0.3)[0]


CAPTURING = [("-i", "203.0.113.0/24,2001:db8::/32"), ("-i", "", "-q", "443")]
NOT_CAPTURING = [("-i", "198.51.100.0/24"), ("-x", "203.0.113.7/32,2001:db8::7/128"), ("-o", "443")]


@backends
@pytest.mark.parametrize(
    ("arguments", "captured"),
    [pytest.param(each, True, marks=NO_RULE if DEFAULT_IS_EXACT else ()) for each in CAPTURING]
    + [(each, False) for each in NOT_CAPTURING],
)
def test_an_entry_of_the_proxys_serves_nobody_more_and_nobody_less_than_the_options_say(require_netns, backend, arguments, captured):
    needs(backend)
    with World("REDIRECT", backend, *arguments) as world:
        for version in (4, 6):
            world.patience = EXPECTING
            assert world.dial(version, None, (SERVER[version], SERVER_PORT)) == (CAPTURED if captured else PAST)
            world.patience = NOT_EXPECTING if captured else EXPECTING
            found = [dial_from_port_of_reset_proxy(world, version), dial_from_port_of_unanswered_proxy(world, version)]
            assert set(found) <= ({CAPTURED, NOBODY} if captured else {PAST}), found


@crossed(backend=BACKENDS, version=VERSIONS)
def test_odd_segments_of_a_virtual_machine_are_not_forwarded(require_netns, backend, version):
    needs(backend)
    with World("REDIRECT", backend, "-k", "net1", interfaces=("net1",)) as world, listening_below(world.pod.client) as outside:
        machine = world.pod.neighbours["net1"]
        hardware = find_hardware_address(world.pod, "net1")
        forwarded = []
        with listening_below(machine) as sending:
            for what, flags in {"SYN": SYN, **ODD}.items():
                ports = (world.port(), SERVER_PORT)
                packet = make_packet(VM[version], SERVER[version], make_segment(VM[version], SERVER[version], ports, flags, seq=1, ack=1))
                sending.sendto(packet, ("eth0", {4: 0x0800, 6: 0x86DD}[version], 0, 0, hardware))
                if find_segment(outside, ports, NOT_EXPECTING):
                    forwarded.append(what)
        assert "SYN" not in forwarded
        assert not forwarded, f"past the proxy to the outside: {', '.join(forwarded)}"


@modes
@backends
def test_nobody_outside_speaks_in_the_name_of_the_pass_through_address(require_netns, request, mode, backend):
    """For the kernel ::6 is an address like any other. The peer has to guess a port and a sequence number; here it knows both."""
    needs(backend)
    if DEFAULT_IS_EXACT:
        request.applymarker(NO_RULE)
    with World(mode, backend) as world, world.proxy_socket(6, "::6") as inner, listening_below(world.pod, "lo") as within:
        inner.connect_ex((POD[6], APP_PORT))
        ports = (inner.getsockname()[1], APP_PORT)
        ((who, connection),) = world.accept(EXPECTING)
        assert who == "app"
        seen = [find_segment(within, ports, 1), find_segment(within, ports, 1)][-1]  # the SYN, and the ACK that ends the handshake
        world.peer.send_segment("::6", POD[6], ports, ACK | PSH, seq=seen.seq, ack=seen.ack, data=b"injected")
        with connection:
            readable = select.select([connection], [], [], NOT_EXPECTING)[0]
            assert not (readable and connection.recv(20)), "the application reads what the peer wrote"


@modes
@versions
def test_a_program_with_the_proxys_group_is_the_proxy_for_the_rules(require_netns, open_folder, mode, version):
    """By design, and why a pod must not have the proxy's group among its supplementary ones (fsGroup): anybody in a group may make a set-group-ID program of it."""
    needs("iptables-nft")
    folder = open_folder / "the application's"
    folder.mkdir()
    program = folder / "program"
    shutil.copy(Path(sys.executable).resolve(), program)
    for path in (folder, program):
        os.chown(path, APP_ID, APP_ID)
    if os.statvfs(folder).f_flag & os.ST_NOSUID:
        pytest.skip(f"{open_folder} is mounted nosuid: no set-group-ID program works there")
    with World(mode, "iptables-nft") as world:
        world.pod.run(["sh", "-c", 'chgrp "$1" "$2" && chmod g+s "$2"', "sh", str(PROXY_ID), program], uid=APP_ID, gid=APP_ID, groups=[PROXY_ID], check=True)
        dial = f"import socket; socket.create_connection({(SERVER[version], SERVER_PORT)!r}, 5)"
        home = {"PYTHONHOME": sys.base_prefix}
        world.pod.run([program, "-I", "-S", "-c", dial], uid=APP_ID, gid=APP_ID, groups=[PROXY_ID], env=home, check=True)
        assert world.verdict(EXPECTING) == PAST


def test_a_user_namespace_of_its_own_gives_no_right_over_the_pods_network(require_netns):
    with World("REDIRECT", "iptables-nft") as world:
        mark = "import socket; socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 1337)"
        done = world.pod.run(["unshare", "--user", "--map-root-user", sys.executable, "-I", "-S", "-c", mark], uid=APP_ID, gid=APP_ID)
        assert done.returncode != 0
        assert "Operation not permitted" in done.stderr, done.stderr


@modes
@versions
def test_raw_sockets_get_past_with_resets(require_netns, mode, version):
    """By design: NET_RAW, which Kubernetes gives by default to containers of root, has to be dropped."""
    needs("iptables-nft")
    with World(mode, "iptables-nft") as world, listening_below(world.pod.client) as outside:
        with world.pod.entered():
            raw = socket.socket({4: socket.AF_INET, 6: socket.AF_INET6}[version], socket.SOCK_RAW, socket.IPPROTO_RAW)
        found = {}
        with raw:
            for what, flags in {"SYN": SYN, **ODD}.items():
                ports = (world.port(), SERVER_PORT)
                segment = make_segment(POD[version], SERVER[version], ports, flags, seq=1, ack=1)
                with contextlib.suppress(PermissionError):  # it is dropped
                    raw.sendto(make_packet(POD[version], SERVER[version], segment), (SERVER[version], 0))
                found[what] = find_segment(outside, ports, NOT_EXPECTING) is not None
        assert [what for what, past in found.items() if past] == ["SYN and FIN", "RST", "FIN"], "the rules leave alone what closes, and capture or drop all else"


def make_datagram_socket(namespace, version, *, bind=None):
    with namespace.entered():
        made = socket.socket({4: socket.AF_INET, 6: socket.AF_INET6}[version], socket.SOCK_DGRAM)
    if bind:
        made.bind(bind)
    return made


@crossed(backend=BACKENDS, version=VERSIONS, all_servers=(True, False))
def test_dns_queries_of_the_application_are_captured_whatever_was_there_before(require_netns, backend, version, all_servers):
    needs(backend)
    arguments = ["--capture-all-dns"] if all_servers else ["--dns-servers", ",".join(SERVER.values())]
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(World("REDIRECT", backend, "--redirect-dns", *arguments))
        loop, server = {4: "127.0.0.1", 6: "::1"}[version], (SERVER[version], 53)
        proxy = stack.enter_context(make_datagram_socket(world.pod, version, bind=(loop, 15053)))
        outside = stack.enter_context(make_datagram_socket(world.pod.client, version, bind=server))

        def query(port: int, *options) -> str:
            world.as_app(send_datagram, version, (POD[version], port), server, *options)
            ready = select.select([proxy, outside], [], [], 0.3)[0]
            for made in ready:
                made.recv(10)
            return PAST if outside in ready else CAPTURED if proxy in ready else NOBODY

        own = world.port()
        with make_upstream(world, version, own) as upstream:
            upstream.sendto(b"?", server)
            assert select.select([outside], [], [], EXPECTING)[0], "the proxy's own query goes out"
            outside.sendto(b"!", outside.recvfrom(10)[1])
            assert select.select([upstream], [], [], EXPECTING)[0], "and is answered"
        assert query(own) == CAPTURED, "from the port of the proxy's query"
        own = world.port()
        outside.sendto(b"!", (POD[version], own))
        assert query(own) == CAPTURED, "on a flow that the server began"
        assert query(15053) == CAPTURED, "from the port number of the proxy's listener"
        own = world.port()
        assert query(own, device("lo")) in (CAPTURED, NOBODY), "over lo"
        assert query(own) == CAPTURED, "after one over lo"


def send_datagram(version, own, server, *options):
    """For the application's thread: one datagram from these addresses."""
    with socket.socket({4: socket.AF_INET, 6: socket.AF_INET6}[version], socket.SOCK_DGRAM) as made:
        for option in options:
            made.setsockopt(*option)
        made.bind(own)
        with contextlib.suppress(OSError):  # no route over lo
            made.sendto(b"?", server)


def make_upstream(world, version, port):
    with creating_as(PROXY_ID, PROXY_ID):
        return make_datagram_socket(world.pod, version, bind=(POD[version], port))


HELPED = 21  # ftp's control port
# What an operator programs beside: the kernel itself gives no connection a helper (nf_conntrack_helper=0; gone since Linux 6.0).
WITH_HELPER = """table inet operator {
  ct helper ftp4 { type "ftp" protocol tcp; l3proto ip; }
  ct helper ftp6 { type "ftp" protocol tcp; l3proto ip6; }
  chain before { type filter hook prerouting priority -180; meta nfproto ipv4 tcp dport 21 ct helper set "ftp4"; meta nfproto ipv6 tcp dport 21 ct helper set "ftp6"; }
  chain out { type filter hook output priority -180; meta nfproto ipv4 tcp dport 21 ct helper set "ftp4"; meta nfproto ipv6 tcp dport 21 ct helper set "ftp6"; }
}"""


def announce(version, port, address):
    """The client of ftp says where it waits, after another line: the helper reads whole lines."""
    told = f"PORT {address.replace('.', ',')},{port >> 8},{port & 255}" if version == 4 else f"EPRT |2|{address}|{port}|"
    return b"NOOP\r\n", f"{told}\r\n".encode()


def expected_ports(world, version):
    """The ports of the connections that conntrack helpers expect now."""
    lines = world.pod.run(["cat", "/proc/net/nf_conntrack_expect"], check=True).stdout.splitlines()
    return {int(line.split("dport=")[1].split()[0]) for line in lines if f"l3proto = {2 if version == 4 else 10} " in line}


def dial_where_a_helper_expects_it(world, version):
    """A server outside calls port 21, which is captured, and says twice where it waits; the application dials all that is expected."""
    port, before = world.port(), expected_ports(world, version)
    for _ in range(2):  # the second expectation is not to clash with the first: nat gives it another port
        ends, ports = (PEER[version], POD[version]), (world.port(), HELPED)
        world.peer.send_segment(*ends, ports, SYN, seq=100)
        answer = world.peer.receive(ports[0], SYN | ACK, 1)
        world.peer.send_segment(*ends, ports, ACK, seq=101, ack=answer.seq + 1)
        sent = 101
        for line in announce(version, port, PEER[version]):
            world.peer.send_segment(*ends, ports, ACK | PSH, seq=sent, ack=answer.seq + 1, data=line)
            world.settle()
            sent += len(line)
    world.verdict(0)
    expected = expected_ports(world, version) - before
    assert port in expected
    return [world.dial(version, (POD[version], world.port()), (PEER[version], number)) for number in sorted(expected)]


def call_where_a_helper_expects_it(world, version):
    """The proxy hands on what an application says to a server's port 21: where it listens. The server calls there."""
    own = world.port()
    with world.proxy_socket(version) as upstream:
        name = upstream.getsockname()[1]
        upstream.connect_ex((PEER[version], HELPED))
        first = world.peer.receive(HELPED, SYN, 1)
        world.peer.send_segment(PEER[version], POD[version], (HELPED, name), SYN | ACK, seq=99, ack=first.seq + 1)
        world.settle()
        for line in announce(version, own, POD[version]):
            upstream.send(line)
            world.settle()
            world.peer.send_segment(PEER[version], POD[version], (HELPED, name), ACK, seq=100, ack=first.seq + 1 + len(line))
            world.settle()
        assert own in expected_ports(world, version)
        return answer_call(world, version, own, world.port())


@modes
@backends
@pytest.mark.parametrize("exact", [False, True])
def test_what_a_conntrack_helper_expects_is_captured_or_refused(require_netns, tmp_path, mode, backend, exact):
    needs(backend)
    with World(mode, backend, *([EXACT] if exact else [])) as world:
        (tmp_path / "helper").write_text(WITH_HELPER)
        world.pod.run(["nft", "-f", tmp_path / "helper"], check=True)
        world.patience = NOT_EXPECTING
        for version in (4, 6):
            dialled, called = dial_where_a_helper_expects_it(world, version), call_where_a_helper_expects_it(world, version)
            if exact:
                assert LEAKED in dialled or mode == "TPROXY"
                assert called == (PAST if mode == "TPROXY" else CAPTURED)
            else:
                assert set(dialled) <= {CAPTURED, NOBODY}, dialled
                assert called in (CAPTURED, NOBODY)


@backends
@pytest.mark.parametrize(  # where the application closes first in TPROXY mode, TPROXY takes the server's FIN, with Istio's rules too
    ("mode", "first"), [("REDIRECT", "application"), ("REDIRECT", "server"), ("TPROXY", "server")]
)
def test_both_ends_of_an_excluded_connection_see_it_close_after_its_entry_is_gone(require_netns, mode, backend, first):
    """A FIN without an entry is INVALID: one end closes its half, conntrack forgets the connection, and the other end closes its own."""
    needs(backend)
    with World(mode, backend, "-o", str(SERVER_PORT)) as world, contextlib.ExitStack() as stack:
        for state in ("close_wait", "fin_wait", "last_ack", "time_wait"):
            world.pod.set_sysctl(f"net.netfilter.nf_conntrack_tcp_timeout_{state}", 1)
        waiting = []
        for version in (4, 6):
            made = stack.enter_context(world.app_socket(version))
            world.as_app(made.connect_ex, (SERVER[version], SERVER_PORT))
            ((who, connection),) = world.accept(EXPECTING)
            stack.enter_context(connection)
            assert who == OUTSIDE
            ends = (made, connection) if first == "application" else (connection, made)
            ends[0].shutdown(socket.SHUT_WR)
            waiting.append(ends)
        time.sleep(1.5)  # of the entries
        for one, other in waiting:
            other.settimeout(EXPECTING)
            assert other.recv(1) == b""
            other.shutdown(socket.SHUT_WR)
            one.settimeout(EXPECTING)
            assert one.recv(1) == b"", "the last FIN does not arrive"
