"""Matches on what the kernel knows beside the packet: its socket's owner, marks, the connection; and unknown ones."""

from __future__ import annotations

from netinit.rules.matches.base import EXTENSION, Match, XtMatch, is_one_of, spell_not, truth_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet import Packet, Surroundings

NFT_STATES = ("invalid", "established", "related", "new", "untracked")  # in the order of the kernel's bits


class Owner(Match):
    """The socket belongs to this user or group (section owner; only for packets made in this namespace)."""

    kind: str  # uid or gid
    number: int
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(
            place=EXTENSION,
            alternatives=(f"-m owner {'! ' if self.negated else ''}--{self.kind}-owner {self.number}",),
        )

    def nft(self) -> str:
        return f"meta sk{self.kind} {'!= ' if self.negated else ''}{self.number}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        if not packet.has_socket:  # xt_owner says yes to every negated question then
            return self.negated
        owner = packet.uid if self.kind == "uid" else packet.gid
        return truth_of(is_one_of(owner, (self.number,)), self.negated)

    def describe(self) -> str:
        return f"its socket's {self.kind} is {spell_not(self.negated)}{self.number}"


class Mark(Match):
    """The packet's firewall mark (section mark)."""

    value: int
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(f"-m mark {'! ' if self.negated else ''}--mark {self.value:#x}",))

    def nft(self) -> str:
        return f"meta mark {'!= ' if self.negated else ''}{self.value:#010x}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return (packet.mark == self.value) is not self.negated

    def describe(self) -> str:
        return f"its mark is {spell_not(self.negated)}{self.value}"


class ConnectionMark(Match):
    """The connection's mark (section connmark)."""

    value: int

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(f"-m connmark --mark {self.value:#x}",))

    def nft(self) -> str:
        return f"ct mark {self.value:#010x}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return packet.state not in ("", "INVALID", "UNTRACKED") and packet.connection_mark == self.value

    def describe(self) -> str:
        return f"its connection's mark is {self.value}"


class ConnectionState(Match):
    """The state of the packet's connection, in the kernel's order of listing (section conntrack; `state` in the classic layout)."""

    states: tuple[str, ...]
    module: str = "conntrack"

    def xt(self) -> XtMatch:
        option = "--ctstate" if self.module == "conntrack" else "--state"
        return XtMatch(place=EXTENSION, alternatives=(f"-m {self.module} {option} {','.join(self.states)}",))

    def nft(self) -> str:
        return f"ct state {','.join([state for state in NFT_STATES if state.upper() in self.states])}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        if packet.state in self.states:
            return True
        return None if {"SNAT", "DNAT"} & set(self.states) or not packet.state else False

    def describe(self) -> str:
        return f"its connection is {' or '.join(self.states)}"


class Socket(Match):
    """A socket of this host is open for the packet (section socket)."""

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=("-m socket",))

    def nft(self) -> str:
        return "socket transparent <= 1"  # holds for every socket that is found; see nft_unless

    def nft_unless(self) -> tuple[str, ...]:
        """Expressions under which the match does not hold though `nft` does: a socket bound to all addresses."""
        return ("socket wildcard 1",)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return packet.socket

    def describe(self) -> str:
        return "a socket is open for it"


class UnknownMatch(Match):
    """A match that this project does not know, as listed: kept to the letter, never assumed to hold or not to hold."""

    text: str

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(self.text,))

    def nft(self) -> str:
        return self.text

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002 - only some look around
        return None

    def describe(self) -> str:
        return f"`{self.text}` (not known to netinit) holds"
