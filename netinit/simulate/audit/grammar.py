"""Parser for assertions about traffic, such as `outbound tcp to 10.0.0.0/8 not by proxy is captured`.

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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from netinit.base.errors import OptionError
from netinit.base.net import FULL_MASK, MAX_PORT, Interval, Network, family_of
from netinit.options.kinds import quote_value, read_interface
from netinit.simulate.symbolic.space import INBOUND, OUTBOUND, STATES, Names
from netinit.simulate.trace import CAPTURED, DIRECT, DROPPED, UNKNOWN

FATES = (CAPTURED, DIRECT, DROPPED, UNKNOWN)
POD, PROXY = "pod", "proxy"
TO, FROM, PORT, SOURCE_PORT, UID, GID, THROUGH, MARK, STATE = (
    "to", "from", "port", "source port", "uid", "gid", "through", "mark", "state",
)  # fmt: skip
_FAMILIES = {"ipv4": 4, "ipv6": 6}
_PROTOCOLS = ("tcp", "udp", "traffic")
Value = TypeVar("Value")
_STARTS = ("to", "from", "on", "port", "source", "by", "through", "with", "in")


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition: keyword and values, which are networks or POD, intervals, a mark with its mask, or names."""

    what: str
    values: tuple[Any, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Assertion:
    """A parsed assertion; what it leaves open is empty or 0. `name` and `line` locate it in a file."""

    text: str
    clauses: tuple[Clause, ...]
    fates: tuple[str, ...]
    negated: bool = False
    direction: str = ""
    version: int = 0
    protocol: str = ""
    name: str = ""
    line: int = 0

    @property
    def names(self) -> Names:
        """The interfaces the assertion mentions."""
        return Names(interfaces=frozenset(name for clause in self.clauses if clause.what == THROUGH for name in clause.values))

    def allows(self, verdict: str) -> bool:
        """Whether the assertion permits this verdict."""
        return (verdict in self.fates) is not self.negated


def parse_assertion(text: str, *, name: str = "", line: int = 0) -> Assertion:
    """Parse one assertion. Raises OptionError with the line and the offending word."""
    return _SentenceReader(text, line).read(name)


class _SentenceReader:
    """Recursive-descent parser over the words of one assertion."""

    def __init__(self, text: str, line: int) -> None:
        self._text = " ".join(text.split())
        self._words = self._text.replace(",", " , ").split()
        self._at = 0
        self._line = line

    def read(self, name: str) -> Assertion:
        direction = self._take_one((OUTBOUND, INBOUND))
        family = self._take_one(tuple(_FAMILIES))
        protocol = self._take_one(_PROTOCOLS)
        clauses = []
        while self._peek() != "is":
            clauses.append(self._clause())
        self._at += 1
        negated = self._take_one(("not",)) == "not"
        fates = [self._need(FATES)]
        while self._take_one(("or",)):
            fates.append(self._need(FATES))
        if self._at < len(self._words):
            raise self._wrong("the end")
        return Assertion(
            self._text, tuple(clauses), tuple(fates), negated, direction, _FAMILIES.get(family, 0),
            "" if protocol == "traffic" else protocol, name, self._line,
        )  # fmt: skip

    def _clause(self) -> Clause:
        negated = self._take_one(("not",)) == "not"
        word = self._need(_STARTS if negated else (*_STARTS, "not", "is"))
        if word in (TO, FROM):
            return Clause(word, self._several(lambda: self._parse("an address, a network or pod", _read_place)), negated)
        if word == THROUGH:
            return Clause(THROUGH, self._several(lambda: self._parse("the name of an interface", read_interface)), negated)
        if word == "in":
            self._need(("state",))
            return Clause(STATE, self._several(lambda: self._need(STATES)), negated)
        if word == "with":
            self._need(("mark",))
            return Clause(MARK, (self._mark(),), negated)
        if word == "by":
            kind = self._need((UID, GID, PROXY))
            return Clause(kind, () if kind == PROXY else self._several(lambda: self._numbers(FULL_MASK)), negated)
        if word in ("source", "on"):
            self._need(("port",))
        return Clause(SOURCE_PORT if word == "source" else PORT, self._several(lambda: self._numbers(MAX_PORT)), negated)

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

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take_one(self, words: tuple[str, ...]) -> str:
        if self._peek() not in words:
            return ""
        self._at += 1
        return self._words[self._at - 1]

    def _need(self, words: tuple[str, ...]) -> str:
        found = self._take_one(words)
        if not found:
            raise self._wrong(" or ".join(words) if len(words) == 1 else f"one of {', '.join(words)}")
        return found

    def _next(self, wanted: str) -> str:
        if not self._peek():
            raise self._wrong(wanted)
        self._at += 1
        return self._words[self._at - 1]

    def _wrong(self, wanted: str, back: int = 0) -> OptionError:
        """The error for the next word, or for one `back` words earlier."""
        at = self._at - back
        place = f"line {self._line}, " if self._line else ""
        what = f"word {at + 1}, {quote_value(self._words[at])}" if at < len(self._words) else "at the end"
        return OptionError(f"--assert: {place}{what}: expected {wanted} (in {quote_value(self._text)})")


def _read_place(word: str) -> Network | str:
    return POD if word == POD else Network.parse(word if "/" in word else f"{word}/{family_of(word).bits}")
