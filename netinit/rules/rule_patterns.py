"""Patterns of the layouts' rules in built-in chains, with placeholders for values.

They identify rules of an earlier run (netinit.rules.iptables.ownership). Each option whose value appears in such a rule
is rendered with a unique value, which a placeholder replaces.
"""

from __future__ import annotations

from itertools import pairwise

from netinit.base.net import FAMILIES
from netinit.options import LAYOUTS, OFF, ON, TPROXY, Interception
from netinit.options.interception import SIDECAR
from netinit.rules import layouts
from netinit.rules.iptables.ownership import (
    EXCLUDED,
    MARK,
    OTHER,
    VIRTUAL,
    Anchor,
    LayoutPatterns,
    RulePattern,
    ValuePlace,
    target_of,
)
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from netinit.rules.iptables.write import WrittenChain

TPROXY_MARK, _UID, _GID, _EXCLUDED, _VIRTUAL, _LOOPBACK = 0x7E57AB1E, 4200000011, 4200000013, "excluded0", "virtual0", "127.199.0.0/16"
PLACEHOLDERS = {hex(TPROXY_MARK): MARK, str(_UID): OTHER, str(_GID): OTHER, _EXCLUDED: EXCLUDED, _VIRTUAL: VIRTUAL, _LOOPBACK: OTHER}
_VALUES: dict[str, Any] = {
    "inbound_mode": TPROXY, "inbound_ports": "*", "outbound_cidrs": "*", "proxy_uids": (_UID,), "proxy_gids": (_GID,),
    "tproxy_mark": TPROXY_MARK, "virtual_interfaces": (_VIRTUAL,),
    "exclude_interfaces": (_EXCLUDED,), "loopback_cidr": _LOOPBACK, "redirect_dns": True, "capture_all_dns": True,
}  # fmt: skip
# Without the last option, another jump comes first. Istio's own rules that refuse IPv6 are in no chain of ours.
_VARIANTS: tuple[dict[str, Any], ...] = ({"ipv6": ON, "drop_invalid": True}, {"ipv6": OFF}, {"ipv6": OFF, "istio_exact": True})
_PLACEHOLDER = "\0"
_computed: list[LayoutPatterns] = []


def make_patterns() -> LayoutPatterns:
    """Compute the patterns of all layouts."""
    rules: dict[RulePattern, None] = {}
    runs: dict[tuple[str, str, tuple[str, ...]], None] = {}
    value_places: dict[ValuePlace, None] = {}
    behind: dict[tuple[str, str], set[str]] = {}  # table and chain -> what follows its rules for excluded interfaces
    for table, chains in _render():
        confirmed = not OWNED_CHAINS.isdisjoint(chains)
        for chain, written in chains.items():
            texts = written.texts
            ours = [text for text in texts if chain in OWNED_CHAINS or target_of(text) in OWNED_CHAINS]
            value_places.update({place: None for text in ours for place in _find_value_places(table, chain, text)})
            if chain in OWNED_CHAINS:
                continue
            own = [(number, text) for number, text in enumerate(texts) if text not in ours]
            if not confirmed and own:
                runs[table, chain, tuple([text for _, text in own])] = None
                continue
            for number, text in own:
                pattern = _make_pattern(table, chain, text, inserted=number < written.inserted)
                rules[pattern] = None
                if EXCLUDED in pattern.placeholders:
                    behind.setdefault((table, chain), set()).add(target_of(texts[number + 1]) if number + 1 < len(texts) else "")
    anchors = [Anchor(table=place[0], chain=place[1], chains=frozenset(targets)) for place, targets in behind.items()]
    known = tuple([one for one in anchors if one.chains <= OWNED_CHAINS])
    return LayoutPatterns(rules=tuple(rules), runs=tuple(runs), value_places=tuple(value_places), anchors=known)


def layout_patterns() -> LayoutPatterns:
    """Return the patterns of all layouts, computed once."""
    if not _computed:  # functools.cache takes 2 ms of a removal
        _computed.append(make_patterns())
    return _computed[0]


def _render() -> Iterator[tuple[str, dict[str, WrittenChain]]]:
    """Yield every table of the layouts' plans."""
    for layout in SIDECAR:  # in built-in chains, the node agent's rules only jump to chains of ours
        for variant in _VARIANTS if LAYOUTS[layout].refuses_ipv6 else _VARIANTS[:2]:
            values = {field: value for field, value in {**_VALUES, **variant}.items() if Interception.flag(field).applies_to(layout)}
            plan = layouts.plan(Interception(layout=layout, **values))
            for family in FAMILIES:
                yield from write_plan(plan, family).items()


def _find_value_places(table: str, chain: str, text: str) -> Iterator[ValuePlace]:
    words = text.split(" ")
    for option, word in pairwise(words):
        placeholder = PLACEHOLDERS.get(word.partition("/")[0], OTHER)
        if placeholder != OTHER:
            yield ValuePlace(table=table, chain=chain, target=target_of(text), option=f"{option} ", placeholder=placeholder)


def _make_pattern(table: str, chain: str, text: str, *, inserted: bool) -> RulePattern:
    words, placeholders = [], []
    for word in text.split(" "):
        value = word if word in PLACEHOLDERS else word.partition("/")[0]  # keep a mark's mask
        if value in PLACEHOLDERS:
            placeholders.append(PLACEHOLDERS[value])
        words.append(_PLACEHOLDER + word.removeprefix(value) if value in PLACEHOLDERS else word)
    parts = tuple(" ".join(words).split(_PLACEHOLDER))
    return RulePattern(table=table, chain=chain, parts=parts, placeholders=tuple(placeholders), inserted=inserted)
