"""Infer options from rules of the classic layout."""

from __future__ import annotations

from typing import Any

from netinit.base.net import FAMILIES, IPV4, IPV6, Network
from netinit.options import OFF, ON, REDIRECT
from netinit.options.kinds import ALL
from netinit.rules.infer_options.layout_reader import NETWORKS_UNREAD, STAND_IN, LayoutReader, find_match, listed_ports
from netinit.rules.matches.packet import Destination, OutInterface, Owner, Port, Protocol
from netinit.rules.model import (
    FILTER,
    INPUT,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    ISTIO_REDIRECT,
    ISTIO_TPROXY,
    MANGLE,
    NAT,
    OUTPUT,
)
from netinit.rules.targets import Jump, Reject, Return, Tproxy


class Classic(LayoutReader):
    """The inverse of `netinit.rules.layouts.classic`."""

    def recognises(self) -> bool:
        """Whether the jump to ISTIO_OUTPUT matches TCP only.

        Without the jump, whether no rule of the current layout exists: the tunnel's, or that for the proxy's own pod.
        """
        for chains in self.rules.values():
            jumps = [rule for rule in chains.get((NAT, OUTPUT), ()) if rule.target == Jump(chain=ISTIO_OUTPUT)]
            if jumps:
                return bool(jumps[-1].matches)  # earlier jumps belong to Docker's resolver
        firsts = [chains[NAT, ISTIO_INBOUND][0] for chains in self.rules.values() if chains.get((NAT, ISTIO_INBOUND))]
        outbound = [rule for chains in self.rules.values() for rule in chains.get((NAT, ISTIO_OUTPUT), ())]
        again = any(rule.target == Jump(chain=ISTIO_IN_REDIRECT) for rule in outbound)
        return not (again or any(isinstance(rule.target, Return) for rule in firsts))

    def ipv6_unless_refused(self) -> str:
        return OFF if self.find(FILTER, INPUT, Reject, family=IPV6) else ON

    def proxy(self) -> dict[str, Any]:
        return self.users_and_groups([find_match(rule, Owner) for rule in self.find(NAT, ISTIO_OUTPUT, Return, Owner)])

    def inbound(self) -> dict[str, Any]:
        transparent = self.find(MANGLE, ISTIO_TPROXY, Tproxy, Destination, Protocol, family=IPV4)
        table, to = (MANGLE, ISTIO_TPROXY) if transparent else (NAT, ISTIO_IN_REDIRECT)
        ports = self.inbound_ports(table, to)
        # The first excluded port is always ssh's.
        excluded = listed_ports(self.find(table, ISTIO_INBOUND, Return, Port), unique=False)[1:]
        found = {"inbound_ports": ports, "exclude_inbound_ports": excluded if ports == ALL else ()}
        return found | (self.transparent(port=1) if transparent else {"inbound_mode": REDIRECT})

    def outbound(self) -> dict[str, Any]:
        captured = self.networks(Jump(chain=ISTIO_REDIRECT))
        excluded = self.networks(Return)
        ends = self._ends_with_return()
        for family, networks in excluded.items():
            if not self.refuses(family):  # begins with the loopback and ends with the rule for everything else
                excluded[family] = networks[1:-1] if ends else networks[1:]
        own = self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), Destination, OutInterface)
        found: dict[str, Any] = {"keep_local_loopback": not own}
        found["exclude_outbound_cidrs"] = tuple([network for family in FAMILIES for network in excluded[family]])
        listed = tuple([network for family in FAMILIES for network in captured[family]])
        found["outbound_cidrs"] = ALL if listed and not ends else listed
        if ends and not listed:
            self.unread.append(NETWORKS_UNREAD)
            found["outbound_cidrs"] = (Network.parse(f"{STAND_IN}/32"),)
        return found

    def _ends_with_return(self) -> bool:
        """Whether the last rule excludes everything else: only then are networks captured."""
        lasts = [rules[-1] for chains in self.rules.values() if (rules := chains.get((NAT, ISTIO_OUTPUT)))]
        return any(isinstance(rule.target, Return) and not rule.matches for rule in lasts)
