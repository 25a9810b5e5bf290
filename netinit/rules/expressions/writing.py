"""Write matches and targets as nf_tables expressions, as nft 1.0.6 to 1.1 does; `conditions` and `effects` read them."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import FULL_MASK, IPV4, IPV6, Family, merge_networks
from netinit.rules.expressions import numbers
from netinit.rules.expressions.actions import SOCKET_ALONE, TARGETS, finish_foreign
from netinit.rules.expressions.building import EncodedSet, RuleBuilder, be32
from netinit.rules.matches import Unless
from netinit.rules.matches.context import (
    AddressType,
    ConnectionDirection,
    ConnectionState,
    Limit,
    Mark,
    Socket,
    TcpFlags,
    UnknownMatch,
)
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.targets import (
    Target,
    Tproxy,
)
from netinit.rules.xtables.names import ADDRESS_TYPES, protocol_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.rules.nft import Condition

EQUAL, UNEQUAL = "==", "!="


class NativeWriter(RuleBuilder):
    """Writes a rule's matches and target. A family or protocol is compared once, before the first match that needs it."""

    def __init__(self, family: int, sets: list[EncodedSet], *, splits_ranges: bool = True) -> None:
        super().__init__(family, sets, splits_ranges=splits_ranges)
        self._only: Family | None = {IPV4.number: IPV4, IPV6.number: IPV6}.get(family)
        self.is_mixed = self._only is None
        self._protocol = ""
        self._unknown: list[bytes] = []  # data written for unknown matches

    def write(self, condition: Condition) -> None:
        """Write a condition. Raises ValueError if nft has no expression for it."""
        if isinstance(condition, Family):
            self.limit_family(condition)
            return
        if isinstance(condition, UnknownMatch):
            self.write_kept(b"match", condition.kept, condition.text)
            return
        writer = _CONDITIONS.get(type(condition))
        if writer is None:
            raise ValueError(f"{type(condition).__name__}: nft has no expression for it")
        writer(self, condition)

    def finish(self, target: Target, part: int, family: Family) -> None:
        """Write a target; `part` is the index of its rule. Raises ValueError if nft has no expression for it."""
        writer = TARGETS.get(type(target))
        if writer is None:
            self._finish_foreign(target, family)
        else:
            writer(self, target, part, family)

    def _finish_foreign(self, target: Target, family: Family) -> None:
        from netinit.rules.foreign_targets import AsWritten, Several

        if isinstance(target, Several):
            for one in target.targets:
                if isinstance(one, Tproxy) and one.mark:
                    from netinit.rules.xtables.targets import encode_target

                    self.add_struct(b"target", encode_target(one, family))
                else:
                    self.finish(one, SOCKET_ALONE, family)  # of TPROXY: mark and verdict are separate targets
            return
        if isinstance(target, AsWritten):
            if target.text or not target.only_observes:  # otherwise it only counts
                self.write_kept(b"target", target.kept, target.text)
            return
        if not finish_foreign(self, target):
            raise ValueError(f"{type(target).__name__}: nft has no expression for it")

    def write_kept(self, kind: bytes, kept: bytes | tuple[str, int, bytes], text: str) -> None:
        """Write what was kept of something not decoded. Raises ValueError if nothing was."""
        if not kept:
            raise ValueError(f"{text}: not understood, and not kept")
        if isinstance(kept, bytes):
            if kind == b"match" or kept not in self._unknown:  # an unread verdict map is both a match and a target
                self.parts.append(kept)
            if kind == b"match":
                self._unknown.append(kept)
        else:
            self.add_struct(kind, kept)

    def add_struct(self, kind: bytes, struct: tuple[str, int, bytes]) -> None:
        """Write the struct of an iptables extension, NFTA_MATCH_* or NFTA_TARGET_*."""
        name, revision, info = struct
        self.add(kind, (1, name.encode("utf-8", "surrogateescape") + b"\0"), (2, be32(revision)), (3, info))

    def limit_family(self, family: Family) -> None:
        """Match only this family."""
        if self._only is not family:
            self._only, self.is_mixed = family, False
            self.load_meta(numbers.META_NFPROTO)
            self.compare(EQUAL, bytes((family.number,)))

    def limit_protocol(self, name: str) -> None:
        """Match only this protocol."""
        if self._protocol != name:
            self._protocol = name
            self.load_meta(numbers.META_L4PROTO)
            self.compare(EQUAL, bytes((protocol_number(name),)))


def _operator(negated: bool) -> str:
    return UNEQUAL if negated else EQUAL


def _write_address(writer: NativeWriter, match: Source | Destination) -> None:
    family = match.networks[0].family
    writer.limit_family(family)
    which = "source" if isinstance(match, Source) else "destination"
    ((offset, size),) = [(offset, size) for offset, size, what in numbers.FIELDS[family] if what == which]
    networks = merge_networks(match.networks, family)
    (low, high) = networks[0]
    more = high - low
    if len(networks) == 1 and not more & more + 1 and not low & more:  # one network, or an address
        length = family.bits - more.bit_length()
        taken = size if length % 8 or not length else length // 8
        writer.load_payload(numbers.NETWORK_HEADER, offset, taken)
        if length % 8 or not length:
            writer.mask(((1 << family.bits) - 1 - more).to_bytes(size, "big"))
        writer.compare(_operator(match.negated), low.to_bytes(size, "big")[:taken])
        return
    writer.load_payload(numbers.NETWORK_HEADER, offset, size)
    ranges = [(low.to_bytes(size, "big"), high.to_bytes(size, "big")) for low, high in networks]
    writer.compare_ranges(ranges, match.negated, numbers.TYPE_IPV4 if family is IPV4 else numbers.TYPE_IPV6)


