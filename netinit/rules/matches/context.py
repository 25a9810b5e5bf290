"""Matches that a plain sidecar has none of: marks, connection states, sockets, flags of TCP; and unknown ones."""

from __future__ import annotations

from netinit.base.net import FULL_MASK
from netinit.rules.matches import EXTENSION, Match, XtMatch, spell_list, spell_not, spell_one_of, truth_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet import Packet, Surroundings
    from netinit.rules.selection import Chosen, PacketSet

NFT_STATES = ("invalid", "established", "related", "new", "untracked")  # in the order of the kernel's bits


class Mark(Match):
    """The firewall mark of the packet, or of its connection, or the bits of it in `mask` (sections mark, connmark)."""

    value: int
    mask: int = FULL_MASK
    connection: bool = False
    negated: bool = False

    def xt(self) -> XtMatch:
        mask = "" if self.mask == FULL_MASK else f"/{self.mask:#x}"
        module = "connmark" if self.connection else "mark"
        text = f"-m {module} {'! ' if self.negated else ''}--mark {self.value:#x}{mask}"
        return XtMatch(place=EXTENSION, alternatives=(text,))

    def nft(self) -> str:
        whose = "ct" if self.connection else "meta"
        if self.mask == FULL_MASK:
            return spell_one_of(f"{whose} mark", (f"{self.value:#010x}",), self.negated)
        return f"{whose} mark & {self.mask:#010x} {'!=' if self.negated else '=='} {self.value:#010x}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        if self.connection and packet.state in ("", "INVALID", "UNTRACKED"):
            return False  # xt_connmark says no, negated or not
        mark = packet.connection_mark if self.connection else packet.mark
        return (mark & self.mask == self.value) is not self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        marked = packets.with_mark(self.value, self.mask, connection=self.connection).turned(self.negated)
        if not self.connection:
            return marked
        return packets.in_state(("", "INVALID", "UNTRACKED")).turned(negated=True) & marked

    def describe(self) -> str:
        whose = "its connection's" if self.connection else "its"
        if self.mask == FULL_MASK:
            return f"{whose} mark is {spell_not(self.negated)}{self.value}"
        return f"{whose} mark under the mask {self.mask:#x} is {spell_not(self.negated)}{self.value:#x}"

    @property
    def tracks(self) -> bool:
        return self.connection


class ConnectionState(Match):
    """The state of the packet's connection, in the kernel's order of listing (section conntrack; `state` in the classic layout)."""

    states: tuple[str, ...]
    module: str = "conntrack"
    negated: bool = False

    def xt(self) -> XtMatch:
        option = "--ctstate" if self.module == "conntrack" else "--state"
        text = f"-m {self.module} {'! ' if self.negated else ''}{option} {','.join(self.states)}"
        return XtMatch(place=EXTENSION, alternatives=(text,))

    def nft(self) -> str:
        """ValueError for a state or a translation: nft has no one expression for either of the two."""
        states = [state for state in NFT_STATES if state.upper() in self.states]
        translated = [word.lower() for word in ("SNAT", "DNAT") if word in self.states]
        no = "! " if self.negated else ""  # `!=` would compare all bits
        parts = [f"ct {what} {no}{','.join(words)}" for what, words in (("state", states), ("status", translated)) if words]
        if len(parts) > 1 and not self.negated:
            raise ValueError(f"{' or '.join(parts)}: nft has no one expression for both")
        return " ".join(parts)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        if packet.state in self.states:
            return not self.negated
        return None if {"SNAT", "DNAT"} & set(self.states) or not packet.state else self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        found = packets.in_state(self.states)
        if {"SNAT", "DNAT"} & set(self.states):
            found |= packets.nobody_knows()
        return found.turned(self.negated)

    def describe(self) -> str:
        if self.negated:
            return f"its connection is neither {' nor '.join(self.states)}"
        return f"its connection is {' or '.join(self.states)}"

    @property
    def tracks(self) -> bool:
        return True


