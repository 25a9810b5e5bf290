"""What a layout made rules of, read from their matches and targets, whatever dialect they were listed in.

A field is read where the layout writes it, so each method here stands beside a function of `netinit.rules.layouts`.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, covers, text_of
from netinit.options import CLASSIC, CURRENT, DNS_PORT, OFF, ON, REDIRECT, TPROXY
from netinit.options.kinds import ALL
from netinit.rules.matches import (
    Destination,
    InInterface,
    Mark,
    Match,
    OutInterface,
    Owner,
    Port,
    Protocol,
    UnknownMatch,
)
from netinit.rules.model import (
    FILTER,
    INPUT,
    ISTIO_DIVERT,
    ISTIO_DROP,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    ISTIO_OUTPUT_DNS,
    ISTIO_REDIRECT,
    ISTIO_TPROXY,
    MANGLE,
    NAT,
    OUTPUT,
    OWNED_CHAINS,
    PREROUTING,
    RAW,
    Rule,
)
from netinit.rules.targets import Jump, Redirect, Reject, Return, SaveMark, SetMark, Target, Tproxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeVar

    Kind = TypeVar("Kind", bound=Match)
    Chains = Mapping[tuple[str, str], Sequence[Rule]]  # (table, chain) -> the rules of ours in it, one family's
    Routing = Mapping[int, int]  # mark -> the routing table that its packets are routed by

MOST_SERVERS = 64  # addresses that one rule may name as servers: a network of millions is none of ours
_WHOLE = {family: Network((family.version, 0, 0)) for family in FAMILIES}
_STAND_IN = "2001:db8::"  # for IPv6 addresses that no rule tells, since IPv6 is off
_LOOPBACKS = (Network.parse("127.0.0.0/8"), Network.parse("::1/128"))


def read_fields(rules: Mapping[Family, Chains], routing: Routing) -> tuple[dict[str, Any], list[str]]:
    """The fields of the options that the rules tell, and what they do not tell."""
    reading = _Classic(rules, routing) if _is_classic(rules) else _Current(rules, routing)
    return reading.fields(), reading.unread


def _is_classic(rules: Mapping[Family, Chains]) -> bool:
    """Whether the jump to ISTIO_OUTPUT is for TCP alone; where it is missing, whether the tunnel's rule is missing too."""
    for chains in rules.values():
        for rule in chains.get((NAT, OUTPUT), ()):
            if rule.target == Jump(chain=ISTIO_OUTPUT):
                return bool(rule.matches)
    firsts = [chains[NAT, ISTIO_INBOUND][0] for chains in rules.values() if chains.get((NAT, ISTIO_INBOUND))]
    return not any(isinstance(rule.target, Return) for rule in firsts)