def _write_interface(writer: NativeWriter, match: InInterface | OutInterface) -> None:
    writer.load_meta(numbers.META_IIFNAME if isinstance(match, InInterface) else numbers.META_OIFNAME)
    ranges = [_name_range(name) for name in dict.fromkeys(match.names)]
    (low, high) = ranges[0]
    if len(ranges) == 1 and low != high:  # a prefix of names
        writer.compare(_operator(match.negated), low.rstrip(b"\0"))
    else:
        writer.compare_ranges(ranges, match.negated, numbers.TYPE_INTERFACE)


def _name_range(name: str) -> tuple[bytes, bytes]:
    """Return the first and last name that match. Raises ValueError for `+`."""
    packed = name.encode("utf-8", "surrogateescape")
    if packed == b"+":
        raise ValueError("any interface: nft has no expression for it")
    if not packed.endswith(b"+"):
        return packed.ljust(numbers.INTERFACE_NAME, b"\0"), packed.ljust(numbers.INTERFACE_NAME, b"\0")
    return packed[:-1].ljust(numbers.INTERFACE_NAME, b"\0"), packed[:-1].ljust(numbers.INTERFACE_NAME, b"\xff")


def _write_protocol(writer: NativeWriter, match: Protocol) -> None:
    if match.negated:
        writer.load_meta(numbers.META_L4PROTO)
        writer.compare(UNEQUAL, bytes((protocol_number(match.name),)))
    else:
        writer.limit_protocol(match.name)


def _write_port(writer: NativeWriter, match: Port) -> None:
    writer.limit_protocol(match.protocol)
    ((offset, size),) = [(offset, size) for offset, size, is_source in numbers.PORTS if is_source is match.source]
    writer.load_payload(numbers.TRANSPORT_HEADER, offset, size)
    packed = [(low.to_bytes(size, "big"), high.to_bytes(size, "big")) for low, high in match.ranges]
    writer.compare_ranges(packed, match.negated, numbers.TYPE_SERVICE)


def _write_tcp_flags(writer: NativeWriter, match: TcpFlags) -> None:
    writer.limit_protocol("tcp")
    writer.load_payload(numbers.TRANSPORT_HEADER, numbers.TCP_FLAGS_AT, 1)
    mask, flags = match.bits
    writer.mask(bytes((mask,)))
    writer.compare(_operator(match.negated), bytes((flags,)))


def _write_owner(writer: NativeWriter, match: Owner) -> None:
    writer.load_meta(numbers.META_SKUID if match.kind == "uid" else numbers.META_SKGID)
    if match.last is None:
        writer.compare(_operator(match.negated), pack("=I", match.number))
    else:
        writer.swap(4)
        writer.compare_ranges([(be32(match.number), be32(match.last))], match.negated, 0)


def _write_mark(writer: NativeWriter, match: Mark) -> None:
    if match.connection:
        writer.load_ct(numbers.CT_MARK)
    else:
        writer.load_meta(numbers.META_MARK)
    if match.mask != FULL_MASK:
        writer.mask(pack("=I", match.mask))
    writer.compare(_operator(match.negated), pack("=I", match.value))


def _write_state(writer: NativeWriter, match: ConnectionState) -> None:
    asked = [
        (key, sum([bit for name, bit in known if name in match.states]))
        for key, known in ((numbers.CT_STATE, numbers.STATES), (numbers.CT_STATUS, numbers.STATUSES))
        if any(name in match.states for name, _ in known)
    ]
    if len(asked) > 1 and not match.negated:
        raise ValueError(f"{' or '.join(match.states)}: nft has no one expression for both")
    for key, bits in asked:
        writer.load_ct(key)
        writer.mask(pack("=I", bits))
        writer.compare(_operator(not match.negated), bytes(4))


def _write_direction(writer: NativeWriter, match: ConnectionDirection) -> None:
    writer.load_ct(numbers.CT_DIRECTION)
    writer.compare(EQUAL, b"\1" if match.direction == "REPLY" else b"\0")


def _write_socket(writer: NativeWriter, _: Socket) -> None:
    writer.load_socket(numbers.SOCKET_TRANSPARENT)
    writer.compare("<=", b"\1")  # matches every socket that is found


def _write_wildcard(writer: NativeWriter, _: Unless) -> None:
    writer.load_socket(numbers.SOCKET_WILDCARD)
    writer.compare(EQUAL, b"\1")


def _write_limit(writer: NativeWriter, match: Limit) -> None:
    plain = be32(0)  # packets, none of it turned round
    writer.add(b"limit", (1, pack(">Q", match.rate)), (2, pack(">Q", 1)), (3, be32(match.burst)), (4, plain), (5, plain))


def _write_address_type(writer: NativeWriter, match: AddressType) -> None:
    writer.load_fib(numbers.FIB_ADDRTYPE, numbers.FIB_SADDR if match.side == "source" else numbers.FIB_DADDR)
    codes = [pack("=I", ADDRESS_TYPES.index(name)) for name in match.types]
    writer.compare_ranges([(one, one) for one in codes], match.negated, numbers.TYPE_FIB)


_CONDITIONS: dict[type, Callable[..., None]] = {
    Source: _write_address, Destination: _write_address, InInterface: _write_interface, OutInterface: _write_interface,
    Protocol: _write_protocol, Port: _write_port, TcpFlags: _write_tcp_flags, Owner: _write_owner, Mark: _write_mark,
    ConnectionState: _write_state, ConnectionDirection: _write_direction, Socket: _write_socket, Unless: _write_wildcard,
    Limit: _write_limit, AddressType: _write_address_type,
}  # fmt: skip
