"""One class per target: what iptables and nft call it, what it does to a packet, and the same in words.

Sections are those of iptables-extensions(8).
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.net import FULL_MASK, Family
from netinit.base.records import Record
from netinit.base.sanitize import quote_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.traversal import Traversal, Verdict

GO_ON: Verdict = "go on"  # with the next rule
BACK: Verdict = "back"  # with the chain that called this one
ACCEPTED: Verdict = "accepted"  # with the next table
ENDED: Verdict = "ended"  # nowhere


_NFT_NAMES = {"ISTIO_PRERT": "istio-prerouting"}


def format_chain(name: str) -> str:
    """The chain's name in nft, as in Istio's native mode: ISTIO_IN_REDIRECT becomes istio-in-redirect."""
    return _NFT_NAMES.get(name) or name.lower().replace("_", "-")


class Target(Record):
    """What happens to a packet that matched."""

    option = "-j"  # what stands before it in iptables' dialect
    name = ""  # in a word, where iptables has one that says it all
    calls = ""  # the chain that it leads to
    captures_at = 0  # the proxy's port that it sends packets to
    tracks = False  # a rule with it makes the kernel track connections
    nft_spells_family = False  # nft lists a rule with it together with the family that it is for
    only_observes = False  # the packet is the same afterwards and goes on: it need not be known whether the rule holds

    @abstractmethod
    def xt(self, family: Family) -> str:
        """The target as iptables-save lists it, without its option; empty for a rule that has none."""

    @abstractmethod
    def nft(self, family: Family) -> tuple[str, ...]:
        """The target as nft lists it; several where it takes that many rules, each with all the matches."""

    @abstractmethod
    def act(self, packet: Traversal) -> Verdict:
        """Does to the packet what the kernel does, and says how it goes on."""

    @abstractmethod
    def describe(self) -> str:
        """The target in words, to stand after "then"."""

    def label(self) -> str:
        """The target in a word or two, for a picture."""
        port = f" {self.captures_at}" if self.captures_at else ""
        return self.calls or (self.name or self.describe().partition(" (")[0]) + port


class Return(Target):
    """Back to the calling chain; in a built-in chain the policy decides."""

    name = "RETURN"

    def xt(self, family: Family) -> str:
        return "RETURN"

    def nft(self, family: Family) -> tuple[str, ...]:
        return ("return",)

    def act(self, packet: Traversal) -> Verdict:
        return BACK

    def describe(self) -> str:
        return "return to the calling chain"


class Jump(Target):
    """On to another chain. It comes back if that one does not decide; after a `goto` to the caller of this chain (`-g`)."""

    chain: str
    goto: bool = False

    @property
    def option(self) -> str:  # type: ignore[override] # computed here
        """`-g` for a goto."""
        return "-g" if self.goto else "-j"

    @property
    def calls(self) -> str:  # type: ignore[override] # computed here
        """The same chain."""
        return self.chain

    def xt(self, family: Family) -> str:
        return self.chain

    def nft(self, family: Family) -> tuple[str, ...]:
        return (f"{'goto' if self.goto else 'jump'} {format_chain(self.chain)}",)

    def act(self, packet: Traversal) -> Verdict:
        verdict = packet.call(self.chain)
        return BACK if self.goto and verdict == GO_ON else verdict

    def describe(self) -> str:
        return f"go {'over to' if self.goto else 'through'} chain {self.chain}"


class Capture(Target):
    """The packet goes to a local port."""

    port: int

    @property
    def captures_at(self) -> int:  # type: ignore[override] # computed here
        """The same port."""
        return self.port


class Redirect(Capture):
    """The destination becomes a local port; the original one can be asked for with SO_ORIGINAL_DST (section REDIRECT)."""

    tracks = True
    name = "REDIRECT"

    def xt(self, family: Family) -> str:
        return f"REDIRECT --to-ports {self.port}"

    def nft(self, family: Family) -> tuple[str, ...]:
        return (f"redirect to :{self.port}",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.redirect(self.port)

    def describe(self) -> str:
        return f"redirect it to port {self.port}"


class Accept(Target):
    """Ends the table: the packet goes on unchanged."""

    name = "ACCEPT"

    def xt(self, family: Family) -> str:
        return "ACCEPT"

    def nft(self, family: Family) -> tuple[str, ...]:
        return ("accept",)

    def act(self, packet: Traversal) -> Verdict:
        return ACCEPTED

    def describe(self) -> str:
        return "accept it"


class Drop(Target):
    """The packet vanishes."""

    name = "DROP"

    def xt(self, family: Family) -> str:
        return "DROP"

    def nft(self, family: Family) -> tuple[str, ...]:
        return ("drop",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.drop()

    def describe(self) -> str:
        return "drop it"


class Reject(Target):
    """The packet is refused with a message; without one, with the family's "port unreachable" (section REJECT)."""

    name = "REJECT"
    message: str = ""  # in iptables' words, where it is not that

    @property
    def nft_spells_family(self) -> bool:  # type: ignore[override]
        """Each family has messages of its own, and nft puts the family before them."""
        return not self.message or self.message.startswith("icmp")

    def xt(self, family: Family) -> str:
        usual = "icmp-port-unreachable" if family.version == 4 else "icmp6-port-unreachable"  # noqa: PLR2004
        return f"REJECT --reject-with {self.message or usual}"

    def nft(self, family: Family) -> tuple[str, ...]:
        if self.message == "tcp-reset":
            return ("reject with tcp reset",)
        kind, _, name = self.message.partition("-")
        usual = "icmp" if family.version == 4 else "icmpv6"  # noqa: PLR2004
        return (f"reject with {kind or usual} type {name or 'port-unreachable'}",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.refuse()

    def describe(self) -> str:
        return f"refuse it with {self.message}" if self.message else "refuse it"


class Tproxy(Capture):
    """The packet goes to a local transparent socket, both addresses kept, and is marked for policy routing (section TPROXY)."""

    name = "TPROXY"
    mark: int
    address: str = ""  # of the socket: any, or this one of foreign rules
    closes: bool = True  # in nft too, nothing passes while no socket is open

    def xt(self, family: Family) -> str:
        where = self.address or family.any_address
        return f"TPROXY --on-port {self.port} --on-ip {where} --tproxy-mark {self.mark:#x}/{FULL_MASK:#x}"

    def nft(self, family: Family) -> tuple[str, ...]:
        """Two rules: nft's tproxy ends a rule when no transparent socket is open, where iptables' TPROXY drops."""
        handed = f"tproxy {family.nft} to {self.address}:{self.port} meta mark set {self.mark:#010x} accept"
        return (handed, "drop") if self.closes else (handed,)

    def act(self, packet: Traversal) -> Verdict:
        return packet.hand_over(self.port, self.mark)

    def describe(self) -> str:
        return f"hand it to the transparent socket on port {self.port} and mark it {self.mark}"


class SetMark(Target):
    """The packet's or its connection's mark is set (sections MARK, CONNMARK).

    With a mask only its bits are cleared, then `value` is xored in.
    """

    value: int
    mask: int = FULL_MASK
    connection: bool = False

    def xt(self, family: Family) -> str:
        return f"{'CONNMARK' if self.connection else 'MARK'} --set-xmark {self.value:#x}/{self.mask:#x}"

    def nft(self, family: Family) -> tuple[str, ...]:
        whose = "ct" if self.connection else "meta"
        if self.mask == FULL_MASK:
            return (f"{whose} mark set {self.value:#010x}",)
        kept = FULL_MASK & ~self.mask
        if kept & self.value:
            return (f"{whose} mark set {whose} mark & {kept:#010x} ^ {self.value:#010x}",)
        return (f"{whose} mark set {whose} mark & {kept | self.value:#010x} | {self.value:#010x}",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.set_mark(self.value, self.mask, connection=self.connection)

    def describe(self) -> str:
        if self.mask == FULL_MASK and not self.connection:
            return f"mark it {self.value}"
        whose = "its connection's" if self.connection else "its"
        return f"change {whose} mark ({self.value:#x} under the mask {self.mask:#x})"

    @property
    def tracks(self) -> bool:  # type: ignore[override] # computed here
        """Of connections' marks alone."""
        return self.connection


class SaveMark(Target):
    """The packet's mark is copied to its connection (section CONNMARK)."""

    tracks = True

    def xt(self, family: Family) -> str:
        return f"CONNMARK --save-mark --nfmask {FULL_MASK:#x} --ctmask {FULL_MASK:#x}"

    def nft(self, family: Family) -> tuple[str, ...]:
        return ("ct mark set meta mark",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.save_mark()

    def describe(self) -> str:
        return "copy its mark to the connection"


class RestoreMark(Target):
    """The connection's mark is copied to the packet (section CONNMARK)."""

    tracks = True

    def xt(self, family: Family) -> str:
        return f"CONNMARK --restore-mark --nfmask {FULL_MASK:#x} --ctmask {FULL_MASK:#x}"

    def nft(self, family: Family) -> tuple[str, ...]:
        return ("meta mark set ct mark",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.restore_mark()

    def describe(self) -> str:
        return "copy the connection's mark to it"


class TrackZone(Target):
    """The packet's connection is tracked in a zone of its own (section CT)."""

    tracks = True
    zone: int

    def xt(self, family: Family) -> str:
        return f"CT --zone {self.zone}"

    def nft(self, family: Family) -> tuple[str, ...]:
        return (f"ct zone set {self.zone}",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.track(self.zone)

    def describe(self) -> str:
        return f"track it in zone {self.zone}"


class LogTarget(Target):
    """The packet is reported with a prefix: in the kernel's log, or to the listeners of a group (sections LOG, NFLOG)."""

    only_observes = True
    prefix: str
    group: int = 0  # 0: the kernel's log

    def xt(self, family: Family) -> str:
        if self.group:
            return f"NFLOG --nflog-prefix {quote_words(self.prefix)} --nflog-group {self.group}"
        return f"LOG --log-prefix {quote_words(self.prefix)}"

    def nft(self, family: Family) -> tuple[str, ...]:
        return (f'log prefix "{self.prefix}"{f" group {self.group}" if self.group else ""}',)

    def act(self, packet: Traversal) -> Verdict:
        return GO_ON

    def describe(self) -> str:
        where = f"group {self.group}" if self.group else "the kernel's log"
        return f"report it to {where} as {self.prefix.strip(': ')!r} and go on"

    def label(self) -> str:
        return "NFLOG" if self.group else "LOG"