class _Layout:
    """What both layouts have in common."""

    layout: str

    def __init__(self, rules: Mapping[Family, Chains], routing: Routing) -> None:
        self.rules = rules
        self.routing = routing
        self.unread: list[str] = []

    def fields(self) -> dict[str, Any]:
        """The fields of the options that the rules tell."""
        found: dict[str, Any] = {"layout": self.layout, "ipv6": self.ipv6()}
        found |= {"outbound_port": self.port_of(ISTIO_REDIRECT), "inbound_port": self.port_of(ISTIO_IN_REDIRECT)}
        for field, flag in (("outbound_port", "--envoy-port"), ("inbound_port", "--inbound-capture-port")):
            if found[field] is None:
                del found[field]
                self.unread.append(f"{flag}: the rule that redirects to it is missing")
        return (
            found | self.inbound() | self.outbound() | self.proxy() | {"virtual_interfaces": self.virtual_interfaces()}
        )

    def ipv6(self) -> str:
        """Whether IPv6 is captured."""
        raise NotImplementedError

    def proxy(self) -> dict[str, Any]:
        """The proxy's users and groups."""
        raise NotImplementedError

    def inbound(self) -> dict[str, Any]:
        """What is captured on its way in."""
        raise NotImplementedError

    def outbound(self) -> dict[str, Any]:
        """What is captured on its way out."""
        raise NotImplementedError

    # ---- looking -------------------------------------------------------------------------------------------------------

    def find(
        self, table: str, chain: str, target: type[Target] | Target, *kinds: type[Match], family: Family | None = None
    ) -> list[Rule]:
        """The rules of a chain with this target (or kind of it) and one match of each kind, no other.

        Of one family; where none is named, of the first that has any: the families differ in addresses alone.
        """
        for one in (family,) if family else FAMILIES:
            found = [
                rule
                for rule in self.rules.get(one, {}).get((table, chain), ())
                if (rule.target == target if isinstance(target, Target) else isinstance(rule.target, target))
                and _has(rule, kinds)
            ]
            if found or family:
                return found
        return []

    def port_of(self, chain: str) -> int | None:
        """The port that a chain redirects to."""
        targets = [rule.target for rule in self.find(NAT, chain, Redirect, Protocol)]
        return next((target.port for target in targets if isinstance(target, Redirect)), None)

    def names(self, chain: str, kind: type[InInterface | OutInterface]) -> list[str]:
        """The interfaces whose traffic the built-in chain of nat spares, in order."""
        found = [_match(rule, kind) for rule in self.find(NAT, chain, Return, kind)]
        return [name for match in found if not match.negated for name in match.names]

    def excluded_interfaces(self) -> tuple[str, ...]:
        """What is spared in both directions."""
        return tuple(self.names(OUTPUT, OutInterface))

    def virtual_interfaces(self) -> tuple[str, ...]:
        """What is spared on its way in alone: those stand first, the last one given above."""
        spared, excluded = self.names(PREROUTING, InInterface), self.excluded_interfaces()
        return tuple(reversed(spared[: len(spared) - len(excluded)] if len(excluded) <= len(spared) else []))

    def inbound_ports(self, table: str, to: str) -> tuple[int, ...] | str:
        """The ports that ISTIO_INBOUND sends to a chain."""
        if self.find(table, ISTIO_INBOUND, Jump(chain=to), Protocol):
            return ALL
        return _ports(self.find(table, ISTIO_INBOUND, Jump(chain=to), Port))

    def mark(self) -> int | None:
        """The mark of TPROXY."""
        for rule in self.find(MANGLE, ISTIO_DIVERT, SetMark):
            return rule.target.value if isinstance(rule.target, SetMark) else None
        saved = [_match(rule, Mark) for rule in self.find(MANGLE, PREROUTING, SaveMark, Protocol, Mark)]
        return saved[0].value if saved else None

    def transparent(self, port: int) -> dict[str, Any]:
        """The fields of TPROXY, which hands connections to this port."""
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

    def networks(self, target: type[Target] | Target, *, skip: int = 0) -> dict[Family, list[Network]]:
        """The destinations that ISTIO_OUTPUT treats so by address alone, in order; the first `skip` rules do not count."""
        found: dict[Family, list[Network]] = {}
        for family in FAMILIES:
            rules = [
                rule
                for rule in self.rules.get(family, {}).get((NAT, ISTIO_OUTPUT), ())
                if (rule.target == target if isinstance(target, Target) else isinstance(rule.target, target))
                and (not rule.matches or _has(rule, (Destination,)) or _asks_set(rule))
            ]
            found[family] = []
            for rule in rules[skip:]:
                if not rule.matches:
                    found[family].append(_WHOLE[family])
                elif _asks_set(rule):
                    flag = "--istio-service-cidr" if isinstance(rule.target, Jump) else "--istio-service-exclude-cidr"
                    self.unread.append(f"{flag}: the address set of {family.name} cannot be read")
                elif not (match := _match(rule, Destination)).negated:
                    found[family] += match.networks
        return found

    def on(self) -> tuple[Family, ...]:
        """The families that are captured."""
        return (IPV4,) if self.ipv6() == OFF else FAMILIES


