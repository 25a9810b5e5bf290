"""Who gets a connection: what netinit says of the sockets of a pod, beside what connect(2) and recv(2) say there."""

from __future__ import annotations

import random
import select
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

import netinit
from lab_probes import Probe
from laboratory import start_servers
from netinit.base.listeners import Listener
from netinit.base.net import IPV4, IPV6, number_of
from netinit.base.snapshot import Snapshot
from netinit.kernel.listeners import read_listeners
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.live.listeners import ACCEPTED, PASSED, REFUSED, UNANSWERED, UNKNOWN, Delivery, receive
from netinit.options import Options
from programming import apply_in, needs, run_tool
from randomness import SEED, some
from sweeps import choose, crossed

FAMILIES = {socket.AF_INET: IPV4, socket.AF_INET6: IPV6}
OUTSIDE = {IPV4: "203.0.113.7", IPV6: "2001:db8::7"}
OWN = {IPV4: ("10.77.0.2", "127.0.0.1"), IPV6: ("fd77::2", "::1")}
PORTS = (7001, 7002)
IP_TRANSPARENT = 19
SILENT = {socket.SOCK_STREAM: (UNANSWERED, UNKNOWN), socket.SOCK_DGRAM: (REFUSED, UNKNOWN)}  # ICMP has a limit: no answer may be one
PATIENCE = 60.0  # for an answer that is expected: a loaded machine


@dataclass(frozen=True)
class Wish:
    """A socket to open: its family, address, port, and options."""

    kind: int
    family: int
    address: str
    port: int
    v6only: bool = True
    device: str = ""
    transparent: bool = False
    shares: bool = False
    full: bool = False

    def open(self) -> socket.socket | None:
        """Open it; None if another has its place."""
        made = socket.socket(self.family, self.kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(self.kind == socket.SOCK_STREAM))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, self.shares)
        if self.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, self.v6only)
        if self.device:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.device.encode() + b"\0")
        if self.transparent:
            made.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
        made.setblocking(0)
        try:
            made.bind((self.address, self.port))
            if self.kind == socket.SOCK_STREAM:
                made.listen(0 if self.full else 64)
        except OSError:
            made.close()
            return None
        return made


def draw(rng: random.Random, kind: int, ports=PORTS) -> Wish:
    family = rng.choice((socket.AF_INET, socket.AF_INET6, socket.AF_INET6))
    dual = family == socket.AF_INET6 and rng.random() < 0.5
    hosts = ["0.0.0.0", "127.0.0.1", "10.77.0.2"] if family == socket.AF_INET else ["::", "::", "::1", "fd77::2"]
    hosts += ["::ffff:10.77.0.2", "::ffff:127.0.0.1", "::ffff:0.0.0.0"] if dual else []
    return Wish(
        kind, family, rng.choice(hosts), rng.choice(ports), v6only=not dual, device=rng.choice(("", "", "", "eth0", "lo")),
        shares=rng.random() < 0.6,
    )


def send(where, targets, kind) -> list[socket.socket]:
    """Connect, or send a datagram, to each target."""
    with where.entered():
        sent = [socket.socket(family.number, kind) for family, _ in targets]
    for one, (_, end) in zip(sent, targets, strict=True):
        one.setblocking(0)
        one.connect_ex(end)
        if kind == socket.SOCK_DGRAM:
            one.send(b"?")
    return sent


def follow(sent, opened, expected, kind) -> list[tuple[str, Wish | None]]:
    """What becomes of each, and which socket got it; waits for what is expected, and a little for what is not."""
    found: dict[int, tuple[str, Wish | None]] = {}
    until = time.monotonic() + PATIENCE
    while True:
        late = time.monotonic() > until or all(outcome in SILENT[kind] or number in found for number, outcome in enumerate(expected))
        select.poll().poll(30)
        for number, one in enumerate(sent):
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                found[number] = (REFUSED, None)
        peers = {one.getsockname()[:2]: number for number, one in enumerate(sent)}
        for wish, made in opened:
            while peer := take(made, kind):
                number = peers.get((peer[0].removeprefix("::ffff:"), peer[1]))
                if number is not None:  # not a datagram of an earlier turn, which waited for its neighbour's address
                    found[number] = (ACCEPTED, wish)
        if late:
            return [found.get(number, (SILENT[kind][0], None)) for number in range(len(sent))]


