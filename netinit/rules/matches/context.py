"""Matches beyond a plain sidecar's: marks, connection states, sockets, TCP flags; and unknown matches."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import FULL_MASK
from netinit.rules import numbers, structs
from netinit.rules.matches import Match, format_extension, format_list, format_not, format_one_of, pack_tcp
from netinit.rules.structs import ADDRESS_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet_interfaces import Chosen, PacketSet
    from netinit.rules.rule_builder import RuleBuilder


class Mark(Match):
    """Matches the mark of the packet or its connection, under `mask` (sections mark, connmark)."""

    value: int
    mask: int = FULL_MASK
    connection: bool = False
    negated: bool = False

    def xt(self) -> str:
        mask = "" if self.mask == FULL_MASK else f"/{self.mask:#x}"
        module = "connmark" if self.connection else "mark"
        return format_extension(module, "--mark", f"{self.value:#x}{mask}", self.negated)

    def nft(self) -> str:
        whose = "ct" if self.connection else "meta"
        if self.mask == FULL_MASK:
            return format_one_of(f"{whose} mark", (f"{self.value:#010x}",), self.negated)
        return f"{whose} mark & {self.mask:#010x} {'!=' if self.negated else '=='} {self.value:#010x}"

    def express(self, writer: RuleBuilder) -> None:
        writer.load_mark(connection=self.connection)
        if self.mask != FULL_MASK:
            writer.mask(pack("=I", self.mask))
        writer.compare(pack("=I", self.value), self.negated)

    def struct(self, *_: Match) -> structs.Struct:
        return structs.pad(
            "connmark" if self.connection else "mark", 1, pack(structs.MARK, self.value, self.mask, self.negated)
        )

    def choose(self, packets: PacketSet) -> Chosen:
        marked = packets.with_mark(self.value, self.mask, connection=self.connection).negated_if(self.negated)
        if not self.connection:
            return marked
        # Without a connection xt_connmark is false, even if negated.
        return packets.in_state(("INVALID", "UNTRACKED")).negated_if(negated=True) & marked

    def describe(self) -> str:
        whose = "its connection's" if self.connection else "its"
        if self.mask == FULL_MASK:
            return f"{whose} mark is {format_not(self.negated)}{self.value}"
        return f"{whose} mark under the mask {self.mask:#x} is {format_not(self.negated)}{self.value:#x}"

    @property
    def tracks(self) -> bool:  # type: ignore[override] # computed here
        return self.connection

    @property
    def compat(self) -> str:  # type: ignore[override] # computed here
        return "" if self.connection else "has_own_mark"


class ConnectionState(Match):
    """Matches the connection's state or translation, in listing order (section conntrack; classic: state)."""

    tracks = True
    states: tuple[str, ...]
    module: str = "conntrack"
    negated: bool = False

    def xt(self) -> str:
        option = "--ctstate" if self.module == "conntrack" else "--state"
        return format_extension(self.module, option, ",".join(self.states), self.negated)

    def nft(self) -> str:
        """Return the expression. Raises ValueError for states and translations: nft needs several."""
        states = [name.lower() for name, _ in sorted(numbers.STATES, key=lambda state: state[1]) if name in self.states]
        translated = [word.lower() for word in ("SNAT", "DNAT") if word in self.states]
        no = "! " if self.negated else ""  # `!=` would compare all bits
        parts = [f"ct {what} {no}{','.join(words)}" for what, words in (("state", states), ("status", translated)) if words]
        if len(parts) > 1 and not self.negated:
            raise ValueError(f"{' or '.join(parts)}: nft has no one expression for both")
        return " ".join(parts)

    def express(self, writer: RuleBuilder) -> None:
        asked = [
            (key, sum([bit for name, bit in known if name in self.states]))
            for key, known in ((numbers.CT_STATE, numbers.STATES), (numbers.CT_STATUS, numbers.STATUSES))
        ]
        if all(bits for _, bits in asked) and not self.negated:
            raise ValueError(f"{' or '.join(self.states)}: nft has no one expression for both")
        for key, bits in asked:
            if bits:
                writer.load("ct", key)
                writer.mask(pack("=I", bits))
                writer.compare(bytes(4), not self.negated)

    def struct(self, *_: Match) -> structs.Struct:
        bits = sum([bit for name, bit in structs.CONNTRACK_BITS if name in self.states])
        asked = structs.STATE | (structs.STATE_ALIAS if self.module == "state" else 0)
        return structs.pad_conntrack(asked, structs.STATE if self.negated else 0, bits)

    def choose(self, packets: PacketSet) -> Chosen:
        found = packets.in_state(self.states)
        if self.negated and not {"SNAT", "DNAT"}.isdisjoint(self.states):
            # Without a connection, `ct status` ends the rule, while a negated xt_conntrack matches.
            found |= packets.unknown() & packets.in_state(("",))
        if "DNAT" in self.states:
            found |= packets.with_translated_destination()
        if "SNAT" in self.states:
            found |= packets.unknown() & packets.in_state(("INVALID", "UNTRACKED")).negated_if(negated=True)
        return found.negated_if(self.negated)

    def describe(self) -> str:
        return f"its connection is {format_not(self.negated)}{' or '.join(self.states)}"


