"""Which layout made the rules, and what it made them of.

A field is read where the layout writes it, so each method of the three classes stands beside a function of
`netinit.rules.layouts`.
"""

from __future__ import annotations

from netinit.rules.infer_options.ambient import Ambient
from netinit.rules.infer_options.classic import Classic
from netinit.rules.infer_options.current import Current
from netinit.rules.model import ISTIO_IN_REDIRECT, ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_PRERT, NAT, OUTPUT
from netinit.rules.targets import Jump, Return

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from netinit.base.net import Family
    from netinit.rules.infer_options.reading import Chains, Routing


def read_fields(rules: Mapping[Family, Chains], routing: Routing) -> tuple[dict[str, Any], list[str]]:
    """The fields of the options that the rules show, and what they do not show."""
    kind = Ambient if _is_ambient(rules) else Classic if _is_classic(rules) else Current
    reading = kind(rules, routing)
    return reading.fields(), reading.unread


def _is_ambient(rules: Mapping[Family, Chains]) -> bool:
    """Whether a chain is there that no other layout has."""
    return any(chain == ISTIO_PRERT for chains in rules.values() for _, chain in chains)


def _is_classic(rules: Mapping[Family, Chains]) -> bool:
    """Whether the jump to ISTIO_OUTPUT is for TCP alone; where it is missing, whether nothing in our chains is the current layout's.

    That is the tunnel's rule, or the one that makes the proxy's connections to its own pod inbound again.
    """
    for chains in rules.values():
        jumps = [rule for rule in chains.get((NAT, OUTPUT), ()) if rule.target == Jump(chain=ISTIO_OUTPUT)]
        if jumps:
            return bool(jumps[-1].matches)  # those before it are for Docker's resolver
    firsts = [chains[NAT, ISTIO_INBOUND][0] for chains in rules.values() if chains.get((NAT, ISTIO_INBOUND))]
    outbound = [rule for chains in rules.values() for rule in chains.get((NAT, ISTIO_OUTPUT), ())]
    again = any(rule.target == Jump(chain=ISTIO_IN_REDIRECT) for rule in outbound)
    return not (again or any(isinstance(rule.target, Return) for rule in firsts))


