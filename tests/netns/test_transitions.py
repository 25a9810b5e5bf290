"""From any layout, mode and backend to any other, while connections are open and new ones come at a steady rate, both ways.

`make test` walks through every pair of layouts and modes, and every pair of backends; `make prove` through every pair of all
three. NETINIT_SEED repeats the order, and what is drawn of the options.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import socket
import struct
import threading
from dataclasses import dataclass, field

import pytest

from laboratory import start_servers
from netinit.base.net import join_host
from netinit.kernel.sockets import IP_TRANSPARENT, IPV6_TRANSPARENT, creating_as
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import LAYOUTS, Options
from netinit.options.interception import AMBIENT, CLASSIC, NODE_PROXY_MARK, NONE, REDIRECT, TPROXY
from programming import SIDECAR, apply_in, needs
from randomness import SEED
from sweeps import WHOLE

pytestmark = pytest.mark.usefixtures("judged_by_verify")

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
KINDS = [(layout, mode) for layout in LAYOUTS for mode in ((REDIRECT, TPROXY, NONE) if layout != AMBIENT else ("",))]
SITUATIONS = list(itertools.product(KINDS, BACKENDS))
PIECES = 16 if WHOLE else 1
TRANSPARENT = {socket.AF_INET: (socket.SOL_IP, IP_TRANSPARENT), socket.AF_INET6: (socket.IPPROTO_IPV6, IPV6_TRANSPARENT)}
MARKS = (1337, 1337, 0x111, 0x100D39, 7)  # of TPROXY; two of them look like those of the ambient layout
EXACT = 0.3  # of the options, have Istio's rules alone
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
POD, OUTSIDE = {4: "10.77.0.2", 6: "fd77::2"}, {4: "203.0.113.7", 6: "2001:db8::7"}
PAUSE = 0.005  # seconds between two connections of a stream
PATIENCE = 60.0  # seconds after which a connection counts as hung
TOTAL_RETRANS = 100  # the place of tcpi_total_retrans in struct tcp_info, linux/tcp.h
HELD = 5  # connections of a stream that each step leaves open


def pass_every_pair(draw):
    """A closed walk that takes every pair of different situations once (Hierholzer's algorithm)."""
    ways = {one: draw.sample(rest, len(rest)) for one in SITUATIONS if (rest := [other for other in SITUATIONS if other != one])}
    stack, walk = [draw.choice(SITUATIONS)], []
    while stack:
        if ways[stack[-1]]:
            stack.append(ways[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return walk


def pass_every_kind(draw):
    """A walk with every pair of layouts and modes, and every pair of backends; each step takes as many new ones as it can."""
    wanted = {*itertools.product(KINDS, KINDS), *itertools.product(BACKENDS, BACKENDS)}
    walk = [draw.choice(SITUATIONS)]
    while wanted:
        new = {one: len(wanted.intersection(zip(walk[-1], one, strict=True))) for one in SITUATIONS if one != walk[-1]}
        walk.append(draw.choice([one for one in new if new[one] == max(new.values())]))
        wanted.difference_update(zip(walk[-2], walk[-1], strict=True))
    return walk


def walk_of_piece(piece):
    draw = random.Random(SEED)
    if not WHOLE:
        return pass_every_kind(draw)
    walk = pass_every_pair(draw)
    length = -(-len(walk) // PIECES)
    return walk[piece * length : (piece + 1) * length + 1]


def options_of(situation, draw):
    (layout, mode), backend = situation
    exact = (layout, mode) != (CLASSIC, TPROXY) and draw.random() < EXACT  # which there cuts off what nat has redirected
    common = ["--layout", layout, "--backend", backend, "--ipv6", "on", "--reconcile", "--lock-timeout", "2m", *["--istio-exact"] * exact]
    if layout == AMBIENT:
        return Options.from_argv(common)
    return Options.from_argv([*SIDECAR, "-m", mode, *common, *(["-t", str(draw.choice(MARKS))] if mode == TPROXY else [])])


@dataclass
class Stream:
    """New connections from a namespace, one after the other: where each arrives, and some that stay open."""

    name: str
    namespace: object
    host: str
    user: int = APP_ID
    mark: int = 0
    source: str = ""  # an address that is not its own
    arrived: list[tuple[str, int | str, str | None]] = field(default_factory=list)
    held: list[tuple[socket.socket, dict]] = field(default_factory=list)
    keeps: int = 0  # how many of the next ones stay open
    repeated: int = 0  # connections that had to send a packet again, since something dropped it or its answer

    def call(self):
        """The answer to one connection."""
        with creating_as(self.user, self.user):
            made = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        made.settimeout(PATIENCE)
        if self.mark:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, self.mark)
        try:
            if self.source:
                made.setsockopt(*TRANSPARENT[made.family], 1)
                made.bind((self.source, 0))
            made.connect((self.host, 80))
            answer = ask(made)
        except BaseException:
            made.close()
            raise
        return made, answer

    def run(self, stop):
        """Connect until told to stop."""
        with self.namespace.entered():
            while not stop.wait(PAUSE):
                try:
                    made, answer = self.call()
                except (OSError, ValueError) as error:
                    self.arrived.append((type(error).__name__, str(error), None))
                    continue
                self.arrived.append((answer["name"], answer["port"], answer["original_destination"]))
                (again,) = struct.unpack_from("=I", made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), TOTAL_RETRANS)
                self.repeated += bool(again)
                if self.keeps > 0:
                    self.keeps -= 1
                    self.held.append((made, answer))
                else:
                    made.close()

    def lost(self, cut):
        """What became of connections that were open and are no longer as they were. `cut`: those that had reached this port are not meant to be."""
        found = []
        for made, answer in self.held:
            if answer["port"] == cut:
                continue
            try:
                made.sendall(b"?")
                if (now := ask(made)) != answer:
                    found.append(f"{answer}, now {now}")
            except (OSError, ValueError) as error:
                found.append(f"{answer}: {error!r}")
        return found


def ask(connection):
    """The server's answer."""
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(4096)
        if not piece:
            raise ValueError("closed")
        data += piece
    return json.loads(data)


def expected(name, family, situation):
    """Where a connection of a stream arrives under the rules of a situation."""
    (layout, mode), _ = situation
    if name == "in":
        if mode == NONE:
            return "app", 80
        return "proxy", 15001 if (layout, mode, family) == (CLASSIC, TPROXY, 4) else 15006
    if name in ("itself", "passed on"):
        return ("proxy", 15001) if layout == CLASSIC else ("app", 80)
    return ("proxy", 15001) if name == "out" else ("outside", 80)


def streams_of(pod, old, new):
    """The streams that have a meaning under both situations' rules."""
    for family in (4, 6):
        yield family, Stream("in", pod.client, POD[family], user=0)
        yield family, Stream("out", pod, OUTSIDE[family])
        yield family, Stream("itself", pod, POD[family])
        ambient = [situation[0][0] == AMBIENT for situation in (old, new)]
        if not any(ambient):
            yield family, Stream("proxy", pod, OUTSIDE[family], user=PROXY_ID)
        elif all(ambient):
            yield family, Stream("proxy", pod, OUTSIDE[family], mark=NODE_PROXY_MARK)
            yield family, Stream("passed on", pod, POD[family], mark=NODE_PROXY_MARK, source=CLIENT[family])


@contextlib.contextmanager
def running(streams):
    stop = threading.Event()
    threads = [threading.Thread(target=one.run, args=(stop,)) for one in streams]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def wait_for(streams, number):
    """Until each stream has so many more."""
    counts = [len(one.arrived) + number for one in streams]
    pause = threading.Event()
    while any(len(one.arrived) < count for one, count in zip(streams, counts, strict=True)):
        pause.wait(PAUSE)


def check_step(pod, old, new, options):
    """What went wrong with the connections of one transition."""
    pairs = list(streams_of(pod, old, new))
    streams = [one for _, one in pairs]
    found = []
    for one in streams:
        one.keeps = HELD
    with running(streams):
        wait_for(streams, HELD)
        apply_in(pod, options)
        wait_for(streams, 3)
    for family, one in pairs:
        asked = None if one.name == "proxy" else join_host(one.host, 80)  # where nothing is tracked, no destination is remembered
        there = {(*expected(one.name, family, situation), asked) for situation in (old, new)}
        strays = [arrival for arrival in one.arrived if arrival not in there]
        if strays:
            found.append(f"{one.name} {family}: {len(strays)} of {len(one.arrived)} arrived elsewhere: {strays[:3]}")
        if one.repeated:
            found.append(f"{one.name} {family}: packets of {one.repeated} of {len(one.arrived)} connections were dropped at first")
        cut = 80 if one.name == "in" and new[0][1] == TPROXY else 0  # TPROXY ends what has bypassed the proxy, see docs/differences.md
        lost = one.lost(cut)
        if lost:
            found.append(f"{one.name} {family}: {len(lost)} of {len(one.held)} open connections lost: {lost[:2]}")
        for made, _ in one.held:
            made.close()
    return found


@pytest.mark.parametrize("piece", range(PIECES))
def test_from_any_rules_to_any_others_no_connection_bypasses_is_captured_twice_or_reset(pod, piece):
    for backend in BACKENDS:
        needs(backend)
    start_servers(pod, transparent=(15001, 15006))
    draw = random.Random(f"{SEED} {piece}")
    walk = walk_of_piece(piece)
    apply_in(pod, options_of(walk[0], draw))
    found = []
    for old, new in itertools.pairwise(walk):
        options = options_of(new, draw)
        found += [f"{old} to {new} ({' '.join(options.to_argv())}): {one}" for one in check_step(pod, old, new, options)]
    assert not found, f"NETINIT_SEED={SEED}, {len(walk) - 1} transitions:\n" + "\n".join(found)
