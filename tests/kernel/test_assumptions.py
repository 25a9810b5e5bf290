"""What the simulator takes for granted about the kernel, one experiment for each; docs/kernels.md says on which kernels they passed."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attempts import AROUND, OUTSIDE, PROXY, Attempt, compare_fates, make_pod, predict, program, send

from bypass_world import wait_for
from conversations import converse
from core import plan
from hosts import Connection, Flow
from laboratory import Listener as Opened
from laboratory import Pod
from netinit.base.net import FAMILIES, IPV4, IPV6, number_of
from netinit.lab import APP_ID
from netinit.options import Options
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.matches.context import Socket
from netinit.simulate.condition import Condition
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import HookedChain, Ruleset, load_plan
from netinit.simulate.trace import UNKNOWN
from programming import needs
from segments import ACK, FIN, PEER, RST, SYN, Peer, make_packet, make_segment

pytestmark = pytest.mark.netns

PORTS = (40000, 8080)
MOST = 12  # segments of one connection
PATIENCE = 20.0  # seconds, for an emulated processor
OURS = 7  # the mark of segments made here; what the pod's own kernel says to them is dropped
NAMES = {SYN: "SYN", ACK: "ACK", FIN: "FIN", RST: "RST"}
OUT, BACK = False, True  # which end sends: the one that opened the connection, or the other
OPENING = ((OUT, SYN), (BACK, SYN | ACK), (OUT, ACK))
BOTH_CLOSE = ((OUT, FIN | ACK), (BACK, ACK), (BACK, FIN | ACK), (OUT, ACK))
SEQUENCES = {
    "an open connection": ((OUT, SYN),),
    "an open connection, from its other end": ((BACK, SYN),),
    "one that this end has half closed": ((OUT, FIN | ACK), (BACK, ACK), (OUT, SYN)),
    "one in TIME_WAIT": (*BOTH_CLOSE, (OUT, SYN)),
    "one in TIME_WAIT, from its other end": (*BOTH_CLOSE, (BACK, SYN)),
    "one that this end has reset": ((OUT, RST), (OUT, SYN)),
    "one that the other end has reset": ((BACK, RST), (OUT, SYN)),
}
STATES = ("new", "established", "invalid")
PROXIES = (15001, 15006)


@pytest.fixture
def pod(require_netns: None) -> Iterator[Pod]:
    with Pod() as made:
        yield made


class Segments:
    """Segments of one connection between the pod and a peer outside it; each is counted by the state that the pod's kernel gives it."""

    def __init__(self, pod: Pod, stack: ExitStack) -> None:
        self._pod, self._sent = pod, 0
        self._peer = Peer(pod)
        stack.callback(self._peer.close)
        with pod.entered():
            self._raw = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
        self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, OURS)
        self.next = {OUT: 1000, BACK: 9000}
        counters = "\n".join(f"meta l4proto tcp ip id {number} ct state {state} counter" for number in range(1, MOST + 1) for state in STATES)
        hooks = (("output", -300, f"meta l4proto tcp meta mark != {OURS} drop"), ("prerouting", -150, counters), ("output", -150, counters))
        chains = "".join(
            f"chain {hook}{-priority} {{ type filter hook {hook} priority {priority};\n{rules}\n}}\n" for hook, priority, rules in hooks
        )
        pod.run(["nft", "-f", "-"], stdin=f"table ip seen {{\n{chains}}}", check=True)

    def send(self, back: bool, flags: int, *, shift: int = 0) -> None:
        """Send the connection's next segment; `shift`: away from the number that is expected."""
        ends = (PEER[4], self._pod.address) if back is OUT else (self._pod.address, PEER[4])
        ports = PORTS if back is OUT else PORTS[::-1]
        segment = make_segment(*ends, ports, flags, seq=self.next[back] + shift, ack=self.next[not back] if flags & ACK else 0)
        self._sent += 1
        packet = make_packet(*ends, segment, number=self._sent)
        if back is OUT:
            self._peer.send(packet)
        else:
            self._raw.sendto(packet, (PEER[4], 0))
        self.next[back] += bool(flags & (SYN | FIN))
        assert wait_for(lambda: self.states()[-1], PATIENCE), f"segment {self._sent} did not arrive"

    def states(self) -> list[str]:
        """The states of the segments in the order in which they were sent."""
        listed = self._pod.run(["nft", "list", "table", "ip", "seen"], check=True).stdout
        found = re.findall(r"ip id (\d+) ct state (\w+) counter packets (\d+)", listed)
        counted = {int(number): state for number, state, packets in found if int(packets)}
        return [counted.get(number, "") for number in range(1, self._sent + 1)]


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_syn_has_the_state_that_the_simulator_gives_it_whatever_it_meets(pod, name):
    flow = Flow("tcp", 1, 1, 2, 2)
    steps = (*OPENING, *SEQUENCES[name])
    known, expected = Connection(flow, flow, Condition(), translated=False), []
    for back, flags in steps:
        state = known.take(tuple(text for bit, text in NAMES.items() if flags & bit), is_answer=back)
        expected.append((state or "NEW").lower())
    with ExitStack() as stack:
        segments = Segments(pod, stack)
        for back, flags in steps:
            segments.send(back, flags)
        assert segments.states() == expected


