"""Matches that only foreign rules have."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import Family, bounds_of, format_intervals, split_range, text_of
from netinit.rules import structs
from netinit.rules.matches import Match, format_extension, format_list, format_not, format_one_of, format_ranges
from netinit.rules.matches.packet import Port, pack_multiport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet_interfaces import Chosen, PacketSet


class AddressRange(Match):
    """The source or destination address is in the range from `first` to `last` (section iprange)."""

    of_connection = True
    family: Family
    first: int
    last: int
    source: bool = False
    negated: bool = False

    def xt(self) -> str:
        return format_extension("iprange", f"--{'src' if self.source else 'dst'}-range", self._format_ends("-"), self.negated)

    def nft(self) -> str:
        field = f"{self.family.nft} {'saddr' if self.source else 'daddr'}"
        return format_one_of(field, format_intervals([(self.first, self.last)], self.family), self.negated)

    def struct(self, *_: Match) -> structs.Struct:
        ends = [end.to_bytes(self.family.bits // 8, "big") for end in (self.first, self.last)]
        bit = dict(structs.SIDES)["source" if self.source else "destination"]
        flags = bit | (bit << structs.RANGE_INVERTED if self.negated else 0)
        nothing = [b"", b""]
        return structs.pad("iprange", 1, pack(structs.ADDRESS_RANGE, *(ends + nothing if self.source else nothing + ends), flags))

    def choose(self, packets: PacketSet) -> Chosen:
        networks = split_range(self.first, self.last, self.family)
        return packets.in_networks(networks, source=self.source).negated_if(self.negated)

    def describe(self) -> str:
        return f"its {'source' if self.source else 'destination'} is {format_not(self.negated)}from {self._format_ends(' to ')}"

    def _format_ends(self, between: str) -> str:
        return f"{text_of(self.first, self.family)}{between}{text_of(self.last, self.family)}"


class EitherPort(Match):
    """The source or the destination port is one of `ports` (section multiport, `--ports`)."""

    of_connection = True
    protocol: str
    ports: tuple[int | tuple[int, int], ...]
    negated: bool = False

    def xt(self) -> str:
        ports = ",".join(format_ranges(map(bounds_of, self.ports), ":"))
        return format_extension("multiport", "--ports", ports, self.negated)

    def nft(self) -> str:
        raise ValueError("either port: nft has no expression for it")

    def struct(self, *_: Match) -> structs.Struct:
        return pack_multiport(self.ports, structs.MULTIPORT_EITHER, negated=self.negated)

    def choose(self, packets: PacketSet) -> Chosen:
        source = Port(protocol=self.protocol, ports=self.ports, source=True)
        either = source.choose(packets) | source.replace(source=False).choose(packets)
        return packets.of_protocol(self.protocol) & either.negated_if(self.negated)

    def describe(self) -> str:
        words = format_list(format_ranges(map(bounds_of, self.ports), " to "))
        return f"its source or destination port is {format_not(self.negated)}{words}"


class InSet(Match):
    """Matches what a set holds that was read completely: packets for which all matches of one of the `alternatives` hold.

    An empty set has no alternative, and matches nothing. `text` is how the lookup is shown.
    """

    xt_text = nft_text = "{0.text}"
    kept = None
    text: str
    alternatives: tuple[tuple[Match, ...], ...]
    negated: bool = False

    def struct(self, *_: Match) -> structs.Struct:
        raise ValueError(f"{self.text}: netinit writes no lookup in a foreign set")

    def choose(self, packets: PacketSet) -> Chosen:
        found = packets.in_state(())  # none
        for matches in self.alternatives:
            one = packets.in_state(()).negated_if(negated=True)
            for match in matches:
                one &= match.choose(packets)
            found |= one
        return found.negated_if(self.negated)

    @property
    def parts(self) -> tuple[Match, ...]:
        return tuple([match for matches in self.alternatives for match in matches])

    def describe(self) -> str:
        return f"`{self.text}` holds" if self.alternatives else f"`{self.text}` holds, and the set is empty"

    @property
    def tracks(self) -> bool:  # type: ignore[override] # computed here
        return any(match.tracks for match in self.parts)
