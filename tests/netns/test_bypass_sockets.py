"""Ways past the proxy that need a world of their own: sockets that were there before, multipath, helpers, a full connection table."""

from __future__ import annotations

import array
import contextlib
import socket
import struct

import pytest

from bypass_inbound import knock
from bypass_outbound import IPPROTO_MPTCP, answer_call, device
from bypass_sockets import bound_before_proxy
from bypass_world import (
    APP,
    APP_PORT,
    BACKENDS,
    CAPTURED,
    EXACT,
    EXPECTING,
    INBOUND,
    LEAKED,
    MODES,
    NOBODY,
    NOT_EXPECTING,
    OTHER_LAYOUTS,
    PAST,
    POD,
    PROXY,
    SERVER,
    SERVER_PORT,
    World,
    make_socket,
    wait_for,
)
from netinit.lab import PROXY_ID
from programming import apply_in, needs
from segments import ACK, PEER, SYN
from sweeps import crossed

ALL_MODES = (*MODES, *OTHER_LAYOUTS)
VERSIONS = (4, 6)
versions = pytest.mark.parametrize("version", VERSIONS)
REDIRECTING = ("REDIRECT", "ambient", "classic REDIRECT")  # modes in which nat captures inbound connections
SOL_MPTCP, MPTCP_INFO = 284, 1  # linux/mptcp.h
NEAR = {4: "198.51.100.7", 6: "2001:db8::8"}  # a server that the pod is not captured on the way to
ESTABLISHED = 1  # TCP_ESTABLISHED, include/net/tcp_states.h


def is_established(made):
    return made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED


def answer_on_port_of_proxy(world, version):
    """A socket that had the proxy's inbound port before the proxy waits over eth0, and a server answers."""
    inbound = world.options.inbound_port
    with bound_before_proxy(world, version, inbound) as made:
        made.setsockopt(*device("eth0"))
        port = world.port()
        world.as_app(made.connect_ex, (PEER[version], port))
        world.settle()
        out = world.peer.find_syn(inbound)
        assert out, "its SYN goes astray"
        ends, ports = (PEER[version], POD[version]), (port, inbound)
        world.peer.send_segment(*ends, ports, SYN | ACK, seq=5000, ack=out.seq + 1)
        world.settle()
        return PAST if is_established(made) else LEAKED


@crossed(mode=ALL_MODES, backend=BACKENDS, version=VERSIONS)
def test_an_answer_to_the_proxys_port_is_for_the_proxy_alone(require_netns, mode, backend, version):
    needs(backend)
    with World(mode, backend) as world:
        assert answer_on_port_of_proxy(world, version) == LEAKED


@pytest.mark.parametrize("mode", MODES)
@versions
def test_istios_rules_let_an_answer_to_the_proxys_port_in(require_netns, mode, version):
    needs("iptables-nft")
    with World(mode, "iptables-nft", EXACT) as world:
        assert answer_on_port_of_proxy(world, version) == (PAST if mode == "REDIRECT" else LEAKED)


@pytest.mark.parametrize("mode", REDIRECTING)
@versions
def test_whoever_listens_on_the_proxys_port_before_the_proxy_is_the_proxy_for_the_rules(require_netns, mode, version):
    """By design: no match knows whose socket a packet is for. TPROXY hands connections to transparent sockets alone, which need rights."""
    needs("iptables-nft")
    with World(mode, "iptables-nft") as world:
        inbound = world.options.inbound_port
        world.stop_listening(PROXY, inbound, version)
        world.listen(APP, inbound, version)
        assert knock(world, version, SYN) == PAST


@versions
def test_tproxy_hands_no_connection_to_an_application_on_the_proxys_port(require_netns, version):
    needs("iptables-nft")
    with World("TPROXY", "iptables-nft") as world:
        world.stop_listening(PROXY, INBOUND, version)
        with world.app_socket(version) as made:
            world.as_app(made.bind, ("", INBOUND))
            world.as_app(made.listen)
            world.patience = NOT_EXPECTING
            knock(world, version, SYN)
            with pytest.raises(BlockingIOError):
                made.accept()