@pytest.mark.parametrize(("ignored", "state"), [(0, "invalid"), (1, "established")])
def test_a_reset_outside_of_the_window_is_invalid_unless_tcp_ignore_invalid_rst_says_otherwise(pod, ignored, state):
    name = "net/netfilter/nf_conntrack_tcp_ignore_invalid_rst"
    assert pod.call(lambda: Path("/proc/sys", name).read_text()).strip() == "0"
    pod.set_sysctl(name, ignored)
    with ExitStack() as stack:
        segments = Segments(pod, stack)
        for back, flags in OPENING:
            segments.send(back, flags)
        segments.send(BACK, RST, shift=-100)
        segments.send(BACK, RST)
        assert segments.states() == ["new", "established", "established", state, "established"]


def test_of_two_chains_with_the_priority_of_nat_one_decides_and_the_simulator_leaves_open_which(pod):
    """The kernel asks the younger first, which no listing shows."""
    pod.serve("proxy", [Opened(port) for port in PROXIES], uid=PROXY, gid=PROXY)
    chains = []
    for port in PROXIES:
        rules = f"tcp dport 80 redirect to :{port}"
        pod.run(["nft", "-f", "-"], stdin=f"table ip theirs{port} {{ chain output {{ type nat hook output priority -100; {rules}\n}}\n}}", check=True)
        tables = load_listing(parse_listing(f"*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports {port}\nCOMMIT\n"), IPV4).tables["nat"]
        chains.append(HookedChain(f"ip theirs{port}", tables["OUTPUT"], tables, "nat", "OUTPUT", -100))
    assert pod.connect(OUTSIDE[0], 80, timeout=PATIENCE).port == PROXIES[-1]
    trace = simulate(make_outbound(AROUND[IPV4], OUTSIDE[0], 80, uid=APP_ID, gid=APP_ID), Ruleset(IPV4, foreign=tuple(chains)), AROUND[IPV4])
    assert (trace.fate, "the kernel does not show which it runs first" in trace.reason) == (UNKNOWN, True)


@pytest.mark.parametrize("host", [OUTSIDE[0], OUTSIDE[3]])
def test_a_mark_ends_at_the_border_of_a_namespace(pod, host):
    """What a pod marks, the node does not see: policy rules and chains of the node ask for a mark of their own."""
    rules = "".join(f"meta mark {mark} tcp dport 9 counter\n" for mark in (0, OURS))
    for namespace, hook in ((pod, "output"), (pod.client, "prerouting")):
        namespace.run(["nft", "-f", "-"], stdin=f"table inet seen {{ chain counted {{ type filter hook {hook} priority 0;\n{rules}}}\n}}", check=True)
    pod.connect(host, 9, mark=OURS, timeout=0.5)
    counted = [
        [bool(int(found)) for found in re.findall(r"packets (\d+)", one.run(["nft", "list", "table", "inet", "seen"], check=True).stdout)]
        for one in (pod, pod.client)
    ]
    assert counted == [[False, True], [True, False]]


def test_a_connection_in_time_wait_still_has_a_socket(pod):
    """Istio's TPROXY rules and netinit's ask for it: the last segments go to the socket's end, not to the proxy's listener."""
    pod.run(["nft", "-f", "-"], stdin=f"table ip seen {{ chain counted {{ type filter hook prerouting priority -150;\nip id 77 {Socket().nft()} counter\n}}\n}}", check=True)
    pod.run(["iptables", "-t", "mangle", "-A", "PREROUTING", "-p", "tcp", *Socket.xt_text.split()], check=True)
    with ExitStack() as stack:
        peer = Peer(pod)
        stack.callback(peer.close)
        talk = converse(stack, pod, pod.address, PORTS[1], pod.client)
        source, port = talk.client.getsockname()
        talk.server.close()
        talk.client.recv(1)
        talk.client.close()
        talk.listener.close()
        assert wait_for(lambda: f"{source}:{port}" in pod.run(["ss", "-Htan", "state", "time-wait"], check=True).stdout, PATIENCE)
        pod.run(["iptables", "-t", "mangle", "-Z"], check=True)
        peer.send(make_packet(source, pod.address, make_segment(source, pod.address, (port, PORTS[1]), ACK, seq=1, ack=1), number=77))
        assert wait_for(lambda: "counter packets 1 " in pod.run(["nft", "list", "table", "ip", "seen"], check=True).stdout, PATIENCE)
        assert re.search(r"\n\[[1-9]\d*:\d+\] -A PREROUTING -p tcp -m socket", pod.run(["iptables-save", "-c", "-t", "mangle"], check=True).stdout)


@pytest.mark.parametrize("dialect", ["iptables-nft", "nftables"])
def test_a_redirected_connection_of_ipv6_arrives_at_the_loopback_address_and_its_answers_come_back(require_netns, dialect):
    needs(dialect)
    wanted = plan(Options.from_argv(["-i", "*", "-b", "*", "--ipv6", "on"], {}))
    attempts = [Attempt("pod", IPV6, "tcp", OUTSIDE[3], 443, APP_ID, APP_ID), Attempt("client", IPV6, "tcp", "fd77::2", 443)]
    with make_pod() as pod:
        program(pod, dialect, wanted)
        talks = predict({family: load_plan(wanted, family) for family in FAMILIES}, wanted, attempts)
        arrivals = send(pod, attempts, PATIENCE)  # each is answered
        assert compare_fates(attempts, talks, arrivals) == []
    assert [(talk.first.last.destination, arrival.local) for talk, arrival in zip(talks, arrivals, strict=True)] == [
        (number_of("::1"), "[::1]:15001"), (number_of("fd77::2"), "[fd77::2]:15006"),
    ]  # fmt: skip
