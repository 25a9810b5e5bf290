"""Matches that foreign rules have and no plan makes."""

from __future__ import annotations

from netinit.base.net import Family, bounds_of, format_intervals, split_range, text_of
from netinit.rules.matches import EXTENSION, Match, XtMatch, format_list, format_not, format_one_of, truth_of
from netinit.rules.matches.packet import Port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet import Packet, Surroundings
    from netinit.rules.packet_set import Chosen, PacketSet


class AddressRange(Match):
    """The source or destination address lies between two, which belong to the range (section iprange)."""

    family: Family
    first: int
    last: int
    source: bool = False
    negated: bool = False

    def xt(self) -> XtMatch:
        option = f"{'! ' if self.negated else ''}--{'src' if self.source else 'dst'}-range"
        return XtMatch(place=EXTENSION, alternatives=(f"-m iprange {option} {self._format_ends('-')}",))

    def nft(self) -> str:
        field = f"{self.family.nft} {'saddr' if self.source else 'daddr'}"
        return format_one_of(field, format_intervals([(self.first, self.last)], self.family), self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        address = packet.source if self.source else packet.destination
        return truth_of(None if address is None else self.first <= address <= self.last, self.negated)

    def choose(self, packets: PacketSet) -> Chosen:
        networks = split_range(self.first, self.last, self.family)
        return (packets.from_networks(networks) if self.source else packets.to_networks(networks)).turned(self.negated)

    def describe(self) -> str:
        return f"its {'source' if self.source else 'destination'} is {format_not(self.negated)}from {self._format_ends(' to ')}"

    def _format_ends(self, between: str) -> str:
        return f"{text_of(self.first, self.family)}{between}{text_of(self.last, self.family)}"


class EitherPort(Match):
    """The source or the destination port is one of `ports` (section multiport, `--ports`), of the rule's own protocol."""

    protocol: str
    ports: tuple[int | tuple[int, int], ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        texts = [f"{low}:{high}" if low < high else str(low) for low, high in map(bounds_of, self.ports)]
        return XtMatch(place=EXTENSION, alternatives=(f"-m multiport {'! ' if self.negated else ''}--ports {','.join(texts)}",))

    def nft(self) -> str:
        raise ValueError("either port: nft has no expression for it")

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        if packet.protocol != self.protocol:
            return False
        found = [side.test(packet, surroundings) for side in self._sides()]
        return truth_of(True if True in found else None if None in found else False, self.negated)

    def choose(self, packets: PacketSet) -> Chosen:
        source, destination = (side.choose(packets) for side in self._sides())
        return packets.of_protocol(self.protocol) & (source | destination).turned(self.negated)

    def describe(self) -> str:
        words = [f"{low} to {high}" if low < high else str(low) for low, high in map(bounds_of, self.ports)]
        return f"its source or destination port is {format_not(self.negated)}{format_list(words)}"

    def _sides(self) -> tuple[Port, Port]:
        source = Port(protocol=self.protocol, ports=self.ports, source=True)
        return source, source.replace(source=False)
