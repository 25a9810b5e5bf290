"""Matches and targets that no layout of this project writes but that rules of others in a pod are made of.

They exist so that a listing can be understood and simulated; what is not here stays `UnknownMatch`, `UnknownTarget`.
Sections are those of iptables-extensions(8).
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.net import Family
from netinit.rules.matches.base import (
    EXTENSION,
    PROTOCOL,
    Match,
    XtMatch,
    spell_list,
    spell_not,
    spell_one_of,
    truth_of,
)
from netinit.rules.targets import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet import Packet, Surroundings


class OtherProtocol(Match):
    """The transport protocol is any but this one (iptables(8), `! -p`)."""

    name: str

    def xt(self) -> XtMatch:
        return XtMatch(place=PROTOCOL, alternatives=(f"! -p {self.name}",))

    def nft(self) -> str:
        return f"meta l4proto != {self.name}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002
        return packet.protocol != self.name

    def describe(self) -> str:
        return f"it is not {self.name.upper()}"


class PortRange(Match):
    """The destination (or source) port lies in one of the ranges, both ends included (sections tcp, udp, multiport)."""

    protocol: str
    ranges: tuple[tuple[int, int], ...]
    source: bool = False
    negated: bool = False

    def xt(self) -> XtMatch:
        option = "--sport" if self.source else "--dport"
        texts = [str(low) if low == high else f"{low}:{high}" for low, high in self.ranges]
        no = "! " if self.negated else ""
        if len(texts) > 1:
            text = f"-m multiport {no}{option}s {','.join(texts)}"
        else:
            text = f"-m {self.protocol} {no}{option} {texts[0]}"
        return XtMatch(place=EXTENSION, alternatives=(text,), protocol=self.protocol)

    def nft(self) -> str:
        texts = [str(low) if low == high else f"{low}-{high}" for low, high in self.ranges]
        return spell_one_of(f"{self.protocol} {'sport' if self.source else 'dport'}", texts, self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002
        if packet.protocol != self.protocol:
            return False
        port = packet.source_port if self.source else packet.destination_port
        return None if port is None else any(low <= port <= high for low, high in self.ranges) is not self.negated

    def describe(self) -> str:
        side = "source" if self.source else "destination"
        ranges = [str(low) if low == high else f"{low} to {high}" for low, high in self.ranges]
        return f"it is {self.protocol.upper()} and its {side} port is {spell_not(self.negated)}{spell_list(ranges)}"


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
        mask, flags = (" | ".join(words).lower() for words in (self.mask, self.flags))
        return f"tcp flags & ({mask}) {'!=' if self.negated else '=='} {flags or '0x0'}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002
        if packet.protocol != "tcp":
            return False
        if packet.flags is None:
            return None
        return ({flag for flag in packet.flags if flag in self.mask} == set(self.flags)) is not self.negated

    def describe(self) -> str:
        return f"of its TCP flags {spell_list(self.mask)} {spell_not(self.negated)}just {spell_list(self.flags) or 'none'} are set"


class OwnerRange(Match):
    """The socket belongs to a user or group of this range, both ends included (section owner)."""

    kind: str  # uid or gid
    first: int
    last: int
    negated: bool = False

    def xt(self) -> XtMatch:
        text = f"-m owner {'! ' if self.negated else ''}--{self.kind}-owner {self.first}-{self.last}"
        return XtMatch(place=EXTENSION, alternatives=(text,))

    def nft(self) -> str:
        return spell_one_of(f"meta sk{self.kind}", (f"{self.first}-{self.last}",), self.negated)

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002
        if not packet.has_socket:
            return self.negated
        owner = packet.uid if self.kind == "uid" else packet.gid
        return None if owner is None else (self.first <= owner <= self.last) is not self.negated

    def describe(self) -> str:
        return f"its socket's {self.kind} is {spell_not(self.negated)}from {self.first} to {self.last}"


class MaskedMark(Match):
    """Some bits of the packet's or of its connection's mark (sections mark, connmark)."""

    value: int
    mask: int
    negated: bool = False
    connection: bool = False

    def xt(self) -> XtMatch:
        module = "connmark" if self.connection else "mark"
        text = f"-m {module} {'! ' if self.negated else ''}--mark {self.value:#x}/{self.mask:#x}"
        return XtMatch(place=EXTENSION, alternatives=(text,))

    def nft(self) -> str:
        whose = "ct" if self.connection else "meta"
        return f"{whose} mark & {self.mask:#010x} {'!=' if self.negated else '=='} {self.value:#010x}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002
        if self.connection and packet.state in ("", "INVALID", "UNTRACKED"):
            return False  # xt_connmark says no, negated or not
        mark = packet.connection_mark if self.connection else packet.mark
        return (mark & self.mask == self.value) is not self.negated

    def describe(self) -> str:
        whose = "its connection's" if self.connection else "its"
        return f"{whose} mark under the mask {self.mask:#x} is {spell_not(self.negated)}{self.value:#x}"


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

    def describe(self) -> str:
        return f"its {self.side} address is {spell_not(self.negated)}of the type {' or '.join(self.types)}"


class OtherState(Match):
    """The state of the packet's connection is none of these (section conntrack)."""

    states: tuple[str, ...]
    module: str = "conntrack"

    def xt(self) -> XtMatch:
        option = "--ctstate" if self.module == "conntrack" else "--state"
        return XtMatch(place=EXTENSION, alternatives=(f"-m {self.module} ! {option} {','.join(self.states)}",))

    def nft(self) -> str:
        return f"ct state != {','.join([state.lower() for state in self.states])}"

    def test(self, packet: Packet, surroundings: Surroundings) -> bool | None:  # noqa: ARG002
        if packet.state in self.states:
            return False
        return None if {"SNAT", "DNAT"} & set(self.states) or not packet.state else True

    def describe(self) -> str:
        return f"its connection is neither {' nor '.join(self.states)}"


