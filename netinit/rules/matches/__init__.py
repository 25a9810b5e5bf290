"""One class a match, in `packet` and `context`. Here is what every match has: its spelling in iptables' dialect and its words.

Sections are those of iptables(8) and iptables-extensions(8). A match that holds several values (networks, ports,
interfaces) means "one of them"; where iptables knows one value a rule, its spelling has an alternative for each.
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netinit.rules.packet import Packet, Surroundings
    from netinit.rules.packet_set import Chosen, PacketSet

# The places of iptables' built-in matches in a listing; extensions follow in the order of the rule.
SOURCE, DESTINATION, IN_INTERFACE, OUT_INTERFACE, PROTOCOL, EXTENSION = range(6)


class XtMatch(Record):
    """A match as iptables-save lists it: one text for each alternative, `-m module` included."""

    place: int
    alternatives: tuple[str, ...]
    protocol: str = ""  # the protocol that the module belongs to: `-p` stands before it


class Match(Record):
    """A condition on a packet."""

    nft_chain = ""  # what the chain's name ends in where nft tests the match in a chain of its own, after all others

    @abstractmethod
    def xt(self) -> XtMatch:
        """The match in iptables' spelling."""

    def each(self) -> tuple[Match | None, ...]:
        """The match in iptables' rules: one for each alternative of `xt`, None for one that is listed as no match at all."""
        return (self,)

    @abstractmethod
    def nft(self) -> str:
        """The match as nft lists it: one expression, sets for lists."""

    def nft_unless(self) -> tuple[str, ...]:
        """Expressions of nft under which the match does not hold though `nft` does, in a chain of its own."""
        return ()

    @abstractmethod
    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        """Whether the match holds for the packet; None where that cannot be known."""

    @abstractmethod
    def choose(self, packets: PacketSet) -> Chosen:
        """Those of many packets that the match holds for: what `test` says of each of them."""

    @abstractmethod
    def describe(self) -> str:
        """The match in words, to stand after "when"."""

    @property
    def tracks(self) -> bool:
        """Whether a rule with it makes the kernel track connections."""
        return False


def format_each(option: str, values: Iterable[object], negated: bool) -> tuple[str, ...]:
    """The option before each value, an alternative each."""
    prefix = f"! {option}" if negated else option
    return tuple([f"{prefix} {value}" for value in values])


def format_one_of(expression: str, texts: Sequence[str], negated: bool) -> str:
    """The nft expression compared with one value, or with an anonymous set of several."""
    value = texts[0] if len(texts) == 1 else f"{{ {', '.join(texts)} }}"
    return f"{expression} {'!= ' if negated else ''}{value}"


def format_not(negated: bool) -> str:
    """The word `not ` where the match is negated."""
    return "not " if negated else ""


def format_list(words: Iterable[object]) -> str:
    """The words, with commas."""
    return ", ".join([str(word) for word in words])


def truth_of(found: bool | None, negated: bool) -> bool | None:
    """The truth, turned round where the match is negated; what is not known stays so."""
    return None if found is None else found is not negated
