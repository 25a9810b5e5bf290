"""The parts of a plan: rules in chains in tables, policy routes, an address; and differences of live rules from it. Pure.

A rule covers both families unless it names an address. Lists stay lists: iptables gets a rule for each element, nft a set.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, FULL_MASK, Family
from netinit.base.records import Record
from netinit.base.sanitize import MAX_RULE_LENGTH, escape, quote, shorten
from netinit.rules.matches import Match
from netinit.rules.targets import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from netinit.base.snapshot import NftChain

NAT = "nat"
MANGLE = "mangle"
RAW = "raw"
FILTER = "filter"
TABLES = (MANGLE, NAT, RAW, FILTER)  # in the order of programming

PREROUTING = "PREROUTING"
INPUT = "INPUT"
FORWARD = "FORWARD"
OUTPUT = "OUTPUT"
BUILTIN_CHAINS = (PREROUTING, INPUT, FORWARD, OUTPUT, "POSTROUTING")  # by the number of their hook

# Of base chains: enum nf_ip_hook_priorities of linux/netfilter_ipv4.h
PRIORITIES = {RAW: -300, MANGLE: -150, NAT: -100, FILTER: 0, "security": 50}
SOURCE_NAT = 100  # of the table nat where it translates sources: INPUT and POSTROUTING

IPV6_ADDRESS = "::6/128"  # the proxy's source address for connections it passes to the application; for IPv4 that is 127.0.0.6

NFT_PREFIXES = NFT_SIDECAR, NFT_NODE_AGENT = "istio-proxy-", "istio-ambient-"  # of our nft table names

ISTIO_INBOUND = "ISTIO_INBOUND"
ISTIO_OUTPUT = "ISTIO_OUTPUT"
ISTIO_REDIRECT = "ISTIO_REDIRECT"
ISTIO_IN_REDIRECT = "ISTIO_IN_REDIRECT"
ISTIO_OUTPUT_DNS = "ISTIO_OUTPUT_DNS"
ISTIO_DIVERT = "ISTIO_DIVERT"
ISTIO_TPROXY = "ISTIO_TPROXY"
ISTIO_DROP = "ISTIO_DROP"
ISTIO_PRERT = "ISTIO_PRERT"
ISTIO_QUIC = "ISTIO_QUIC"
ISTIO_LOG = "ISTIO_LOG"
ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT = "ISTIO_REFUSE_IN", "ISTIO_REFUSE_OUT"
# What the rules beyond Istio's close, one promise each; netinit.rules.promises says what is open without it.
PROMISES = (REUSE, SEGMENTS, HANDSHAKES, OWN_ADDRESSES, LOOPBACK, PASSTHROUGH, FORWARDED, ANSWERS, OTHER) = (
    "reuse", "segments", "handshakes", "own_addresses", "loopback", "passthrough", "forwarded", "answers", "other",
)  # fmt: skip
SHARED = "shared"  # of rules in a chain that several promises share
OPEN_CHAINS = {f"ISTIO_OPEN_{promise.upper()}": promise for promise in PROMISES}  # a chain that records that one is not kept
OWNED_CHAINS = frozenset((
    *OPEN_CHAINS,
    ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_REDIRECT, ISTIO_IN_REDIRECT, ISTIO_OUTPUT_DNS, ISTIO_DIVERT, ISTIO_TPROXY, ISTIO_DROP,
    ISTIO_PRERT, ISTIO_QUIC, ISTIO_LOG, ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT,
))  # fmt: skip

MISSING, EXTRA, MOVED, SHADOWING, LEFTOVER = "missing", "extra", "moved", "shadowing", "leftover"
INACTIVE, ESCAPING = "inactive", "escaping"  # shown by a snapshot of the kernel
DEVICES = "devices"  # where a difference is, if it is one of network devices
ROUTING = "routing"  # the table of a difference, if it is one of routes
FOREIGN = "a foreign rule"  # the origin of a difference
BYPASSING = "bypassing"  # an open connection


def expected_base(table: str, chain: str) -> tuple[str, int]:
    """Return type and priority of a built-in chain."""
    if table == NAT:
        return "nat", SOURCE_NAT if chain in (INPUT, "POSTROUTING") else PRIORITIES[NAT]
    return "route" if (table, chain) == (MANGLE, OUTPUT) else "filter", PRIORITIES[table]


def is_base_of(live: NftChain, table: str, chain: str) -> bool:
    """Whether a base chain of the kernel has hook, type and priority of this built-in chain."""
    known = table in PRIORITIES and chain in BUILTIN_CHAINS[live.hook : live.hook + 1]
    return known and live.is_base and (live.kind, live.priority) == expected_base(table, chain)


class Origin(Record):
    """The option that a rule follows from, by its field (empty: every plan of the layout), and a label for people."""

    option: str = ""
    label: str = "always"


ALWAYS = Origin()


class Rule(Record):
    """If all matches match, the target applies.

    `families` limits a rule that names an address. A `paired` rule is expanded together with the next one, element by
    element, which keeps Istio's order in listings.
    """

    matches: tuple[Match, ...] = ()
    target: Target
    comment: str = ""  # why the rule exists, in a few words
    origin: Origin | None = None  # None: the rule is not from a plan
    families: tuple[Family, ...] = FAMILIES
    paired: bool = False
    promise: str = ""  # one of PROMISES, or SHARED; empty: Istio's rule, or one that an option asks for

    @property
    def origin_label(self) -> str:
        """The origin's label, or empty."""
        return self.origin.label if self.origin else ""


