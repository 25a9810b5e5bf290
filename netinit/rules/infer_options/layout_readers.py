"""Recognise a layout by its rules, and read the options that these do not name as they were given.

All other options are read where `find_places` found them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, PortRange, Ports, covers, merge_ports
from netinit.options import DNS_PORT, INET, OFF, ON, REJECT, TPROXY, Interception
from netinit.options.kinds import ALL
from netinit.options.udp_redirects import UdpRedirect
from netinit.options.user_ports import PortsOfUsers
from netinit.rules import model
from netinit.rules.infer_options import release_plans as older
from netinit.rules.infer_options.places import WHOLE, RulesByShape, find_places, shape_of_rule
from netinit.rules.matches import Match
from netinit.rules.matches.context import Mark, UnknownMatch
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.model import FILTER, ISTIO_IN_REDIRECT, ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_OUTPUT_DNS, NAT, Rule
from netinit.rules.targets import Accept, Jump, Redirect, Reject, Return, Target

Kind = TypeVar("Kind", bound=Match)
Chains = Mapping[tuple[str, str], Sequence[Rule]]  # (table, chain) -> our rules of one family
Routing = Mapping[int, int]  # mark -> routing table
STAND_IN = "2001:db8::"  # for IPv6 addresses that no rule shows because IPv6 is off
ONLY_STAND_IN = (Network.parse(f"{STAND_IN}/32"),)
NETWORKS_UNREAD = "--istio-service-cidr: networks of IPv6, which is off, so that no rule names them"
LOOPBACKS = (Network.parse("127.0.0.0/8"), Network.parse("::1/128"))
PASSTHROUGH = Network.parse(IPV4.passthrough)
UDP = Protocol(name="udp")
TO_PROXY = Jump(chain=model.ISTIO_REDIRECT)


class LayoutReader:
    """The base of the layouts' readers, which are called like their layouts."""

    def __init__(self, rules: Mapping[Family, Chains], routing: Routing, minor: int | None = None) -> None:
        """Read rules; `minor`: of the release of Istio 1 that made them, if it is an earlier one."""
        self.minor = minor
        self.rules = rules
        self.routing = routing
        self.unread: list[str] = []
        refused = {(FILTER, model.ISTIO_REFUSE_IN), (FILTER, model.ISTIO_REFUSE_OUT)} & self.rules.get(IPV6, {}).keys()
        self.ipv6 = REJECT if refused else self.ipv6_unless_refused()
        self.captured = (IPV4,) if self.ipv6 in (OFF, INET) else FAMILIES

    @property
    def layout(self) -> str:
        """The layout, which the reader is called like."""
        return type(self).__name__.lower()

    def _is_before(self, minor: int) -> bool:
        return self.minor is not None and self.minor < minor

    def recognises(self) -> bool:
        """Whether the rules have this layout and none of those before it in the table; the first has no signs of its own."""
        return True

    def ipv6_unless_refused(self) -> str:
        """Return the value of --ipv6 if no rule rejects IPv6 as a whole."""
        raise NotImplementedError

    def first_fields(self) -> dict[str, Any]:
        """Return the fields that this reader reads by itself, before all others."""
        raise NotImplementedError

    def correct(self, found: dict[str, Any]) -> None:
        """Change what was found where other rules give it another meaning."""
        raise NotImplementedError

    def fields(self) -> dict[str, Any]:
        """Return the option fields that the rules show, but for the layout."""
        places, words, _ = find_places(self.layout, self.minor)
        live: dict[Family, RulesByShape] = {family: {} for family in self.rules}
        for family, chains in self.rules.items():
            for number, (table, chain, rule) in enumerate([(*place, rule) for place, rules in chains.items() for rule in rules]):
                live[family].setdefault(shape_of_rule(table, chain, rule), {})[number] = rule
        found: dict[str, Any] = dict([words[shape] for rules in live.values() for shape in rules if shape in words])
        found |= {"ipv6": self.ipv6} | self.first_fields()
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

    # ---- finding rules -------------------------------------------------------------------------------------------------------

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

    def rules_of(self, table: str, chain: str) -> list[Sequence[Rule]]:
        """Return the rules of a chain in each family that has any."""
        return [found for chains in self.rules.values() if (found := chains.get((table, chain)))]

    def warn_of_sets(self) -> None:
        """Say which networks are in address sets that cannot be read."""
        for family in FAMILIES:
            for rule in self.rules.get(family, {}).get((NAT, ISTIO_OUTPUT), ()):
                set_alone = [match for match in rule.matches if isinstance(match, UnknownMatch) and "--match-set" in match.text]
                if len(rule.matches) == len(set_alone) == 1 and isinstance(rule.target, (Jump, Return)):
                    flag = "--istio-service-cidr" if isinstance(rule.target, Jump) else "--istio-service-exclude-cidr"
                    self.unread.append(f"{flag}: the address set of {family.name} cannot be read")

    def refuses(self, family: Family) -> bool:
        """Whether the family is rejected."""
        return family is IPV6 and self.ipv6 == REJECT


