"""Find rules by target and matches, and infer the options that all layouts have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network
from netinit.options import INET, OFF, REJECT, TPROXY
from netinit.rules.infer_options.places import RulesByShape, find_places, shape_of_rule
from netinit.rules.matches import Match
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import FILTER, ISTIO_OUTPUT, ISTIO_REFUSE_IN, ISTIO_REFUSE_OUT, NAT, Rule
from netinit.rules.targets import Jump, Return, Target

Kind = TypeVar("Kind", bound=Match)
Chains = Mapping[tuple[str, str], Sequence[Rule]]  # (table, chain) -> our rules of one family
Routing = Mapping[int, int]  # mark -> routing table
STAND_IN = "2001:db8::"  # for IPv6 addresses that no rule shows because IPv6 is off
NETWORKS_UNREAD = "--istio-service-cidr: networks of IPv6, which is off, so that no rule names them"
LOOPBACKS = (Network.parse("127.0.0.0/8"), Network.parse("::1/128"))


class LayoutReader:
    """The base of the layouts' readers, each in a file of the layout's name and called like it.

    A reader reads what the rules do not name as it was given; all other options are read where `find_places` found them.
    """

    def __init__(self, rules: Mapping[Family, Chains], routing: Routing) -> None:
        self.rules = rules
        self.routing = routing
        self.unread: list[str] = []

    def recognises(self) -> bool:
        """Whether the rules have this layout and none of those before it in the table."""
        raise NotImplementedError

    def first_fields(self) -> dict[str, Any]:
        """Return the fields that this reader reads by itself, before all others."""
        return {"ipv6": self.ipv6()}

    def correct(self, found: dict[str, Any]) -> None:
        """Change what was found where other rules give it another meaning."""

    def fields(self) -> dict[str, Any]:
        """Return the option fields that the rules show, but for the layout."""
        places, words = find_places(type(self).__name__.lower())
        live: dict[Family, RulesByShape] = {family: {} for family in self.rules}
        for family, chains in self.rules.items():
            for number, (table, chain, rule) in enumerate([(*place, rule) for place, rules in chains.items() for rule in rules]):
                live[family].setdefault(shape_of_rule(table, chain, rule), {})[number] = rule
        found: dict[str, Any] = dict([words[shape] for rules in live.values() for shape in rules if shape in words])
        found |= self.first_fields()
        for field in sorted([field for field in places if field not in found], key=lambda field: places[field].is_read_after):
            if (value := places[field].read(live, found, self.unread)) is not None:
                found[field] = value
        if found.get("inbound_mode") == TPROXY:
            self._find_table(found)
        self.correct(found)
        return found

    def _find_table(self, found: dict[str, Any]) -> None:
        """Add the routing table for TPROXY's mark."""
        mark = found.get("tproxy_mark")
        if mark is None:
            self.unread.append("--istio-inbound-tproxy-mark: no rule has it")
        elif mark in self.routing:
            found["tproxy_table"] = self.routing[mark]
        elif found.get("inbound_ports"):
            self.unread.append(f"--istio-inbound-tproxy-route-table: no policy rule routes the mark {mark}")

    def ipv6(self) -> str:
        """Return the value of --ipv6."""
        refused = {(FILTER, ISTIO_REFUSE_IN), (FILTER, ISTIO_REFUSE_OUT)} & self.rules.get(IPV6, {}).keys()
        return REJECT if refused else self.ipv6_unless_refused()

    def ipv6_unless_refused(self) -> str:
        """Return the value of --ipv6 if no rule rejects IPv6 as a whole."""
        raise NotImplementedError

    # ---- looking -------------------------------------------------------------------------------------------------------

    def find(
        self, table: str, chain: str, target: type[Target] | Target, *kinds: type[Match], family: Family | None = None
    ) -> list[Rule]:
        """Return a chain's rules with this target and one match of each kind, in `family` or the first that has any."""
        for one in (family,) if family else FAMILIES:
            rules = self.rules.get(one, {}).get((table, chain), ())
            found = [rule for rule in rules if target in (rule.target, type(rule.target)) and holds_exactly(rule, kinds)]
            if found or family:
                return found
        return []

    def rules_of(self, table: str, chain: str) -> Sequence[Rule]:
        """Return the rules of a chain in the first family that has any."""
        return next((found for chains in self.rules.values() if (found := chains.get((table, chain)))), ())

    def warn_of_sets(self) -> None:
        """Say which networks are in address sets that cannot be read."""
        for family in FAMILIES:
            for rule in self.rules.get(family, {}).get((NAT, ISTIO_OUTPUT), ()):
                set_alone = [match for match in rule.matches if isinstance(match, UnknownMatch) and "--match-set" in match.text]
                if len(rule.matches) == len(set_alone) == 1 and isinstance(rule.target, (Jump, Return)):
                    flag = "--istio-service-cidr" if isinstance(rule.target, Jump) else "--istio-service-exclude-cidr"
                    self.unread.append(f"{flag}: the address set of {family.name} cannot be read")

    def on(self) -> tuple[Family, ...]:
        """Return the families that are captured."""
        return (IPV4,) if self.ipv6() in (OFF, INET) else FAMILIES

    def refuses(self, family: Family) -> bool:
        """Whether the family is rejected."""
        return family is IPV6 and self.ipv6() == REJECT


def holds_exactly(rule: Rule, kinds: tuple[type[Match], ...]) -> bool:
    """Whether a rule has one match of each kind and no other."""
    return len(rule.matches) == len(kinds) and all(
        any(isinstance(match, kind) for match in rule.matches) for kind in kinds
    )


def find_match(rule: Rule, kind: type[Kind]) -> Kind:
    """Return the rule's match of this kind, which must exist."""
    return next(match for match in rule.matches if isinstance(match, kind))
