"""Recognise the rules of earlier releases of Istio: each release is tried, and its plan compared with the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import takewhile

from netinit.base.errors import OptionError
from netinit.base.net import FAMILIES, Family
from netinit.options import DNS_LISTENER, OFF, Options, SettledOptions, offline
from netinit.rules.foreign_targets import DestinationNat
from netinit.rules.infer_options import native_plan
from netinit.rules.infer_options import release_plans as older
from netinit.rules.infer_options.layout_readers import Chains, Classic, Current, Routing, find_jump
from netinit.rules.infer_options.places import Shape, find_places, shape_of_rule
from netinit.rules.iptables.compare import align
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.iptables.write import WrittenRule, encode_each, write_plan
from netinit.rules.matches.packet import InInterface, OutInterface
from netinit.rules.model import BUILTIN_CHAINS, ISTIO_INBOUND, ISTIO_OUTPUT, NAT, OUTPUT, PREROUTING, Plan, Rule
from netinit.rules.targets import Redirect, Return


@dataclass(frozen=True, slots=True)
class Releases:
    """Minor releases of Istio 1, from `first` to the one before `after`. `exact`: their rules are these, and no others.

    `after` is 0 for the native nft rules, which all releases since `first` make. `resolver`: where DNS goes in releases before 1.9.
    """

    first: int
    after: int
    exact: bool
    resolver: int = DNS_LISTENER

    def __str__(self) -> str:
        return older.name_releases(self.first, self.after) + ("" if self.after else ", native nft")

    def plan(self, options: SettledOptions) -> Plan:
        """Return the rules of the releases for the options with which the current layout treats packets alike."""
        return older.plan(options, self.first, self.resolver) if self.after else native_plan.plan(options)

    def settle_as(self, given: SettledOptions, shown: SettledOptions) -> SettledOptions:
        """Return the options with which today's rules treat packets as these releases do with those that are given."""
        if not self.after:
            return native_plan.settle_as(given)
        is_early = older.SSH in shown.exclude_inbound_ports or shown.inbound_port == shown.outbound_port
        return older.settle_as(given, self.first if is_early else self.after - 1)


NATIVE = Releases(native_plan.FIRST, 0, exact=True)


@dataclass(frozen=True, slots=True)
class OlderRules:
    """What the rules of earlier releases show: the options with which the current layout treats packets alike, and what is unknown."""

    options: SettledOptions
    unread: tuple[str, ...]
    releases: Releases


def find_releases(live: Mapping[Family, Chains], ours: Mapping[Family, Chains], routing: Routing) -> OlderRules | None:
    """Return the releases whose rules these are, or from which they differ least; None if they are of no earlier one.

    `live`: all rules of the tables; `ours`: those in chains of ours, and in built-in chains those that today's layouts have there.
    """
    jump = find_jump(ours)
    if jump is None or not jump.matches:
        return None
    is_classic = Classic(ours, routing).recognises()
    tried = [minor for minor in older.GENERATIONS if (minor < older.FIRST_OF_CURRENT) is is_classic]
    attempts = [one for minor in reversed(tried) if (one := _attempt(minor, live, ours, routing))]
    if not attempts:
        return None
    best = min(attempts, key=lambda one: one.rank)
    others = [one.minor for one in attempts if one.minor < best.minor and one.rank == best.rank and one.options == best.options]
    first = min([best.minor, *takewhile(lambda one: one in others, reversed(tried[: tried.index(best.minor)]))])
    after = [*older.GENERATIONS, older.AFTER][older.GENERATIONS.index(best.minor) + 1]
    return OlderRules(best.options, best.unread, Releases(first, after, not best.rank[0], _resolver_of(live)))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What the rules show if they are a release's; the `rank` is low if few rules differ from its plan, and many are in it."""

    minor: int
    options: SettledOptions
    unread: tuple[str, ...]
    rank: tuple[int, int]


def _attempt(minor: int, live: Mapping[Family, Chains], ours: Mapping[Family, Chains], routing: Routing) -> _Attempt | None:
    rules = _add_built_in(live, ours, minor)
    kind = Classic if minor < older.FIRST_OF_CURRENT else Current
    reader = kind(_without_effect(rules, minor), routing, minor)
    try:
        options = Options(layout=reader.layout, **reader.fields()).settle(offline()).replace(istio_exact=True)
    except OptionError:
        return None
    if minor < older.WITH_TUNNEL_IN and older.TUNNEL in options.exclude_inbound_ports:
        return None  # later releases exclude it themselves
    number = sum([len(its) for chains in rules.values() for its in chains.values()])
    rank = _count_differences(older.plan(options, minor, _resolver_of(live)), rules), -number
    return _Attempt(minor, options, tuple(dict.fromkeys(reader.unread)), rank)


