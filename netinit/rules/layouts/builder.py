"""Collects rules chain by chain, in the order in which a layout emits them."""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV6, Family, Network
from netinit.options import Interception
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, Source
from netinit.rules.model import ALWAYS, BUILTIN_CHAINS, TABLES, Chain, Origin, Rule, Table
from netinit.rules.targets import Jump, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Builder:
    """Collects the rules of a plan.

    `origin` is the field of the option that a rule follows from; empty for rules of every plan. With `names_ipv6` False,
    rules that name an IPv6 address are left out; all others still apply to IPv6.
    """

    def __init__(self, families: tuple[Family, ...], *, names_ipv6: bool = True) -> None:
        self._families = families
        self._names_ipv6 = names_ipv6
        self._appended: dict[tuple[str, str], list[Rule]] = {}
        self._inserted: dict[tuple[str, str], list[Rule]] = {}
        self._origins = {"": ALWAYS}

    def append(
        self,
        table: str,
        chain: str,
        *matches: Match,
        to: Target,
        why: str,
        origin: str = "",
        families: tuple[Family, ...] = FAMILIES,
        paired: bool = False,
    ) -> None:
        """Add a rule at the end of a chain; skipped for families that are off."""
        self._add(self._appended, table, chain, matches, to, why, origin, families, paired)

    def insert(
        self,
        table: str,
        chain: str,
        *matches: Match,
        to: Target,
        why: str,
        origin: str = "",
        families: tuple[Family, ...] = FAMILIES,
    ) -> None:
        """Add a rule before all appended rules of its chain and after earlier inserted ones."""
        self._add(self._inserted, table, chain, matches, to, why, origin, families, paired=False)

    def _add(  # noqa: PLR0917 - what the two above pass on
        self,
        place: dict[tuple[str, str], list[Rule]],
        table: str,
        chain: str,
        matches: tuple[Match, ...],
        to: Target,
        why: str,
        origin: str,
        families: tuple[Family, ...],
        paired: bool,
    ) -> None:
        wanted = tuple([family for family in families if family in self._families])
        if not self._names_ipv6 and wanted == (IPV6,) and any(isinstance(one, (Source, Destination)) for one in matches):
            return
        if wanted:
            made = self._origins.get(origin) or self._origin(origin)
            rule = Rule(matches=matches, target=to, comment=why, origin=made, families=wanted, paired=paired)
            place.setdefault((table, chain), []).append(rule)

    def within(self, families: tuple[Family, ...]) -> Builder:
        """Return a builder of the same ruleset limited to these families."""
        other = Builder(families, names_ipv6=self._names_ipv6)
        other._appended, other._inserted = self._appended, self._inserted
        return other

    def _origin(self, option: str) -> Origin:
        made = self._origins[option] = Origin(option=option, label=Interception.flag(option).label)
        return made

    def rules_of(self, table: str, chain: str) -> tuple[Rule, ...]:
        """Return the rules of a chain so far: inserted, then appended."""
        return (*self._inserted.get((table, chain), ()), *self._appended.get((table, chain), ()))

    def tables(self) -> tuple[Table, ...]:
        """Return the tables in the order of programming; a chain exists if it has a rule or a rule jumps to it."""
        places = list(self._appended) + [place for place in self._inserted if place not in self._appended]
        for rules in (self._appended, self._inserted):
            places += [
                (place[0], rule.target.chain)
                for place in rules
                for rule in rules[place]
                if isinstance(rule.target, Jump)
            ]
        known = list(dict.fromkeys(places))
        return tuple(
            [
                Table(name=name, chains=tuple(self._chains(name, [chain for table, chain in known if table == name])))
                for name in TABLES
                if any(table == name for table, _ in known)
            ]
        )

    def _chains(self, table: str, names: Iterable[str]) -> list[Chain]:
        chains = []
        for name in names:
            appended = tuple(self._appended.get((table, name), ()))
            inserted = tuple(self._inserted.get((table, name), ()))
            if name in BUILTIN_CHAINS:
                chains.append(Chain(name=name, rules=appended, inserted=inserted))
            else:  # no foreign rules here, so the kernel's order decides
                chains.append(Chain(name=name, rules=inserted + appended))
        return chains


def by_family(networks: tuple[Network, ...] | str) -> list[tuple[Family, tuple[Network, ...]]]:
    """Group networks by family, without empty groups."""
    sorted_out = [
        (family, tuple([n for n in networks if isinstance(n, Network) and n[0] == family.version]))
        for family in FAMILIES
    ]
    return [(family, found) for family, found in sorted_out if found]

