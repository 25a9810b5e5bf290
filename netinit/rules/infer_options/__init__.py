"""Rules -> the options that made them: for live rules of which nobody knows the options any more.

The inverse of `netinit.rules.layouts`. What the rules do not show is named. What makes no rule (`--dual-stack`, exceptions
from something that is not captured) cannot be told and keeps its default: the plan is the same without it.

Nothing here says that the rules are whole: who reads options back compares their plan with the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.net import FAMILIES, Family, Network, PortRange, bounds_of, join_ranges, merge_networks
from netinit.options import Interception
from netinit.options.kinds import Flag
from netinit.options.user_ports import PortsOfUsers, find_same
from netinit.rules.infer_options.ambient import Ambient
from netinit.rules.infer_options.classic import Classic
from netinit.rules.infer_options.current import Current
from netinit.rules.infer_options.reading import Chains, Routing
from netinit.rules.iptables.ownership import owned_rules
from netinit.rules.iptables.parse import normalise, normalise_rule, parse_rule
from netinit.rules.iptables.sets import Contents, resolve
from netinit.rules.iptables.write import Listing, write_plan
from netinit.rules.layouts import plan, untranslated
from netinit.rules.matches.context import TcpFlags
from netinit.rules.matches.packet import InInterface
from netinit.rules.model import (
    BUILTIN_CHAINS,
    FILTER,
    ISTIO_DROP,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    ISTIO_PRERT,
    MANGLE,
    NAT,
    OUTPUT,
    OWNED_CHAINS,
    PREROUTING,
    Plan,
    Rule,
)
from netinit.rules.rule_patterns import layout_forms
from netinit.rules.targets import Jump, Return

Keys = dict[tuple[str, str], list[tuple[object, ...]]]  # table, chain -> what every spelling of each rule has in common
MOST_CANDIDATES = 200  # rules of which one may be somebody else's: each is tried


@dataclass(frozen=True, slots=True)
class Recovered:
    """The options; none where no rule is ours, or where the rules make no valid ones. `unread` says what is not known."""

    options: Interception | None
    unread: tuple[str, ...] = ()


def from_listings(listings: Mapping[Family, Listing], routing: Routing, contents: Contents | None = None) -> Recovered:
    """The options of the rules of ours that iptables-save lists, without counters; `contents` are those of address sets.

    `routing` is the routing table of each mark that a policy rule has. ParseError for a rule that is none.
    """
    rules: dict[Family, dict[tuple[str, str], list[Rule]]] = {}
    excluded: list[str] = []
    for family, listing in listings.items():
        owned = owned_rules(listing, {}, listings.values(), layout_forms)
        rules[family] = {}
        for name, table in listing.items():
            for chain, texts in table.rules.items():
                ours = owned.get((name, chain), []) if chain in BUILTIN_CHAINS else range(len(texts))
                if chain not in OWNED_CHAINS and not ours:
                    continue
                rules[family][name, chain] = [
                    resolve(parse_rule(texts[index], family), contents or {}) for index in ours
                ]
        excluded += _unclaimed(listing, owned.get((NAT, PREROUTING), []), family)
    found = _recover(rules, routing, _written_chains)
    if not excluded or not found.options:
        return found
    names = ", ".join(dict.fromkeys(excluded))
    doubt = f"--kube-virt-interfaces: nothing tells whether the rules that exclude {names} are netinit's"
    return Recovered(found.options, (*found.unread, doubt))


def _unclaimed(listing: Listing, owned: list[int], family: Family) -> list[str]:
    """The interfaces that rules before ours exclude on the way in: of a VM, or somebody else's."""
    texts = listing[NAT].rules.get(PREROUTING, []) if NAT in listing else []
    before = [
        text for index, text in enumerate(texts) if index not in owned and not any(place < index for place in owned)
    ]
    found = [parse_rule(text, family) for text in before]
    names = [rule.matches[0].names for rule in found if isinstance(rule.target, Return) and _is_interface(rule)]  # type: ignore[attr-defined]
    return [name for group in names for name in group]


def _is_interface(rule: Rule) -> bool:
    return len(rule.matches) == 1 and isinstance(rule.matches[0], InInterface) and not rule.matches[0].negated


def from_chains(rules: Mapping[Family, Chains], routing: Routing) -> Recovered:
    """The options of our own nft tables, whose chains hold these rules."""
    return _recover(rules, routing, _planned_chains)


def _recover(rules: Mapping[Family, Chains], routing: Routing, made_by: Callable[[Plan, Family], Keys]) -> Recovered:
    """The options of all rules, or of all but one; `made_by` has a plan's rules in the dialect."""
    found = _recover_all(rules, routing)
    if found.options is None and found.unread:
        return _recover_without_one(rules, routing, made_by) or found
    return found


def _recover_all(rules: Mapping[Family, Chains], routing: Routing) -> Recovered:
    found = {family: chains for family, chains in rules.items() if any(chain in OWNED_CHAINS for _, chain in chains)}
    if not found:
        return Recovered(None)
    refusing = {
        family: chains for family, chains in rules.items() if chains
    }  # the classic layout refuses without chains
    live = {**found, **refusing}
    reading = (Ambient if _is_ambient(live) else Classic if _is_classic(live) else Current)(live, routing)
    try:
        options = Interception(**reading.fields())
        if not _stops_reuse(rules) and _stops_reuse(_rules_of(plan(options))):
            options = options.replace(istio_exact=True)
        return Recovered(options, tuple(dict.fromkeys(reading.unread)))
    except OptionError as error:  # of a rule that somebody else wrote into our chains
        return Recovered(None, tuple([f"the rules make no valid options: {problem}" for problem in error.problems]))