def holds_exactly(rule: Rule, kinds: tuple[type[Match], ...]) -> bool:
    """Whether a rule has one match of each kind and no other."""
    return len(rule.matches) == len(kinds) and all(any(isinstance(match, kind) for match in rule.matches) for kind in kinds)


def find_match(rule: Rule, kind: type[Kind]) -> Kind:
    """Return the rule's match of this kind, which must exist."""
    return next(match for match in rule.matches if isinstance(match, kind))


class Ambient(LayoutReader):
    """The inverse of `netinit.rules.layouts.ambient`."""

    def recognises(self) -> bool:
        return any(chain == model.ISTIO_PRERT for chains in self.rules.values() for _, chain in chains)

    def ipv6_unless_refused(self) -> str:
        """On if a rule names IPv6 addresses: all other rules apply to both families."""
        captured = self.find(NAT, ISTIO_OUTPUT, Redirect, Destination, Mark, Protocol, family=IPV6)
        return ON if captured or self.find(NAT, ISTIO_OUTPUT, Accept, Destination, Protocol, family=IPV6) else OFF

    def first_fields(self) -> dict[str, Any]:
        return {"ingress": not self.find(NAT, model.ISTIO_PRERT, Redirect, Destination, Port, Mark)}

    def correct(self, found: dict[str, Any]) -> None:
        """Add the default addresses of probes in a family that is off."""
        if self.ipv6 == OFF:
            default = [address for address in Interception.flag("host_probe_addresses").default if ":" in address]
            found["host_probe_addresses"] = (*found.get("host_probe_addresses", ()), *default)


def find_jump(rules: Mapping[Family, Chains]) -> Rule | None:
    """Return the jump to ISTIO_OUTPUT; earlier ones belong to Docker's resolver, and a later one to DNS."""
    for family in FAMILIES:
        jumps = [rule for rule in rules.get(family, {}).get((NAT, model.OUTPUT), ()) if rule.target == Jump(chain=ISTIO_OUTPUT)]
        if jumps := [rule for rule in jumps if UDP not in rule.matches]:
            return jumps[-1]
    return None


def _sources(rule: Rule) -> list[Network]:
    return [network for match in rule.matches if isinstance(match, Source) and not match.negated for network in match.networks]


