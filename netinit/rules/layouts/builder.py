"""Collect rules by chain, in the order in which a layout emits them."""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, bounds_of
from netinit.base.records import Record
from netinit.options import Interception
from netinit.rules.matches import Match
from netinit.rules.matches.packet import AddressMatch, Owner
from netinit.rules.model import ALWAYS, BUILTIN_CHAINS, OTHER, TABLES, Chain, Origin, Rule, Table
from netinit.rules.targets import Return, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


EXACT = "istio_exact"  # the option that leaves out what Istio does not have


class Exclusion(Record):
    """Packets that are not captured, with the option's field (empty: none) and the reason."""

    matches: tuple[Match, ...]
    origin: str
    why: str


class Builder:
    """Collects the rules of a plan.

    `origin` is the field of the option that a rule follows from, empty for rules of every plan. Without `names_ipv6`, rules
    that name an IPv6 address are left out; all others apply to IPv6.
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
        inserted: bool = False,
        promise: str = "",
    ) -> None:
        """Add a rule at the end of a chain, or after earlier `inserted` ones before all others; not for families that are off.

        A rule that names addresses becomes one for each family of these; one with a match on an empty list is left out.
        `promise`: one of PROMISES, which a kernel without a feature that the rule needs does without.
        """
        if any(one.listed and not getattr(one, one.listed) for one in matches):
            return
        if origin not in self._origins:
            self._origins[origin] = Origin(option=origin, label=Interception.flag(origin).label)
        promise = promise or (OTHER if origin == EXACT else "")
        wanted = tuple([family for family in families if family in self._families])
        scopes = [(wanted, matches)] if wanted else []
        if any(isinstance(one, AddressMatch) for one in matches):
            named = [family for family in wanted if self._names_ipv6 or family is IPV4]
            scopes = [((family,), limited) for family in named if (limited := _limit(matches, family))]
        for scope, limited in scopes:
            rule = Rule(
                matches=limited, target=to, comment=why, origin=self._origins[origin], families=scope, paired=paired, promise=promise
            )
            (self._inserted if inserted else self._appended).setdefault((table, chain), []).append(rule)

    def exclude(self, table: str, chain: str, *exclusions: Exclusion) -> None:
        """Add a rule for each exclusion that returns from the chain."""
        for one in exclusions:
            self.append(table, chain, *one.matches, to=Return(), why=one.why, origin=one.origin)

    def within(self, families: tuple[Family, ...]) -> Builder:
        """Return a builder of the same rules, limited to these families."""
        other = Builder(families, names_ipv6=self._names_ipv6)
        other._appended, other._inserted = self._appended, self._inserted
        return other

    def rules_of(self, table: str, chain: str) -> tuple[Rule, ...]:
        """Return the rules of a chain so far."""
        return (*self._inserted.get((table, chain), ()), *self._appended.get((table, chain), ()))

    def tables(self) -> tuple[Table, ...]:
        """Return the tables in the order of programming. A chain exists if it has a rule, or a rule jumps to it."""
        places = dict.fromkeys((*self._appended, *self._inserted))
        for collected in (self._appended, self._inserted):
            for (table, _), rules in collected.items():
                places.update({(table, rule.target.calls): None for rule in rules if rule.target.calls})
        tables = [(name, [chain for table, chain in places if table == name]) for name in TABLES]
        return tuple([
            Table(name=name, chains=tuple([self._chain(name, chain) for chain in chains])) for name, chains in tables if chains
        ])

    def _chain(self, table: str, name: str) -> Chain:
        appended, inserted = (tuple(rules.get((table, name), ())) for rules in (self._appended, self._inserted))
        if name in BUILTIN_CHAINS:
            return Chain(name=name, rules=appended, inserted=inserted)
        return Chain(name=name, rules=inserted + appended)  # no foreign rules here, so the kernel's order decides


def _limit(matches: tuple[Match, ...], family: Family) -> tuple[Match, ...]:
    """Return the matches with the addresses of one family; none if a match has none of them."""
    limited: tuple[Match, ...] = ()
    for match in matches:
        if isinstance(match, AddressMatch):
            networks = tuple([network for network in match.networks if network[0] == family.version])
            if not networks:
                return ()
            match = match.replace(networks=networks)  # noqa: PLW2901 - the part of it that is of the family
        limited += (match,)
    return limited


def owners(kind: str, ranges: Iterable[int | tuple[int, int]], *, negated: bool = False) -> list[Owner]:
    """Return a match for each user (kind `uid`) or group (`gid`), or range of them."""
    return [Owner(kind=kind, first=first, last=last, negated=negated) for first, last in map(bounds_of, ranges)]


def proxy_owners(options: Interception) -> list[tuple[Owner, str]]:
    """Return a match for each user and group of the proxy, with its option's field."""
    users, groups = owners("uid", options.proxy_uids), owners("gid", options.proxy_gids)
    return [(user, "proxy_uids") for user in users] + [(group, "proxy_gids") for group in groups]


def hosts_of(addresses: tuple[str, ...], *families: Family) -> tuple[Network, ...]:
    """Return the addresses of some families as networks of one address each, in the order of the families."""
    return tuple([
        Network.parse(f"{one}/{family.bits}") for family in families for one in addresses if (":" in one) is (family is IPV6)
    ])