class Chain(Record):
    """A chain. In a built-in chain `inserted` rules come before foreign rules, `rules` after them."""

    name: str
    rules: tuple[Rule, ...] = ()
    inserted: tuple[Rule, ...] = ()

    @property
    def builtin(self) -> bool:
        """Whether it is a built-in chain, shared with foreign rules."""
        return self.name in BUILTIN_CHAINS

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules in the order of a listing."""
        return self.inserted + self.rules


class LiveRule(Record):
    """A rule of the kernel, decoded: one, or one for each element of a verdict map. `handle`: 0 in legacy tables."""

    rules: tuple[Rule, ...]
    packets: int | None = None
    handle: int = 0


class LiveChain(Record):
    """A chain of the kernel; without a policy only jumps lead to it. `nft`: its hook, if it is of nf_tables."""

    name: str
    rules: tuple[LiveRule, ...]
    policy: str = ""
    nft: NftChain | None = None


class Table(Record):
    """A table and the chains that the plan uses."""

    name: str
    chains: tuple[Chain, ...]


class IpRule(Record):
    """A policy rule: packets with this mark under `mask` use the routing table. Priority 0: the kernel chooses."""

    family: Family
    mark: int
    table: int
    mask: int = FULL_MASK
    priority: int = 0

    def describe(self) -> str:
        """Return the rule as arguments of ip(8)."""
        mask = "" if self.mask == FULL_MASK else f"/{self.mask:#x}"
        return f"fwmark {self.mark:#x}{mask}{f' pref {self.priority}' if self.priority else ''} lookup {self.table}"


class Route(Record):
    """`local default dev lo` in a routing table: delivers all packets to this host."""

    family: Family
    table: int


class Address(Record):
    """An address on the loopback interface, as a CIDR."""

    family: Family
    cidr: str


class Plan(Record):
    """The configuration of a pod's network namespace. `warnings` are sentences for the user."""

    layout: str
    families: tuple[Family, ...]
    tables: tuple[Table, ...]
    ip_rules: tuple[IpRule, ...] = ()
    routes: tuple[Route, ...] = ()
    addresses: tuple[Address, ...] = ()
    warnings: tuple[str, ...] = ()
    nft_prefix: str = NFT_SIDECAR
    made_from: object = None  # the options, which nothing in netinit.rules asks

    def walk(self) -> Iterator[tuple[str, str, Rule]]:
        """Yield the names of table and chain, and the rule, of every rule."""
        for table in self.tables:
            for chain in table.chains:
                yield from [(table.name, chain.name, rule) for rule in chain.all_rules]

    def excluded_interfaces(self) -> frozenset[str]:
        """Return the interfaces whose traffic is not captured: names, and prefixes with `+` at the end."""
        excluding = [rule for *_, rule in self.walk() if rule.origin and rule.origin.option == "exclude_interfaces"]
        return frozenset([name for rule in excluding for match in rule.matches for name in getattr(match, "names", ())])


EMPTY_PLAN = Plan(layout="none", families=(), tables=())


class Difference(Record):
    """A difference between the live rules and the plan.

    `kind`: missing, extra, moved, shadowing (a foreign rule before ours that decides) or leftover (in the other dialect).
    `number`: position in the chain from 1: in the plan for missing rules, else live.
    """

    kind: str
    where: str  # IPv4, IPv6, or the dialect
    table: str = ""
    chain: str = ""
    number: int = 0
    rule: str = ""  # as listed, without its comment; empty for a whole chain
    comment: str = ""  # of a live rule, written by whatever created it
    purpose: str = ""
    origin: str = ""

    def describe(self) -> str:
        """Return the difference as one line."""
        words = (self.where, self.table, self.chain, f"rule {self.number}" if self.number else "")
        place = " ".join([word for word in words if word])
        why = f"  ({self.purpose}; {self.origin})" if self.purpose else ""
        rule = shorten(self.rule, MAX_RULE_LENGTH) or "the chain itself"
        return escape(f"{self.kind}: {place}: {f'`{rule}` with comment {quote(self.comment)}' if self.comment else rule}{why}")
