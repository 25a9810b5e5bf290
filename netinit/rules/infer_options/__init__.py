"""Infer options from live rules: the inverse of `netinit.rules.layouts`, derived from what these emit.

Options that produce no rule keep their defaults, which lead to the same plan. Callers compare that plan with the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.net import FAMILIES, IPV6, Family, Network, PortRange, bounds_of, join_ranges, merge_networks
from netinit.options import CURRENT, LAYOUTS, Interception, Options, SettledOptions, offline
from netinit.options.kinds import Flag
from netinit.options.user_ports import PortsOfUsers, find_same
from netinit.rules import model
from netinit.rules.expressions.table_differences import RuleKey, one_by_one
from netinit.rules.infer_options import layout_readers
from netinit.rules.infer_options.layout_readers import Chains, LayoutReader, Routing
from netinit.rules.infer_options.older_releases import NATIVE, Releases, find_releases, list_rules
from netinit.rules.iptables.compare import align
from netinit.rules.iptables.ownership import owned_rules
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.layouts import plan, untranslated
from netinit.rules.matches.packet import InInterface
from netinit.rules.model import NAT, OWNED_CHAINS, PREROUTING, Plan, Rule
from netinit.rules.rule_patterns import layout_patterns
from netinit.rules.targets import Reject, Return

MAX_CANDIDATES = 200  # rules that are tried as the one foreign rule


@dataclass(frozen=True, slots=True)
class InferredOptions:
    """The options; None if no rule is ours or they are invalid. `unread` describes what is unknown.

    `recorded`: those in the comment of our nft table, which programmed it unless the comment was changed. `older`: the earlier
    releases of Istio whose rules these are; the options are those with which today's rules treat packets alike, if there are any.
    """

    options: SettledOptions | None
    unread: tuple[str, ...] = ()
    recorded: SettledOptions | None = None
    older: Releases | None = None

    def make_plan(self, options: SettledOptions) -> Plan:
        """Return the plan of the options in the form that the rules have: that of an earlier release, if they are its."""
        return self.older.plan(options) if self.older else plan(options)

    def settle_as(self, given: SettledOptions) -> SettledOptions:
        """Return the options with which today's rules treat packets as these rules' release does with the options of its pod."""
        return self.older.settle_as(given, self.options) if self.older and self.options else given


def from_iptables(live: Mapping[Family, Chains], routing: Routing) -> InferredOptions:
    """Infer options from our rules in the tables of iptables; `routing` maps marks of policy rules to routing tables."""
    keys = {family: {place: [*map(normalise_rule, rules)] for place, rules in chains.items()} for family, chains in live.items()}
    ours: dict[Family, dict[tuple[str, str], Sequence[Rule]]] = {}
    excluded: list[str] = []
    for family, chains in live.items():
        owned = owned_rules(family, keys, {}, layout_patterns)
        ours[family] = {place: rules for place, rules in chains.items() if place[1] in OWNED_CHAINS}
        ours[family] |= {place: [chains[place][index] for index in indexes] for place, indexes in owned.items()}
        excluded += _unclaimed(chains.get((NAT, PREROUTING), ()), owned.get((NAT, PREROUTING), []))
    found = from_chains(ours, routing)
    # Istio 1.0 refuses IPv6 in the machine's own chain; its other rules are those of the classic layout where nothing is captured.
    guards = live.get(IPV6, {}).get((model.FILTER, model.INPUT), ())
    is_refused = any(isinstance(rule.target, Reject) and not rule.matches for rule in guards)
    if is_refused or not (found.options and found.options.layout != CURRENT and _makes(found.options, ours)):
        found = _infer_older(live, ours, routing) or found
    if not excluded or not found.options:
        return found
    names = ", ".join(dict.fromkeys(excluded))
    doubt = f"--kube-virt-interfaces: it is unknown whether the rules that exclude {names} are netinit's"
    return replace(found, unread=(*found.unread, doubt))


def _infer_older(live: Mapping[Family, Chains], ours: Mapping[Family, Chains], routing: Routing) -> InferredOptions | None:
    """Infer options from the rules of an earlier release; rules of the classic layout that are not exactly its are the layout's."""
    found = find_releases(live, ours, routing)
    if found is None or (found.options.layout != CURRENT and not found.releases.exact):
        return None
    return InferredOptions(found.options, found.unread, older=found.releases)


def from_nft(rules: Mapping[Family, Chains], routing: Routing) -> InferredOptions:
    """Infer options from the rules in our nft tables, which Istio's native rules have too."""
    found = from_chains(rules, routing)
    options = found.options
    if options is None or options.layout != CURRENT:
        return found
    today, native = _count_others(plan(options), rules), _count_others(NATIVE.plan(options), rules)
    is_native = min(today) and sum(native) < sum(today)
    return replace(found, older=replace(NATIVE, exact=not min(native))) if is_native else found


def _count_others(plan_made: Plan, live: Mapping[Family, Chains]) -> tuple[int, int]:
    """Return how many rules differ if lists are taken separately, and if not, in the families whose packets reach their chain."""
    planned, there = _list_keys(_rules_of(plan_made)), _list_keys(live)
    pairs = [(planned.get(place, []), keys) for place, keys in there.items()]
    each = [(one_by_one([(key,) for key in wanted]), one_by_one([(key,) for key in keys])) for wanted, keys in pairs]
    return _count(each), _count(pairs)


def _count(pairs: Sequence[tuple[list[RuleKey], list[RuleKey]]]) -> int:
    return sum([len(missing) + len(extra) for wanted, keys in pairs for missing, extra in [align(wanted, keys)]])


