"""Find rules by target and matches, and infer the options that all layouts have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, PortRange, Ports
from netinit.options import INET, OFF, REJECT, TPROXY
from netinit.options.kinds import ALL
from netinit.rules.marking_targets import SaveMark, SetMark
from netinit.rules.matches import Match
from netinit.rules.matches.context import Mark, UnknownMatch
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol
from netinit.rules.model import (
    FILTER,
    ISTIO_DIVERT,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    ISTIO_REDIRECT,
    ISTIO_REFUSE_IN,
    ISTIO_REFUSE_OUT,
    MANGLE,
    NAT,
    OUTPUT,
    PREROUTING,
    Rule,
)
from netinit.rules.targets import Jump, Redirect, Reject, Return, Target

Kind = TypeVar("Kind", bound=Match)
Chains = Mapping[tuple[str, str], Sequence[Rule]]  # (table, chain) -> our rules of one family
Routing = Mapping[int, int]  # mark -> routing table
MAX_SERVERS = 64  # addresses in one rule for servers: larger networks are not ours
WHOLE = {family: Network((family.version, 0, 0)) for family in FAMILIES}
STAND_IN = "2001:db8::"  # for IPv6 addresses that no rule shows because IPv6 is off
NETWORKS_UNREAD = "--istio-service-cidr: networks of IPv6, which is off, so that no rule names them"
LOOPBACKS = (Network.parse("127.0.0.0/8"), Network.parse("::1/128"))


class LayoutReader:
    """The base of the layouts' readers, each in a file of the layout's name and called like it."""

    def __init__(self, rules: Mapping[Family, Chains], routing: Routing) -> None:
        self.rules = rules
        self.routing = routing
        self.unread: list[str] = []

    def recognises(self) -> bool:
        """Whether the rules have this layout and none of those before it in the table."""
        raise NotImplementedError

    def fields(self) -> dict[str, Any]:
        """Return the option fields that the rules show, but for the layout."""
        found: dict[str, Any] = {"ipv6": self.ipv6()}
        found |= self.redirect_port("outbound_port", "--envoy-port", ISTIO_REDIRECT, Protocol)
        found |= self.redirect_port("inbound_port", "--inbound-capture-port", ISTIO_IN_REDIRECT, Protocol)
        found["virtual_interfaces"] = self.virtual_interfaces()
        return found | self.inbound() | self.outbound() | self.proxy()

    def ipv6(self) -> str:
        """Return the value of --ipv6."""
        refused = {(FILTER, ISTIO_REFUSE_IN), (FILTER, ISTIO_REFUSE_OUT)} & self.rules.get(IPV6, {}).keys()
        return REJECT if refused else self.ipv6_unless_refused()

    def ipv6_unless_refused(self) -> str:
        """Return the value of --ipv6 if no rule rejects IPv6 as a whole."""
        raise NotImplementedError

    def proxy(self) -> dict[str, Any]:
        """Return the proxy's users and groups."""
        raise NotImplementedError

    def users_and_groups(self, owners: Iterable[Owner]) -> dict[str, Any]:
        """Return the proxy's users and groups among these owners."""
        found: dict[str, Any] = {}
        known = [owner for owner in owners if not owner.negated]
        for kind, field, flag in (("uid", "proxy_uids", "--proxy-uid"), ("gid", "proxy_gids", "--proxy-gid")):
            if numbers := tuple(dict.fromkeys([owner.number for owner in known if owner.kind == kind])):
                found[field] = numbers
            else:
                self.unread.append(f"{flag}: no rule names one")
        return found

    def inbound(self) -> dict[str, Any]:
        """Return the options for inbound capture."""
        raise NotImplementedError

    def outbound(self) -> dict[str, Any]:
        """Return the options for outbound capture."""
        raise NotImplementedError

    # ---- looking -------------------------------------------------------------------------------------------------------

    def find(
        self, table: str, chain: str, target: type[Target] | Target, *kinds: type[Match], family: Family | None = None
    ) -> list[Rule]:
        """Return a chain's rules with this target and one match of each kind, in `family` or the first that has any."""
        for one in (family,) if family else FAMILIES:
            rules = self.rules.get(one, {}).get((table, chain), ())
            found = [rule for rule in rules if has_target(rule, target) and holds_exactly(rule, kinds)]
            if found or family:
                return found
        return []

    def rules_of(self, table: str, chain: str) -> Sequence[Rule]:
        """Return the rules of a chain in the first family that has any."""
        return next((found for chains in self.rules.values() if (found := chains.get((table, chain)))), ())

    def has_chain(self, chain: str, *tables: str) -> bool:
        """Whether one of these tables has the chain."""
        return any((table, chain) in chains for chains in self.rules.values() for table in tables)

    def redirect_port(self, field: str, flag: str, chain: str, *kinds: type[Match]) -> dict[str, Any]:
        """Return the field with the port that a nat chain redirects to, by a rule with these kinds of matches."""
        rules = self.find(NAT, chain, Redirect, *kinds)
        if not rules:
            self.unread.append(f"{flag}: the rule that redirects to it is missing")
        return {field: rules[0].target.captures_at} if rules else {}

    def names(self, chain: str, kind: type[InInterface | OutInterface]) -> list[str]:
        """Return the interfaces that a built-in nat chain excludes."""
        found = [find_match(rule, kind) for rule in self.find(NAT, chain, Return, kind)]
        return [name for match in found if not match.negated for name in match.names]

    def excluded_interfaces(self) -> tuple[str, ...]:
        """Return the interfaces excluded in both directions."""
        return tuple(self.names(OUTPUT, OutInterface))

    def virtual_interfaces(self) -> tuple[str, ...]:
        """Return the interfaces excluded inbound only; they come first, in reverse order."""
        inbound, both = self.names(PREROUTING, InInterface), self.excluded_interfaces()
        return tuple(reversed(inbound[: len(inbound) - len(both)] if len(both) <= len(inbound) else []))

    def inbound_ports(self, table: str, to: str) -> Ports | str:
        """Return the ports that ISTIO_INBOUND sends to a chain."""
        if self.find(table, ISTIO_INBOUND, Jump(chain=to), Protocol):
            return ALL
        return listed_ports(self.find(table, ISTIO_INBOUND, Jump(chain=to), Port))

    def mark(self) -> int | None:
        """Return TPROXY's mark."""
        for rule in self.find(MANGLE, ISTIO_DIVERT, SetMark):
            return rule.target.value if isinstance(rule.target, SetMark) else None
        saved = [find_match(rule, Mark) for rule in self.find(MANGLE, PREROUTING, SaveMark, Protocol, Mark)]
        return saved[0].value if saved else None

    def transparent(self, port: int) -> dict[str, Any]:
        """Return the options of TPROXY."""
        found: dict[str, Any] = {"inbound_mode": TPROXY}
        mark = self.mark()
        if mark is None:
            self.unread.append("--istio-inbound-tproxy-mark: no rule has it")
        else:
            found["tproxy_mark"] = mark
            table = self.routing.get(mark)
            if table is not None:
                found["tproxy_table"] = table
            elif port:
                self.unread.append(f"--istio-inbound-tproxy-route-table: no policy rule routes the mark {mark}")
        return found

    def networks(self, target: type[Target] | Target) -> dict[Family, list[Network]]:
        """Return the destinations that ISTIO_OUTPUT treats with this target by address alone."""
        found: dict[Family, list[Network]] = {}
        for family in FAMILIES:
            if self.refuses(family):  # the rules that reject, or exclude from that; all match TCP
                refusing = self.rules.get(family, {}).get((FILTER, ISTIO_REFUSE_OUT), ())
                treated = [rule for rule in refusing if has_target(rule, Reject if isinstance(target, Jump) else Return)]
                tcp = Protocol(name="tcp")
                rules = [rule.replace(matches=tuple([one for one in rule.matches if one != tcp])) for rule in treated]
            else:
                rules = [rule for rule in self.rules.get(family, {}).get((NAT, ISTIO_OUTPUT), ()) if has_target(rule, target)]
            found[family] = []
            for rule in rules:
                if not rule.matches:
                    found[family].append(WHOLE[family])
                elif asks_set(rule):
                    flag = "--istio-service-cidr" if isinstance(rule.target, Jump) else "--istio-service-exclude-cidr"
                    self.unread.append(f"{flag}: the address set of {family.name} cannot be read")
                elif holds_exactly(rule, (Destination,)) and not (match := find_match(rule, Destination)).negated:
                    found[family] += match.networks
        return found

    def on(self) -> tuple[Family, ...]:
        """Return the families that are captured."""
        return (IPV4,) if self.ipv6() in (OFF, INET) else FAMILIES

    def refuses(self, family: Family) -> bool:
        """Whether the family is rejected."""
        return family is IPV6 and self.ipv6() == REJECT


