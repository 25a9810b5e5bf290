"""Where the rules of a layout name the values of its options: found in plans in which each option has a value of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from netinit.base.net import FAMILIES, Family, Network, PortRange, text_of
from netinit.base.records import Record
from netinit.options import ON, REDIRECT, REJECT, TPROXY
from netinit.options.kinds import ALL, NETWORKS_OR_ALL, Flag
from netinit.rules.infer_options import release_plans as older
from netinit.rules.layouts import plan, untranslated
from netinit.rules.matches.packet import Protocol
from netinit.rules.model import FILTER, Rule
from netinit.rules.sample_plans import flags_of, items_of, make_plans, make_samples
from netinit.rules.targets import Redirect

Shape = tuple[Any, ...]  # of a rule, match or target: what it has whatever the values, without numbers, networks and interfaces
RulesByShape = dict[Shape, dict[int, Rule]]  # of one family, by their order
Words = dict[Shape, tuple[str, Any]]  # a shape that no rule has without this word for this field
MAX_ADDRESSES = 64  # in one rule: larger networks are not ours
WHOLE = {family: Network((family.version, 0, 0)) for family in FAMILIES}
NOTHING = "0"  # or an empty list
TCP: Shape = (Protocol, "tcp", False)
CONSTANT = object()  # at a place: values that do not depend on the value of its option


class OptionPlace(NamedTuple):
    """A field of a target or match, in rules of one shape, that has an option's values."""

    shape: Shape
    part: Shape
    field: str

    def find(self, rules: RulesByShape) -> list[Rule]:
        """Return the rules of this shape; rules for all networks lack the match."""
        found = rules.get(self.shape, {})
        if self.field == "networks" and len(self.shape[3] - {TCP}) == 1:
            found = found | rules.get((*self.shape[:3], self.shape[3] - {self.part}), {})
        return [found[number] for number in sorted(found)]

    def read(self, rule: Rule) -> tuple[Any, ...]:
        """Return the values in a rule of this shape; None if it does not limit them."""
        parts = [part for part in (rule.target, *rule.matches) if shape_of(part) == self.part]
        return tuple([value for part in parts for value in items_of(getattr(part, self.field))]) if parts else (None,)


class OptionPlaces(Record):
    """The places of an option's values, the best ones first.

    `others`: what else has values at a place: other options, by their fields, and values of every plan; `switches`: values that
    a switch adds. `backwards`: places with the values in reverse. `sample`: a value of the option. `is_always_named`: whatever
    the other options are.
    """

    flag: Flag
    places: tuple[OptionPlace, ...]
    others: Mapping[OptionPlace, frozenset[Any]]
    switches: Mapping[OptionPlace, dict[str, list[Any]]]
    backwards: frozenset[OptionPlace]
    sample: Any
    is_always_named: bool

    @property
    def is_read_after(self) -> bool:
        """Whether other options must be known before: of those with rules of one shape, a single value comes first."""
        return type(self.sample) is tuple and any(self.others.values())

    def read(self, live: Mapping[Family, RulesByShape], known: dict[str, Any], unread: list[str]) -> Any:
        """Return the option's value, None if no rule has one.

        `known` are other options, whose values are not this one's; it gains the switches whose values follow this one's.
        """
        read: list[tuple[Family, OptionPlace, list[Any]]] = []
        is_of_families = isinstance(items_of(self.sample)[0], Network) or ":" in str(self.sample)
        for family, rules in live.items():
            place, chosen = next(((place, chosen) for place in self.places if (chosen := place.find(rules))), (None, []))
            if place and (is_of_families or not any(values for _, _, values in read)):
                values = [value for rule in chosen for value in self._convert(place.read(rule), family, unread)]
                for value in [value for other in self.others[place] for value in items_of(known.get(other, other))]:
                    if value in values:
                        values.remove(value)
                read.append((family, place, values))
        for switch in {switch for _, place, _ in read for switch in self.switches[place]}:
            added = [(values, [one for one in self.switches[place].get(switch, ()) if getattr(one, "family", family) is family])
                     for family, place, values in read]  # fmt: skip
            if all(its and set(values[-len(its) :]) == set(its) for values, its in added):
                known[switch] = True
                for values, its in added:
                    del values[-len(its) :]
        found = [value for _, place, values in read for value in (values[::-1] if place in self.backwards else values)]
        if found:
            return tuple(found) if type(self.sample) is tuple else found[0]
        if self.is_always_named and not isinstance(self.flag.default, tuple):
            redirects = self.places[0].part[0] is Redirect
            unread.append(f"{self.flag.label}: {'the rule that redirects to it is missing' if redirects else 'no rule names one'}")
        return None

    def _convert(self, values: tuple[Any, ...], family: Family, unread: list[str]) -> list[Any]:
        """Return what the option has for these values of a rule."""
        values = (WHOLE[family],) if values == (None,) else values
        if not isinstance(items_of(self.sample)[0], str) or not isinstance(values[0], Network):
            return [PortRange(value) if type(value) is tuple else value for value in values]
        if sum([network.last - network.first + 1 for network in values]) > MAX_ADDRESSES:
            unread.append(f"{self.flag.label}: a rule for more than {MAX_ADDRESSES} addresses")
            return []
        return [text_of(number, family) for network in values for number in range(network.first, network.last + 1)]