def hand_over(world, made):
    """The application's own descriptor of a socket that somebody else made (SCM_RIGHTS)."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
        data = world.as_app(theirs.recvmsg, 1, socket.CMSG_SPACE(4))[1][0][2]
    return socket.socket(fileno=array.array("i", data)[0])


@crossed(mode=MODES, version=VERSIONS, maker=("the proxy", "another network namespace"))
def test_a_socket_that_is_handed_over_stays_its_makers(require_netns, mode, version, maker):
    """By design: whoever may make such sockets, and gives them to the application, makes its connections."""
    needs("iptables-nft")
    with World(mode, "iptables-nft") as world:
        where, who = (world.pod, PROXY_ID) if maker == "the proxy" else (world.pod.client, None)
        with make_socket(where, version, who) as made, hand_over(world, made) as received:
            world.as_app(received.connect_ex, (SERVER[version], SERVER_PORT))
            assert world.verdict(EXPECTING) == PAST


@crossed(mode=ALL_MODES, backend=BACKENDS, version=VERSIONS)
def test_a_socket_that_was_there_before_the_rules_is_captured(require_netns, mode, backend, version):
    """One is bound, one waits for a silent server whose answer then comes: conntrack did not run when its SYN went out."""
    needs(backend)
    with World(mode, backend, rules=False) as world, contextlib.ExitStack() as stack:
        bound, waiting = (stack.enter_context(world.app_socket(version)) for _ in range(2))
        own, port = world.port(), world.port()
        world.as_app(bound.bind, (POD[version], world.port()))
        world.as_app(waiting.bind, (POD[version], own))
        world.as_app(waiting.connect_ex, (PEER[version], port))
        first = world.peer.receive(port, SYN, EXPECTING)
        apply_in(world.pod, world.options)
        world.as_app(bound.connect_ex, (SERVER[version], SERVER_PORT))
        assert world.verdict(EXPECTING) == CAPTURED
        world.peer.send_segment(PEER[version], POD[version], (port, own), SYN | ACK, seq=9, ack=first.seq + 1)
        world.settle()
        assert not is_established(waiting)


def run_ip(namespace, *words):
    namespace.set_sysctl("net/ipv4/tcp_timestamps", 0)  # an announced address of IPv6 with a port leaves no room for them
    namespace.run(["ip", "mptcp", *words], check=True)


def multipath(namespace, version, user=None):
    try:
        return make_socket(namespace, version, user, IPPROTO_MPTCP)
    except OSError as error:
        pytest.skip(f"the kernel has no Multipath TCP: {error.strerror}")


def count_joins(namespace):
    """How many SYNs with MP_JOIN a kernel has sent."""
    lines = [line.split() for line in namespace.run(["cat", "/proc/net/netstat"], check=True).stdout.splitlines() if line.startswith("MPTcpExt:")]
    return int(dict(zip(*lines, strict=True))["MPJoinSynTx"])


def count_subflows(world, listener, made, calling):
    """Makes a connection to the listener, waits until `calling` tries to join it, and returns how many subflows did (struct mptcp_info)."""
    world.as_app(made.connect_ex, listener.getsockname()[:2])
    world.settle()
    with listener.accept()[0] as connection:

        def speak_until_joined():  # an address is announced when both ends have spoken
            for each in (made, connection):
                each.send(b"?")
            return count_joins(calling)

        assert wait_for(speak_until_joined)
        world.settle()
        assert world.verdict() in (CAPTURED, NOBODY)
        return wait_for(lambda: connection.getsockopt(SOL_MPTCP, MPTCP_INFO, 100)[0], NOT_EXPECTING)


def join_announced_port(world, version):
    """A client outside joins its connection to an excluded port by a port that the pod's operator announces."""
    run_ip(world.pod.client, *LIMITS)  # sockets take them over when they are made
    with multipath(world.pod, version) as listener, multipath(world.pod.client, version) as made:
        listener.bind((POD[version], world.excluded_port))
        listener.listen()
        run_ip(world.pod, "endpoint", "add", POD[version], "port", str(world.port()), "signal")
        return count_subflows(world, listener, made, world.pod.client)


def join_announced_server(world, version):
    """A server of an excluded network announces an address outside of it: the pod's kernel calls there, in nobody's name."""
    run_ip(world.pod, *LIMITS)
    with multipath(world.pod.client, version) as listener, world.app_socket(version, protocol=IPPROTO_MPTCP) as made:
        listener.bind((NEAR[version], world.port()))
        listener.listen()
        run_ip(world.pod.client, "endpoint", "add", SERVER[version], "port", str(world.port()), "signal")
        return count_subflows(world, listener, made, world.pod)


LIMITS = ("limits", "set", "subflows", "4", "add_addr_accepted", "4")
JOINS = (join_announced_port, join_announced_server)
EXCLUDED = ("-x", f"{NEAR[4]}/32,{NEAR[6]}/128")