def has_target(rule: Rule, target: type[Target] | Target) -> bool:
    """Whether a rule has this target, or one of this type."""
    return rule.target == target if isinstance(target, Target) else isinstance(rule.target, target)


def holds_exactly(rule: Rule, kinds: tuple[type[Match], ...]) -> bool:
    """Whether a rule has one match of each kind and no other."""
    return len(rule.matches) == len(kinds) and all(
        any(isinstance(match, kind) for match in rule.matches) for kind in kinds
    )


def find_match(rule: Rule, kind: type[Kind]) -> Kind:
    """Return the rule's match of this kind, which must exist."""
    return next(match for match in rule.matches if isinstance(match, kind))


def asks_set(rule: Rule) -> bool:
    """Whether the only match is an address set with unknown content."""
    return (
        len(rule.matches) == 1 and isinstance(rule.matches[0], UnknownMatch) and "--match-set" in rule.matches[0].text
    )


def listed_ports(rules: list[Rule], *, protocol: str = "", unique: bool = True) -> Ports:
    """Return the ports and ranges that rules name."""
    found: list[int | PortRange] = []
    for rule in rules:
        match = find_match(rule, Port)
        if not match.source and not match.negated and protocol in ("", match.protocol):
            found += [port if isinstance(port, int) else PortRange(port) for port in match.ports]
    return tuple(dict.fromkeys(found) if unique else found)