def _resolver_of(live: Mapping[Family, Chains]) -> int:
    """Return the port that rules of releases before 1.9 send DNS to: the agent's, if one does."""
    targets = [rule.target for chains in live.values() for rule in chains.get((NAT, OUTPUT), ())]
    to_agent = older.AGENT_LISTENER in [one.port for one in targets if isinstance(one, DestinationNat | Redirect)]
    return older.AGENT_LISTENER if to_agent else DNS_LISTENER


def _add_built_in(live: Mapping[Family, Chains], ours: Mapping[Family, Chains], minor: int) -> dict[Family, Chains]:
    """Return our rules with those that a release has in built-in chains, which only jump to our chains today."""
    shapes = _shapes(minor)
    found: dict[Family, Chains] = {}
    for family, chains in live.items():
        own = {place: its for place, its in ours[family].items() if place[1] not in BUILTIN_CHAINS}
        for place, its in chains.items():
            known = ours[family].get(place, ())
            added = [
                rule for rule in its
                if any(rule is one for one in known) or (shape_of_rule(*place, rule) in shapes and not _returns_interface(rule))
            ]  # fmt: skip
            own |= {place: added} if place[1] in BUILTIN_CHAINS and added else {}
        found[family] = own
    return found


def _returns_interface(rule: Rule) -> bool:
    """Whether a rule excludes an interface: it may be anybody's, and is only ours where another rule of ours confirms it."""
    return isinstance(rule.target, Return) and len(rule.matches) == 1 and isinstance(rule.matches[0], InInterface | OutInterface)


@cache
def _shapes(minor: int) -> frozenset[Shape]:
    """Return the shapes of all rules of a release, with those that refuse IPv6 where it is off."""
    _, _, shapes = find_places(older.layout_of(minor), minor)
    refusing = older.plan(Options(layout=older.layout_of(minor), ipv6=OFF).settle(offline()), minor)
    return shapes | {shape_of_rule(table, chain, rule) for table, chain, rule in refusing.walk()}


def _without_effect(rules: Mapping[Family, Chains], minor: int) -> Mapping[Family, Chains]:
    """Leave out rules that no option makes: the last of ISTIO_OUTPUT, for everything else, and a chain that nothing jumps to."""
    if not older.FIRST_OF_CURRENT <= minor < older.WITH_DNS_IN_OUTPUT:
        return rules
    outbound, inbound, last = (NAT, ISTIO_OUTPUT), (NAT, ISTIO_INBOUND), Return()
    found: dict[Family, Chains] = {}
    for family, chains in rules.items():
        left = [rule for rule in chains.get(outbound, ()) if rule.matches or rule.target != last]
        entered = any(rule.target.calls == ISTIO_INBOUND for rule in chains.get((NAT, PREROUTING), ()))
        kept = {place: its for place, its in chains.items() if place != inbound or entered}
        found[family] = {**kept, outbound: left} if outbound in chains else kept
    return found


def _count_differences(made: Plan, rules: Mapping[Family, Chains]) -> int:
    """Return how many rules a plan has that are missing, or lacks that are there."""
    planned = list_rules(made)
    return sum([_count(planned[family] if family in made.families else {}, rules.get(family, {})) for family in rules])


def _count(planned: Chains, there: Chains) -> int:
    found = 0
    for place in {*planned, *there}:
        missing, extra = align(_keys(planned.get(place, ())), _keys(there.get(place, ())))
        found += len(missing) + len(extra)
    return found


def _keys(rules: Sequence[Rule]) -> list[tuple[object, ...]]:
    """Return the keys of rules, without the order of their matches."""
    return [(frozenset(key[:-1]), key[-1]) for key in map(normalise_rule, rules)]


def list_rules(plan_made: Plan) -> Mapping[Family, Chains]:
    """Return a plan's rules as iptables has them: one for each element of a list."""
    return {family: encode_each(write_plan(plan_made, family), partial(WrittenRule.listed, family=family)) for family in FAMILIES}