class ConnectionDirection(Match):
    """Matches packets in one direction of their connection, ORIGINAL or REPLY (section conntrack)."""

    tracks = True
    xt_text = "-m conntrack --ctdir {0.direction}"
    direction: str

    def nft(self) -> str:
        return f"ct direction {self.direction.lower()}"

    def express(self, writer: RuleBuilder) -> None:
        writer.load("ct", numbers.CT_DIRECTION)
        writer.compare(b"\1" if self.direction == "REPLY" else b"\0")

    def struct(self, *_: Match) -> structs.Struct:
        return structs.pad_conntrack(structs.DIRECTION, structs.DIRECTION if self.direction == "REPLY" else 0, 0)

    def choose(self, packets: PacketSet) -> Chosen:
        known = packets.in_state(("INVALID", "UNTRACKED")).negated_if(negated=True)
        return known & packets.in_reply_direction().negated_if(self.direction == "ORIGINAL")

    def describe(self) -> str:
        return f"it is {'an answer' if self.direction == 'REPLY' else 'no answer'} in its connection"


class AddressType(Match):
    """Matches the routing type of an address, such as LOCAL (section addrtype)."""

    of_connection = True
    side: str  # source or destination
    types: tuple[str, ...]
    negated: bool = False

    def xt(self) -> str:
        option = "--src-type" if self.side == "source" else "--dst-type"
        return format_extension("addrtype", option, ",".join(self.types), self.negated)

    def nft(self) -> str:
        side = "saddr" if self.side == "source" else "daddr"
        return format_one_of(f"fib {side} type", [word.lower() for word in self.types], self.negated)

    def express(self, writer: RuleBuilder) -> None:
        writer.load("fib", numbers.FIB_ADDRTYPE, numbers.FIB_SADDR if self.side == "source" else numbers.FIB_DADDR)
        codes = [pack("=I", ADDRESS_TYPES.index(name)) for name in self.types]
        writer.compare_ranges([(one, one) for one in codes], self.negated, numbers.TYPE_FIB)

    def struct(self, *_: Match) -> structs.Struct:
        types = sum([1 << ADDRESS_TYPES.index(name) for name in self.types])
        bit = dict(structs.SIDES)[self.side]
        sides = (types, 0) if self.side == "source" else (0, types)
        return structs.pad("addrtype", 1, pack(structs.ADDRESS_TYPE, *sides, bit if self.negated else 0))

    def choose(self, packets: PacketSet) -> Chosen:
        if "LOCAL" not in self.types:
            return packets.unknown()
        found = packets.local(source=self.side == "source")
        if self.types != ("LOCAL",):
            found |= packets.unknown()
        return found.negated_if(self.negated)

    def describe(self) -> str:
        return f"its {self.side} address is {format_not(self.negated)}of the type {' or '.join(self.types)}"


class Socket(Match):
    """Matches if a socket of this host is open for the packet (section socket); `wildcard`: bound to all addresses, in nft only."""

    nft_chain = "socket"
    xt_text, words = "-m socket", "a socket is open for it"
    wildcard: bool = False

    def nft_unless(self) -> Match:
        return Socket(wildcard=True)

    def nft(self) -> str:
        return "socket wildcard 1" if self.wildcard else "socket transparent <= 1"  # true for every socket that is found

    def express(self, writer: RuleBuilder) -> None:
        writer.load("socket", numbers.SOCKET_WILDCARD if self.wildcard else numbers.SOCKET_TRANSPARENT)
        writer.compare_with("==" if self.wildcard else "<=", b"\1")

    def struct(self, *_: Match) -> structs.Struct:
        return structs.pad("socket", 3, b"")

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.to_socket()


FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG")  # in the order of their bits, in which iptables lists them
FLAG_BITS = {name: 1 << bit for bit, name in enumerate(FLAGS)}


