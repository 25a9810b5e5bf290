"""What a plan is made of: rules in chains in tables, policy routes, an address; and how live rules differ from it.

All immutable, nothing touches a kernel.

A rule is written once for both address families unless it names an address. Lists (ports, networks, interfaces) stay
lists in the plan: iptables gets one rule an element, nft a set.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, FULL_MASK, Family
from netinit.base.records import Record
from netinit.base.sanitize import MOST_OF_A_RULE, escape, quote, shorten
from netinit.rules.matches import Match
from netinit.rules.targets import Target

NAT = "nat"
MANGLE = "mangle"
RAW = "raw"
FILTER = "filter"
TABLES = (MANGLE, NAT, RAW, FILTER)  # in the order of programming

PREROUTING = "PREROUTING"
INPUT = "INPUT"
FORWARD = "FORWARD"
OUTPUT = "OUTPUT"
BUILTIN_CHAINS = (PREROUTING, INPUT, FORWARD, OUTPUT, "POSTROUTING")

IPV6_ADDRESS = "::6/128"  # the proxy's source address for what it passes on; IPv4 has all of 127/8 already

NFT_SIDECAR, NFT_AMBIENT = "istio-proxy-", "istio-ambient-"  # what the names of our nft tables begin with

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
OWNED_CHAINS = frozenset(
    (
        ISTIO_INBOUND,
        ISTIO_OUTPUT,
        ISTIO_REDIRECT,
        ISTIO_IN_REDIRECT,
        ISTIO_OUTPUT_DNS,
        ISTIO_DIVERT,
        ISTIO_TPROXY,
        ISTIO_DROP,
        ISTIO_PRERT,
        ISTIO_QUIC,
        ISTIO_LOG,
        ISTIO_REFUSE_IN,
        ISTIO_REFUSE_OUT,
    ),
)

MISSING, EXTRA, MOVED, SHADOWING, LEFTOVER = "missing", "extra", "moved", "shadowing", "leftover"
INACTIVE, ESCAPING = "inactive", "escaping"  # as a snapshot of the kernel shows


class Origin(Record):
    """What made a rule: an option, by its field; empty where every plan of the layout has the rule. `label` is for people."""

    option: str = ""
    label: str = "always"


ALWAYS = Origin()


class Rule(Record):
    """When all matches say yes, the target decides.

    `families` limits a rule that names an address or a family's server. `paired` rules are expanded together with the
    rule after them, element by element: what Istio does for each port is two rules, and their order in the kernel's
    listing is kept.
    """

    matches: tuple[Match, ...] = ()
    target: Target
    comment: str  # why the rule exists, in a few words
    origin: Origin | None  # None: no plan made it
    families: tuple[Family, ...] = FAMILIES
    paired: bool = False

    @property
    def origin_label(self) -> str:
        """The origin in words; empty where there is none."""
        return self.origin.label if self.origin else ""


class Chain(Record):
    """A chain of one table. In a built-in chain `inserted` rules stand before, `rules` behind foreign ones."""

    name: str
    rules: tuple[Rule, ...] = ()
    inserted: tuple[Rule, ...] = ()

    @property
    def builtin(self) -> bool:
        """True for the kernel's own chains, which are shared with others and never flushed."""
        return self.name in BUILTIN_CHAINS


class Table(Record):
    """A table and the chains in it that the plan uses."""

    name: str
    chains: tuple[Chain, ...]


class IpRule(Record):
    """A policy rule: packets with this mark, of its bits in `mask`, are routed by that table. Priority 0: the kernel's choice."""

    family: Family
    mark: int
    table: int
    mask: int = FULL_MASK
    priority: int = 0

    def describe(self) -> str:
        """The rule as ip(8) spells it."""
        mask = "" if self.mask == FULL_MASK else f"/{self.mask:#x}"
        return f"fwmark {self.mark:#x}{mask}{f' pref {self.priority}' if self.priority else ''} lookup {self.table}"


class Route(Record):
    """`local default dev lo` in a routing table: every address counts as one of this host."""

    family: Family
    table: int


class Address(Record):
    """An address that must exist on the loopback interface, as a CIDR."""

    family: Family
    cidr: str


class Plan(Record):
    """Everything that a pod's network namespace shall hold. `warnings` are for the user, in whole sentences."""

    layout: str
    families: tuple[Family, ...]
    tables: tuple[Table, ...]
    ip_rules: tuple[IpRule, ...] = ()
    routes: tuple[Route, ...] = ()
    addresses: tuple[Address, ...] = ()
    warnings: tuple[str, ...] = ()
    nft_prefix: str = NFT_SIDECAR

    def excluded_interfaces(self) -> frozenset[str]:
        """The names of the interfaces whose traffic is not captured."""
        return frozenset([
            name
            for table in self.tables
            for chain in table.chains
            for rule in (*chain.inserted, *chain.rules)
            if rule.origin and rule.origin.option == "exclude_interfaces"
            for match in rule.matches
            for name in getattr(match, "names", ())
        ])  # fmt: skip


EMPTY_PLAN = Plan(layout="none", families=(), tables=())


class Difference(Record):
    """One place where the live rules are not as planned.

    `kind`: missing, extra, moved, shadowing (a foreign rule that stands before ours and may decide first) or leftover (of
    ours, in another dialect). `number` counts from 1 in the chain (live for what is there, planned for what is missing).
    """

    kind: str
    where: str  # IPv4, IPv6, or the dialect
    table: str = ""
    chain: str = ""
    number: int = 0
    rule: str = ""  # as listed, without its comment; empty for a whole chain
    comment: str = ""  # of a live rule: whoever made it wrote it
    purpose: str = ""
    origin: str = ""

    def describe(self) -> str:
        """The difference on one line."""
        place = " ".join(
            [
                word
                for word in (self.where, self.table, self.chain, f"rule {self.number}" if self.number else "")
                if word
            ]
        )
        why = f"  ({self.purpose}; {self.origin})" if self.purpose else ""
        return escape(f"{self.kind}: {place}: {self._spell() if self.rule else 'the chain itself'}{why}")

    def _spell(self) -> str:
        rule = shorten(self.rule, MOST_OF_A_RULE)
        return f"`{rule}` with comment {quote(self.comment)}" if self.comment else rule
