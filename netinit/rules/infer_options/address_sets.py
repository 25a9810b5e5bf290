"""What the address sets of ipset show of options: their networks, and the length of lists above which there are sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from netinit.base.net import Network
from netinit.rules.infer_options.layout_readers import Chains
from netinit.rules.infer_options.places import WHOLE
from netinit.rules.iptables.sets import USES, Contents, SetDestination
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination
from netinit.rules.model import Rule


def as_listed(chains: Chains) -> Chains:
    """Return one family's rules with the networks of their sets in them, as if there was no set.

    A set has no order. Its networks have that of rules for the same networks one by one, if there are any.
    """
    runs = [
        tuple([network for network in map(_name_network, run) if network])
        for rules in chains.values() for _, run in groupby(rules, lambda rule: (_name_network(rule) is None, rule.target))
    ]  # fmt: skip
    ordered = {tuple(sorted(run)): run for run in runs}

    def list_networks(match: Match) -> Match:
        if not isinstance(match, SetDestination):
            return match
        return Destination(networks=ordered.get(tuple(sorted(match.networks)), match.networks))

    return {
        place: [rule.replace(matches=tuple(map(list_networks, rule.matches))) for rule in rules] for place, rules in chains.items()
    }


def _name_network(rule: Rule) -> Network | None:
    """Return the network that all matches of a rule of iptables are about: without a match, the whole family."""
    if not rule.matches:
        return WHOLE[rule.families[0]]
    only = rule.matches[0]
    if isinstance(only, SetDestination) or not isinstance(only, Destination) or only.negated:
        return None
    return only.networks[0] if len(rule.matches) == len(only.networks) == 1 else None


def find_threshold(lists: Mapping[str, Sequence[Network]], owner: str, live: Contents, given: int) -> int:
    """Return a threshold with which just those lists become sets that are sets now, or `given` if it is one. `lists`: by option."""
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for option, networks in lists.items():
        for version in {network[0] for network in networks}:
            name = f"{owner}-{USES[option]}-{version}"
            sizes[name in live].append(len([network for network in networks if network[0] == version]))
    longest, shortest = max(sizes[False], default=1), min(sizes[True], default=0)
    if not shortest:
        return given if given >= longest else 0
    return given if longest <= given < shortest else max(shortest - 1, 1)  # 0 makes no sets
