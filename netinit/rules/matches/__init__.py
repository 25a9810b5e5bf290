"""The base class of matches (conditions of rules); `packet`, `context` and `foreign` have one class for each.

Sections refer to iptables(8) and iptables-extensions(8). A match with several values means "any of them"; where iptables
takes one value per rule, there is one alternative for each. "Add a match" in CONTRIBUTING.md lists the tables to extend.
"""

from __future__ import annotations

from _struct import pack
from abc import abstractmethod

from netinit.base.net import MAX_PORT
from netinit.base.records import Record
from netinit.rules.structs import TCP, UDP, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netinit.rules.packet_interfaces import Chosen, PacketSet
    from netinit.rules.rule_builder import RuleBuilder
    from netinit.rules.structs import Struct

# Order of iptables' built-in matches in a listing; extensions follow in the order of the rule.
SOURCE, DESTINATION, IN_INTERFACE, OUT_INTERFACE, PROTOCOL, EXTENSION = range(6)


class Match(Record):
    """A condition on a packet."""

    place = EXTENSION  # in a listing
    listed = ""  # the field with alternatives, if the match has any
    nft_chain = ""  # suffix of the chain's name if nft tests the match in a separate chain, after all others
    sender_ids = ""  # the field with the kind of ids that senders have, if the match is about some from `first` to `last`
    of_connection = False  # whether it holds for all packets that one side of a connection sends, or for none
    tracks = False  # whether a rule with this match enables connection tracking
    protocol = ""  # that the match implies; written before it as `-p`
    xt_text = nft_text = words = ""  # its syntax and its description, if these only repeat fields: `{0.rate}`
    compat = ""  # the field of CompatForm that says whether iptables-nft writes expressions for it; empty: a struct

    @property
    def parts(self) -> tuple[Match, ...]:
        """The matches that it is made of; by default itself."""
        return (self,)

    def xt(self) -> str:
        """Return the match in iptables-save syntax, without its protocol; of one alternative, see `each`."""
        return self._fill(self.xt_text)

    def _fill(self, template: str) -> str:
        if not template:  # an empty text would match all packets
            raise NotImplementedError(f"{type(self).__name__} has no text")
        return template.format(self)

    def each(self) -> tuple[Match | None, ...]:
        """Return the match for each alternative; None if iptables lists none."""
        return (self,)

    def nft(self) -> str:
        """Return the match as one nft expression, with sets for lists. Raises ValueError if nft has none."""
        return self._fill(self.nft_text)

    def nft_unless(self) -> Match | None:
        """Return the match of packets for which `nft` is true but this match is not."""

    def express(self, writer: RuleBuilder) -> None:
        """Append the match as nf_tables expressions, as nft 1.0.6 to 1.1 writes them. Raises ValueError if nft has none."""
        raise ValueError(f"{type(self).__name__}: nft has no expression for it")

    def struct(self, *more: Match) -> Struct:
        """Return the struct of iptables' extension, with `more` of one module. Raises ValueError if iptables has none."""
        raise ValueError(f"{type(self).__name__}: iptables has no module for it")

    @property
    def header_fields(self) -> tuple[int, tuple[int, int], int] | None:
        """What it sets in struct xt_tcp or xt_udp: the first of two fields, their values, the bit if inverted; None: nothing."""
        return None

    @abstractmethod
    def choose(self, packets: PacketSet) -> Chosen:
        """Return the packets of a set that match."""

    def describe(self) -> str:
        """Describe the match, as the continuation of "when"."""
        return self._fill(self.words)

    def phrase(self) -> str:
        """Describe the match in the few words of a drawing: "not uid 1337"."""
        return self.describe().removeprefix("it is ").removeprefix("its ").removeprefix("it ")


def format_option(option: str, value: object, negated: bool) -> str:
    """Return the syntax of an option of iptables."""
    return f"! {option} {value}" if negated else f"{option} {value}"


def format_extension(module: str, option: str, values: str, negated: bool) -> str:
    """Return the syntax of a module's option."""
    return f"-m {module} {format_option(option, values, negated)}"


def format_one_of(expression: str, texts: Sequence[str], negated: bool) -> str:
    """Return an nft comparison with a value, or with an anonymous set."""
    value = texts[0] if len(texts) == 1 else f"{{ {', '.join(texts)} }}"
    return f"{expression} {'!= ' if negated else ''}{value}"


def format_ranges(ranges: Iterable[tuple[int, int]], between: str) -> list[str]:
    """Return each range as its ends with `between` between them, or as one number."""
    return [f"{low}{between}{high}" if low < high else str(low) for low, high in ranges]


def format_not(negated: bool) -> str:
    """Return `not ` if negated, else an empty string."""
    return "not " if negated else ""


def format_list(words: Iterable[object]) -> str:
    """Join the words with commas."""
    return ", ".join([str(word) for word in words])


def pack_tcp(protocol: str, *matches: Match) -> Struct:
    """Return struct xt_tcp, or xt_udp, which has the fields of ports and of what is inverted."""
    fields = [0, MAX_PORT, 0, MAX_PORT, 0, 0, 0, 0]
    for match in matches:
        if found := match.header_fields:
            at, fields[at : at + 2], inverted = found
            fields[7] |= inverted
    if protocol == "tcp":
        return pad("tcp", 0, pack(TCP, *fields))
    return pad("udp", 0, pack(UDP, *fields[:4], fields[7]))