class Classic(LayoutReader):
    """The inverse of `netinit.rules.layouts.classic`, and of `release_plans` for the releases that it knows."""

    def recognises(self) -> bool:
        """Whether what the proxy sends to its own pod is not inbound again, and the jump to ISTIO_OUTPUT matches TCP only.

        Without the jump, whether no rule of the current layout exists: the tunnel's, or that for the proxy's own pod.
        """
        outbound = [rule for rules in self.rules_of(NAT, ISTIO_OUTPUT) for rule in rules]
        again = any(rule.target == Jump(chain=ISTIO_IN_REDIRECT) or PASSTHROUGH in _sources(rule) for rule in outbound)
        jump = find_jump(self.rules)
        if again or jump:
            return not again and bool(jump and jump.matches)
        return not any(isinstance(rules[0].target, Return) for rules in self.rules_of(NAT, ISTIO_INBOUND))

    def ipv6_unless_refused(self) -> str:
        return OFF if self.find(FILTER, model.INPUT, Reject, family=IPV6) else ON

    def first_fields(self) -> dict[str, Any]:
        if not self.rules.get(IPV6, True):  # without the family, the kernel has no IPv6
            self.unread.append("--ipv6: no rule is for IPv6, as if it is rejected where none of it would be captured")
        return {"keep_local_loopback": not self.find(NAT, ISTIO_OUTPUT, TO_PROXY, Destination, OutInterface)}

    def correct(self, found: dict[str, Any]) -> None:
        self.warn_of_sets()
        self._correct_networks(found)
        if not self.rules.get(IPV6, True) and not found.get("inbound_ports") and found["outbound_cidrs"] != ALL:
            found["ipv6"] = REJECT  # with which these are all rules

    def _correct_networks(self, found: dict[str, Any]) -> None:
        excluded, captured = list(found.get("exclude_outbound_cidrs", ())), found.get("outbound_cidrs", ())
        lasts = [rules[-1] for rules in self.rules_of(NAT, ISTIO_OUTPUT)]
        if not any(isinstance(rule.target, Return) and not rule.matches for rule in lasts):  # else: everything else is excluded
            found["outbound_cidrs"] = ALL if captured else ()
            return
        if not captured and IPV6 in self.captured:  # the last rule is of an excluded network that holds everything
            found["outbound_cidrs"] = ()
            return
        excluded.reverse()  # the last rule of a chain is that for everything else
        for family in self.captured:
            if WHOLE[family] in excluded and not self.refuses(family):
                excluded.remove(WHOLE[family])
        found["exclude_outbound_cidrs"] = tuple(reversed(excluded))
        if not captured:
            self.unread.append(NETWORKS_UNREAD)
            found["outbound_cidrs"] = ONLY_STAND_IN