def _is_ambient(rules: Mapping[Family, Chains]) -> bool:
    """Whether a chain is there that no other layout has."""
    return any(chain == ISTIO_PRERT for chains in rules.values() for _, chain in chains)


def _is_classic(rules: Mapping[Family, Chains]) -> bool:
    """Whether the jump to ISTIO_OUTPUT is for TCP alone; where it is missing, whether nothing in our chains is the current layout's.

    That is the tunnel's rule, or the one that makes the proxy's connections to its own pod inbound again.
    """
    for chains in rules.values():
        jumps = [rule for rule in chains.get((NAT, OUTPUT), ()) if rule.target == Jump(chain=ISTIO_OUTPUT)]
        if jumps:
            return bool(jumps[-1].matches)  # those before it are for Docker's resolver
    firsts = [chains[NAT, ISTIO_INBOUND][0] for chains in rules.values() if chains.get((NAT, ISTIO_INBOUND))]
    outbound = [rule for chains in rules.values() for rule in chains.get((NAT, ISTIO_OUTPUT), ())]
    again = any(rule.target == Jump(chain=ISTIO_IN_REDIRECT) for rule in outbound)
    return not (again or any(isinstance(rule.target, Return) for rule in firsts))


def _rules_of(made: Plan) -> dict[Family, Chains]:
    """The rules of a plan, by family and chain; no chain that has none of the family."""
    return {
        family: {
            (table.name, chain.name): rules
            for table in made.tables
            for chain in table.chains
            if (rules := [rule for rule in (*chain.inserted, *chain.rules) if family in rule.families])
        }
        for family in made.families
    }


def _stops_reuse(rules: Mapping[Family, Chains]) -> bool:
    """Whether any rule is there that `--istio-exact` leaves out."""
    return any(
        chains.get((FILTER, name)) for chains in rules.values() for name in (*untranslated.CHAINS, ISTIO_DROP)
    ) or any(
        isinstance(match, TcpFlags)
        for chains in rules.values()
        for rule in chains.get((MANGLE, ISTIO_INBOUND), ())
        for match in rule.matches
    )
def _recover_without_one(
    rules: Mapping[Family, Chains], routing: Routing, made_by: Callable[[Plan, Family], Keys]
) -> Recovered | None:
    """The options of all rules but one that somebody else wrote into our chains; None where no one rule is in the way.

    What is left must be what the options make, to the rule, as `made_by` has a plan's rules in the dialect.
    """
    places = [(family, place) for family, chains in rules.items() for place in chains if place[1] in OWNED_CHAINS]
    if sum([len(rules[family][place]) for family, place in places]) > MOST_CANDIDATES:
        return None
    for family, place in places:
        for foreign in rules[family][place]:
            left = {  # an nft rule may be one of both families
                one: {**chains, place: [rule for rule in chains[place] if rule is not foreign]} if place in chains else chains
                for one, chains in rules.items()
            }
            found = _recover_all(left, routing)
            if found.options and _makes(found.options, left, made_by):
                what = f"a rule of {place[1]} that no option makes: {' '.join([match.describe() for match in foreign.matches])}"
                return Recovered(found.options, (*found.unread, what))
    return None


def _makes(options: Interception, rules: Mapping[Family, Chains], made_by: Callable[[Plan, Family], Keys]) -> bool:
    """Whether options make exactly these rules in our chains."""
    made = plan(options)
    return all(made_by(made, family) == _keys(chains) for family, chains in rules.items())


def _keys(chains: Chains) -> Keys:
    return {place: [_key(normalise_rule(rule)) for rule in rules] for place, rules in chains.items() if place[1] in OWNED_CHAINS}


def _key(rule: tuple[object, ...]) -> tuple[object, ...]:
    """All matches must hold, in whatever order they stand: nft has the interface first."""
    return frozenset(rule[:-1]), rule[-1]


def _written_chains(made: Plan, family: Family) -> Keys:
    """The rules of a plan in our chains as iptables has them."""
    return {
        (table, name): [_key(normalise(text, family)) for text in chain.texts]
        for table, of_table in write_plan(made, family).items()
        for name, chain in of_table.items()
        if name in OWNED_CHAINS
    }


def _planned_chains(made: Plan, family: Family) -> Keys:
    """The rules of a plan in our chains as nft has them: a list is one rule."""
    return _keys(_rules_of(made).get(family, {}))


def find_other_values(wanted: Interception, live: Interception) -> tuple[tuple[Flag, Any, Any], ...]:
    """The options in which those that were read back differ from others: each with the value wanted and the live one.

    What makes no rule and the order of lists do not count.
    """
    seen = _through_rules(wanted)
    return tuple(
        [
            (flag, getattr(seen, flag.field), getattr(live, flag.field))
            for flag in Interception.flags
            if _comparable(getattr(seen, flag.field)) != _comparable(getattr(live, flag.field))
        ]
    )


def _through_rules(options: Interception) -> Interception:
    """The options as their own rules show them."""
    made = plan(options)
    return from_chains(_rules_of(made), {rule.mark: rule.table for rule in made.ip_rules}).options or options


def _comparable(value: Any) -> Any:
    """The value without what has no meaning: the order of a list, and networks or ports that lie side by side."""
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
