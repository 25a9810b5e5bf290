"""Targets that occur only in foreign rules. Sections refer to iptables-extensions(8)."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import IPV6, Family, Network, number_of
from netinit.rules import structs
from netinit.rules.targets import GO_ON, Capture, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet_interfaces import Traversal, Verdict
    from netinit.rules.rule_builder import RuleBuilder


# Extensions that leave unchanged what rules test
OBSERVING = frozenset((
    "AUDIT", "CHECKSUM", "CLASSIFY", "CONNSECMARK", "DSCP", "ECN", "IDLETIMER", "LED", "LOG", "NFLOG", "RATEEST", "SECMARK",
    "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS", "TRACE",
))  # fmt: skip


class ForeignTarget(Target):
    """Base of foreign targets that are shown as they were listed, and written by nothing; what else they have is not compared."""

    xt_text = nft_text = "{0.text}"
    text: str

    def struct(self, family: Family) -> structs.Struct:
        raise ValueError(f"{self.text}: not understood")

    def _values(self) -> tuple[object, ...]:
        return (self.text,)


class Observe(ForeignTarget):
    """A target that logs the packet, copies it or changes a field that no rule tests; empty: the rule only counts.

    `is_of_ct`: it says how the packet's connection is tracked, so that later rules of CT leave it as it is (section CT).
    """

    copies: bool = False
    is_of_ct: bool = False

    @property
    def only_observes(self) -> bool:  # type: ignore[override] # computed here
        return not self.is_of_ct

    @property
    def tracks(self) -> bool:  # type: ignore[override] # computed here
        return self.is_of_ct

    def act(self, packet: Traversal) -> Verdict:
        return packet.track(0) if self.is_of_ct else GO_ON

    def describe(self) -> str:
        return f"do `{self.text}` and go on" if self.text else "count it and go on"

    def label(self) -> str:
        return self.text.partition(" ")[0] or "count"


class SourceNat(ForeignTarget):
    """Replaces the source address (sections SNAT, MASQUERADE).

    Without `address` by one that only the kernel knows; `own`: by one of the pod's, as masquerading does (inet_select_addr).
    """

    is_final = tracks = True
    words = "replace its source address (`{0.text}`)"
    address: str = ""
    own: bool = False

    def _values(self) -> tuple[object, ...]:
        return (self.address or self.text,)

    def struct(self, family: Family) -> structs.Struct:
        if not self.address:
            return super().struct(family)
        packed = number_of(self.address).to_bytes(family.bits // 8, "big")
        if family is IPV6:
            return structs.pad("SNAT", 1, pack(structs.RANGE, structs.MAP_ADDRESSES, packed, packed))
        return structs.pad("SNAT", 0, pack(structs.MULTI_RANGE, 1, structs.MAP_ADDRESSES, packed, packed))

    def express(self, writer: RuleBuilder, family: Family) -> None:
        writer.put(number_of(self.address).to_bytes(family.bits // 8, "big"))
        writer.add(b"nat", (1, 0), (2, family.number), (3, 1))  # NFT_NAT_SNAT, with the address of the first register

    def act(self, packet: Traversal) -> Verdict:
        return packet.replace_source(self.address, own=self.own)


class DestinationNat(Target):
    """Changes the destination to this address and port; empty and 0 leave it unchanged (section DNAT)."""

    tracks = True
    xt_text, nft_text = "DNAT --to-destination {0.destination}", "dnat to {0.destination}"
    words = "send it to {0.destination} instead"
    address: str
    port: int

    @property
    def destination(self) -> str:
        """The address and port as one text."""
        address = f"[{self.address}]" if ":" in self.address and self.port else self.address
        return f"{address}{f':{self.port}' if self.port else ''}"

    def struct(self, family: Family) -> structs.Struct:
        flags = (structs.MAP_ADDRESSES if self.address else 0) | (structs.MAP_PORTS if self.port else 0)
        packed = number_of(self.address).to_bytes(family.bits // 8, "big") if self.address else b""
        return structs.pad("DNAT", 2, pack(structs.RANGE, flags, packed, packed) + pack(structs.PORTS, self.port, self.port))

    def act(self, packet: Traversal) -> Verdict:
        return packet.send_to(self.address, self.port)


class WriteDestination(ForeignTarget):
    """Writes a destination into the packet, without NAT: an address, or a port; empty and 0 leave it unchanged."""

    address: str = ""
    port: int = 0

    def act(self, packet: Traversal) -> Verdict:
        return packet.write_destination(self.address, self.port)

    def describe(self) -> str:
        return f"write the destination {self.address or self.port} into it"


def is_of_other_family(address: str, family: Family) -> bool:
    """Whether NAT to this address leaves packets of the family as they are, as in a chain of both (nft_nat_inet_eval)."""
    return bool(address) and (":" in address) is not (family is IPV6)


class Untrack(Target):
    """Excludes the packet from connection tracking (section CT)."""

    xt_text, nft_text, words = "CT --notrack", "notrack", "leave its connection untracked, out of reach of NAT"

    def struct(self, family: Family) -> structs.Struct:
        return structs.pad("CT", 2, pack(structs.CT, structs.NOTRACK, 0, 0, 0))

    def act(self, packet: Traversal) -> Verdict:
        return packet.track(None)


class OfferedToSocket(Capture):
    """Delivers the packet to a transparent socket, as nft's tproxy does, and goes on with the rule and the chain (nft_tproxy_eval).

    `whole`: the target that iptables has for it where a whole mark and ACCEPT follow, which end the chain.
    """

    is_final = False
    transparent = True
    name = "TPROXY"
    words = "hand it to the transparent socket on port {0.port}"
    whole: Capture

    @property
    def socket_address(self) -> str:
        return self.whole.socket_address

    def xt(self, family: Family) -> str:
        return self.whole.xt(family)

    def take(self, following: list[Target]) -> list[Target]:
        """Make one target of it with the mark and the verdict behind it."""
        if following and following[0].whole_mark >= 0 and [one.name for one in following[1:]] == ["ACCEPT"]:
            return [self.whole.replace(mark=following[0].whole_mark)]
        return [self, *following]

    def act(self, packet: Traversal) -> Verdict:
        packet.deliver_to_socket(self.port, 0, 0)
        return GO_ON


class MapNetwork(Target):
    """Replaces the network part of the destination, behind routing of the source, and keeps the rest (section NETMAP)."""

    is_final = tracks = True
    xt_text, nft_text = "NETMAP --to {0.network}", "NETMAP --to {0.network}"
    words = "replace the network of its address by {0.network}"
    network: Network

    def struct(self, family: Family) -> structs.Struct:
        ends = [one.to_bytes(family.bits // 8, "big") for one in (self.network.first, self.network.last)]
        form = (structs.RANGE,) if family is IPV6 else (structs.MULTI_RANGE, 1)
        return structs.pad("NETMAP", 0, pack(*form, structs.MAP_ADDRESSES, *ends), family)

    def act(self, packet: Traversal) -> Verdict:
        return packet.map_to(self.network)


class Queue(ForeignTarget):
    """Hands the packet to a program, which decides about it (section NFQUEUE)."""

    is_final = True
    unfollowed = "the program behind the queue decides; without one the kernel drops it, or lets it pass (--queue-bypass)"
    words = "hand it to the program behind the queue (`{0.text}`), which decides"

    def act(self, packet: Traversal) -> Verdict:
        return packet.give_up()


class UnknownTarget(ForeignTarget):
    """A target unknown to netinit, as listed."""

    is_final = True  # the simulator follows no packet past it
    tracks = True  # it may: nothing is assumed
    words = "do `{0.text}` (not known to netinit)"

    def act(self, packet: Traversal) -> Verdict:
        return packet.give_up()


def socket_target(target: Target) -> Capture | None:
    """Return the action of a target, or of several, that hands packets to a transparent socket; None if none does."""
    actions = target.targets if isinstance(target, Several) else (target,)
    return next((one for one in actions if isinstance(one, Capture) and one.transparent), None)


class Several(Target):
    """Several actions in sequence, as nf_tables rules may have; the first that does not continue is the last."""

    targets: tuple[Target, ...]

    @property
    def calls(self) -> str:  # type: ignore[override] # computed here
        return self.targets[-1].calls

    @property
    def tracks(self) -> bool:  # type: ignore[override] # computed here
        return any(target.tracks for target in self.targets)

    @property
    def copies(self) -> bool:  # type: ignore[override] # computed here
        return any(target.copies for target in self.targets)

    @property
    def only_observes(self) -> bool:  # type: ignore[override] # computed here
        return all(target.only_observes for target in self.targets)

    def xt(self, family: Family) -> str:
        return " ".join([target.xt(family) for target in self.targets])

    def nft(self, family: Family) -> str:
        return " ".join([target.nft(family) for target in self.targets])

    def act(self, packet: Traversal) -> Verdict:
        for target in self.targets:
            verdict = target.act(packet)
            if verdict != GO_ON:
                return verdict
        return GO_ON

    def describe(self) -> str:
        return ", then ".join([target.describe() for target in self.targets])