def take(made: socket.socket, kind: int):
    """The address of who sent what the socket has; None if it has nothing."""
    try:
        if kind == socket.SOCK_DGRAM:
            return made.recvfrom(1)[1]
        connection, peer = made.accept()
    except BlockingIOError:
        return None
    connection.close()
    return peer


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
def test_the_listener_that_netinit_names_is_the_one_that_gets_the_connection(pod, kind):
    rng = random.Random(f"{SEED}{kind}")
    outcomes = set()
    for turn in range(some(60)):
        wishes = [draw(rng, kind) for _ in range(rng.randint(0, 6))]
        with ExitStack() as stack:
            with pod.entered():
                opened = [(one, made) for one in wishes if (made := one.open())]
                for _, made in opened:
                    stack.enter_context(made)
                snapshot = read_snapshot().replace(listeners=read_listeners())
            outcomes |= check(pod, stack, snapshot, kind, opened, f"{SEED}, turn {turn}")
    assert outcomes >= {ACCEPTED, REFUSED}


def check(pod, stack, snapshot: Snapshot, kind: int, opened, label: str) -> set[str]:
    protocol = "tcp" if kind == socket.SOCK_STREAM else "udp"
    outcomes = set()
    for where, device in ((pod, "lo"), (pod.client, "eth0")):
        targets = [
            (family, (host, port)) for family in FAMILIES.values() for host in OWN[family][: 1 + (device == "lo")] for port in PORTS
        ]
        deliveries = [
            Delivery(family=family, protocol=protocol, address=number_of(host), port=port, device=device)
            for family, (host, port) in targets
        ]
        said = [receive(snapshot, one) for one in deliveries]
        sent = send(where, targets, kind)
        for one in sent:
            stack.enter_context(one)
        for one, (outcome, wish), (_, end) in zip(said, follow(sent, opened, [one.outcome for one in said], kind), targets, strict=True):
            assert one.outcome == outcome, f"{label}: {device} {end}: {one}, in truth {outcome}, by {wish}"
            assert not wish or any(is_of(wish, listener) for listener in one.listeners), f"{label}: {device} {end}: {one}, in truth {wish}"
            outcomes.add(outcome)
    return outcomes


def is_of(wish: Wish, listener: Listener) -> bool:
    address = wish.address.removeprefix("::ffff:")
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return (wish.family, packed, wish.port, bool(wish.device)) == (listener.family, listener.address, listener.port, bool(listener.device))


TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM
V4, V6 = socket.AF_INET, socket.AF_INET6
SCENES = {  # what listens: the outcome of an outbound connection of IPv4 and of IPv6, and of an inbound one, with the codes
    "nobody": ((), "NI301", "NI301"),
    "the proxy": ((Wish(TCP, V6, "::", 15001, v6only=False), Wish(TCP, V6, "::", 15006, v6only=False, transparent=True)), None, None),
    "a proxy that is not transparent": ((Wish(TCP, V6, "::", 15001, v6only=False), Wish(TCP, V6, "::", 15006, v6only=False)), None, "NI303"),
    "a proxy of IPv6 alone": ((Wish(TCP, V6, "::", 15001), Wish(TCP, V6, "::", 15006, transparent=True)), "NI302", "NI302"),
    "a proxy on the loopback address": (
        (Wish(TCP, V4, "127.0.0.1", 15001), Wish(TCP, V4, "127.0.0.1", 15006, transparent=True)), None, "NI302",
    ),
    "a proxy bound to another device": (
        (Wish(TCP, V4, "0.0.0.0", 15001, device="eth0"), Wish(TCP, V4, "0.0.0.0", 15006, device="lo", transparent=True)), "NI302", "NI302",
    ),
    "a proxy whose queues are full": (
        (Wish(TCP, V6, "::", 15001, v6only=False, full=True), Wish(TCP, V6, "::", 15006, v6only=False, full=True, transparent=True)),
        "NI307", "NI307",
    ),
}  # fmt: skip


def code_of(answer, number: int = 0):
    return answer.to_object()["listeners"][number]["code"]


def fill(pod, opened) -> list[socket.socket]:
    """Connections that wait in the queues of full listeners."""
    clients = []
    with pod.entered():
        for wish, _ in opened:
            for _ in range(2 * wish.full):
                one = socket.socket(V6)
                clients.append(one)
                one.settimeout(0.2)
                one.connect_ex(("::1", wish.port))
    return clients


def connect(where, family, end, told, source="") -> str:
    """What becomes of one connection; one that is told to have no answer is not waited for as long."""
    with where.entered(), socket.socket(family.number, TCP) as one:
        if source:
            one.bind((source, 0))
        one.settimeout(0.3 if told == UNANSWERED else PATIENCE)
        try:
            one.connect(end)
        except ConnectionRefusedError:
            return REFUSED
        except TimeoutError:
            return UNANSWERED
        return ACCEPTED