class ForeignTarget(Target):
    """A target whose two spellings are the same in both families."""

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return self._xt()

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return (self._nft(),)

    @abstractmethod
    def _xt(self) -> str: ...

    @abstractmethod
    def _nft(self) -> str: ...


class Nothing(ForeignTarget):
    """No target: the rule only counts, the packet goes on to the next one."""

    def _xt(self) -> str:
        return ""

    def _nft(self) -> str:
        return "continue"

    def describe(self) -> str:
        return "count it and go on"


class Observe(ForeignTarget):
    """A target that reports on the packet or changes a field no rule looks at; the packet goes on to the next rule."""

    text: str

    def _xt(self) -> str:
        return self.text

    def _nft(self) -> str:
        return self.text

    def describe(self) -> str:
        return f"do `{self.text}` and go on"


class Goto(ForeignTarget):
    """On to another chain, from which RETURN leads to the caller of this one (iptables(8), `-g`)."""

    chain: str

    def _xt(self) -> str:
        return f"-g {self.chain}"

    def _nft(self) -> str:
        return f"goto {self.chain}"

    def describe(self) -> str:
        return f"go over to chain {self.chain}"


class RejectWith(ForeignTarget):
    """The packet is refused with this message (section REJECT)."""

    message: str

    def _xt(self) -> str:
        return f"REJECT --reject-with {self.message}"

    def _nft(self) -> str:
        kind, _, name = self.message.partition("-")
        return "reject with tcp reset" if self.message == "tcp-reset" else f"reject with {kind} type {name}"

    def describe(self) -> str:
        return f"refuse it with {self.message}"


class Dnat(ForeignTarget):
    """The destination becomes this address and port; empty and 0 leave as they are (section DNAT)."""

    address: str
    port: int

    def _xt(self) -> str:
        address = f"[{self.address}]" if ":" in self.address and self.port else self.address
        return f"DNAT --to-destination {address}{f':{self.port}' if self.port else ''}"

    def _nft(self) -> str:
        return f"dnat to {self._xt().rpartition(' ')[2]}"

    def describe(self) -> str:
        return f"send it to {self._xt().rpartition(' ')[2]} instead"


class SourceNat(ForeignTarget):
    """The source address is replaced, by what only the kernel knows beforehand (sections SNAT, MASQUERADE)."""

    text: str

    def _xt(self) -> str:
        return self.text

    def _nft(self) -> str:
        return self.text

    def describe(self) -> str:
        return f"replace its source address (`{self.text}`)"


class ChangeMark(ForeignTarget):
    """The bits of `mask` are cleared in the packet's or its connection's mark, then `value` is xored into it (MARK, CONNMARK)."""

    value: int
    mask: int
    connection: bool = False

    def _xt(self) -> str:
        return f"{'CONNMARK' if self.connection else 'MARK'} --set-xmark {self.value:#x}/{self.mask:#x}"

    def _nft(self) -> str:
        whose = "ct" if self.connection else "meta"
        return f"{whose} mark set {whose} mark & {0xFFFFFFFF & ~self.mask:#010x} ^ {self.value:#010x}"

    def describe(self) -> str:
        whose = "its connection's" if self.connection else "its"
        return f"change {whose} mark ({self.value:#x} under the mask {self.mask:#x})"


class Untrack(ForeignTarget):
    """The packet belongs to no tracked connection (section CT)."""

    def _xt(self) -> str:
        return "CT --notrack"

    def _nft(self) -> str:
        return "notrack"

    def describe(self) -> str:
        return "leave its connection untracked, out of reach of NAT"
