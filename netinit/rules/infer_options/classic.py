"""Infer options from rules of the classic layout."""

from __future__ import annotations

from typing import Any

from netinit.base.net import IPV6, Network
from netinit.options import OFF, ON
from netinit.options.kinds import ALL
from netinit.rules.infer_options.layout_reader import NETWORKS_UNREAD, STAND_IN, LayoutReader
from netinit.rules.infer_options.places import WHOLE
from netinit.rules.matches.packet import Destination, OutInterface
from netinit.rules.model import (
    FILTER,
    INPUT,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_OUTPUT,
    ISTIO_REDIRECT,
    NAT,
    OUTPUT,
)
from netinit.rules.targets import Jump, Reject, Return


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

    def first_fields(self) -> dict[str, Any]:
        if IPV6 not in self.rules:
            self.unread.append("--ipv6: no rule is for IPv6, as if it is rejected where none of it would be captured")
        own = self.find(NAT, ISTIO_OUTPUT, Jump(chain=ISTIO_REDIRECT), Destination, OutInterface)
        return super().first_fields() | {"keep_local_loopback": not own}

    def correct(self, found: dict[str, Any]) -> None:
        self.warn_of_sets()
        excluded, captured = list(found.get("exclude_outbound_cidrs", ())), found.get("outbound_cidrs", ())
        if not self._ends_with_return():
            found["outbound_cidrs"] = ALL if captured else ()
            return
        excluded.reverse()  # the last rule of a chain is that for everything else
        for family in self.on():
            if WHOLE[family] in excluded and not self.refuses(family):
                excluded.remove(WHOLE[family])
        found["exclude_outbound_cidrs"] = tuple(reversed(excluded))
        if not captured:
            self.unread.append(NETWORKS_UNREAD)
            found["outbound_cidrs"] = (Network.parse(f"{STAND_IN}/32"),)

    def _ends_with_return(self) -> bool:
        """Whether the last rule excludes everything else: only then are networks captured."""
        lasts = [rules[-1] for chains in self.rules.values() if (rules := chains.get((NAT, ISTIO_OUTPUT)))]
        return any(isinstance(rule.target, Return) and not rule.matches for rule in lasts)
