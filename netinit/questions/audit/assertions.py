"""Parses assertions about traffic, and proves them for all packets or refutes them with a counterexample.

An example: `outbound tcp to 10.0.0.0/8 not by proxy is captured`. The grammar:

    assertion = [direction] [family] [protocol] {condition} "is" ["not"] fate {"or" fate}
    direction = "outbound" | "inbound"            (default: both)
    family    = "ipv4" | "ipv6"                   (default: both)
    protocol  = "tcp" | "udp" | "traffic"         (default and "traffic": any protocol)
    condition = ["not"] ( "to" place {"," place} | "from" place {"," place} | ["on"] "port" ports | "source" "port" ports
              | "by" "uid" numbers | "by" "gid" numbers | "by" "proxy" | "through" name {"," name}
              | "with" "mark" number ["/" mask] | "in" "state" state {"," state} )
    place     = address | network | "pod"         (the pod's own addresses)
    ports     = number ["-" number] {"," …}       (same for numbers)
    fate      = "captured" | "direct" | "dropped" | "unknown"

Without a state, an assertion is about the first packets of connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from netinit.base.errors import OptionError
from netinit.base.net import FULL_MASK, IPV4, MAX_PORT, Interval, Network, family_of, is_named
from netinit.options import Interception
from netinit.options.kinds import quote_value, read_interface
from netinit.questions.explain import Explanation
from netinit.questions.pod_rules import PodRules
from netinit.rules.packet_inputs import LOOPBACK_DEVICE
from netinit.simulate.condition import Condition
from netinit.simulate.endpoints import format_packet
from netinit.simulate.examples import example_of
from netinit.simulate.symbolic.hook_walk import split_by_route
from netinit.simulate.symbolic.match_sets import SymbolicPackets, local
from netinit.simulate.symbolic.regions import Region, everything, in_states, nothing, unite, valued
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, STATES, CtState, Dim, Space
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, UNKNOWN

FATES = (CAPTURED, DIRECT, DROPPED, UNKNOWN)
POD, PROXY = "pod", "proxy"
_FAMILIES = {"ipv4": 4, "ipv6": 6}
_PROTOCOLS = ("tcp", "udp", "traffic")
_STARTS = ("to", "from", "on", "port", "source", "by", "through", "with", "in")
Value = TypeVar("Value")
Select = Callable[[Space, Interception | None], Region]
"""Selects the packets that a condition is about; the options are those that made the rules."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """A parsed assertion: which packets (direction and family may be open) have one of which fates.

    Each of `conditions` is a selection and whether it is negated; `interfaces` are those that they mention. `name` and
    `line` locate it in a file.
    """

    text: str
    conditions: tuple[tuple[Select, bool], ...]
    fates: frozenset[str]
    direction: str
    version: int
    interfaces: frozenset[str]
    name: str
    line: int


def parse_assertion(text: str, *, name: str = "", line: int = 0) -> Assertion:
    """Parse one assertion. Raises OptionError with the line and the offending word."""
    return _SentenceReader(text, line).read(name)


class _SentenceReader:
    """Recursive-descent parser over the words of one assertion."""

    def __init__(self, text: str, line: int) -> None:
        self._text = " ".join(text.split())
        self._words = [*self._text.replace(",", " , ").split(), ""]  # with one that no word of the grammar is
        self._at = 0
        self._line = line
        self._interfaces: set[str] = set()
        self._of_any_state = False

    def read(self, name: str) -> Assertion:
        direction = self._take_one((OUTBOUND, INBOUND))
        family = self._take_one(tuple(_FAMILIES))
        protocol = self._take_one(_PROTOCOLS)
        conditions: list[tuple[Select, bool]] = []
        while self._words[self._at] != "is":
            negated = self._take_one(("not",)) == "not"
            conditions.append((self._condition(self._need(_STARTS if negated else (*_STARTS, "not", "is"))), negated))
        if protocol not in ("", "traffic"):
            conditions.append((lambda space, _: valued(space, Dim.PROTOCOL, protocol), False))
        if not self._of_any_state:
            conditions.append((lambda space, _: in_states(space, (CtState.NEW,)), False))
        self._at += 1
        negated = self._take_one(("not",)) == "not"
        fates = {self._need(FATES)}
        while self._take_one(("or",)):
            fates.add(self._need(FATES))
        if self._words[self._at]:
            raise self._wrong("the end")
        allowed = frozenset({*FATES} - fates if negated else fates)
        version, interfaces = _FAMILIES.get(family, 0), frozenset(self._interfaces)
        return Assertion(self._text, tuple(conditions), allowed, direction, version, interfaces, name, self._line)

    def _condition(self, word: str) -> Select:
        """Read the rest of the condition that begins with a word."""
        if word in ("to", "from"):
            places = self._several(lambda: self._parse("an address, a network or pod", _read_place))
            return lambda space, _: _at_places(space, places, source=word == "from")
        if word == "through":
            names = self._several(lambda: self._parse("the name of an interface", read_interface))
            self._interfaces.update(names)
            return lambda space, _: _through(space, names)
        if word == "in":
            self._need(("state",))
            states = self._several(lambda: self._need(STATES))
            self._of_any_state = True
            return lambda space, _: _packets(space).in_state(states).certain
        if word == "with":
            self._need(("mark",))
            value, mask = self._mark()
            return lambda space, _: _packets(space).with_mark(value, mask, connection=False).certain
        if word == "by":
            kind = self._need(("uid", "gid", PROXY))
            numbers = () if kind == PROXY else self._several(lambda: self._numbers(FULL_MASK))
            return lambda space, options: _owned_by(space, kind, numbers, options)
        if word in ("source", "on"):
            self._need(("port",))
        ports = self._several(lambda: self._numbers(MAX_PORT))
        return lambda space, _: _packets(space).with_port(ports, source=word == "source").certain

    def _parse(self, wanted: str, read: Callable[[str], Value]) -> Value:
        try:
            return read(self._next(wanted))
        except ValueError:
            raise self._wrong(wanted, back=1) from None

    def _mark(self) -> Interval:
        value, slash, mask = self._next("a mark").partition("/")
        try:
            found = (int(value, 0), int(mask, 0) if slash else FULL_MASK)
        except ValueError:
            raise self._wrong("a mark, such as 1337 or 0x1/0x1", back=1) from None
        if not all(0 <= number <= FULL_MASK for number in found):
            raise self._wrong("a mark of 32 bits", back=1)
        return found

    def _numbers(self, most: int) -> Interval:
        words = self._next(f"a number up to {most}").split("-")
        if len(words) > 2 or not all(word.isascii() and word.isdigit() and int(word) <= most for word in words):  # noqa: PLR2004
            raise self._wrong(f"a number up to {most}, or two with - between them", back=1)
        low, high = int(words[0]), int(words[-1])
        if low > high:
            raise self._wrong("the smaller number first", back=1)
        return low, high

    def _several(self, read: Callable[[], Value]) -> tuple[Value, ...]:
        found = [read()]
        while self._take_one((",",)):
            found.append(read())
        return tuple(found)

    def _take_one(self, words: tuple[str, ...]) -> str:
        if self._words[self._at] not in words:
            return ""
        self._at += 1
        return self._words[self._at - 1]

    def _need(self, words: tuple[str, ...]) -> str:
        found = self._take_one(words)
        if not found:
            raise self._wrong(" or ".join(words) if len(words) == 1 else f"one of {', '.join(words)}")
        return found

    def _next(self, wanted: str) -> str:
        if not self._words[self._at]:
            raise self._wrong(wanted)
        self._at += 1
        return self._words[self._at - 1]

    def _wrong(self, wanted: str, back: int = 0) -> OptionError:
        """The error for the next word, or for one `back` words earlier."""
        at = self._at - back
        place = f"line {self._line}, " if self._line else ""
        what = f"word {at + 1}, {quote_value(self._words[at])}" if self._words[at] else "at the end"
        return OptionError(f"--assert: {place}{what}: expected {wanted} (in {quote_value(self._text)})")


def _read_place(word: str) -> Network | str:
    return POD if word == POD else Network.parse(word if "/" in word else f"{word}/{family_of(word).bits}")


def _packets(space: Space) -> SymbolicPackets:
    return SymbolicPackets(space, Condition(sender=space.direction == OUTBOUND, tracked=True))


def _at_places(space: Space, places: tuple[Network | str, ...], *, source: bool) -> Region:
    networks = tuple(one for one in places if isinstance(one, Network) and one.family is space.family)
    own = local(space, Dim.SOURCE if source else Dim.DESTINATION) if POD in places else nothing(space)
    return _packets(space).in_networks(networks, source=source).certain | own


def _owned_by(space: Space, kind: str, numbers: tuple[Interval, ...], options: Interception | None) -> Region:
    owners = [(kind, *interval) for interval in numbers]
    if kind == PROXY and options:
        owners = [("uid", one, one) for one in options.proxy_uids] + [("gid", one, one) for one in options.proxy_gids]
    return unite([nothing(space), *[_packets(space).owned_by(*owner).certain for owner in owners]])


def _through(space: Space, names: tuple[str, ...]) -> Region:
    """Packets that enter or leave through one of the interfaces; traffic within the pod uses lo."""
    inside = local(space, Dim.DESTINATION) if space.direction != INBOUND else nothing(space)
    if space.direction != INBOUND and not space.free:
        found = unite([nothing(space), *[region for region, interface in split_by_route(space) if is_named(interface, names)]])
    else:
        values = space.dimension(Dim.INTERFACE).values
        found = valued(space, Dim.INTERFACE, *[value for value in values if is_named(value, names)])
    return (found - inside) | (inside if is_named(LOOPBACK_DEVICE, names) else nothing(space))


@dataclass(frozen=True, slots=True)
class Ruling:
    """The result for an assertion: `holds` is True if proved, False if refuted, None if undecidable.

    `counterexample` is the path of a refuting packet; `packets`: how many packets the assertion is about; if refuted,
    only those looked at until then.
    """

    assertion: Assertion
    holds: bool | None
    packets: int
    counterexample: Explanation | None = None

    @property
    def cures(self) -> tuple[tuple[str, str], ...]:
        """The option changes under which the counterexample ends as asserted, with its verdict then."""
        changes = self.counterexample.changes if self.counterexample else ()
        return tuple(change for change in changes if change[1] in self.assertion.fates)

    @property
    def why_not_proved(self) -> str:
        """Why it does not hold, in one line: a packet that refutes it, where that ends, and what would change it."""
        if self.counterexample is None:
            return "it is unknown"
        shown = f"{format_packet(self.counterexample.trace.first)}: {self.counterexample.sentence}"
        return "; ".join([shown, *[f"{change} makes it {verdict}" for change, verdict in self.cures]])


def rule_on(subject: PodRules, assertions: Sequence[Assertion]) -> tuple[Ruling, ...]:
    """Prove or refute each assertion for all packets. Raises TooManyPartsError."""
    interfaces = frozenset[str]().union(*[one.interfaces for one in assertions])
    other = replace(subject.ipv4_first, interfaces=interfaces) if subject.ipv4_first else None
    asked = replace(subject, interfaces=interfaces, ipv4_first=other)
    return tuple(_rule(asked, assertion) for assertion in assertions)


def _rule(subject: PodRules, assertion: Assertion) -> Ruling:
    """Decide one assertion; None if it depends on whether the pod's first address is IPv4."""
    found = _rule_on_all(subject, subject, assertion)
    if subject.ipv4_first is None or assertion.version == IPV4.version:
        return found
    other = _rule_on_all(subject.ipv4_first, subject, assertion)
    if found.holds is other.holds or (found.counterexample and found.counterexample.trace.first.family is IPV4):
        return found
    return replace(found if found.counterexample else other, holds=None, packets=found.packets)


def _rule_on_all(subject: PodRules, explaining: PodRules, assertion: Assertion) -> Ruling:
    """Decide an assertion under the rules of `subject`; `explaining` explains the counterexample."""
    packets = 0
    doubt: Region | None = None
    for partition in subject.partitions:
        selected = _select_packets(assertion, partition.space, subject)
        packets += selected.size
        for part in partition.parts if selected else ():
            region = part.region & selected
            if not region or part.verdict in assertion.fates:
                continue
            if part.verdict != UNKNOWN:
                return Ruling(assertion, holds=False, packets=packets, counterexample=explaining.explain(*example_of(region)))
            doubt = doubt or region
    example = explaining.explain(*example_of(doubt)) if doubt else None
    return Ruling(assertion, holds=None if doubt else True, packets=packets, counterexample=example)


def _select_packets(assertion: Assertion, space: Space, subject: PodRules) -> Region:
    """The packets of a space that an assertion is about."""
    if assertion.direction not in ("", space.direction) or assertion.version not in (0, space.family.version):
        return nothing(space)
    found = everything(space)
    for select, negated in assertion.conditions:
        chosen = select(space, subject.made_by)
        found = found - chosen if negated else found & chosen
    return found