class TcpFlags(Match):
    """Matches if exactly `flags` of the TCP flags in `mask` are set (section tcp)."""

    protocol = "tcp"
    compat = "has_own_ports"
    mask: tuple[str, ...]
    flags: tuple[str, ...]
    negated: bool = False

    @classmethod
    def from_bits(cls, mask: int, flags: int, *, negated: bool) -> TcpFlags:
        """Return the match for bits of the TCP header."""
        names = [tuple([name for bit, name in enumerate(FLAGS) if bits >> bit & 1]) for bits in (mask, flags)]
        return cls(mask=names[0], flags=names[1], negated=negated)

    @property
    def bits(self) -> tuple[int, int]:
        """The bits of `mask` and `flags` in the TCP header."""
        return sum([FLAG_BITS[name] for name in self.mask]), sum([FLAG_BITS[name] for name in self.flags])

    def xt(self) -> str:
        values = f"{','.join(self.mask)} {','.join(self.flags) or 'NONE'}"
        return format_extension("tcp", "--tcp-flags", values, self.negated)

    def nft(self) -> str:
        mask, flags = (",".join(words).lower() for words in (self.mask, self.flags))
        if not flags:  # as nft lists it
            return f"tcp flags & ({mask.replace(',', ' | ')}) != 0x0" if self.negated else f"tcp flags ! {mask}"
        return f"tcp flags {'!= ' if self.negated else ''}{flags} / {mask}"

    def express(self, writer: RuleBuilder) -> None:
        writer.limit_protocol("tcp")
        writer.load("payload", numbers.TRANSPORT_HEADER, numbers.TCP_FLAGS_AT, 1)
        mask, flags = self.bits
        writer.mask(bytes((mask,)))
        writer.compare(bytes((flags,)), self.negated)

    def struct(self, *more: Match) -> structs.Struct:
        return pack_tcp("tcp", self, *more)

    @property
    def header_fields(self) -> tuple[int, tuple[int, int], int]:
        return structs.TCP_FLAGS, self.bits, structs.FLAGS_INVERTED if self.negated else 0

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.of_protocol("tcp") & packets.with_flags(self.mask, self.flags).negated_if(self.negated)

    def describe(self) -> str:
        if self.replace(negated=False) == BARE_SYN:
            return f"it {'does not open' if self.negated else 'opens'} a connection (SYN without ACK)"
        return f"of its TCP flags {format_list(self.mask)} {format_not(self.negated)}just {format_list(self.flags) or 'none'} are set"

    def phrase(self) -> str:
        mask, flags = "/".join(self.mask), "/".join(self.flags) or "none"
        flags = "SYN" if self.replace(negated=False) == BARE_SYN else flags if mask == flags else f"{flags} of {mask}"
        return f"TCP {'but not with' if self.negated else 'with'} {flags}"


BARE_SYN = TcpFlags(mask=("FIN", "SYN", "RST", "ACK"), flags=("SYN",))  # --syn: what a listening socket answers


class Limit(Match):
    """Matches this many packets a second on average, and `burst` at once (section limit)."""

    compat = "always"
    xt_text = "-m limit --limit {0.rate}/sec --limit-burst {0.burst}"
    nft_text = "limit rate {0.rate}/second burst {0.burst} packets"
    words = "no more than {0.rate} a second came before it"
    rate: int
    burst: int

    def express(self, writer: RuleBuilder) -> None:
        plain = bytes(4)  # packets, none of it turned round
        writer.add(
            b"limit", (1, pack(">Q", self.rate)), (2, pack(">Q", 1)), (3, pack(">I", self.burst)), (4, plain), (5, plain)
        )

    def struct(self, *_: Match) -> structs.Struct:
        return structs.pad("limit", 0, pack(structs.LIMIT, structs.LIMIT_SCALE // self.rate, self.burst))

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.unknown()  # depends on all earlier packets


class UnknownMatch(Match):
    """An unknown match, as listed; its result is unknown. `kept`: the struct of an extension, not compared."""

    tracks = True  # nothing is assumed
    xt_text, nft_text, words = "{0.text}", "{0.text}", "`{0.text}` (not known to netinit) holds"
    text: str
    kept: structs.Struct | None = None

    def _values(self) -> tuple[object, ...]:
        return (self.text,)

    def struct(self, *_: Match) -> structs.Struct:
        if self.kept:
            return self.kept
        raise ValueError(f"{self.text}: not understood, and not kept")

    def choose(self, packets: PacketSet) -> Chosen:
        return packets.unknown()

