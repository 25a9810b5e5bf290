"""Options that other meshes have and Istio has not: real connections, for every option, backend and family."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from lab_probes import Probe
from laboratory import Listener, Pod, start_servers
from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID
from netinit.options import Options
from programming import apply_in, arrivals, differences_in, needs, remove_in, run_tool
from sweeps import in_turn, pairs

OUTSIDE = {4: "203.0.113.7", 6: "2001:db8::7"}
POD = {4: "10.77.0.2", 6: "fd77::2"}
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
APP = {"uid": APP_ID, "gid": APP_ID}
INBOUND, OUTBOUND = ("proxy", 15006), ("proxy", 15001)
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
backends = in_turn("backend", BACKENDS)


def program(pod, backend, *arguments, environ=None):
    """The rules of these options are there, verified, and read back from the kernel as the same options."""
    needs(backend)
    options = Options.from_argv(["--ipv6", "on", "--backend", backend, *arguments], environ or {})
    apply_in(pod, options)
    assert differences_in(pod, options) == []
    told = run_tool(pod, "verify")
    assert told.returncode == 0, told.stdout + told.stderr
    return options


@backends
def test_ports_in_ranges_are_captured_and_excluded_to_their_last(pod, backend):
    start_servers(pod, app=(80, 8080, 9000))
    program(pod, backend, "-b", "80,8000-8080", "-i", "*", "-o", "400-443,9000")
    for family in (4, 6):
        inbound = [Probe(POD[family], port) for port in (80, 7999, 8000, 8080, 8081, 9000)]
        assert arrivals(pod.client, *inbound) == [INBOUND, "refused", INBOUND, INBOUND, "refused", ("app", 9000)]
        outbound = [Probe(OUTSIDE[family], port, **APP) for port in (443, 444, 80, 9000)]
        assert arrivals(pod, *outbound)[:3] == [("outside", 443), OUTBOUND, OUTBOUND]
    remove_in(pod)

    program(pod, backend, "-m", "TPROXY", "-b", "1-65535", "-d", "8000-8100,9000", "-q", "400-443")
    for family in (4, 6):
        inbound = [Probe(POD[family], port) for port in (80, 8080, 9000)]
        assert arrivals(pod.client, *inbound)[1:] == [("app", 8080), ("app", 9000)]
        outbound = [Probe(OUTSIDE[family], port, **APP) for port in (443, 80)]
        assert arrivals(pod, *outbound) == [OUTBOUND, ("outside", 80)]


@backends
def test_what_some_users_send_to_some_ports_goes_out_as_it_is(pod, backend):
    start_servers(pod)
    program(pod, backend, "-i", "*", "--exclude-outbound-for-uids", "tcp:80,8000-9000:2000-3000;443:4000", "--exclude-outbound-for-gids", "tcp:*:5000")
    for family in (4, 6):
        to = OUTSIDE[family]

        def by(port, uid, gid=APP_ID, to=to):
            return Probe(to, port, uid=uid, gid=gid)

        excluded = [by(80, 2000), by(80, 3000), by(443, 4000), by(80, 6000, 5000)]
        assert arrivals(pod, *excluded) == [("outside", 80), ("outside", 80), ("outside", 443), ("outside", 80)]
        assert arrivals(pod, by(80, 1999), by(80, 3001), by(443, 2000), by(80, 4000), by(80, 2000, 1337)) == [
            *[OUTBOUND] * 4, ("outside", 80),
        ]  # fmt: skip


@backends
def test_a_range_of_users_that_holds_the_proxy_s_leaves_its_connections_to_its_own_pod_inbound(pod, backend):
    start_servers(pod, app=(80,))
    program(pod, backend, "-b", "*", "-i", "*", "--exclude-outbound-for-uids", "1000-2000", "--exclude-outbound-for-gids", "tcp:80:1000-2000")
    proxy = {"uid": 1337, "gid": 1337}
    for family in (4, 6):
        assert arrivals(pod, Probe(POD[family], 80, **proxy), Probe(OUTSIDE[family], 80, **proxy)) == [INBOUND, ("outside", 80)]
        assert arrivals(pod, Probe(OUTSIDE[family], 80, uid=1500, gid=3000), Probe(OUTSIDE[family], 80, uid=3000, gid=3000)) == [
            ("outside", 80), OUTBOUND,
        ]  # fmt: skip


EVERYTHING = (
    "-b", "80,8000-8100", "-q", "443", "-i", "10.0.0.0/8,203.0.113.0/24,fd00::/8", "-o", "22,100-200", "--redirect-dns", "--capture-all-dns",
    "--exclude-outbound-for-uids", "tcp:22,80-90:1000-2000;udp:53:3000", "--exclude-outbound-for-gids", "*:*:7-9", "--reject-quic",
    "--exclude-inbound-cidrs", "10.1.2.0/24,fd00:7::/64", "--exclude-cloud-metadata", "--log-rules",
    "--redirect-outbound-udp", "514:10514,6000-6009:16000",
)  # fmt: skip


@backends
@pytest.mark.parametrize("ipv6", ["on", "off"])
def test_a_second_run_finds_the_rules_as_planned_whatever_the_families(pod, backend, ipv6):
    needs(backend)
    everywhere, of_ipv6 = ("-i", "*", "--reject-quic"), ("-i", "fd00::/8", "--reject-quic")
    for words in (EVERYTHING, (*EVERYTHING, "-m", "TPROXY"), everywhere, of_ipv6):
        options = Options.from_argv(["--ipv6", ipv6, "--backend", backend, *words])
        assert apply_in(pod, options).changed
        assert differences_in(pod, options) == []
        assert not apply_in(pod, options).changed
        remove_in(pod)


@backends
@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
def test_connections_from_excluded_networks_reach_the_application(pod, backend, mode):
    start_servers(pod, app=(80,))
    program(pod, backend, "-b", "*", "-m", mode, "--exclude-inbound-cidrs", "10.77.0.1/32,fd77::/64")
    for family in (4, 6):
        assert arrivals(pod.client, Probe(POD[family], 80)) == [("app", 80)]
    remove_in(pod)
    program(pod, backend, "-b", "*", "-m", mode, "--exclude-inbound-cidrs", "10.77.0.3/32,fd78::/64")
    for family in (4, 6):
        assert arrivals(pod.client, Probe(POD[family], 80)) != [("app", 80)]


@backends
def test_the_cloud_s_metadata_is_asked_without_the_proxy(backend, require_netns):
    hosts = ("169.254.169.254", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254")
    with Pod(outside=(*hosts, *OUTSIDE.values())) as pod:
        start_servers(pod)
        program(pod, backend, "-i", "*", "-x", "10.0.0.0/8", "--exclude-cloud-metadata")
        assert arrivals(pod, *[Probe(host, 80, **APP) for host in hosts]) == [("outside", 80)] * 4
        assert arrivals(pod, *[Probe(host, 80, **APP) for host in OUTSIDE.values()]) == [OUTBOUND] * 2


def told_of_a_closed_port(pod, host, port):
    """Whether an application that sends a datagram learns at once, by ICMP, that nobody takes it."""
    with pod.entered():
        with creating_as(APP_ID, APP_ID):
            client = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        with client:
            client.connect((host, port))
            try:
                client.send(b"?")
            except ConnectionRefusedError:
                return True
            except PermissionError:  # what send itself says of a packet that is not sent; the message came all the same
                return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
            return False


@backends
def test_quic_is_refused_at_once_where_tcp_is_captured_and_nowhere_else(pod, backend):
    pod.client.serve("outside", [Listener(port, family, kind="udp") for port in (53, 443) for family in (4, 6)])
    program(pod, backend, "-i", "*", "-x", "198.51.100.0/24", "--reject-quic", "--exclude-outbound-for-uids", "tcp:443:4000")
    for family in (4, 6):
        to = OUTSIDE[family]
        assert told_of_a_closed_port(pod, to, 443)
        others = [Probe(to, 53, udp=True, **APP), Probe(to, 443, udp=True, uid=1337, gid=1337), Probe(to, 443, udp=True, uid=4000, gid=4000)]
        assert arrivals(pod, *others) == [("outside", 53), ("outside", 443), ("outside", 443)]
    explained = run_tool(pod, "explain", "--live", "--to", "203.0.113.7:443", "--udp")
    assert explained.stdout.startswith("dropped: it is refused, with a notice to its sender"), explained.stdout
    assert "--reject-quic=false: direct" in explained.stdout


@backends
def test_quic_of_groups_that_are_not_captured_is_not_refused(pod, backend):
    pod.client.serve("outside", [Listener(443, family, kind="udp") for family in (4, 6)])
    program(pod, backend, "-i", "*", "--reject-quic", environ={"ISTIO_OUTBOUND_OWNER_GROUPS": f"{APP_ID},4001"})
    for family in (4, 6):
        assert told_of_a_closed_port(pod, OUTSIDE[family], 443)
        assert arrivals(pod, Probe(OUTSIDE[family], 443, udp=True, uid=4000, gid=4000)) == [("outside", 443)]


@pytest.mark.users
@pytest.mark.parametrize(("backend", "asked"), pairs(("iptables-nft", "iptables-legacy"), (("--exclude-outbound-for-uids", "user"), ("--exclude-outbound-for-gids", "group"))))
def test_a_user_that_a_user_namespace_does_not_have_is_named(require_netns, backend, asked):
    option, told = asked
    with Pod(user_namespace=True) as pod:
        words = ["-b", "*", "--ipv6", "on", "--backend", backend, "--pid", str(pod.pid)]
        refused = run_tool(pod.client, "apply", *words, option, "tcp:53:70-70000")
        assert refused.returncode == 1
        assert f"has no {told} 70000, its last is 65535" in refused.stderr
        assert "use --backend nftables" in refused.stderr
        assert run_tool(pod.client, "apply", *words, option, "tcp:53:70-65535").returncode == 0


NFULNL, CONFIG, PACKET = 4, 1, 0  # linux/netfilter/nfnetlink_log.h: the subsystem, its messages to the kernel and from it


class Listener5:
    """Who hears the NFLOG group 5 of a pod: the prefixes of what was reported."""

    def __init__(self, pod):
        with pod.entered():
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
        self.socket.settimeout(3)  # the kernel sends what it has after a second
        for family, group, command in ((socket.AF_INET, 0, 3), (socket.AF_INET6, 0, 3), (0, 5, 1)):  # bind families, then the group
            body = struct.pack("=BBH", family, 0, socket.htons(group)) + struct.pack("=HHB3x", 5, 1, command)
            self.socket.send(struct.pack("=IHHII", 16 + len(body), NFULNL << 8 | CONFIG, 5, 1, 0) + body)
            assert struct.unpack_from("=i", self.socket.recv(4096), 16)[0] == 0
        self.heard = []

    def listen(self):
        with suppress(TimeoutError):
            while True:
                data = self.socket.recv(1 << 16)
                self.heard += [found.decode() for found in re.findall(rb"netinit ([a-z]+): ", data)]
        return self.heard

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


@backends
def test_what_becomes_of_new_connections_is_reported_to_a_group_and_removed_with_the_rules(pod, backend):
    start_servers(pod, app=(80, 15020))
    program(pod, backend, "-b", "*", "-d", "15020", "-i", "*", "-x", "198.51.100.0/24", "--log-rules", "--log-group", "5", "--reject-quic")
    with Listener5(pod) as heard:
        arrivals(pod.client, Probe(POD[4], 80), Probe(POD[6], 15020))
        arrivals(pod, Probe(OUTSIDE[4], 80, **APP), Probe("198.51.100.7", 80, **APP), Probe(OUTSIDE[6], 443, udp=True, **APP))
        assert set(heard.listen()) == {"inbound", "outbound", "direct", "refused"}
    remove_in(pod)
    listed = pod.run(["nft", "list", "ruleset"]).stdout + pod.run(["iptables-legacy-save"]).stdout
    assert "netinit" not in listed.replace("iptables-save", "")
    assert "ISTIO_LOG" not in listed


@pytest.mark.parametrize(
    ("backend", "networks", "fates"),
    [*[(backend, "*", ("refused", "refused")) for backend in BACKENDS[:3]], ("nftables", "2001:db8::/32", ("direct", "refused"))],
)
def test_quic_is_reported_once_as_what_becomes_of_it(pod, backend, networks, fates):
    program(pod, backend, "-i", networks, "--log-rules", "--log-group", "5", "--reject-quic", "--exclude-outbound-for-uids", "tcp:443:4000")
    for family, user, fate in ((4, APP, fates[0]), (6, APP, fates[1]), (6, {"uid": 4000, "gid": 4000}, "direct")):
        with Listener5(pod) as heard:
            arrivals(pod, Probe(OUTSIDE[family], 443, udp=True, **user))
            assert set(heard.listen()) == {fate}, (family, user)


ALL_PODS = Path("/proc/sys/net/netfilter/nf_log_all_netns")  # of the machine: whether its log hears other namespaces
RARE = 7411  # a port that nobody else asks for at the moment


@pytest.fixture
def kernel_log():
    """The machine's log from here on; it hears pods for the time of the test, as before afterwards.

    One test at a time has it, in a second run of the tests too: all ask for the same port, and each sets back the machine's setting.
    """
    try:
        lock = os.open(ALL_PODS, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)  # of the setting itself, until it is closed
        before = ALL_PODS.read_text()
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        pytest.skip(f"the kernel's log of pods cannot be read here: {error}")
    try:
        try:
            ALL_PODS.write_text("1")
        except OSError as error:
            pytest.skip(f"the kernel's log hears no pods here, and {ALL_PODS} cannot be changed: {error}")
        os.lseek(log, 0, os.SEEK_END)
        yield log
    finally:
        os.close(log)
        if ALL_PODS.read_text() != before:
            ALL_PODS.write_text(before)
        os.close(lock)


def reported(log):
    """The fates that were reported of connections to the rare port, with source, destination and protocol."""
    lines = []
    while True:
        try:
            lines.append(os.read(log, 1 << 13).decode("utf-8", "replace"))
        except BlockingIOError:
            break
        except BrokenPipeError:  # what was overwritten meanwhile
            continue
    pattern = rf"netinit ([a-z]+): .*SRC=(\S+) DST=(\S+) .*PROTO=([A-Z]+) .*DPT={RARE}\b"
    return {found.groups() for line in lines if (found := re.search(pattern, line))}


@backends
def test_what_becomes_of_new_connections_stands_in_the_kernel_s_log(pod, backend, kernel_log):
    start_servers(pod, app=(80,))
    program(pod, backend, "-b", "*", "-i", "*", "-x", "198.51.100.0/24", "--log-rules")
    arrivals(pod.client, Probe(POD[4], RARE))
    arrivals(pod, Probe(OUTSIDE[4], RARE, **APP), Probe("198.51.100.7", RARE, **APP), Probe(OUTSIDE[6], RARE, **APP))
    six = "2001:0db8:0000:0000:0000:0000:0000:0007"
    assert reported(kernel_log) == {
        ("inbound", CLIENT[4], POD[4], "TCP"),
        ("outbound", POD[4], OUTSIDE[4], "TCP"),
        ("direct", POD[4], "198.51.100.7", "TCP"),
        ("outbound", "fd77:0000:0000:0000:0000:0000:0000:0002", six, "TCP"),
    }
    remove_in(pod)
    arrivals(pod, Probe(OUTSIDE[4], RARE, **APP))
    assert reported(kernel_log) == set()


@backends
@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
def test_udp_to_a_port_goes_to_the_pod_s_listener_and_other_traffic_goes_where_it_went(pod, backend, mode):
    pod.serve("listener", [Listener(10514, family, kind="udp") for family in (4, 6)])
    pod.client.serve("outside", [Listener(port, family, kind="udp") for port in (514, 6000) for family in (4, 6)])
    start_servers(pod)
    words = ("-m", mode, "-b", "*", "-i", "*", "-x", "198.51.100.0/24", "--exclude-outbound-for-uids", "udp:514:4000", "--redirect-dns", "--capture-all-dns")
    options = program(pod, backend, *words, "--redirect-outbound-udp", "514:10514")
    assert not apply_in(pod, options).changed
    for family in (4, 6):
        to, own = OUTSIDE[family], POD[family]
        others = [Probe(to, 514, udp=True, uid=user, gid=user) for user in (1337, 4000)] + [Probe(to, 6000, udp=True, **APP)]
        assert arrivals(pod, Probe(to, 514, udp=True, **APP), *others) == [("listener", 10514), ("outside", 514), ("outside", 514), ("outside", 6000)]
        assert arrivals(pod, Probe(to, 514, **APP), Probe(to, 53, udp=True, **APP)) == [OUTBOUND, ("proxy", 15053)]
        assert arrivals(pod, Probe(own, 514, udp=True, **APP)) == ["refused"], "what stays in the pod has no listener on 514"
    assert arrivals(pod, Probe("198.51.100.7", 514, udp=True, **APP)) == [("outside", 514)]
    explained = run_tool(pod, "explain", "--live", "--to", "203.0.113.7:514", "--udp")
    assert explained.stdout.startswith("captured: goes to the pod's listener on 10514"), explained.stdout
    assert "without --redirect-outbound-udp: direct" in explained.stdout


def send_twice(client):
    client.send(b"refused")
    client.send(b"told of it")


@backends
def test_a_socket_that_sent_before_the_rules_is_refused_instead_of_passing_by_the_listener(pod, backend):
    needs(backend)
    pod.client.serve("outside", [Listener(514, 4, kind="udp")])
    with pod.entered(), creating_as(APP_ID, APP_ID):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with client:
        client.settimeout(5)
        client.connect((OUTSIDE[4], 514))
        apply_in(pod, Options.from_argv(["--backend", backend, "--ipv6", "on", "-i", "*", "--istio-exact"]))
        client.send(b"before")
        assert b"outside" in client.recv(4096)
        remove_in(pod)
        redirected = ("-i", "*", "--redirect-outbound-udp", "514:10514")
        program(pod, backend, *redirected, "--istio-exact")
        client.send(b"on the entry that passes")
        assert b"outside" in client.recv(4096)
        remove_in(pod)
        program(pod, backend, *redirected)
        with pytest.raises((ConnectionRefusedError, PermissionError)):
            send_twice(client)
