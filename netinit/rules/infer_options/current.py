"""Infer options from rules of the current layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network, PortRange, Ports, covers, merge_ports, text_of
from netinit.options import DNS_PORT, INET, OFF, ON, REDIRECT
from netinit.options.kinds import ALL
from netinit.options.user_ports import PortsOfUsers
from netinit.rules.infer_options.layout_reader import (
    LOOPBACKS,
    MAX_SERVERS,
    NETWORKS_UNREAD,
    STAND_IN,
    WHOLE,
    LayoutReader,
    find_match,
    holds_exactly,
    listed_ports,
)
from netinit.rules.layouts.clouds import CLOUD_METADATA
from netinit.rules.marking_targets import LogTarget, SaveMark
from netinit.rules.matches.context import Mark
from netinit.rules.matches.packet import Destination, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.model import (
    FILTER,
    FORWARD,
    ISTIO_DROP,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_LOG,
    ISTIO_OUTPUT,
    ISTIO_OUTPUT_DNS,
    ISTIO_QUIC,
    ISTIO_REDIRECT,
    ISTIO_REFUSE_IN,
    ISTIO_REFUSE_OUT,
    ISTIO_TPROXY,
    MANGLE,
    NAT,
    OWNED_CHAINS,
    PREROUTING,
    RAW,
    Rule,
)
from netinit.rules.targets import Jump, Redirect, Reject, Return, Tproxy


class Current(LayoutReader):
    """The inverse of `netinit.rules.layouts.current`."""

    def recognises(self) -> bool:
        return True

    def ipv6_unless_refused(self) -> str:
        ours = [rule for (_, chain), rules in self.rules.get(IPV6, {}).items() if chain in OWNED_CHAINS for rule in rules]
        named = any(isinstance(match, Destination | Source) for rule in ours for match in rule.matches)
        return ON if named else INET if ours else OFF

    def fields(self) -> dict[str, Any]:
        found = super().fields() | self.dns()
        found["exclude_interfaces"] = self.excluded_interfaces()
        dropped = any(chains.get((MANGLE, ISTIO_DROP)) for chains in self.rules.values())
        found["drop_invalid"] = bool(self.find(MANGLE, PREROUTING, Jump(chain=ISTIO_DROP)) or dropped)
        found["exclude_outbound_ports"] = listed_ports(self.find(NAT, ISTIO_OUTPUT, Return, Port), protocol="tcp")
        found["exclude_outbound_for_uids"] = self._ports_of_users("uid")
        found["exclude_outbound_for_gids"] = self._ports_of_users("gid")
        found["exclude_inbound_cidrs"] = self._sources()
        found["reject_quic"] = self.has_chain(ISTIO_QUIC, FILTER)
        groups = [rule.target.group for rule in self.rules_of(NAT, ISTIO_LOG) if isinstance(rule.target, LogTarget)]
        found |= {"log_rules": True, "log_group": groups[0]} if groups else {"log_rules": False}
        found["outbound_ports"] = listed_ports(self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), Port))
        return found

    def proxy(self) -> dict[str, Any]:
        owners = [find_match(rule, Owner) for ports in (Port, Protocol) for rule in self._own_services(ports)]
        found = self.users_and_groups(owners)
        return found | self._groups(len(found.get("proxy_gids", ())))

    def _groups(self, of_the_proxy: int) -> dict[str, Any]:
        """Return the captured and excluded groups; the proxy's precede the excluded ones."""
        excluded = [find_match(rule, Owner) for rule in self.find(NAT, ISTIO_OUTPUT, Return, Owner)]
        groups = [owner.number for owner in excluded if owner.kind == "gid" and not owner.negated]
        found: dict[str, Any] = {"exclude_owner_groups": tuple(groups[of_the_proxy:])}
        for rule in self._outbound_rules():
            others = [match for match in rule.matches if isinstance(match, Owner) and match.negated]
            if isinstance(rule.target, Return) and others and len(others) == len(rule.matches):
                return {"owner_groups": tuple([owner.number for owner in others])}
        return found

    def _outbound_rules(self) -> list[Rule]:
        return [rule for chains in self.rules.values() for rule in chains.get((NAT, ISTIO_OUTPUT), ())]

    def _own_services(self, ports: type[Port | Protocol]) -> list[Rule]:
        """Return the rules that make the proxy's connections to its own pod inbound: except for some ports, or all."""
        return self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_IN_REDIRECT), Destination, OutInterface, ports, Owner)

    def _tunnel(self) -> int | None:
        """Return the tunnel's port, 0 for none; the same rule may exclude DNS."""
        if self._own_services(Protocol):
            return 0
        for rule in reversed(self._own_services(Port)):  # groups come last, and their rules do not mention DNS
            ports = [port for port in find_match(rule, Port).ports if isinstance(port, int)]
            alone = find_match(rule, Owner).kind == "gid" or not self.has_chain(ISTIO_OUTPUT_DNS, RAW, NAT)
            return next((port for port in ports if port != DNS_PORT), DNS_PORT if alone else 0)
        returned = listed_ports(self.find(NAT, ISTIO_INBOUND, Return, Port))
        return returned[0] if returned and isinstance(returned[0], int) else None

    def inbound(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tunnel = self._tunnel()
        if tunnel is None:
            self.unread.append("--inbound-tunnel-port: no rule names it")
        else:
            found["tunnel_port"] = tunnel
        excluded = list(listed_ports(self.find(NAT, ISTIO_INBOUND, Return, Port), unique=False))
        if tunnel in excluded:
            excluded.remove(tunnel)
        if not (
            self.find(MANGLE, ISTIO_TPROXY, Tproxy, Destination, Protocol)
            or self.find(MANGLE, PREROUTING, SaveMark, Protocol, Mark)
        ):
            ports = self.inbound_ports(NAT, ISTIO_IN_REDIRECT)
            return found | {"inbound_mode": REDIRECT, "inbound_ports": ports, "exclude_inbound_ports": tuple(excluded)}
        found |= {"inbound_ports": self.inbound_ports(MANGLE, ISTIO_TPROXY)}
        found["exclude_inbound_ports"] = listed_ports(self.find(MANGLE, ISTIO_INBOUND, Return, Port))
        return found | self.transparent(bool(found["inbound_ports"]))

    def outbound(self) -> dict[str, Any]:
        captured = self.networks(Jump(chain=ISTIO_REDIRECT))
        excluded = self.networks(Return)
        found: dict[str, Any] = {}
        if excluded[IPV4]:
            found["loopback_cidr"] = excluded[IPV4][0]
        others = {family: networks if self.refuses(family) else networks[1:] for family, networks in excluded.items()}
        found["exclude_cloud_metadata"] = _take_metadata(others, self.on())
        found["exclude_outbound_cidrs"] = tuple([network for family in FAMILIES for network in others[family]])
        everything = all(
            self.refuses(family) or self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), family=family)
            for family in self.on()
        )
        if everything and self._to_itself() and all(captured[family] == [WHOLE[family]] for family in self.on()):
            found["outbound_cidrs"] = ALL
        else:
            found["outbound_cidrs"] = _join(captured, self.on(), self._to_itself())
            if not found["outbound_cidrs"] and any(rule.target.calls == ISTIO_DROP for rule in self.rules_of(FILTER, FORWARD)):
                self.unread.append(NETWORKS_UNREAD)  # rules for what VMs send are those of captured networks
                found["outbound_cidrs"] = (Network.parse(f"{STAND_IN}/32"),)
        return found

    def _to_itself(self) -> bool:
        """Whether the application's traffic to itself is excluded; not if loopback networks are captured."""
        return any(
            isinstance(rule.target, Return)
            and any(isinstance(match, OutInterface) for match in rule.matches)
            and any(isinstance(match, Owner) and match.negated for match in rule.matches)
            for rule in self._outbound_rules()
        )

    def dns(self) -> dict[str, Any]:
        """Return the options for DNS capture."""
        if not self.has_chain(ISTIO_OUTPUT_DNS, RAW, NAT):
            return {"redirect_dns": False}
        if self.find(NAT, ISTIO_OUTPUT_DNS, Redirect, Port):
            return {"redirect_dns": True, "capture_all_dns": True}
        servers: dict[str, None] = {}
        for family in FAMILIES:
            captured = self.find(NAT, ISTIO_OUTPUT_DNS, Redirect, Destination, Port, family=family)
            for rule in captured or self.find(FILTER, ISTIO_REFUSE_OUT, Reject, Destination, Port, family=family):
                networks = find_match(rule, Destination).networks
                if sum([network.last - network.first + 1 for network in networks]) > MAX_SERVERS:
                    self.unread.append(f"--dns-servers: a rule for more than {MAX_SERVERS} addresses")
                    continue
                numbers = [number for network in networks for number in range(network.first, network.last + 1)]
                servers.update(dict.fromkeys([text_of(number, family) for number in numbers]))
        if not servers:
            self.unread.append("--dns-servers: servers of IPv6, which is off, so that no rule names them")
            servers[STAND_IN] = None
        return {"redirect_dns": True, "dns_servers": tuple(servers)}

    def _ports_of_users(self, kind: str) -> tuple[PortsOfUsers, ...]:
        found: dict[tuple[str, int, int], Ports] = {}
        for rule in self.rules_of(NAT, ISTIO_OUTPUT):
            owner = next((match for match in rule.matches if isinstance(match, Owner)), None)
            if not isinstance(rule.target, Return) or owner is None or owner.kind != kind or owner.negated:
                continue
            if not holds_exactly(rule, (Port, Owner)) and not holds_exactly(rule, (Protocol, Owner)):
                continue
            port = next((match for match in rule.matches if isinstance(match, Port)), None)
            protocol = port.protocol if port else find_match(rule, Protocol).name
            key = (protocol, *owner.bounds)
            ports = () if port is None else tuple([one if isinstance(one, int) else PortRange(one) for one in port.ports])
            found[key] = merge_ports((*found.get(key, ()), *ports))
        return tuple([PortsOfUsers(protocol=key[0], ports=ports, first=key[1], last=key[2]) for key, ports in found.items()])

    def _sources(self) -> tuple[Network, ...]:
        found: list[Network] = []
        for family in FAMILIES:
            for place in ((NAT, ISTIO_INBOUND), (MANGLE, ISTIO_INBOUND), (FILTER, ISTIO_REFUSE_IN)):
                for rule in self.rules.get(family, {}).get(place, ()):
                    if isinstance(rule.target, Return) and (not rule.matches or holds_exactly(rule, (Source,))):
                        found += find_match(rule, Source).networks if rule.matches else (WHOLE[family],)
        return tuple(found)


def _take_metadata(excluded: dict[Family, list[Network]], families: tuple[Family, ...]) -> bool:
    """Remove the metadata networks from the end of each family's exclusions; return whether all had them."""
    wanted = {family: {network for network in CLOUD_METADATA if network.family is family} for family in families}
    found = all(set(excluded[family][-len(networks) :]) == networks for family, networks in wanted.items())
    if found:
        for family, networks in wanted.items():
            del excluded[family][-len(networks) :]
    return found


def _join(
    networks: Mapping[Family, list[Network]], families: tuple[Family, ...], excludes_itself: bool
) -> tuple[Network, ...]:
    """Return the networks of both families; a hidden loopback network shows in the lack of the rule for own traffic."""
    listed = [network for family in FAMILIES for network in networks[family]]
    if not excludes_itself and not any(covers(own, network) for network in listed for own in LOOPBACKS):
        joined = [own for own in LOOPBACKS if any(covers(network, own) for network in listed)]
        listed += LOOPBACKS[1:] if IPV6 not in families else joined
    return tuple(listed)