def shape_of(part: Record) -> Shape:
    """Return the shape of a match or target."""
    return type(part), *[value for value in part._values() if isinstance(value, (str, bool))]  # noqa: SLF001 - what counts for equality


def shape_of_rule(table: str, chain: str, rule: Rule) -> Shape:
    """Return the shape of a rule, which is that of the rules for each element of its lists too."""
    return table, chain, shape_of(rule.target), frozenset(map(shape_of, rule.matches))


@cache
def find_places(layout: str, minor: int | None = None) -> tuple[dict[str, OptionPlaces], Words, frozenset[Shape]]:
    """Return the places of each option; the rules that only one word of another option adds, such as `true`; and all shapes.

    `minor`: of the release of Istio 1 whose rules are meant, if it is an earlier one.
    """
    flags = flags_of(layout)
    samples = make_samples(flags)
    fields = {_key(item): field for field, sample in samples.items() for item in items_of(sample)}
    plans: list[dict[str, dict[OptionPlace, bool]]] = []  # field -> places, and whether the option is the rule's origin
    occupants: dict[OptionPlace, set[Any]] = {}
    backwards: set[OptionPlace] = set()
    switches: dict[OptionPlace, dict[str, dict[Any, None]]] = {}
    makers: dict[Shape, set[tuple[str, Any]]] = {}  # the origins of a shape's rules, and the words given for them
    make = plan if minor is None else partial(older.plan, minor=minor)
    for given, made in make_plans(layout, _variants(flags, samples), make):
        plans.append({field: {} for field in samples})
        for table, chain, rule in made.walk():
            if table == FILTER and chain in untranslated.CHAINS:
                continue  # repeats a rule of nat
            origin, shape = rule.origin.option if rule.origin else "", shape_of_rule(table, chain, rule)
            word = given.get(origin)
            makers.setdefault(shape, set()).add((origin, word if isinstance(word, (str, bool)) else None))
            for place, items in _values_of(rule, shape):
                owners = [fields.get(_key(item), "") for item in items]
                occupants.setdefault(place, set()).update([
                    owner or (CONSTANT if origin else item) for owner, item in zip(owners, items, strict=True)
                ])  # fmt: skip
                if given.get(origin) is True and not any(owners):
                    switches.setdefault(place, {}).setdefault(origin, {}).update(dict.fromkeys(items))
                for owner in filter(None, owners):
                    plans[-1][owner][place] = plans[-1][owner].get(place, False) or origin in (owner, flags[owner].needs)
                if owners[-1] and len(items) > 1 and _key(items[-1]) == _key(items_of(samples[owners[-1]])[0]):
                    backwards.add(place)
    found = {field: _rank(field, [places[field] for places in plans], occupants) for field in samples}
    return {
        field: OptionPlaces(
            flag=flags[field], places=places, others={place: frozenset(occupants[place] - {field, CONSTANT}) for place in places},
            switches={place: {switch: list(values) for switch, values in switches.get(place, {}).items()} for place in places},
            backwards=frozenset(backwards), sample=samples[field], is_always_named=all(any(one[field].values()) for one in plans),
        )
        for field, places in found.items() if places
    }, {
        shape: next(iter(its)) for shape, its in makers.items()
        if len(its) == 1 and all(word and flags[field].kind is not NETWORKS_OR_ALL for field, word in its)  # `*` may be 0.0.0.0/0
    }, frozenset(makers)  # fmt: skip


def _rank(field: str, plans: list[dict[OptionPlace, bool]], occupants: dict[OptionPlace, set[Any]]) -> tuple[OptionPlace, ...]:
    """Return the option's own places, those of others too where a plan has no own one, then its own ones in rules of other options."""
    own = {place: named for places in plans for place, named in places.items() if occupants[place] <= {field, *[CONSTANT] * named}}
    best = [place for place, named in own.items() if named]
    alone = [place for places in plans for place, named in places.items() if named and places.keys().isdisjoint(best)]
    return tuple(dict.fromkeys([*best, *alone, *own]))


def _variants(flags: dict[str, Flag], samples: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield option fields that make every shape of rule with a value: for all traffic, for what the samples say, for none."""
    needed = {flag.needs for flag in flags.values()}
    for mode, ipv6, captured in (
        (REDIRECT, REJECT, ALL), (TPROXY, ON, ALL), (REDIRECT, ON, ""), (TPROXY, REJECT, ""), (REDIRECT, ON, NOTHING),
    ):  # fmt: skip
        values = {"inbound_mode": mode, "ipv6": ipv6} | samples
        for field, flag in flags.items():
            word = flag.kind.metavar.rpartition("|")[2]
            if isinstance(flag.default, bool):
                values[field] = captured == ALL or (field in needed and not captured)
            elif word == ALL and captured:
                values[field] = ALL if captured == ALL else ()
            elif word == NOTHING and captured == NOTHING:
                values[field] = 0
        yield values


def _values_of(rule: Rule, shape: Shape) -> Iterator[tuple[OptionPlace, tuple[Any, ...]]]:
    for part in (rule.target, *rule.matches):
        for name in type(part)._fields:
            value = getattr(part, name)
            if value and not isinstance(value, (str, bool)):
                yield OptionPlace(shape, shape_of(part), name), items_of(value)


def _key(item: object) -> str:
    """Return the same text for an address and the network that holds it alone."""
    return str(item).removesuffix("/32").removesuffix("/128")