@crossed(mode=(*MODES, "classic REDIRECT", "classic TPROXY"), backend=BACKENDS, version=VERSIONS, join=JOINS)
def test_no_other_subflow_joins_a_connection_that_is_not_captured(require_netns, mode, backend, version, join):
    needs(backend)
    with World(mode, backend, *EXCLUDED) as world:
        assert join(world, version) == 0


@crossed(version=VERSIONS, join=JOINS)
def test_another_subflow_does_join_where_nothing_is_captured(require_netns, version, join):
    with World("REDIRECT", "iptables-nft", *EXCLUDED, rules=False) as world:
        assert join(world, version) == 1


@pytest.mark.parametrize("mode", ALL_MODES)
def test_a_hairpin_is_captured_twice(require_netns, mode):
    """The address of a Service that leads back to the pod, by a router that translates both addresses."""
    needs("iptables-nft")
    with World(mode, "iptables-nft") as world:
        rules = (("PREROUTING", "-d", SERVER[4], "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination", f"{POD[4]}:{APP_PORT}"), ("POSTROUTING", "-d", POD[4], "-j", "MASQUERADE"))
        world.pod.client.set_sysctl("net/ipv4/ip_forward", 1)
        for rule in rules:
            world.pod.client.run(["iptables", "-w", "-t", "nat", "-A", *rule], check=True)
        assert world.dial(4, None, (SERVER[4], 80)) == CAPTURED
        with world.proxy_socket(4) as upstream:
            upstream.connect_ex((SERVER[4], 80))
            assert world.verdict(EXPECTING) == CAPTURED


@versions
def test_the_application_has_no_raw_socket_and_no_packet_socket(require_netns, version):
    with World("REDIRECT", "iptables-nft") as world:
        for family, kind, protocol in (({4: socket.AF_INET, 6: socket.AF_INET6}[version], socket.SOCK_RAW, socket.IPPROTO_TCP), (socket.AF_PACKET, socket.SOCK_RAW, 0)):
            with pytest.raises(PermissionError):
                world.as_app(socket.socket, family, kind, protocol)


# ct helpers that an operator programs: name, protocol, port
HELPERS = {"irc": ("tcp", 6667), "sip": ("tcp", 5060), "tftp": ("udp", 69)}


def set_helpers(world, path):
    lines = [f'  ct helper {name} {{ type "{name}" protocol {protocol}; l3proto ip; }}' for name, (protocol, _) in HELPERS.items()]
    lines += [f"  chain {hook} {{ type filter hook {hook} priority -180;" + "".join(f' {protocol} dport {port} ct helper set "{name}";' for name, (protocol, port) in HELPERS.items()) + " }" for hook in ("prerouting", "output")]
    path.write_text("table ip operator {\n" + "\n".join(lines) + "\n}\n")
    world.pod.run(["nft", "-f", path], check=True)


def say_irc(address, port):
    return f"PRIVMSG x :\x01DCC SEND f {struct.unpack('!I', socket.inet_aton(address))[0]} {port}\x01\r\n".encode()


def say_sip(address, port):
    lines = ("REGISTER sip:x SIP/2.0", f"Via: SIP/2.0/TCP {address}:{port};branch=z9", "From: <sip:a@x>;tag=1", "To: <sip:a@x>", "Call-ID: 1", "CSeq: 1 REGISTER", f"Contact: <sip:a@{address}:{port};transport=tcp>", "Expires: 60", "Content-Length: 0", "", "")
    return "\r\n".join(lines).encode()


@crossed(mode=ALL_MODES, backend=BACKENDS, helper=("irc", "sip"))
def test_what_other_conntrack_helpers_expect_is_captured_or_refused(require_netns, tmp_path, mode, backend, helper):
    needs(backend)
    port, say = HELPERS[helper][1], {"irc": say_irc, "sip": say_sip}[helper]
    with World(mode, backend) as world:
        set_helpers(world, tmp_path / "helpers")
        own = world.port()
        with world.proxy_socket(4) as upstream:  # the proxy hands on what the application says to a server
            name = upstream.getsockname()[1]
            upstream.connect_ex((PEER[4], port))
            first = world.peer.receive(port, SYN, EXPECTING)
            world.peer.send_segment(PEER[4], POD[4], (port, name), SYN | ACK, seq=99, ack=first.seq + 1)
            world.settle()
            upstream.send(say(POD[4], own))
            world.settle()
            expected = world.pod.run(["cat", "/proc/net/nf_conntrack_expect"], check=True).stdout
            assert f"dport={own}" in expected, expected
            world.patience = NOT_EXPECTING
            assert answer_call(world, 4, own, world.port()) in (CAPTURED, NOBODY)