@crossed(mode=("REDIRECT", "TPROXY"), backend=("iptables-nft", "nftables"), exact=(False, True))
def test_explain_says_what_becomes_of_each_connection_after_the_rules(pod, mode, backend, exact):
    needs(backend)
    options = Options.from_argv(["-m", mode, "-b", "*", "-i", "*", "-d", "15020", "-u", "1337", "--ipv6", "on", "--backend", backend])
    apply_in(pod, options.replace(istio_exact=exact))
    scenes = list(SCENES.items())
    for name, (wishes, outward, inward) in choose(scenes[mode == "REDIRECT" :: 2], scenes):
        with ExitStack() as stack:
            with pod.entered():
                opened = [(one, made) for one in wishes if (made := one.open())]
            for _, made in opened:
                stack.enter_context(made)
            for made in fill(pod, opened):
                stack.enter_context(made)
            for family in FAMILIES.values():
                out = netinit.explain(to=f"{OUTSIDE[IPV4]}:80" if family is IPV4 else f"[{OUTSIDE[IPV6]}]:80", netns=pod.path)
                told = out.answers[0].recipients[0]
                seen = connect(pod, family, (OUTSIDE[family], 80), told.outcome)
                assert (out.verdict, told.outcome) == ("captured", seen), (name, told.text)
                assert (told.outcome == ACCEPTED) == (" gets it, and the proxy's user is 1337: " in told.text), "which root is not"
                within = netinit.explain(source="10.77.0.1" if family is IPV4 else "fd77::1", to_port=8080, netns=pod.path)
                told = within.answers[0].recipients[0]
                seen = connect(pod.client, family, (OWN[family][0], 8080), told.outcome)
                passed = told.outcome == PASSED
                assert (REFUSED if passed else told.outcome) == seen, (name, told.text)
                assert not passed or (mode, backend, exact) == ("TPROXY", "nftables", True)
                if family is IPV4:
                    redirected = mode == "REDIRECT" and inward == "NI303"  # where no socket needs to be transparent
                    assert (code_of(out), code_of(within)) == (outward, None if redirected else inward), name


def test_a_proxy_whose_user_the_rules_do_not_exempt_gets_its_own_connections_back_and_verify_says_so(pod):
    """Its connections to the destination are captured again: the loop that users see as a proxy that calls itself."""
    apply_in(pod, Options.from_argv(["-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off"]))
    start_servers(pod, app=(15001,), proxy=(15006,))
    ends = pod.probe([Probe(OUTSIDE[IPV4], 80, uid=uid, gid=uid) for uid in (1000, 2000)])
    assert [(one.server, one.port) for one in ends] == [("app", 15001)] * 2, "what it sends comes back to it"
    verified, explained = run_tool(pod, "verify"), run_tool(pod, "explain", "--live", "--to", f"{OUTSIDE[IPV4]}:80", "--uid", "2000")
    for one in (verified, explained):
        assert "15001 (uid 1000) gets it, and the proxy's user is 1337" in one.stdout, one.stdout
        assert "NI380" in one.stdout
    assert (verified.returncode, run_tool(pod, "verify", "--require-listener").returncode) == (0, 3)


BEHIND = {  # what the application listens on: the code for IPv4 and for IPv6
    "nothing": ((), "NI304", "NI304"),
    "another port": ((Wish(TCP, V6, "::", 9090, v6only=False),), "NI304", "NI304"),
    "any address": ((Wish(TCP, V6, "::", 8080, v6only=False),), None, None),
    "127.0.0.1": ((Wish(TCP, V4, "127.0.0.1", 8080),), "NI305", "NI305"),
    "::1": ((Wish(TCP, V6, "::1", 8080),), "NI305", "NI305"),
    "its IPv4 address": ((Wish(TCP, V4, "10.77.0.2", 8080),), None, "NI306"),
    "IPv6 alone": ((Wish(TCP, V6, "::", 8080),), "NI306", None),
    "a full queue": ((Wish(TCP, V6, "::", 8080, v6only=False, full=True),), "NI307", "NI307"),
}  # fmt: skip


