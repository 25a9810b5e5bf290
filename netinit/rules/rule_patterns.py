"""Patterns of the layouts' rules in built-in chains, with placeholders for values.

They identify rules of an earlier run (netinit.rules.iptables.ownership). Each option whose value appears in such a rule
is rendered with a unique value, which a placeholder replaces.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES
from netinit.options import LAYOUTS, OFF, ON, TPROXY, Interception
from netinit.options.interception import SIDECAR
from netinit.rules import layouts
from netinit.rules.iptables.ownership import (
    EXCLUDED,
    EXCLUDED_NAME,
    GID,
    LOOPBACK,
    OTHER,
    PLACEHOLDERS,
    TPROXY_MARK,
    UID,
    VIRTUAL_NAME,
    Anchor,
    LayoutPatterns,
    RulePattern,
    ValuePlace,
    jumps_to_ours,
    read_values,
    target_of,
)
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.iptables.write import list_rules, write_plan
from netinit.rules.model import OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from netinit.rules.iptables.ownership import Key

_VALUES: dict[str, Any] = {
    "inbound_mode": TPROXY, "inbound_ports": "*", "outbound_cidrs": "*", "proxy_uids": (UID,), "proxy_gids": (GID,),
    "tproxy_mark": TPROXY_MARK, "virtual_interfaces": (VIRTUAL_NAME,),
    "exclude_interfaces": (EXCLUDED_NAME,), "loopback_cidr": LOOPBACK, "redirect_dns": True, "capture_all_dns": True,
}  # fmt: skip
# Without the last option, another jump comes first. Istio's own rules that refuse IPv6 are in no chain of ours.
_VARIANTS: tuple[dict[str, Any], ...] = ({"ipv6": ON, "drop_invalid": True}, {"ipv6": OFF}, {"ipv6": OFF, "istio_exact": True})
_computed: list[LayoutPatterns] = []


def make_patterns() -> LayoutPatterns:
    """Compute the patterns of all layouts."""
    rules: dict[RulePattern, None] = {}
    runs: dict[tuple[str, str, tuple[Key, ...]], None] = {}
    value_places: dict[ValuePlace, None] = {}
    behind: dict[tuple[str, str], set[str]] = {}  # table and chain -> what follows its rules for excluded interfaces
    for table, chains in _render():
        confirmed = not OWNED_CHAINS.isdisjoint(chains)
        for chain, (keys, inserted) in chains.items():
            ours = [key for key in keys if chain in OWNED_CHAINS or jumps_to_ours(key)]
            value_places.update({place: None for key in ours for place in _find_value_places(table, chain, key)})
            if chain in OWNED_CHAINS:
                continue
            own = [(number, key) for number, key in enumerate(keys) if key not in ours]
            if not confirmed and own:
                runs[table, chain, tuple([key for _, key in own])] = None
                continue
            for number, key in own:
                kinds = tuple([kind for kind, _ in read_values(key, key) or ()])
                rules[RulePattern(table=table, chain=chain, key=key, placeholders=kinds, inserted=number < inserted)] = None
                if EXCLUDED in kinds:
                    behind.setdefault((table, chain), set()).add(target_of(keys[number + 1]) if number + 1 < len(keys) else "")
    anchors = [Anchor(table=place[0], chain=place[1], chains=frozenset(targets)) for place, targets in behind.items()]
    known = tuple([one for one in anchors if one.chains <= OWNED_CHAINS])
    return LayoutPatterns(rules=tuple(rules), runs=tuple(runs), value_places=tuple(value_places), anchors=known)


def layout_patterns() -> LayoutPatterns:
    """Return the patterns of all layouts, computed once."""
    if not _computed:  # functools.cache takes 2 ms of a removal
        _computed.append(make_patterns())
    return _computed[0]


def _render() -> Iterator[tuple[str, dict[str, tuple[list[Key], int]]]]:
    """Yield every table of the layouts' plans, with the keys of each chain's rules and how many are inserted."""
    for layout in SIDECAR:  # in built-in chains, the node agent's rules only jump to chains of ours
        for variant in _VARIANTS if LAYOUTS[layout].refuses_ipv6 else _VARIANTS[:2]:
            values = {field: value for field, value in {**_VALUES, **variant}.items() if Interception.flag(field).applies_to(layout)}
            plan = layouts.plan(Interception(layout=layout, **values))
            for family in FAMILIES:
                listed = list_rules(plan, family)
                for table, chains in write_plan(plan, family).items():
                    yield table, {name: ([*map(normalise_rule, listed[table][name])], one.inserted) for name, one in chains.items()}


def _find_value_places(table: str, chain: str, key: Key) -> Iterator[ValuePlace]:
    for part in key:
        for field in getattr(part, "_fields", ()):
            value = getattr(part, field)
            for one in value if type(value) is tuple else (value,):
                kind = PLACEHOLDERS.get(one, OTHER)
                if kind != OTHER:
                    yield ValuePlace(
                        table=table, chain=chain, target=target_of(key), part=type(part), field=field, placeholder=kind,
                    )  # fmt: skip
