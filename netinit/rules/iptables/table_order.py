"""The order in which the tables of iptables change, so that one captures at any time and none rejects what another redirects."""

from __future__ import annotations

from netinit.rules.model import FILTER, ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_PRERT, ISTIO_TPROXY, OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Chains = Mapping[str, Collection[str]]  # names of chains by table

REFUSING = (ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_PRERT)  # in filter these reject what nat would redirect


def order_tables(target: Chains, listed: Chains, skip: Sequence[str]) -> tuple[list[str], bool]:
    """Return the tables in the order of their commits, and whether rules that reject are deleted in a commit before them."""
    names = [name for name in (*target, *[n for n in listed if n not in target]) if name not in skip]
    names.sort(key=lambda name: _stops_capturing(target.get(name, ()), listed.get(name, ())))
    if FILTER in listed and FILTER in names and FILTER not in target:
        names.sort(key=lambda name: name != FILTER)
        return names, False
    return names, FILTER in listed and FILTER in names[1:]


def _stops_capturing(target: Collection[str], listed: Collection[str]) -> bool:
    if OWNED_CHAINS.isdisjoint(listed):
        return False
    return not target or (ISTIO_TPROXY in listed and ISTIO_TPROXY not in target)