class Current(LayoutReader):
    """The inverse of `netinit.rules.layouts.current`, and of `release_plans` for the releases that it knows."""

    def ipv6_unless_refused(self) -> str:
        ours = [rule for (_, chain), rules in self.rules.get(IPV6, {}).items() if chain in model.OWNED_CHAINS for rule in rules]
        named = any(isinstance(match, Destination | Source) for rule in ours for match in rule.matches)
        return ON if named else INET if ours else OFF

    def first_fields(self) -> dict[str, Any]:
        tunnel = 0 if self._is_before(older.WITH_TUNNEL) else self._tunnel()
        if tunnel is None:
            self.unread.append("--inbound-tunnel-port: no rule names it")
            tunnel = Interception.flag("tunnel_port").default
        if self.minor is not None:
            return {"tunnel_port": tunnel}
        users = {f"exclude_outbound_for_{kind}s": self._ports_of_users(kind) for kind in ("uid", "gid")}
        return {"tunnel_port": tunnel, "redirect_outbound_udp": self._redirected_datagrams()} | users

    def _own_services(self, ports: type[Port | Protocol]) -> list[Rule]:
        """Return the rules that make the proxy's connections to its own pod inbound: except for some ports, or all."""
        return self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_IN_REDIRECT), Destination, OutInterface, ports, Owner)

    def _tunnel(self) -> int | None:
        """Return the tunnel's port, 0 for none; the same rule may exclude DNS."""
        if self._own_services(Protocol):
            return 0
        for rule in reversed(self._own_services(Port)):  # groups come last, and their rules do not mention DNS
            ports = [port for port in find_match(rule, Port).ports if isinstance(port, int)]
            dns = self.rules_of(model.RAW, ISTIO_OUTPUT_DNS) or self.rules_of(NAT, ISTIO_OUTPUT_DNS)
            alone = find_match(rule, Owner).kind == "gid" or not dns
            return next((port for port in ports if port != DNS_PORT), DNS_PORT if alone else 0)
        returned = [port for rule in self.find(NAT, ISTIO_INBOUND, Return, Port) for port in find_match(rule, Port).ports]
        return returned[0] if returned and isinstance(returned[0], int) else None

    def correct(self, found: dict[str, Any]) -> None:
        self.warn_of_sets()
        if self._is_before(older.WITH_TUNNEL) and found.get("inbound_ports") != ALL:
            found.pop("exclude_inbound_ports", None)  # the tunnel's alone, which the release always excluded
        for_all = self._is_before(older.WITH_DNS_SERVERS) or self.find(NAT, self._dns_chain(), Redirect, Port)
        if found.get("redirect_dns") and for_all:
            found["capture_all_dns"] = True
        elif found.get("redirect_dns") and not found.get("dns_servers"):
            self.unread.append("--dns-servers: servers of IPv6, which is off, so that no rule names them")
            found["dns_servers"] = (STAND_IN,)
        refused = [rule for rules in self.rules_of(FILTER, model.ISTIO_REFUSE_IN) for rule in rules]
        of_vms = [rule.matches for rule in refused if any(isinstance(match, InInterface) for match in rule.matches)]
        if any(isinstance(match, Port) and match.ports == (DNS_PORT,) for matches in of_vms for match in matches):
            found["redirect_forwarded_dns"] = True  # with name servers of IPv6 alone nothing else shows it
        families = self.captured
        captured = found.get("outbound_cidrs", ())
        forwarded = [rule for rules in self.rules_of(FILTER, model.FORWARD)[:1] for rule in rules]
        if not captured and any(rule.target.calls == model.ISTIO_DROP for rule in forwarded):  # what VMs send
            self.unread.append(NETWORKS_UNREAD)
            captured = ONLY_STAND_IN
        all_networks = [network for network in captured if network.family in families] == [WHOLE[family] for family in families]
        to_proxy = [self.refuses(one) or self.find(NAT, ISTIO_OUTPUT, TO_PROXY, family=one) for one in families]
        excludes_itself = self._is_before(older.WITH_OWNER_RULES) or any(  # not if loopback networks are captured
            isinstance(rule.target, Return)
            and any(isinstance(match, OutInterface) for match in rule.matches)
            and any(isinstance(match, Owner) and match.negated for match in rule.matches)
            for rules in self.rules_of(NAT, ISTIO_OUTPUT) for rule in rules
        )  # fmt: skip
        everything = all_networks and all(to_proxy) and excludes_itself
        found["outbound_cidrs"] = ALL if everything else _join(captured, families, excludes_itself)

    def _dns_chain(self) -> str:
        """Return the chain of nat that redirects DNS over UDP."""
        return ISTIO_OUTPUT_DNS if self.minor is None else ISTIO_OUTPUT if self.minor >= older.WITH_DNS_IN_OUTPUT else model.OUTPUT

    def _redirected_datagrams(self) -> tuple[UdpRedirect, ...]:
        found: dict[UdpRedirect, None] = {}
        for rule in self.find(NAT, ISTIO_OUTPUT, Redirect, OutInterface, Port):
            sent = find_match(rule, Port)
            if sent.protocol == "udp" and not sent.negated and isinstance(rule.target, Redirect):
                ports = [port if isinstance(port, int) else PortRange(port) for port in sent.ports]
                found |= dict.fromkeys([UdpRedirect(port=port, to=rule.target.port) for port in ports])
        return tuple(found)

    def _ports_of_users(self, kind: str) -> tuple[PortsOfUsers, ...]:
        found: dict[tuple[str, int, int], Ports] = {}
        for rule in [rule for rules in self.rules_of(NAT, ISTIO_OUTPUT)[:1] for rule in rules]:
            of_ports = holds_exactly(rule, (Port, Owner))
            if not isinstance(rule.target, Return) or not (of_ports or holds_exactly(rule, (Protocol, Owner))):
                continue
            owner = find_match(rule, Owner)
            if owner.kind == kind and not owner.negated:
                ports = find_match(rule, Port).ports if of_ports else ()
                protocol = find_match(rule, Port).protocol if of_ports else find_match(rule, Protocol).name
                key = (protocol, owner.first, owner.last)
                found[key] = merge_ports((*found.get(key, ()), *[one if isinstance(one, int) else PortRange(one) for one in ports]))
        return tuple([PortsOfUsers(protocol=key[0], ports=ports, first=key[1], last=key[2]) for key, ports in found.items()])


def _join(listed: tuple[Network, ...], families: tuple[Family, ...], excludes_itself: bool) -> tuple[Network, ...]:
    """Add a loopback network that IPv6 or another network hides: it shows in the lack of the rule for own traffic."""
    if excludes_itself or any(covers(own, network) for network in listed for own in LOOPBACKS):
        return listed
    joined = tuple([own for own in LOOPBACKS if any(covers(network, own) for network in listed)])
    return listed + (joined if IPV6 in families else LOOPBACKS[1:])