class _Current(_Layout):
    layout = CURRENT

    def ipv6(self) -> str:
        return ON if any(chain in OWNED_CHAINS for _, chain in self.rules.get(IPV6, {})) else OFF

    def fields(self) -> dict[str, Any]:
        found = super().fields() | self.dns()
        found["exclude_interfaces"] = self.excluded_interfaces()
        found["drop_invalid"] = bool(self.find(MANGLE, PREROUTING, Jump(chain=ISTIO_DROP)) or self._drops())
        found["exclude_outbound_ports"] = _ports(self.find(NAT, ISTIO_OUTPUT, Return, Port), protocol="tcp")
        found["outbound_ports"] = _ports(self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), Port))
        return found

    def _drops(self) -> bool:
        return any(chains.get((MANGLE, ISTIO_DROP)) for chains in self.rules.values())

    def proxy(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        owners = [
            _match(rule, Owner)
            for rule in self.find(
                NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_IN_REDIRECT), Destination, OutInterface, Port, Owner
            )
        ]
        for kind, field, flag in (("uid", "proxy_uids", "--proxy-uid"), ("gid", "proxy_gids", "--proxy-gid")):
            numbers = tuple(dict.fromkeys([owner.number for owner in owners if owner.kind == kind]))
            if numbers:
                found[field] = numbers
            else:
                self.unread.append(f"{flag}: no rule names one")
        return found | self._groups(len(found.get("proxy_gids", ())))

    def _groups(self, of_the_proxy: int) -> dict[str, Any]:
        """Whose traffic is captured. The proxy's groups stand before those that are excluded."""
        spared = [_match(rule, Owner) for rule in self.find(NAT, ISTIO_OUTPUT, Return, Owner)]
        groups = [owner.number for owner in spared if owner.kind == "gid" and not owner.negated]
        found: dict[str, Any] = {"exclude_owner_groups": tuple(groups[of_the_proxy:])}
        for family in FAMILIES:
            for rule in self.rules.get(family, {}).get((NAT, ISTIO_OUTPUT), ()):
                others = [match for match in rule.matches if isinstance(match, Owner) and match.negated]
                if isinstance(rule.target, Return) and others and len(others) == len(rule.matches):
                    return {"owner_groups": tuple([owner.number for owner in others])}
        return found

    def _tunnel(self) -> int | None:
        """The tunnel's port: the proxy's connections to it are not inbound again; DNS may stand beside it."""
        for rule in self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_IN_REDIRECT), Destination, OutInterface, Port, Owner):
            ports = [port for port in _match(rule, Port).ports if isinstance(port, int)]
            return next((port for port in ports if port != DNS_PORT), DNS_PORT)
        returned = _ports(self.find(NAT, ISTIO_INBOUND, Return, Port))
        return returned[0] if returned else None

    def inbound(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tunnel = self._tunnel()
        if tunnel is None:
            self.unread.append("--inbound-tunnel-port: no rule names it")
        else:
            found["tunnel_port"] = tunnel
        spared = list(_ports(self.find(NAT, ISTIO_INBOUND, Return, Port), unique=False))
        if tunnel in spared:
            spared.remove(tunnel)
        if not (
            self.find(MANGLE, ISTIO_TPROXY, Tproxy, Destination, Protocol)
            or self.find(MANGLE, PREROUTING, SaveMark, Protocol, Mark)
        ):
            ports = self.inbound_ports(NAT, ISTIO_IN_REDIRECT)
            return found | {"inbound_mode": REDIRECT, "inbound_ports": ports, "exclude_inbound_ports": tuple(spared)}
        found |= {"inbound_ports": self.inbound_ports(MANGLE, ISTIO_TPROXY)}
        found["exclude_inbound_ports"] = _ports(self.find(MANGLE, ISTIO_INBOUND, Return, Port))
        return found | self.transparent(bool(found["inbound_ports"]))

    def outbound(self) -> dict[str, Any]:
        captured = self.networks(Jump(chain=ISTIO_REDIRECT))
        spared = self.networks(Return)
        found: dict[str, Any] = {}
        if spared[IPV4]:
            found["loopback_cidr"] = spared[IPV4][0]
        found["exclude_outbound_cidrs"] = tuple([network for family in FAMILIES for network in spared[family][1:]])
        everything = all(
            self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), family=family) for family in self.on()
        )
        if everything and self._to_itself() and all(captured[family] == [_WHOLE[family]] for family in self.on()):
            found["outbound_cidrs"] = ALL
        else:
            found["outbound_cidrs"] = _join(captured, self.on(), self._to_itself())
        return found

    def _to_itself(self) -> bool:
        """Whether what the application sends to itself is spared: not where loopback networks are captured."""
        return any(
            isinstance(rule.target, Return)
            and any(isinstance(match, OutInterface) for match in rule.matches)
            and any(isinstance(match, Owner) and match.negated for match in rule.matches)
            for chains in self.rules.values()
            for rule in chains.get((NAT, ISTIO_OUTPUT), ())
        )

    def dns(self) -> dict[str, Any]:
        """What of DNS is captured."""
        if not any(
            (RAW, ISTIO_OUTPUT_DNS) in chains or (NAT, ISTIO_OUTPUT_DNS) in chains for chains in self.rules.values()
        ):
            return {"redirect_dns": False}
        if self.find(NAT, ISTIO_OUTPUT_DNS, Redirect, Port):
            return {"redirect_dns": True, "capture_all_dns": True}
        servers: dict[str, None] = {}
        for family in FAMILIES:
            for rule in self.find(NAT, ISTIO_OUTPUT_DNS, Redirect, Destination, Port, family=family):
                networks = _match(rule, Destination).networks
                if sum([network.last - network.first + 1 for network in networks]) > MOST_SERVERS:
                    self.unread.append(f"--dns-servers: a rule for more than {MOST_SERVERS} addresses")
                    continue
                numbers = [number for network in networks for number in range(network.first, network.last + 1)]
                servers.update(dict.fromkeys([text_of(number, family) for number in numbers]))
        if not servers:
            self.unread.append("--dns-servers: servers of IPv6, which is off, so that no rule names them")
            servers[_STAND_IN] = None
        return {"redirect_dns": True, "dns_servers": tuple(servers)}