class AddressType(Match):
    """The kernel's routing calls the address one of these types, LOCAL for one (section addrtype)."""

    side: str  # source or destination
    types: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        option = "--src-type" if self.side == "source" else "--dst-type"
        text = f"-m addrtype {'! ' if self.negated else ''}{option} {','.join(self.types)}"
        return XtMatch(place=EXTENSION, alternatives=(text,))

    def nft(self) -> str:
        side = "saddr" if self.side == "source" else "daddr"
        return spell_one_of(f"fib {side} type", [word.lower() for word in self.types], self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        local = surroundings.is_local(packet.source if self.side == "source" else packet.destination)
        if "LOCAL" in self.types and (local or self.types == ("LOCAL",)):
            return truth_of(local, self.negated)
        return None

    def choose(self, packets: PacketSet) -> Chosen:
        if "LOCAL" not in self.types:
            return packets.nobody_knows()
        found = packets.local(source=self.side == "source")
        if self.types != ("LOCAL",):
            found |= packets.nobody_knows()
        return found.turned(self.negated)

    def describe(self) -> str:
        return f"its {self.side} address is {spell_not(self.negated)}of the type {' or '.join(self.types)}"


class Socket(Match):
    """A socket of this host is open for the packet (section socket)."""

    nft_chain = "socket"

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=("-m socket",))

    def nft(self) -> str:
        return "socket transparent <= 1"  # holds for every socket that is found; see nft_unless

    def nft_unless(self) -> tuple[str, ...]:
        """Expressions under which the match does not hold though `nft` does: a socket bound to all addresses."""
        return ("socket wildcard 1",)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return packet.socket

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.to_socket()

    def describe(self) -> str:
        return "a socket is open for it"


class TcpFlags(Match):
    """Of the TCP flags in `mask` exactly those in `flags` are set (section tcp)."""

    mask: tuple[str, ...]
    flags: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        no = "! " if self.negated else ""
        text = f"-m tcp {no}--tcp-flags {','.join(self.mask)} {','.join(self.flags) or 'NONE'}"
        return XtMatch(place=EXTENSION, alternatives=(text,), protocol="tcp")

    def nft(self) -> str:
        no = "!= " if self.negated else ""
        if self.flags:
            return f"tcp flags {no}{','.join(self.flags).lower()} / {','.join(self.mask).lower()}"
        return f"tcp flags & ({' | '.join(self.mask).lower()}) {no or '== '}0x0"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        if packet.protocol != "tcp":
            return False
        if packet.flags is None:
            return self.negated if self._asks_for_the_first and packet.state not in ("", "NEW") else None
        return ({flag for flag in packet.flags if flag in self.mask} == set(self.flags)) is not self.negated

    def choose(self, packets: PacketSet) -> Chosen:
        """The first packet of a connection has SYN alone; the flags of the others are not known, but that they have not that."""
        first = packets.beginning()
        others = first.turned(negated=True)
        holds = ("SYN" in self.mask and self.flags == ("SYN",)) or not (self.flags or "SYN" in self.mask)
        found = first if holds is not self.negated else first & others
        if not self._asks_for_the_first:
            others = others & packets.nobody_knows()
        elif not self.negated:
            others = first & others
        return packets.of_protocol("tcp") & (found | others)

    @property
    def _asks_for_the_first(self) -> bool:
        return self.flags == ("SYN",) and {"SYN", "ACK"} <= set(self.mask)

    def describe(self) -> str:
        return f"of its TCP flags {spell_list(self.mask)} {spell_not(self.negated)}just {spell_list(self.flags) or 'none'} are set"


class Limit(Match):
    """So many packets a second on average, and `burst` at once (section limit): what is more does not match."""

    rate: int
    burst: int

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(f"-m limit --limit {self.rate}/sec --limit-burst {self.burst}",))

    def nft(self) -> str:
        return f"limit rate {self.rate}/second burst {self.burst} packets"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return None  # it hangs on all packets before

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.nobody_knows()

    def describe(self) -> str:
        return f"no more than {self.rate} a second came before it"


class UnknownMatch(Match):
    """A match that this project does not know, as listed: kept to the letter, never assumed to hold or not to hold."""

    text: str

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(self.text,))

    def nft(self) -> str:
        return self.text

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:
        return None

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.nobody_knows()

    def describe(self) -> str:
        return f"`{self.text}` (not known to netinit) holds"

    @property
    def tracks(self) -> bool:
        return True  # it may: nothing is assumed
