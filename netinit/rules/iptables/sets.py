"""Address sets of the kernel (ipset(8)) for long lists of networks, which iptables would compare rule by rule.

A set belongs to one backend, use and family, and its name is fixed. A filled set is swapped in, so that it is never
incomplete while rules use it.
"""

from __future__ import annotations

from netinit.base.net import Network
from netinit.base.records import Record
from netinit.rules.matches import EXTENSION, Match
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.packet import Destination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.model import Plan, Rule

USES = {"exclude_outbound_cidrs": "exclude", "outbound_cidrs": "capture"}  # option -> part of the set's name
NEW = "-new"  # suffix of the set that is filled and then swapped in
MAX_ELEMENTS = 200_000  # elements read of a set
UNREAD = "unknown elements: "
MIN_SIZE = 65536  # ipset's default limit of elements, raised for longer lists
# The kernel's minimum; the size is set explicitly, because growing takes longer than adding 10,000 elements.
MIN_HASH_SIZE = 64
SET_INFO, SET_REVISION = "=H2B", 4  # struct xt_set_info: number, dimensions, which is the source; of xt_set_info_match_v4

Contents = dict[str, frozenset[str]]  # a set's name -> its elements as ipset lists them
FILL, SWAP, DESTROY = "fill", "swap", "destroy"  # kinds of steps


class SetStep(Record):
    """One change of our sets: create a set with its elements, swap it with the set `other`, or destroy it."""

    kind: str
    name: str
    other: str = ""
    elements: frozenset[str] = frozenset()

    @property
    def is_ipv6(self) -> bool:
        """Whether the set has addresses of IPv6."""
        return self.name.removesuffix(NEW).endswith("-6")

    @property
    def hash_size(self) -> int:
        """The size with which the set starts."""
        return max(MIN_HASH_SIZE, len(self.elements))

    @property
    def most_elements(self) -> int:
        """The most elements that the set accepts."""
        return max(MIN_SIZE, len(self.elements))


Steps = tuple[SetStep, ...]


class PlannedSet(Record):
    """A set that a plan needs: its elements as ipset lists them, and the rule that uses it."""

    name: str
    elements: frozenset[str]
    rule: Rule
    networks: tuple[Network, ...] = ()


class SetDestination(Destination):
    """Matches a destination address in the networks of a set (iptables-extensions(8), section set)."""

    place = EXTENSION
    name: str

    def each(self) -> tuple[Match, ...]:
        """Return the match as it is written and read: without the networks."""
        return (UnknownMatch(text=format_question(self.name)),)

    def describe(self) -> str:
        """Describe the match by the set's name."""
        return f"it goes to one of the {len(self.networks)} networks in the set {self.name}"


def resolve(rule: Rule, contents: Contents) -> Rule:
    """Return the listed rule with its sets replaced by their networks."""
    matches: list[Match] = list(rule.matches)
    for place, match in enumerate(matches):
        for name, elements in contents.items() if isinstance(match, UnknownMatch) else ():
            if not is_unread(elements) and match.xt() == format_question(name):
                matches[place] = SetDestination(name=name, networks=tuple(map(Network.parse, _as_given(elements))))
    return rule.replace(matches=tuple(matches))


def format_question(name: str) -> str:
    """Return how a rule asks for a set by its name."""
    return f"-m set --match-set {name} dst"


def use_sets(plan: Plan, owner: str, threshold: int) -> tuple[Plan, tuple[PlannedSet, ...]]:
    """Replace lists of more than `threshold` networks by sets with the prefix `owner`; return the plan and the sets."""
    found: dict[str, PlannedSet] = {}
    tables = tuple([
        table.replace(chains=tuple([
            chain.replace(rules=tuple([_use_in_rule(rule, owner, threshold, found) for rule in chain.rules])) for chain in table.chains
        ]))
        for table in plan.tables
    ])  # fmt: skip
    return (plan.replace(tables=tables) if found else plan), tuple(found.values())


def _use_in_rule(rule: Rule, owner: str, threshold: int, found: dict[str, PlannedSet]) -> Rule:
    matches: list[Match] = []
    use = USES.get(rule.origin.option, "") if rule.origin and not rule.paired else ""
    for match in rule.matches:
        if not (use and isinstance(match, Destination) and not match.negated and len(match.networks) > threshold):
            matches.append(match)
            continue
        name = f"{owner}-{use}-{match.networks[0].family.version}"
        made = found.get(name)
        if not made or made.networks is not match.networks:  # else as it stands in another table
            elements = frozenset([element for network in match.networks for element in format_element(network)])
            made = PlannedSet(name=name, elements=elements, rule=rule, networks=match.networks)
        if found.setdefault(name, made).elements != made.elements:  # two lists for one use: the second is kept
            matches.append(match)
            continue
        matches.append(SetDestination(name=name, networks=match.networks))
    return rule.replace(matches=tuple(matches))


def format_element(network: Network) -> tuple[str, ...]:
    """Return the network as ipset lists it; /0, which hash:net does not accept, as two halves."""
    if not network.length:
        half = 1 << network.family.bits - 1
        return tuple([Network((network[0], first, 1)).text for first in (0, half)])
    text = network.text
    return (text.partition("/")[0] if network.length == network.family.bits else text,)


def _as_given(elements: frozenset[str]) -> list[str]:
    """Return elements as networks; the inverse of `format_element`."""
    for halves, whole in ((frozenset(("0.0.0.0/1", "128.0.0.0/1")), "0.0.0.0/0"), (frozenset(("::/1", "8000::/1")), "::/0")):
        elements = elements - halves | {whole} if halves <= elements else elements
    return sorted([text if "/" in text else f"{text}/{128 if ':' in text else 32}" for text in elements])


def is_unread(elements: frozenset[str]) -> bool:
    """Whether a set's content could not be read."""
    return any(element.startswith(UNREAD) for element in elements)


def unread(why: str) -> frozenset[str]:
    """Return the content of an unreadable set: an element that no plan has."""
    return frozenset((f"{UNREAD}{why}",))