class _Classic(_Layout):
    layout = CLASSIC

    def ipv6(self) -> str:
        return OFF if self.find(FILTER, INPUT, Reject, family=IPV6) else ON

    def proxy(self) -> dict[str, Any]:
        owners = [_match(rule, Owner) for rule in self.find(NAT, ISTIO_OUTPUT, Return, Owner)]
        found: dict[str, Any] = {}
        for kind, field, flag in (("uid", "proxy_uids", "--proxy-uid"), ("gid", "proxy_gids", "--proxy-gid")):
            numbers = tuple(
                dict.fromkeys([owner.number for owner in owners if owner.kind == kind and not owner.negated])
            )
            if numbers:
                found[field] = numbers
            else:
                self.unread.append(f"{flag}: no rule names one")
        return found

    def inbound(self) -> dict[str, Any]:
        transparent = self.find(MANGLE, ISTIO_TPROXY, Tproxy, Destination, Protocol, family=IPV4)
        table, to = (MANGLE, ISTIO_TPROXY) if transparent else (NAT, ISTIO_IN_REDIRECT)
        ports = self.inbound_ports(table, to)
        # The first port that is spared is that of ssh, always.
        spared = _ports(self.find(table, ISTIO_INBOUND, Return, Port), unique=False)[1:]
        found = {"inbound_ports": ports, "exclude_inbound_ports": spared if ports == ALL else ()}
        return found | (self.transparent(port=1) if transparent else {"inbound_mode": REDIRECT})

    def outbound(self) -> dict[str, Any]:
        captured = self.networks(Jump(chain=ISTIO_REDIRECT))
        spared = {
            family: networks[1:] for family, networks in self.networks(Return).items()
        }  # the loopback stands first
        ends = self._ends_with_return()
        if ends:
            spared = {family: networks[:-1] for family, networks in spared.items()}  # the rule at the end
        own = self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), Destination, OutInterface)
        found: dict[str, Any] = {"keep_local_loopback": not own}
        found["exclude_outbound_cidrs"] = tuple([network for family in FAMILIES for network in spared[family]])
        listed = tuple([network for family in FAMILIES for network in captured[family]])
        found["outbound_cidrs"] = ALL if listed and not ends else listed
        if ends and not listed:
            self.unread.append("--istio-service-cidr: networks of IPv6, which is off, so that no rule names them")
            found["outbound_cidrs"] = (Network.parse(f"{_STAND_IN}/32"),)
        return found

    def _ends_with_return(self) -> bool:
        """Whether the last rule spares everything else, which is there only where networks are captured."""
        lasts = [rules[-1] for chains in self.rules.values() if (rules := chains.get((NAT, ISTIO_OUTPUT)))]
        return any(isinstance(rule.target, Return) and not rule.matches for rule in lasts)


def _join(
    networks: Mapping[Family, list[Network]], families: tuple[Family, ...], spares_itself: bool
) -> tuple[Network, ...]:
    """The networks of both families.

    A loopback network may be hidden, by IPv6 that is off or by a listing that joins neighbours; what tells of it is that
    the rule for the application's traffic to itself is missing.
    """
    listed = [network for family in FAMILIES for network in networks[family]]
    if not spares_itself and not any(covers(own, network) for network in listed for own in _LOOPBACKS):
        joined = [own for own in _LOOPBACKS if any(covers(network, own) for network in listed)]
        listed += _LOOPBACKS[1:] if IPV6 not in families else joined
    return tuple(listed)


def _has(rule: Rule, kinds: tuple[type[Match], ...]) -> bool:
    return len(rule.matches) == len(kinds) and all(
        any(isinstance(match, kind) for match in rule.matches) for kind in kinds
    )


def _match(rule: Rule, kind: type[Kind]) -> Kind:
    return next(match for match in rule.matches if isinstance(match, kind))


def _asks_set(rule: Rule) -> bool:
    """Whether the only match asks an address set whose content is not known."""
    return (
        len(rule.matches) == 1 and isinstance(rule.matches[0], UnknownMatch) and "--match-set" in rule.matches[0].text
    )


def _ports(rules: list[Rule], *, protocol: str = "", unique: bool = True) -> tuple[int, ...]:
    """The single ports that rules name, in order."""
    found: list[int] = []
    for rule in rules:
        match = _match(rule, Port)
        if not match.source and not match.negated and protocol in ("", match.protocol):
            for port in match.ports:
                found += [port] if isinstance(port, int) else range(port[0], port[1] + 1)
    return tuple(dict.fromkeys(found) if unique else found)