@crossed(mode=("REDIRECT", "TPROXY"), excluded=("", "8080"))
def test_explain_says_what_the_application_makes_of_what_the_proxy_passes_on(pod, mode, excluded):
    needs("iptables-nft")
    apply_in(pod, Options.from_argv(["-m", mode, "-b", "*", "-d", excluded, "-u", "0", "-g", "0", "--ipv6", "on", "--backend", "iptables-nft"]))
    proxy = Wish(TCP, V6, "::", 15006, v6only=False, transparent=True)
    scenes = list(BEHIND.items())
    for name, (wishes, *codes) in choose(scenes[mode == "REDIRECT" :: 2], scenes):
        with ExitStack() as stack:
            with pod.entered():
                opened = [(one, made) for one in (proxy, *wishes) if (made := one.open())]
            for made in [*[made for _, made in opened], *fill(pod, opened)]:
                stack.enter_context(made)
            for family, code in zip(FAMILIES.values(), codes, strict=True):
                found = netinit.explain(source="10.77.0.1" if family is IPV4 else "fd77::1", to_port=8080, netns=pod.path)
                *before, told = found.answers[0].recipients
                assert [one.outcome for one in before] == ([] if excluded else [ACCEPTED])
                end, source = (OWN[family][0], 8080), {IPV4: "127.0.0.6", IPV6: "::6"}[family]
                seen = connect(pod.client, family, end, told.outcome) if excluded else connect(pod, family, end, told.outcome, source)
                assert (told.outcome, code_of(found, -1)) == (seen, code), (name, told.text)


def test_who_answers_captured_queries_is_told_for_both_protocols(pod):
    needs("iptables-nft")
    apply_in(pod, Options.from_argv(["--redirect-dns", "--dns-servers", OUTSIDE[IPV4], "-i", "*", "--ipv6", "on", "--backend", "iptables-nft"]))
    with ExitStack() as stack:
        for wish, codes in ((None, ("NI308", "NI308")), (Wish(UDP, V4, "127.0.0.1", 15053), (None, "NI308")), (Wish(TCP, V4, "127.0.0.1", 15053), (None, None))):
            if wish:
                with pod.entered():
                    stack.enter_context(wish.open())
            found = [netinit.explain(to=f"{OUTSIDE[IPV4]}:53", udp=udp, netns=pod.path) for udp in (True, False)]
            assert tuple(map(code_of, found)) == codes
            with pod.entered(), socket.socket(V4, UDP) as asking:
                asking.settimeout(0.3)
                asking.connect((OUTSIDE[IPV4], 53))
                asking.send(b"?")
                with pytest.raises(TimeoutError):  # without a socket too: the ICMP message is not translated back in their zone
                    asking.recv(1)
            assert found[0].answers[0].recipients[0].outcome == (ACCEPTED if wish else UNANSWERED)
            assert connect(pod, IPV4, (OUTSIDE[IPV4], 53), found[1].answers[0].recipients[0].outcome) == found[1].answers[0].recipients[0].outcome


SIDECAR = ("-b", "*", "-i", "*", "--ipv6", "on", "--backend", "iptables-nft")


def test_verify_notes_who_does_not_listen_and_counts_it_where_that_is_required(pod):
    needs("iptables-nft")
    apply_in(pod, Options.from_argv(SIDECAR))
    absent = [f"then: nothing listens on {port} (the proxy is not up): the connection is refused (NI301)" for port in (15001, 15006)]

    def verify(*more):
        done = run_tool(pod, "verify", "--netns", pod.path, *more)
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith(("then", "listener"))]

    assert verify() == (0, absent)
    assert verify(*SIDECAR) == (0, absent), "where the options are given too"
    code, listed = verify("--require-listener")
    assert (code, [line.split(":")[0] for line in listed]) == (3, ["listener", "listener"])
    assert verify("--live")[1] == absent
    wishes = (Wish(TCP, V6, "::", 15001, v6only=False), Wish(TCP, V6, "::", 15006, v6only=False), Wish(TCP, V4, "127.0.0.1", 8080))
    with ExitStack() as stack:
        with pod.entered():
            for one in wishes:
                stack.enter_context(one.open())
        text = "the application listens on 127.0.0.1:8080 (uid 0) alone, not on 10.77.0.2:8080: the connection is refused"
        assert verify("--require-listener") == (0, [f"then: {text} (NI305)"]), "the application may want that"
        doctor = run_tool(pod, "doctor", "--netns", pod.path).stdout
        assert f"- listeners: {text}\n    remedy: netinit help NI305 says what to do" in doctor


def test_where_the_kernel_lists_no_sockets_that_is_said_once(pod, monkeypatch):
    needs("iptables-nft")
    apply_in(pod, Options.from_argv(SIDECAR))
    monkeypatch.setattr("netinit.kernel.listeners.NETLINK_SOCK_DIAG", 31)  # as where the kernel has none: gVisor
    report = netinit.verify(netns=pod.path)
    (one,) = report.listeners
    assert report.ok
    assert one.text == "who listens is not known: the kernel does not list sockets (sock_diag: Protocol not supported)"
    assert not netinit.verify(netns=pod.path, require_listener=True).ok, "what is not known is not fine"
    (told,) = netinit.explain(source="10.77.0.1", to_port=8080, netns=pod.path).answers[0].recipients
    assert (told.text, told.outcome) == (one.text, UNKNOWN)
