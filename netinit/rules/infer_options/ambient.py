"""Infer options from rules of the ambient layout."""

from __future__ import annotations

from typing import Any

from netinit.base.net import IPV6
from netinit.options import OFF, ON, Interception
from netinit.rules.infer_options.layout_reader import LayoutReader
from netinit.rules.matches.context import Mark
from netinit.rules.matches.packet import Destination, Port, Protocol
from netinit.rules.model import ISTIO_OUTPUT, ISTIO_PRERT, NAT
from netinit.rules.targets import Accept, Redirect


class Ambient(LayoutReader):
    """The inverse of `netinit.rules.layouts.ambient`."""

    def recognises(self) -> bool:
        return any(chain == ISTIO_PRERT for chains in self.rules.values() for _, chain in chains)

    def first_fields(self) -> dict[str, Any]:
        captured = self.find(NAT, ISTIO_PRERT, Redirect, Destination, Port, Mark)
        return super().first_fields() | {"ingress": not captured}

    def correct(self, found: dict[str, Any]) -> None:
        """Add the default addresses of probes in a family that is off."""
        if found["ipv6"] == OFF:
            default = [address for address in Interception.flag("host_probe_addresses").default if ":" in address]
            found["host_probe_addresses"] = (*found.get("host_probe_addresses", ()), *default)

    def ipv6_unless_refused(self) -> str:
        """On if a rule names IPv6 addresses: all other rules apply to both families."""
        captured = self.find(NAT, ISTIO_OUTPUT, Redirect, Destination, Mark, Protocol, family=IPV6)
        return ON if captured or self.find(NAT, ISTIO_OUTPUT, Accept, Destination, Protocol, family=IPV6) else OFF
