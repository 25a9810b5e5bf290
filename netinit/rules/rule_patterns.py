"""Patterns of the layouts' rules in built-in chains, with placeholders for values.

They identify rules of an earlier run (netinit.rules.iptables.ownership). Each option whose value appears in such a rule
is rendered with a unique value, which a placeholder replaces.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES
from netinit.base.records import Record
from netinit.options import LAYOUTS, OFF, ON, TPROXY
from netinit.options.interception import SIDECAR
from netinit.rules.iptables.keys import jumps_to_ours, target_of
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import OWNED_CHAINS
from netinit.rules.sample_plans import items_of, make_plans, make_samples

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from netinit.base.net import Family
    from netinit.rules.iptables.keys import Key
    from netinit.rules.iptables.ownership import Keys

    Values = tuple[tuple[str, object], ...]  # of placeholders, with their kinds

EXCLUDED, VIRTUAL, MARK, OTHER = "an excluded interface", "an interface of a VM", "the mark", "another value"  # kinds of placeholders
_KINDS = {
    "tproxy_mark": MARK, "exclude_interfaces": EXCLUDED, "virtual_interfaces": VIRTUAL,
    "proxy_uids": OTHER, "proxy_gids": OTHER, "loopback_cidr": OTHER,
}  # fmt: skip
SAMPLES = {field: sample[:1] if type(sample) is tuple else sample for field, sample in make_samples(_KINDS).items()}
PLACEHOLDERS: dict[object, str] = {items_of(SAMPLES[field])[0]: kind for field, kind in _KINDS.items()}
_VALUES: dict[str, Any] = SAMPLES | {
    "inbound_mode": TPROXY, "inbound_ports": "*", "outbound_cidrs": "*", "redirect_dns": True, "capture_all_dns": True,
}  # fmt: skip
# Without the last option, another jump comes first. Istio's own rules that refuse IPv6 are in no chain of ours.
_VARIANTS: tuple[dict[str, Any], ...] = ({"ipv6": ON, "drop_invalid": True}, {"ipv6": OFF}, {"ipv6": OFF, "istio_exact": True})
Evidence = dict[str, set[object]]  # kind of placeholder -> values that our rules in both families confirm


class RulePattern(Record):
    """The pattern of a rule of ours in a built-in chain: its key with placeholders, and their kinds."""

    table: str
    chain: str
    key: Key
    placeholders: tuple[str, ...]
    inserted: bool = False  # before foreign rules; False: after them


class ValuePlace(Record):
    """Where a rule that is certainly ours has a value: in this field of a match or target, in rules with this target."""

    table: str
    chain: str
    target: str
    part: type[object]
    field: str
    placeholder: str

    def read(self, key: Key) -> Iterator[object]:
        """Yield the values of a rule."""
        for part in key if target_of(key) == self.target else ():
            if type(part) is self.part and not getattr(part, "negated", False):
                value = getattr(part, self.field)
                yield from value if type(value) is tuple else (value,)


class LayoutPatterns(Record):
    """The patterns of all rules in built-in chains that do not jump to a chain of ours.

    `runs`: sequences of rules in tables without a chain of ours. `value_places` and `anchors`: which values are confirmed; an
    anchor is where rules for excluded interfaces always precede a jump to one of these chains of ours.
    """

    rules: tuple[RulePattern, ...]
    runs: tuple[tuple[str, str, tuple[Key, ...]], ...]  # table, chain, rules
    value_places: tuple[ValuePlace, ...]
    anchors: dict[tuple[str, str], frozenset[str]]  # table and built-in chain -> the possible targets of the jump

    def find_confirmed(self, live: Mapping[Family, Keys]) -> Evidence:
        """Return the values that the live rules confirm."""
        found: Evidence = {VIRTUAL: set(), EXCLUDED: set(), MARK: set()}
        for rules in live.values():  # each table separately: a killed run may have changed only one of them
            for place in self.value_places:
                for key in rules.get((place.table, place.chain), ()):
                    found[place.placeholder].update(place.read(key))
            for table, chain in self.anchors:
                found[EXCLUDED] |= self._excluded(rules, table, chain)
        return found

    def _excluded(self, rules: Keys, table: str, chain: str) -> set[object]:
        """Return interfaces excluded right before such a jump, and also in another chain."""
        found: set[object] = set()
        keys = rules.get((table, chain), ())
        excluding = [one for one in self.rules if one.table == table and EXCLUDED in one.placeholders]
        ours = [one for one in excluding if one.chain == chain]
        elsewhere = {
            value
            for pattern in excluding
            if pattern.chain != chain
            for key in rules.get((table, pattern.chain), ())
            for _, value in read_values(pattern.key, key) or ()
        }
        for index, key in enumerate(keys):
            if target_of(key) in self.anchors[table, chain]:
                for before in reversed(keys[:index]):
                    name = next((value for pattern in ours for _, value in read_values(pattern.key, before) or ()), None)
                    if name not in elsewhere:
                        break
                    found.add(name)
        return found

    def match(self, table: str, chain: str, keys: Sequence[Key], evidence: Evidence) -> set[int]:
        """Return the rules with a pattern and confirmed values; of equal ones for an interface, the first or last."""
        found: set[int] = set()
        last = {key: index for index, key in enumerate(keys)}
        for pattern in [one for one in self.rules if (one.table, one.chain) == (table, chain)]:
            for index, key in enumerate(keys):
                values = read_values(pattern.key, key)
                if values and all(kind == OTHER or value in evidence[kind] for kind, value in values):
                    once = not {VIRTUAL, EXCLUDED}.isdisjoint(pattern.placeholders)
                    found.add(index if not once else keys.index(key) if pattern.inserted else last[key])
        return found


_computed: list[LayoutPatterns] = []


def read_values(pattern: Any, found: Any) -> Values | None:
    """Return what a rule, or a part of it, has in the place of placeholders; None if it differs elsewhere."""
    if type(pattern) is not type(found):
        return None
    if kind := PLACEHOLDERS.get(pattern):
        return ((kind, found),)
    if isinstance(pattern, Record):
        pattern, found = pattern._values(), found._values()  # noqa: SLF001 - what counts for equality
    if not isinstance(pattern, tuple) or len(pattern) != len(found):
        return () if pattern == found else None
    values: Values = ()
    for one, other in zip(pattern, found, strict=True):
        more = read_values(one, other)
        if more is None:
            return None
        values += more
    return values


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
    anchors = {place: frozenset(targets) for place, targets in behind.items() if targets <= OWNED_CHAINS}
    return LayoutPatterns(rules=tuple(rules), runs=tuple(runs), value_places=tuple(value_places), anchors=anchors)


def layout_patterns() -> LayoutPatterns:
    """Return the patterns of all layouts, computed once."""
    if not _computed:  # functools.cache takes 2 ms of a removal
        _computed.append(make_patterns())
    return _computed[0]


def _render() -> Iterator[tuple[str, dict[str, tuple[list[Key], int]]]]:
    """Yield every table of the layouts' plans, with the keys of each chain's rules and how many are inserted."""
    for layout in SIDECAR:  # in built-in chains, the node agent's rules only jump to chains of ours
        variants = _VARIANTS if LAYOUTS[layout].refuses_ipv6 else _VARIANTS[:2]
        for _, plan in make_plans(layout, [_VALUES | variant for variant in variants]):
            for family in FAMILIES:
                for table, chains in write_plan(plan, family).items():
                    yield table, {
                        name: ([normalise_rule(written.listed(family)) for written in chain.rules], chain.inserted)
                        for name, chain in chains.items()
                    }


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