def _list_keys(rules: Mapping[Family, Chains]) -> dict[tuple[Family, str, str], list[RuleKey]]:
    """Return the keys of all rules by family, table and chain."""
    found = {(family, *place): map(normalise_rule, its) for family, chains in rules.items() for place, its in chains.items() if its}
    return {place: [(frozenset(matches), target) for *matches, target in keys] for place, keys in found.items()}


def _unclaimed(rules: Sequence[Rule], owned: list[int]) -> list[str]:
    """Return interfaces that rules before ours exclude inbound: a VM's, or foreign ones."""
    before = rules[: min(owned, default=len(rules))]
    alone = [rule.matches[0] for rule in before if isinstance(rule.target, Return) and len(rule.matches) == 1]
    return [name for match in alone if isinstance(match, InInterface) and not match.negated for name in match.names]


def from_chains(rules: Mapping[Family, Chains], routing: Routing) -> InferredOptions:
    """Infer options from all of our rules, or from all but one."""
    found = _infer_all(rules, routing)
    if found.options is None and found.unread:
        return _infer_without_one(rules, routing) or found
    return found


def _infer_all(rules: Mapping[Family, Chains], routing: Routing) -> InferredOptions:
    if not any(chain in OWNED_CHAINS for chains in rules.values() for _, chain in chains):
        return InferredOptions(None)
    for layout in reversed(LAYOUTS):  # the first recognises all that no other does
        reader: LayoutReader = getattr(layout_readers, layout.capitalize())(rules, routing)
        if reader.recognises():
            break
    try:
        options = Options(layout=layout, **reader.fields()).settle(offline())
        if not _stops_reuse(rules) and _stops_reuse(_rules_of(plan(options))):
            options = options.replace(istio_exact=True)
        return InferredOptions(options, tuple(dict.fromkeys(reader.unread)))
    except OptionError as error:  # a foreign rule in our chains
        return InferredOptions(None, tuple([f"the rules make no valid options: {problem}" for problem in error.problems]))


def _rules_of(plan_made: Plan) -> Mapping[Family, Chains]:
    """Return a plan's rules as nft has them: a list is one rule."""
    found: dict[Family, dict[tuple[str, str], list[Rule]]] = {family: {} for family in plan_made.families}
    for table, chain, rule in plan_made.walk():
        for family in [one for one in rule.families if one in found]:
            found[family].setdefault((table, chain), []).append(rule)
    return found


def _stops_reuse(rules: Mapping[Family, Chains]) -> bool:
    """Whether a rule exists that `--istio-exact` omits, or the record of one that the kernel did not take."""
    guarding = [(model.FILTER, name) for name in (*untranslated.CHAINS, model.ISTIO_DROP)]
    guarding += [(model.NAT, name) for name in model.OPEN_CHAINS]
    diverting = [rule for chains in rules.values() for rule in chains.get((model.MANGLE, model.ISTIO_INBOUND), ())]
    return any(chains.get(place) for chains in rules.values() for place in guarding) or any(
        untranslated.NOT_OPENING in rule.matches for rule in diverting
    )


def _infer_without_one(rules: Mapping[Family, Chains], routing: Routing) -> InferredOptions | None:
    """Infer options without one foreign rule in our chains; the others must be exactly the options'. None if they never are."""
    places = [(family, place) for family, chains in rules.items() for place in chains if place[1] in OWNED_CHAINS]
    if sum([len(rules[family][place]) for family, place in places]) > MAX_CANDIDATES:
        return None
    for family, place in places:
        for foreign in rules[family][place]:
            left = {  # an nft rule may be one of both families
                one: {**chains, place: [rule for rule in chains[place] if rule is not foreign]} if place in chains else chains
                for one, chains in rules.items()
            }
            found = _infer_all(left, routing)
            if found.options and _makes(found.options, left):
                what = f"a rule of {place[1]} that no option makes: {' '.join([match.describe() for match in foreign.matches])}"
                return InferredOptions(found.options, (*found.unread, what))
    return None


def _makes(options: SettledOptions, rules: Mapping[Family, Chains]) -> bool:
    """Whether options produce exactly these rules in our chains, in either dialect."""
    return any(
        all(_keys(made.get(family, {})) == _keys(chains) for family, chains in rules.items())
        for made in (_rules_of(plan(options)), list_rules(plan(options)))
    )


def _keys(chains: Chains) -> dict[tuple[str, str], list[RuleKey]]:
    """Return the keys of the rules in our chains, without the order of their matches."""
    ours = {place: map(normalise_rule, rules) for place, rules in chains.items() if rules and place[1] in OWNED_CHAINS}
    return {place: [(frozenset(matches), target) for *matches, target in keys] for place, keys in ours.items()}


def find_other_values(wanted: SettledOptions, live: SettledOptions) -> tuple[tuple[Flag, Any, Any], ...]:
    """Return options that differ, as (flag, wanted, live); ignores those that produce no rule, and the order of lists."""
    made = plan(wanted)
    seen = from_chains(_rules_of(made), {rule.mark: rule.table for rule in made.ip_rules}).options or wanted
    values = [(flag, getattr(seen, flag.field), getattr(live, flag.field)) for flag in Interception.flags]
    return tuple([(flag, one, other) for flag, one, other in values if _comparable(one) != _comparable(other)])


def _comparable(value: Any) -> Any:
    """Return the value without the order of its list, adjacent networks and ports joined."""
    if not isinstance(value, tuple) or isinstance(value, Network):
        return value
    if any(isinstance(item, PortsOfUsers) for item in value):
        return find_same(value)
    if any(isinstance(item, (int, PortRange)) for item in value):
        return join_ranges(sorted(map(bounds_of, value)))
    networks = [item for item in value if isinstance(item, Network)]
    if networks:
        return [merge_networks([one for one in networks if one.family is family], family) for family in FAMILIES]
    return frozenset(value)
