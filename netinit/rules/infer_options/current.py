"""Infer options from rules of the current layout."""

from __future__ import annotations

from typing import Any

from netinit.base.net import IPV6, Family, Network, PortRange, Ports, covers, merge_ports
from netinit.options import DNS_PORT, INET, OFF, ON, Interception
from netinit.options.kinds import ALL
from netinit.options.user_ports import PortsOfUsers
from netinit.rules.infer_options.layout_reader import (
    LOOPBACKS,
    NETWORKS_UNREAD,
    STAND_IN,
    LayoutReader,
    find_match,
    holds_exactly,
)
from netinit.rules.infer_options.places import WHOLE
from netinit.rules.matches.packet import Destination, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.model import (
    FILTER,
    FORWARD,
    ISTIO_DROP,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    ISTIO_OUTPUT_DNS,
    ISTIO_REDIRECT,
    NAT,
    OWNED_CHAINS,
    RAW,
    Rule,
)
from netinit.rules.targets import Jump, Redirect, Return


class Current(LayoutReader):
    """The inverse of `netinit.rules.layouts.current`."""

    def recognises(self) -> bool:
        return True

    def ipv6_unless_refused(self) -> str:
        ours = [rule for (_, chain), rules in self.rules.get(IPV6, {}).items() if chain in OWNED_CHAINS for rule in rules]
        named = any(isinstance(match, Destination | Source) for rule in ours for match in rule.matches)
        return ON if named else INET if ours else OFF

    def first_fields(self) -> dict[str, Any]:
        users = {"exclude_outbound_for_uids": self._ports_of_users("uid"), "exclude_outbound_for_gids": self._ports_of_users("gid")}
        if (tunnel := self._tunnel()) is None:
            self.unread.append("--inbound-tunnel-port: no rule names it")
            tunnel = Interception.flag("tunnel_port").default
        return super().first_fields() | users | {"tunnel_port": tunnel}

    def _own_services(self, ports: type[Port | Protocol]) -> list[Rule]:
        """Return the rules that make the proxy's connections to its own pod inbound: except for some ports, or all."""
        return self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_IN_REDIRECT), Destination, OutInterface, ports, Owner)

    def _tunnel(self) -> int | None:
        """Return the tunnel's port, 0 for none; the same rule may exclude DNS."""
        if self._own_services(Protocol):
            return 0
        for rule in reversed(self._own_services(Port)):  # groups come last, and their rules do not mention DNS
            ports = [port for port in find_match(rule, Port).ports if isinstance(port, int)]
            alone = find_match(rule, Owner).kind == "gid" or not any(self.rules_of(table, ISTIO_OUTPUT_DNS) for table in (RAW, NAT))
            return next((port for port in ports if port != DNS_PORT), DNS_PORT if alone else 0)
        returned = [port for rule in self.find(NAT, ISTIO_INBOUND, Return, Port) for port in find_match(rule, Port).ports]
        return returned[0] if returned and isinstance(returned[0], int) else None

    def correct(self, found: dict[str, Any]) -> None:
        self.warn_of_sets()
        if found.get("redirect_dns") and self.find(NAT, ISTIO_OUTPUT_DNS, Redirect, Port):
            found["capture_all_dns"] = True
        elif found.get("redirect_dns") and not found.get("dns_servers"):
            self.unread.append("--dns-servers: servers of IPv6, which is off, so that no rule names them")
            found["dns_servers"] = (STAND_IN,)
        families = self.on()
        captured = found.get("outbound_cidrs", ())
        if not captured and any(rule.target.calls == ISTIO_DROP for rule in self.rules_of(FILTER, FORWARD)):  # what VMs send
            self.unread.append(NETWORKS_UNREAD)
            captured = (Network.parse(f"{STAND_IN}/32"),)
        all_networks = [network for network in captured if network.family in families] == [WHOLE[family] for family in families]
        to_proxy = [self.refuses(one) or self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), family=one) for one in families]
        everything = all_networks and all(to_proxy) and self._to_itself()
        found["outbound_cidrs"] = ALL if everything else _join(captured, families, self._to_itself())

    def _to_itself(self) -> bool:
        """Whether the application's traffic to itself is excluded; not if loopback networks are captured."""
        return any(
            isinstance(rule.target, Return)
            and any(isinstance(match, OutInterface) for match in rule.matches)
            and any(isinstance(match, Owner) and match.negated for match in rule.matches)
            for chains in self.rules.values() for rule in chains.get((NAT, ISTIO_OUTPUT), ())
        )

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


def _join(listed: tuple[Network, ...], families: tuple[Family, ...], excludes_itself: bool) -> tuple[Network, ...]:
    """Add a loopback network that IPv6 or another network hides: it shows in the lack of the rule for own traffic."""
    if excludes_itself or any(covers(own, network) for network in listed for own in LOOPBACKS):
        return listed
    joined = tuple([own for own in LOOPBACKS if any(covers(network, own) for network in listed)])
    return listed + (joined if IPV6 in families else LOOPBACKS[1:])
