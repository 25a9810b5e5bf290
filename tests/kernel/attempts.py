"""Connections that are predicted and then really made in a pod: where they end, and what the rules count.

NETINIT_CONNECTIONS sets how many are made for each dialect, NETINIT_SEED repeats a run.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from conversation import Conversation, Listener, Players, converse
from hypothesis import strategies as st

from hosts import Host
from lab_probes import Arrival, Probe
from laboratory import Listener as Opened
from laboratory import Pod
from netinit.backends import routes
from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, number_of
from netinit.options import Options
from netinit.options.interception import NODE_PROXY_MARK
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.iptables.write import render_restore, write_plan
from netinit.rules.matches.context import ConnectionState, Limit
from netinit.rules.matches.packet import Owner, Port, Protocol
from netinit.rules.model import TABLES, Plan, Rule
from netinit.rules.nft import model_table, plan_tables, render_script
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.rules.targets import format_chain
from netinit.simulate.endpoints import format_endpoint, make_outbound
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import Ruleset, load_plan
from netinit.simulate.stand_ins import make_inbound
from netinit.simulate.trace import DELIVERED, DROPPED, REFUSED, UNKNOWN
from randomness import SEED
from strategies import PORTS

CONNECTIONS = int(os.environ.get("NETINIT_CONNECTIONS", "150"))  # for each dialect
BATCH = 25
SILENCE = 0.3  # seconds after which nobody answers
# Where a busy machine gets further chances: less than the second after which TCP sends its first packet once more, of which
# NAT is asked again where the first was dropped.
PATIENCE = (0.9, 0.9)
DIALECTS = ("iptables-nft", "iptables-legacy", "nftables")

OUTSIDE = ("198.51.100.7", "203.0.113.7", "203.0.113.200", "2001:db8::7", "2001:db8:1::8")
NEIGHBOUR = "eth1"
APP, PROXY = 1000, 1337
CLOSED = 9000
UDP_PORTS = (53, 443)
APP_PORTS = [port for port in PORTS if port not in (15001, 15006, 15008, 15053, CLOSED)]
PROXY_PORTS = (15001, 15006, 15008, 15053)


def _listen(
    server: str, tcp: tuple[int, ...], udp: tuple[int, ...], owner: int, transparent: bool = False
) -> tuple[Listener, ...]:
    return tuple(
        Listener(server, protocol, port, owner, owner, transparent and protocol == "tcp")
        for protocol, ports in (("tcp", tcp), ("udp", udp))
        for port in ports
    )


INSIDE = _listen("app", tuple(APP_PORTS), UDP_PORTS, APP) + _listen(
    "proxy", PROXY_PORTS, (15053,), PROXY, transparent=True
)
BEYOND = _listen("outside", tuple(port for port in PORTS if port != CLOSED), UDP_PORTS, 0)
CLIENT = {IPV4: "10.77.0.1", IPV6: "fd77::1"}
OTHERS = frozenset(number_of(host) for host in (*OUTSIDE, *CLIENT.values()))
AROUND = {
    IPV4: Surroundings(
        family=IPV4, forwards=True, picks_up=False, routes=((Network.parse("10.78.0.0/24"), NEIGHBOUR),),
        addresses=(("eth0", number_of("10.77.0.2")), (NEIGHBOUR, number_of("10.78.0.2"))),
    ),
    IPV6: Surroundings(
        family=IPV6, forwards=True, picks_up=False, routes=((Network.parse("fd78::/64"), NEIGHBOUR),),
        addresses=(("eth0", number_of("fd77::2")), (NEIGHBOUR, number_of("fd78::2"))),
    ),
}  # fmt: skip
OWN = {
    IPV4: ("10.77.0.2", "10.78.0.2", "127.0.0.1", "127.0.0.2", "127.0.0.6"),
    IPV6: ("fd77::2", "fd78::2", "::1", "::6"),
}
LOOP_SOURCES = {IPV4: ("127.0.0.1", "127.0.0.6", "10.77.0.2"), IPV6: ("::1", "::6", "fd77::2")}


@dataclass(frozen=True, repr=False)
class Attempt:
    """One connection to make."""

    start: str  # pod, client, or the neighbour
    family: Family
    protocol: str
    host: str
    port: int
    uid: int = 0
    gid: int = 0
    source: str = ""
    mark: int = 0  # of the socket, where options know the proxy by it

    @property
    def probe(self) -> Probe:
        ids = {"uid": self.uid, "gid": self.gid, "mark": self.mark} if self.start == "pod" else {}
        return Probe(
            self.host, self.port, udp=self.protocol == "udp", source=self.source or None, timeout=SILENCE, **ids
        )

    def packet(self, around: Surroundings, number: int) -> Packet:
        port = 40000 + number
        if self.start == "pod":
            return make_outbound(
                around, self.host, self.port, protocol=self.protocol, uid=self.uid, gid=self.gid, source=self.source, source_port=port,
                mark=self.mark,
            )  # fmt: skip
        interface, host = ("eth0", CLIENT[self.family]) if self.start == "client" else (NEIGHBOUR, _beyond(self.family))
        return make_inbound(
            around, host, self.host, self.port, protocol=self.protocol, interface=interface, source_port=port
        )

    def __repr__(self) -> str:
        who = f"uid {self.uid} gid {self.gid} in the pod" if self.start == "pod" else f"from {self.start}"
        return f"{who} -> {self.protocol} {self.host} port {self.port}" + (
            f", bound to {self.source}" if self.source else ""
        )


def _beyond(family: Family) -> str:
    return "10.78.0.1" if family is IPV4 else "fd78::1"


@st.composite
def made_attempts(draw: st.DrawFn) -> Attempt:
    family = draw(st.sampled_from(FAMILIES))
    protocol, ports = draw(st.sampled_from((("tcp", PORTS), ("tcp", PORTS), ("udp", (53, 53, 443, CLOSED)))))
    port = draw(st.sampled_from(ports))
    outside = [host for host in OUTSIDE if (":" in host) == (family is IPV6)] + [CLIENT[family]]
    start = draw(st.sampled_from(("pod", "pod", "pod", "client", NEIGHBOUR)))
    if start == "client":
        return Attempt(start, family, protocol, OWN[family][draw(st.integers(0, 1))], port)
    if start == NEIGHBOUR:
        return Attempt(start, family, protocol, draw(st.sampled_from([*OWN[family][:2], *outside])), port)
    uid, gid = draw(st.sampled_from((0, APP, APP, PROXY, 1338))), draw(st.sampled_from((0, APP, PROXY, 1338)))
    host = draw(st.sampled_from([*outside, *OWN[family]]))
    source = draw(st.sampled_from(("", "", *LOOP_SOURCES[family]))) if host in OWN[family] else ""
    if source == "::1" and host.startswith("fd"):
        source = ""  # without any rules, too, the kernel's reset never arrives between these two
    return Attempt(start, family, protocol, host, port, uid, gid, source, draw(st.sampled_from((0, NODE_PROXY_MARK))))


@contextmanager
def make_pod() -> Iterator[Pod]:
    """A pod with a neighbour and addresses outside, in which everybody listens."""
    with Pod(interfaces=(NEIGHBOUR,), outside=OUTSIDE) as made:
        furnish(made)
        yield made


def furnish(pod: Pod) -> None:
    """Those who answer in the pod and outside, and what late packets need to be told apart."""
    for server, owner in (("app", APP), ("proxy", PROXY)):
        pod.serve(server, _open(INSIDE, server), uid=owner, gid=owner)
    pod.client.serve("outside", _open(BEYOND, "outside"))
    everybody = (pod, pod.client, *pod.neighbours.values())
    for namespace in everybody:
        for name in ("net/ipv4/icmp_ratelimit", "net/ipv6/icmp/ratelimit"):  # every refused datagram is told of
            namespace.set_sysctl(name, 0)
    # What earlier cases still repeat (an unanswered FIN) is not to pass for a new connection.
    pod.set_sysctl("net/netfilter/nf_conntrack_tcp_loose", 0)
    _settle_neighbours(pod)


def _open(listeners: tuple[Listener, ...], server: str) -> list[Opened]:
    return [
        Opened(one.port, family, kind=one.protocol, transparent=one.transparent)
        for one in listeners
        if one.server == server
        for family in (4, 6)
    ]


def _settle_neighbours(pod: Pod) -> None:
    """IPv6 needs no neighbour discovery, which some rules refuse."""
    from pyroute2 import IPRoute

    ends = {}
    for namespace in (pod, pod.client, *pod.neighbours.values()):
        with namespace.entered():
            ends[namespace.name] = IPRoute()
    pairs = (
        ("pod", "eth0", "client", "eth0", "fd77::2", "fd77::1"),
        ("pod", NEIGHBOUR, NEIGHBOUR, "eth0", "fd78::2", "fd78::1"),
    )
    for one, device, other, its_device, address, its_address in pairs:
        here, there = (ends[name].get_links(ends[name].link_lookup(ifname=card)[0])[0] for name, card in ((one, device), (other, its_device)))
        for near, card, far, host in ((one, here, there, its_address), (other, there, here, address)):
            ends[near].neigh("replace", dst=host, lladdr=far.get_attr("IFLA_ADDRESS"), ifindex=card["index"], state=0x80)
    for end in ends.values():
        end.close()


def forget_connections(pod: Pod) -> None:
    """The pod's connection tracking is empty: a datagram is never taken for one of an earlier case."""
    with pod.entered(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as asking:
        # IPCTNL_MSG_CT_DELETE of NFNL_SUBSYS_CTNETLINK, with NLM_F_REQUEST and NLM_F_ACK
        asking.send(struct.pack("=IHHII4x", 20, 1 << 8 | 2, 5, 1, 0))
        error = struct.unpack_from("=i", asking.recv(4096), 16)[0]
        assert error == 0, os.strerror(-error)


def program(pod: Pod, dialect: str, wanted: Plan) -> None:
    """The plan's rules alone are in the kernel, with counters at zero."""
    with pod.entered():
        for step in routes.steps_towards(wanted, FAMILIES):
            routes.make_one(step)
        for step in routes.steps_towards(wanted, FAMILIES):
            routes.make_one(step)
    if dialect == "nftables":
        pod.run(["nft", "-f", "-"], stdin="flush ruleset\n" + render_script(wanted), check=True)
        return
    for family in FAMILIES:
        text = "".join(f"*{table}\nCOMMIT\n" for table in TABLES) + render_restore(write_plan(wanted, family))
        pod.run([f"{dialect.replace('iptables', family.program)}-restore", "-w"], stdin=text, check=True)


def read_counters(pod: Pod, dialect: str, family: Family) -> Ruleset:
    text = pod.run([f"{dialect.replace('iptables', family.program)}-save", "-c"], check=True).stdout
    return load_listing(parse_listing(text, counted=True), family)


def send(pod: Pod, attempts: list[Attempt], silence: float = SILENCE) -> list[Arrival]:
    arrivals: dict[int, Arrival] = {}
    for start in dict.fromkeys(one.start for one in attempts):
        namespace = {"pod": pod, "client": pod.client}.get(start) or pod.neighbours[start]
        chosen = [number for number, one in enumerate(attempts) if one.start == start]
        arrivals |= zip(chosen, namespace.probe([replace(attempts[number].probe, timeout=silence) for number in chosen]), strict=True)
    return [arrivals[number] for number in range(len(attempts))]


def surroundings(wanted: Plan, family: Family) -> Surroundings:
    """The pod with the address that the plan gives to lo."""
    more = tuple(("lo", number_of(one.cidr.partition("/")[0])) for one in wanted.addresses if one.family is family)
    return AROUND[family].replace(addresses=AROUND[family].addresses + more)


def predict(rulesets: dict[Family, Ruleset], wanted: Plan, attempts: list[Attempt]) -> list[Conversation]:
    players = Players(INSIDE, BEYOND, OTHERS)
    hosts = {family: Host(rulesets[family], surroundings(wanted, family)) for family in FAMILIES}
    return [
        converse(hosts[one.family], one.packet(hosts[one.family].surroundings, number), players)
        for number, one in enumerate(attempts)
    ]


def tell_expected(talk: Conversation, attempt: Attempt) -> str:
    """The prediction in the words of `tell_actual`."""
    if talk.outcome != "answered" or talk.server is None:
        return talk.outcome
    came, family = talk.first.last, attempt.family
    before = ""
    inside = talk.first.fate == DELIVERED  # a server outside cannot know
    if (
        inside
        and attempt.protocol == "tcp"
        and (came.destination, came.destination_port)
        != (
            number_of(attempt.host),
            attempt.port,
        )
    ):
        before = f", was to {format_endpoint(family, number_of(attempt.host), attempt.port)}"
    here = format_endpoint(family, came.destination, came.destination_port)
    return f"{talk.server.server}:{talk.server.port} at {here} from {format_endpoint(family, came.source, None)}{before}"


def tell_actual(arrival: Arrival, family: Family) -> str:
    if arrival.outcome != "answered":
        return arrival.outcome
    peer = str(arrival.peer).rpartition(":")[0].strip("[]")
    before = (
        f", was to {arrival.original_destination}" if arrival.original_destination not in (None, arrival.local) else ""
    )
    return f"{arrival.server}:{arrival.port} at {arrival.local} from {peer}{before}"


def compare_fates(attempts: list[Attempt], talks: list[Conversation], arrivals: list[Arrival]) -> list[str]:
    found = []
    for attempt, talk, arrival in zip(attempts, talks, arrivals, strict=True):
        expected, actual = tell_expected(talk, attempt), tell_actual(arrival, attempt.family)
        # REJECT tells the sender by ICMP, which may meet the same rule, or a socket that is still busy connecting.
        # A datagram dropped or refused on its way out is told of at once.
        unheard = (talk.first.fate == REFUSED and actual == "timeout") or (
            talk.first.fate in (DROPPED, REFUSED) and arrival.error == "EPERM"
        )
        if expected != actual and not unheard:
            path = "\n".join(
                f"        {step.hook} {step.table} {step.chain}: {step.outcome}"
                for t in talk.traces
                for step in t.steps
                if step.holds is not False
            )
            found.append(
                f"{attempt}\n    predicted: {expected} {talk.first.reason}\n    kernel:    {actual}{f' ({arrival.error})' if arrival.error else ''}\n{path}"
            )
    return found


def compare_counters(live: dict[Family, Ruleset], attempts: list[Attempt], talks: list[Conversation]) -> list[str]:
    """NAT's counters are the number of connections; in other tables, which see every packet, a rule is hit or not."""
    found = []
    for family in FAMILIES:
        expected: Counter[tuple[str, str, int]] = Counter()
        possible: Counter[tuple[str, str, int]] = Counter()
        for attempt, talk in zip(attempts, talks, strict=True):
            if attempt.family is family:
                expected += talk.hits
                possible += talk.late_hits
        for table, chains in live[family].tables.items():
            for name, chain in chains.items():
                for loaded in chain.rules:
                    wanted, packets = expected[table, name, loaded.number], loaded.packets or 0
                    if _is_limited(loaded.rule):
                        right = True
                    elif table == "nat":
                        right = wanted == packets
                    elif packets:
                        right = bool(wanted or possible[table, name, loaded.number]) or _is_noisy(loaded.rule)
                    else:
                        right = not wanted
                    if not right:
                        found.append(
                            f"{family} {table} {name} {loaded.number} `{loaded.text}`: predicted {wanted}, counted {packets}"
                        )
    return found


def compare_nft_counters(pod: Pod, wanted: Plan, attempts: list[Attempt], talks: list[Conversation]) -> list[str]:
    """A rule of nft stands for several of iptables, in both families: whether it was hit is what can be compared."""
    written = {family: write_plan(wanted, family) for family in FAMILIES}
    expected: set[tuple[str, str, Rule]] = set()
    possible: set[tuple[str, str, Rule]] = set()
    for attempt, talk in zip(attempts, talks, strict=True):
        for hits, found in ((talk.hits, expected), (talk.late_hits, possible)):
            found |= {
                (table, chain, written[attempt.family][table][chain].rules[number - 1].rule)
                for table, chain, number in hits
            }
    counted: Counter[tuple[str, str, Rule]] = Counter()
    live = _read_nft_counters(pod)
    for table, chains in plan_tables(wanted).items():
        names = {format_chain(chain.name): chain.name for one in wanted.tables for chain in one.chains}
        for name, (_, steps) in chains.items():
            packets = live.get((table, name), [])
            assert len(packets) == len(steps), (table, name, packets)
            for one, packet in zip(steps, packets, strict=True):
                if name in names:
                    counted[model_table(table), names[name], one.rule] += packet
    return [
        f"nft {key[0]} {key[1]} {key[2]}: predicted {key in expected}, counted {packets}"
        for key, packets in counted.items()
        if bool(packets) != (key in expected)
        and not _is_limited(key[2])
        and not (packets and (key in possible or _is_noisy(key[2])))
    ]


def _is_limited(rule: Rule) -> bool:
    """Whether it counts so many a second alone, which no packet tells."""
    return any(isinstance(match, Limit) for match in rule.matches)


def _read_nft_counters(pod: Pod) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    place = ("", "")
    for line in pod.run(["nft", "list", "ruleset"], check=True).stdout.splitlines():
        words = line.split()
        if words[:1] == ["table"]:
            place = (words[2], "")
        elif words[:1] == ["chain"]:
            place = (place[0], words[1])
            found[place] = []
        elif "counter" in words:
            found[place].append(int(words[words.index("counter") + 2]))
    return found


def _is_noisy(rule) -> bool:
    """Whether packets of no connection under test may hit the rule: late ones of closed connections, ICMP."""
    if any(isinstance(match, ConnectionState) and "INVALID" in match.states for match in rule.matches):
        return True
    return not any(isinstance(match, Port | Protocol | Owner) for match in rule.matches)


def disagree_each_time(pod: Pod, dialect: str, wanted: Plan, attempts: list[Attempt]) -> list[str]:
    """The differences of the last of some chances more; none where one had none: what is real shows again."""
    found: list[str] = []
    for silence in PATIENCE:
        found = disagree(pod, dialect, wanted, attempts, silence)
        if not found:
            break
    return found


def disagree(pod: Pod, dialect: str, wanted: Plan, attempts: list[Attempt], silence: float = SILENCE) -> list[str]:
    """Every difference between prediction and kernel."""
    talks = predict({family: load_plan(wanted, family) for family in FAMILIES}, wanted, attempts)
    unknown = [
        f"{one}: {talk.first.reason}" for one, talk in zip(attempts, talks, strict=True) if talk.outcome == UNKNOWN
    ]
    assert not unknown, f"rules of our own are not understood: {unknown}"
    program(pod, dialect, wanted)
    forget_connections(pod)
    arrivals = send(pod, attempts, silence)
    found = compare_fates(attempts, talks, arrivals)
    if dialect != "nftables":
        found += compare_counters({family: read_counters(pod, dialect, family) for family in FAMILIES}, attempts, talks)
    else:
        found += compare_nft_counters(pod, wanted, attempts, talks)
    return found


# Foreign rules beside ours: (table, rule as people write it). THEIRS is a chain of theirs in each of these tables.
FOREIGN = (
    ("nat", "OUTPUT -p tcp --dport 8080 -j ACCEPT"),
    ("nat", "OUTPUT -p tcp -d {outside} -j DNAT --to-destination {target}:443"),
    ("nat", "OUTPUT -p tcp -d {outside} --dport 80 -j DNAT --to-destination {target}"),
    ("nat", "PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080"),
    ("nat", "PREROUTING ! -i lo -p tcp -m multiport --dports 22,80:90 -j THEIRS"),
    ("nat", "OUTPUT -m owner --uid-owner 1338-1400 -j THEIRS"),
    ("nat", "OUTPUT -m addrtype --dst-type LOCAL -g THEIRS"),
    ("nat", "THEIRS -p tcp --dport 22 -j RETURN"),
    ("nat", "THEIRS -p tcp -j REDIRECT --to-ports 9000"),
    ("mangle", "OUTPUT -p tcp --dport 443 -j MARK --set-mark 5"),
    ("mangle", "OUTPUT -m mark --mark 1/1 -j CONNMARK --set-mark 9"),
    ("mangle", "OUTPUT -p tcp -m connmark --mark 9 -j MARK --or-mark 2"),
    ("mangle", "OUTPUT -p tcp -j CONNMARK --save-mark --nfmask 0x7 --ctmask 0x3"),
    ("mangle", "PREROUTING -i lo -j CONNMARK --restore-mark --nfmask 0x8 --ctmask 0x9"),
    ("mangle", "PREROUTING -i lo -m mark ! --mark 0/2 -j THEIRS"),
    ("mangle", "PREROUTING -p udp --sport 53 -j MARK --xor-mark 0x10"),
    ("mangle", "THEIRS -p tcp --dport 443 -j DROP"),
    ("mangle", "THEIRS"),
    ("mangle", "POSTROUTING -o lo -p tcp -j ACCEPT"),
    ("filter", "OUTPUT -o lo -p tcp --dport 15001 -j ACCEPT"),
    ("filter", "INPUT -p tcp --dport 22 -j REJECT --reject-with tcp-reset"),
    ("filter", "INPUT -m conntrack ! --ctstate ESTABLISHED,RELATED -p udp --dport 443 -j DROP"),
    ("filter", "FORWARD ! -p udp -g THEIRS"),
    ("filter", "THEIRS -s {outside} -j RETURN"),
    ("filter", "THEIRS -p tcp --dport 8080:9000 -j DROP"),
    ("raw", "OUTPUT -p tcp --dport 9000 -j CT --notrack"),
    ("raw", "PREROUTING -p tcp --dport 8080 -j CT --notrack"),
)


def render_foreign(chosen: list[tuple[str, str, bool]], family: Family) -> str:
    """Restore input that adds foreign rules, before or behind those of built-in chains."""
    hosts = (
        {"outside": OUTSIDE[0], "target": OUTSIDE[1]}
        if family is IPV4
        else {"outside": OUTSIDE[3], "target": OUTSIDE[4]}
    )
    text = ""
    for table in TABLES:
        lines = [
            f"{'-I' if first and not rule.startswith('THEIRS') else '-A'} {rule.format(**hosts)}"
            for where, rule, first in chosen
            if where == table
        ]
        text += f"*{table}\n:THEIRS - [0:0]\n" + "".join(f"{line}\n" for line in lines) + "COMMIT\n"
    return text if family is IPV4 else text.replace(f"{hosts['target']}:443", f"[{hosts['target']}]:443")


def report(pod: Pod, dialect: str, options: Options, wanted: Plan, attempts: list[Attempt]) -> str:
    """The connections that are at fault by themselves, made one at a time, and what would repeat them."""
    alone = [(one, disagree(pod, dialect, wanted, [one])) for one in attempts]
    told = (
        "\n".join(f"{one}\n  " + "\n  ".join(found) for one, found in alone if found)
        or "none alone: they disturb each other"
    )
    argv = " ".join(word or "''" for word in options.to_argv())
    variables = " ".join(f"{name}={value}" for name, value in options.to_environ().items())
    return f"{dialect}, seed {SEED}\noptions: {variables} {argv}\n{told}"
