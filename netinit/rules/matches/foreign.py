"""Matches that only foreign rules have."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import Family, Network, bounds_of, format_intervals, split_range, text_of
from netinit.rules import structs
from netinit.rules.matches import Match, format_extension, format_list, format_not, format_one_of, format_ranges
from netinit.rules.matches.context import UnknownMatch
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


class OriginalEnd(Match):
    """Source or destination of the first packet of its connection, as tracking saw it: an address or a port (section conntrack).

    Of `networks` and `ports` one is given. Without a connection it does not hold, even if negated.
    """

    tracks = True
    source: bool = False
    networks: tuple[Network, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    negated: bool = False

    def xt(self) -> str:
        option = f"--ctorig{'src' if self.source else 'dst'}{'port' if self.ports else ''}"
        return format_extension("conntrack", option, self._format(":"), self.negated)

    def nft(self) -> str:
        side = "s" if self.source else "d"
        field = f"proto-{side}{'rc' if self.source else 'st'}" if self.ports else f"{self.networks[0].family.nft} {side}addr"
        return format_one_of(f"ct original {field}", (self._format("-"),), self.negated)

    def struct(self, *_: Match) -> structs.Struct:
        bit = structs.ORIGINAL_PORTS[self.source] if self.ports else structs.ORIGINAL_ADDRESSES[self.source]
        info = bytearray(structs.pad_conntrack(bit, bit if self.negated else 0, 0)[2])
        if self.ports:
            low, high = structs.ORIGINAL_PORTS_AT[self.source]
            info[low : low + 2], info[high : high + 2] = [pack("=H", port) for port in self.ports[0]]
        else:
            network, at = self.networks[0], structs.ORIGINAL_ADDRESSES_AT[self.source]
            size, mask = network.family.bits // 8, (1 << network.family.bits) - 1 ^ (network.last - network.first)
            info[at : at + size] = network.first.to_bytes(size, "big")
            info[at + 16 : at + 16 + size] = mask.to_bytes(size, "big")
        return "conntrack", 3, bytes(info)

    def choose(self, packets: PacketSet) -> Chosen:
        connected = packets.in_state(("INVALID", "UNTRACKED")).negated_if(negated=True)
        return connected & packets.began_with(self.networks, self.ports, source=self.source).negated_if(self.negated)

    def describe(self) -> str:
        end = f"{'came' if self.source else 'was'} {format_not(self.negated)}{'from' if self.source else 'for'}"
        return f"the first packet of its connection {end}{' port' if self.ports else ''} {self._format(' to ')}"

    def _format(self, between: str) -> str:
        ranges = [(one.first, one.last) for one in self.networks]
        return (format_ranges(self.ports, between) or format_intervals(ranges, self.networks[0].family))[0]


ABOUT = {
    "bpf": "a program", "cgroup": "its sender's control group", "connbytes": "what its connection has carried",
    "connlimit": "how many connections there are", "conntrack": "the entry of its connection", "cpu": "the processor",
    "devgroup": "the group of its device", "dscp": "its DSCP", "ecn": "its ECN bits", "hashlimit": "how many came before it",
    "helper": "a helper of connection tracking", "hl": "its hop limit", "icmp": "its ICMP type", "icmp6": "its ICMPv6 type",
    "length": "its length", "limit": "how many came before it", "mac": "its sender's hardware address",
    "physdev": "the port of a bridge", "pkttype": "whom its frame was for", "policy": "IPsec",
    "quota": "how much came before it", "realm": "its route", "recent": "whom packets came from before",
    "rpfilter": "the route back", "statistic": "chance, or its turn", "string": "its content", "tcpmss": "its MSS",
    "time": "the time", "tos": "its TOS", "ttl": "its time to live", "u32": "its content",
}  # fmt: skip
"""Modules of matches on what no question names, and what that is."""


class Undecided(UnknownMatch):
    """A known match on what no question about a connection names, `about`: chance, time, earlier packets, other header fields."""

    words = "`{0.text}` holds, which depends on {0.about}"
    about: str

    @property
    def tracks(self) -> bool:  # type: ignore[override] # computed here
        return any(self.text.startswith(f"-m {module}") for module in ("conn", "helper"))


def name_unread(text: str, kept: structs.Struct | None = None) -> UnknownMatch:
    """Return the match for an extension that is not decided: known by what it depends on, or unknown."""
    about = ABOUT.get(text.split()[1])
    return Undecided(text=text, kept=kept, about=about) if about else UnknownMatch(text=text, kept=kept)


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
