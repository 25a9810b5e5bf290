"""The package netinit.lab by itself: what its pods are made of, how probes end, and what is reported if one cannot be made."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from netinit import lab
from netinit.base.errors import LabError, NamespaceError
from netinit.kernel.netlink import RTM_GETADDR, RTM_GETROUTE
from netinit.lab import Arrival, Probe, wiring
from netinit.lab import pod as lab_pod
from netinit.lab.pod import NetworkNamespace

INET6 = bytes([socket.AF_INET6])


@pytest.fixture(name="pod")
def _pod(require_netns):
    with lab.Pod() as pod:
        yield pod


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def iptables(pod, *lines):
    for line in lines:
        done = pod.run([*line.split()])
        assert (done.returncode, done.stderr) == (0, "")


# Pods


def test_a_program_runs_inside_without_input_and_with_its_own_environment(require_netns, monkeypatch):
    with NetworkNamespace("inner") as namespace:
        done = namespace.run(["sh", "-c", "cat; grep -c eth0 /proc/net/dev; echo $X >&2; exit 3"], env={"X": "set"})
        assert (done.stdout, done.stderr, done.returncode) == ("0\n", "set\n", 3)
        with pytest.raises(LabError) as error:
            namespace.run(["sleep", "60"], timeout=0.05)
        assert str(error.value) == "['sleep', '60'] in 'inner' did not end within 0.05 s and was killed"
        seen = {}
        monkeypatch.setattr(subprocess, "run", lambda argv, **more: seen.update(more))
        namespace.run(["true"])
    assert (seen["timeout"], seen["env"]) == (30.0, None)


def test_a_pod_is_held_by_a_pause_process_that_ends_with_it(require_netns, monkeypatch):
    monkeypatch.setenv("MINE", "seen")
    before = descriptors()
    with lab.Pod() as pod:
        process = Path(f"/proc/{pod.pid}")
        command = process.joinpath("cmdline").read_bytes().split(b"\0")
        assert command == [b"sh", b"-c", b"echo netinit-pause; exec >/dev/null; read -r _", b""]
        assert (pod.name, pod.client.name, os.getpgid(pod.pid)) == ("pod", "client", pod.pid)
        assert b"MINE=seen" in process.joinpath("environ").read_bytes().split(b"\0")
        assert process.joinpath("fd", "0").readlink().name.startswith("pipe:")
        assert (process / "ns/net").stat().st_ino == os.fstat(pod.descriptor).st_ino
    assert (process.exists(), descriptors()) == (False, before)


def test_without_a_shell_the_pause_process_is_python(require_netns, monkeypatch):
    monkeypatch.setattr(lab_pod.shutil, "which", lambda name: None if name == "sh" else name)
    with lab.Pod() as pod:
        assert Path(f"/proc/{pod.pid}/cmdline").read_bytes().split(b"\0")[:4] == [sys.executable.encode(), b"-I", b"-S", b"-c"]


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        (("false",), LabError, "the pause process ['false'] did not start; its stderr says why"),
        (("/nowhere",), OSError, "No such file"),
    ],
)
def test_a_pause_process_that_does_not_start_leaves_nothing(require_netns, monkeypatch, command, error, said):
    monkeypatch.setattr(lab_pod, "_PAUSE", command)
    before = descriptors()
    with pytest.raises(error) as raised, lab.Pod():
        pass
    assert said in str(raised.value)
    assert descriptors() == before


def test_a_pod_has_addresses_routes_and_settings_of_its_own(pod):
    def read(namespace):
        with namespace.entered():
            settings = {**wiring.SETTINGS, "net/ipv4/ip_unprivileged_port_start": 0}
            return {name: int(Path("/proc/thread-self/root/proc/sys", name).read_text()) for name in settings}

    assert pod.addresses == ("10.77.0.2", "fd77::2")
    assert read(pod) == dict.fromkeys(read(pod), 0)
    assert read(pod.client) == {**dict.fromkeys(wiring.SETTINGS, 0), "net/ipv4/ip_unprivileged_port_start": 1024}
    show = lambda namespace, *words: namespace.run(["ip", "-o", *words]).stdout  # noqa: E731 - of one test
    addresses = {line.split()[3] for line in show(pod, "addr", "show", "dev", "eth0").splitlines()}
    assert {one for one in addresses if not one.startswith("fe80")} == {"10.77.0.2/24", "fd77::2/64"}
    outside = {line.split()[3] for line in show(pod.client, "addr").splitlines()}
    assert {one for one in outside if not one.startswith("fe80")} == {
        "127.0.0.1/8", "::1/128", "10.77.0.1/24", "fd77::1/64", "198.51.100.7/32", "203.0.113.7/32", "203.0.113.8/32",
        "2001:db8::7/128", "2001:db8::8/128",
    }  # fmt: skip
    assert "default via 10.77.0.1 dev eth0" in show(pod, "route")
    assert "default via fd77::1 dev eth0" in show(pod, "-6", "route")


def test_a_pods_own_settings_replace_those_of_every_pod(require_netns):
    class Forwarding(lab.Pod):
        settings: ClassVar = {"net/ipv4/ip_forward": 1}
        outside = ("192.0.2.7",)

    with Forwarding() as pod:
        for namespace, value in ((pod, "1\n"), (pod.client, "0\n")):
            with namespace.entered():
                assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == value
        assert "203.0.113.7" not in pod.client.run(["ip", "addr"]).stdout
        assert "192.0.2.7/32" in pod.client.run(["ip", "addr"]).stdout


def test_without_ipv6_in_the_kernel_a_pod_and_its_servers_have_ipv4_alone(require_netns, monkeypatch):
    monkeypatch.setattr(lab_pod, "has_ipv6", lambda: False)
    with lab.Pod() as pod:
        pod.open_servers(app=(80,), proxy=(), outside=(443,))
        assert (pod.versions, pod.addresses) == ((4,), ("10.77.0.2",))
        assert [(one.name, one.port, one.listening.family) for one in pod.servers] == [
            ("app", 80, socket.AF_INET), ("outside", 443, socket.AF_INET),
        ]  # fmt: skip
        assert not {"fd77", "2001"} & {word[:4] for word in pod.client.run(["ip", "addr"]).stdout.split()}


def test_servers_listen_as_their_users_on_both_families(pod):
    pod.open_servers(app=(80, 81), proxy=(15001,), outside=(443,))
    families = (socket.AF_INET, socket.AF_INET6)
    assert [(one.name, one.port) for one in pod.servers if one.listening.family == families[0]] == [
        ("app", 80), ("app", 81), ("proxy", 15001), ("outside", 443),
    ]  # fmt: skip
    assert sorted(one.port for one in pod.servers if one.listening.family == families[1]) == [80, 81, 443, 15001]
    owners = {"app": (1000, 1000), "proxy": (1337, 1337), "outside": (0, 0)}
    for one in pod.servers:
        status = os.fstat(one.listening.fileno())
        assert (status.st_uid, status.st_gid) == owners[one.name]


# Probes


@pytest.mark.parametrize("version", [4, 6])
def test_an_arrival_says_where_a_connection_went_and_where_it_was_sent(pod, version):
    address = dict(zip((4, 6), pod.addresses, strict=True))[version]
    shown = {4: "10.77.0.2", 6: "[fd77::2]"}[version]
    pod.open_servers(app=(80,), proxy=(15006,), outside=())
    untracked, redirected = Probe(address, 80), Probe(address, 8080)
    assert pod.probe([untracked], outside=True) == [Arrival("answered", "app", 80, None, f"{shown}:80")]
    program = {4: "iptables-nft", 6: "ip6tables-nft"}[version]
    iptables(pod, f"{program} -w -t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 15006")
    assert pod.probe([redirected, untracked], outside=True) == [
        Arrival("answered", "proxy", 15006, f"{shown}:8080", f"{shown}:15006"),
        Arrival("answered", "app", 80, f"{shown}:80", f"{shown}:80"),
    ]  # fmt: skip


def test_a_probe_has_its_owner_its_source_and_its_time(pod):
    pod.open_servers(app=(), proxy=(), outside=(443, 444))
    iptables(
        pod,
        "iptables-nft -w -A OUTPUT -p tcp -m owner --uid-owner 1000 --gid-owner 2000 -j REJECT --reject-with tcp-reset",
        "iptables-nft -w -A OUTPUT -p tcp -d 203.0.113.8 -j DROP",
    )
    outside = "203.0.113.7"
    asked = [
        Probe(outside, 443, uid=1000, gid=2000), Probe(outside, 443, uid=2000, gid=1000), Probe(outside, 444, source="192.0.2.9"),
        Probe("203.0.113.8", 443, timeout=0.1), Probe(outside, 444, source="10.77.0.2"),
    ]  # fmt: skip
    found = [(one.outcome, one.error, one.port) for one in pod.probe(asked, outside=False)]
    assert found == [
        ("refused", "ECONNREFUSED", None), ("answered", "", 443), ("unreachable", "EADDRNOTAVAIL", None), ("timeout", "", None),
        ("answered", "", 444),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "arrival"),
    [
        (OSError(errno.ETIMEDOUT, "late"), Arrival("timeout", error="ETIMEDOUT")),
        (OSError(errno.ECONNRESET, "reset"), Arrival("refused", error="ECONNRESET")),
        (OSError(errno.EPIPE, "pipe"), Arrival("refused", error="EPIPE")),
        (OSError(errno.EHOSTUNREACH, "no"), Arrival("unreachable", error="EHOSTUNREACH")),
        (OSError("odd"), Arrival("unreachable", error="odd")),
        (TimeoutError(), Arrival("timeout")),
        (None, Arrival("refused", error="connected, but closed without an answer")),
    ],
)
def test_each_end_of_a_probe_has_its_outcome(monkeypatch, error, arrival):
    async def connect(*_):
        if error:
            raise error

    async def receive(*_):
        return b""

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_recv", receive)
    assert lab.probes.send_probes([Probe("127.0.0.1", 9)], []) == [arrival]


def test_an_answer_may_come_in_pieces(monkeypatch):
    pieces = [b'["answered", "app", 80,', b' null, "10.77.0.2:80"]', b"\n", b""]

    async def connect(*_):
        return None

    async def receive(*_):
        return pieces.pop(0)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_recv", receive)
    assert lab.probes.send_probes([Probe("127.0.0.1", 9)], []) == [Arrival("answered", "app", 80, None, "10.77.0.2:80")]


def test_an_arrival_is_one_word_with_its_error():
    assert (str(Arrival("timeout")), str(Arrival("refused", error="EPIPE"))) == ("timeout", "refused (EPIPE)")


# Wiring


class Kernel:
    """A netlink socket whose kernel has addresses with these flags on these links and, by the number of the look, routes of these types and tables."""

    def __init__(self, flags, routes):
        self.flags, self.routes, self.looks, self.added = flags, routes, 0, []

    def dump(self, kind, body):
        if kind == RTM_GETADDR:
            assert body == INET6 + bytes(7)
            return [struct.pack("4BI", socket.AF_INET6, 64, flags, 0, link) for flags, link in self.flags]
        assert (kind, body) == (RTM_GETROUTE, INET6 + bytes(11))
        self.looks += 1
        return [struct.pack("4xB2xB", table, kind) for kind, table in self.routes(self.looks)]

    def add_route(self, network, gateway):
        self.added.append((network, gateway))


LOCAL, UNICAST, OF_TPROXY = (2, 255), (1, 254), (2, 133)
LO, ETH0, TENTATIVE = (0x80, 1), (0x80, 2), 0x40


@pytest.mark.parametrize(
    ("flags", "routes", "pauses"),
    [
        ([LO, ETH0], lambda _: [LOCAL, UNICAST, LOCAL], 0),
        ([LO, ETH0], lambda look: [LOCAL, UNICAST] + [LOCAL] * (look > 3), 3),
        ([ETH0], lambda _: [LOCAL, LOCAL], 0),
        ([ETH0, (0x80 | TENTATIVE, 2)], lambda _: [LOCAL], 100),
        ([ETH0, (0x80 | TENTATIVE, 1)], lambda look: [LOCAL] + [LOCAL] * (look > 200), 200),
        ([LO, ETH0], lambda look: [LOCAL, OF_TPROXY] + [LOCAL] * (look > 3), 3),
        ([LO, ETH0], lambda _: [LOCAL], 5000),
    ],
)
def test_local_routes_of_all_addresses_are_awaited_for_a_time(monkeypatch, flags, routes, pauses):
    made = []
    monkeypatch.setattr(wiring.time, "sleep", made.append)
    wiring.await_addresses(Kernel(flags, routes))
    assert made == [0.001] * pauses


def test_routes_lead_to_a_net_or_everywhere():
    kernel = Kernel([], list)
    wiring.add_routes(kernel, 0, 1, (4, 6))
    wiring.add_routes(kernel, 1, 2, (6, 4), target=2)
    assert kernel.added == [
        ("0.0.0.0/0", "10.77.0.1"), ("::/0", "fd77::1"), ("fd79::0/64", "fd78::2"), ("10.79.0.0/24", "10.78.0.2"),
    ]  # fmt: skip


def test_an_interface_without_carrier_is_reported(require_netns):
    with NetworkNamespace("inner") as namespace, pytest.raises(LabError) as error:
        wiring._await_carrier(namespace, "lo")
    assert str(error.value) == "the veth interface lo of 'inner' has no carrier though both ends are up"


def test_what_the_kernel_refuses_is_reported_with_what_pods_need(require_netns, monkeypatch):
    def refuse(*_):
        raise OSError("Operation not supported")

    monkeypatch.setattr(wiring, "join", refuse)
    with pytest.raises(LabError) as error, lab.Pod():
        pass
    assert str(error.value) == (
        "the kernel refuses a link, an address or a route of the pod: Operation not supported; "
        "pods need veth interfaces, and IPv6 unless they are made without"
    )


# Obstacles


@pytest.mark.parametrize("error", [LabError("a"), NamespaceError("b"), OSError("c")])
def test_what_keeps_a_pod_from_being_made_is_the_obstacle(monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr(lab_pod.os, "geteuid", lambda: 0)
    monkeypatch.setattr(lab_pod.Pod, "__enter__", fail)
    assert lab.find_obstacle() == str(error)
    monkeypatch.setattr(lab_pod.os, "geteuid", lambda: 1)
    assert lab.find_obstacle() == "making network namespaces needs root: run as root"
    monkeypatch.setattr(lab_pod.wiring, "find_obstacle", lambda: "no pyroute2")
    assert lab.find_obstacle() == "no pyroute2"


def test_the_kernel_has_ipv6_where_its_loopback_address_can_be_bound():
    try:
        with socket.socket(socket.AF_INET6) as bound:
            bound.bind(("::1", 0))
    except OSError:
        assert not lab_pod.has_ipv6()
    else:
        assert lab_pod.has_ipv6()
