"""Infer options from rules of the ambient layout."""

from __future__ import annotations

from typing import Any

from netinit.base.net import FAMILIES, IPV4, IPV6, text_of
from netinit.options import DNS_LISTENER, OFF, ON, Interception
from netinit.rules.infer_options.layout_reader import LayoutReader, find_match
from netinit.rules.matches.context import Mark
from netinit.rules.matches.packet import AddressMatch, Destination, InInterface, Port, Protocol, Source
from netinit.rules.model import FILTER, ISTIO_OUTPUT, ISTIO_PRERT, ISTIO_REFUSE_OUT, NAT, RAW
from netinit.rules.targets import Accept, Redirect, Return


class Ambient(LayoutReader):
    """The inverse of `netinit.rules.layouts.ambient`."""

    def recognises(self) -> bool:
        return any(chain == ISTIO_PRERT for chains in self.rules.values() for _, chain in chains)

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {"ipv6": self.ipv6()} | self.outbound() | self.inbound()
        coming = self.find(NAT, ISTIO_PRERT, Redirect, InInterface, Protocol)
        found["virtual_interfaces"] = tuple([name for rule in coming for name in find_match(rule, InInterface).names])
        found["redirect_dns"] = bool(
            self.find(NAT, ISTIO_OUTPUT, Redirect(port=DNS_LISTENER), Destination, Port, Mark)
            or self.has_chain(ISTIO_OUTPUT, RAW)
        )
        found["host_probe_addresses"] = self._probes()
        return found

    def ipv6_unless_refused(self) -> str:
        """On if a rule names IPv6 addresses: all other rules apply to both families."""
        captured = self.find(NAT, ISTIO_OUTPUT, Redirect, Destination, Mark, Protocol, family=IPV6)
        return ON if captured or self.find(NAT, ISTIO_OUTPUT, Accept, Destination, Protocol, family=IPV6) else OFF

    def outbound(self) -> dict[str, Any]:
        return self.redirect_port("outbound_port", "--envoy-port", ISTIO_OUTPUT, Destination, Mark, Protocol)

    def inbound(self) -> dict[str, Any]:
        captured = self.find(NAT, ISTIO_PRERT, Redirect, Destination, Port, Mark)
        if not captured:
            return {"ingress": True}
        found: dict[str, Any] = {"inbound_port": captured[0].target.captures_at}
        tunnel = [port for port in find_match(captured[0], Port).ports if isinstance(port, int)]
        return found | ({"tunnel_port": tunnel[0]} if tunnel else {})

    def _probes(self) -> tuple[str, ...]:
        """Return the probes' addresses; a family that is off keeps its default."""
        found: list[str] = []
        for family in FAMILIES:
            rules = self.find(NAT, ISTIO_OUTPUT, Accept, Destination, Protocol, family=family)
            rules = rules or self.find(NAT, ISTIO_PRERT, Accept, Source, Protocol, family=family)
            rules = rules or self.find(FILTER, ISTIO_REFUSE_OUT, Return, Destination, family=family)
            matches = [match for rule in rules for match in rule.matches if isinstance(match, AddressMatch)]
            found += [text_of(network.first, family) for match in matches for network in match.networks]
            if family is not IPV4 and self.ipv6() == OFF:
                found += [address for address in Interception.flag("host_probe_addresses").default if ":" in address]
        return tuple(found)
