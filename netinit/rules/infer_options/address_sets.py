"""What the address sets of ipset show of options: their networks, and the length of lists above which there are sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netinit.base.net import Network
from netinit.rules.iptables.sets import USES, Contents, SetDestination
from netinit.rules.matches.packet import Destination
from netinit.rules.model import Rule


def as_listed(rule: Rule) -> Rule:
    """Return the rule with the networks of its sets in it, as if there was no set."""
    matches = [Destination(networks=one.networks) if isinstance(one, SetDestination) else one for one in rule.matches]
    return rule.replace(matches=tuple(matches))


def find_threshold(lists: Mapping[str, Sequence[Network]], owner: str, live: Contents, given: int) -> int:
    """Return a threshold with which just those lists become sets that are sets now, or `given` if it is one. `lists`: by option."""
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for option, networks in lists.items():
        for version in {network[0] for network in networks}:
            name = f"{owner}-{USES[option]}-{version}"
            sizes[name in live].append(len([network for network in networks if network[0] == version]))
    longest, shortest = max(sizes[False], default=0), min(sizes[True], default=0)
    if not shortest:
        return given if given >= longest else 0
    return given if longest <= given < shortest else max(shortest - 1, 1)
