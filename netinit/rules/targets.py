"""Targets of rules: syntax, effect, description; see iptables-extensions(8), and "Add a target" in CONTRIBUTING.md."""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.net import FULL_MASK, IPV4, Family
from netinit.base.records import Record
from netinit.base.sanitize import quote_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.traversal import Traversal, Verdict

GO_ON: Verdict = "go on"  # continue with the next rule
BACK: Verdict = "back"  # return to the calling chain
ACCEPTED: Verdict = "accepted"  # continue with the next table
ENDED: Verdict = "ended"  # processing stops


_NFT_NAMES = {"ISTIO_PRERT": "istio-prerouting"}


def format_chain(name: str) -> str:
    """Return the chain's name in nft, as in Istio's native mode: istio-in-redirect."""
    return _NFT_NAMES.get(name) or name.lower().replace("_", "-")


class Target(Record):
    """The action of a rule."""

    option = "-j"  # the iptables option before the target
    name = ""  # the target as a single iptables word, if there is one
    calls = ""  # the chain that it jumps to
    captures_at = 0  # the proxy's port that it redirects packets to
    tracks = False  # whether a rule with it enables connection tracking
    nft_spells_family = False  # whether nft lists the address family in a rule with it
    only_observes = False  # True: the packet is unchanged and continues, so it does not matter whether the rule matches

    @abstractmethod
    def xt(self, family: Family) -> str:
        """Return the target in iptables-save syntax, without its option; empty if there is none."""

    @abstractmethod
    def nft(self, family: Family) -> tuple[str, ...]:
        """Return the target in nft syntax: a text for each rule it needs, each with all matches."""

    @abstractmethod
    def act(self, packet: Traversal) -> Verdict:
        """Apply the target to the packet; return how processing continues."""

    @abstractmethod
    def describe(self) -> str:
        """Describe the target, as the continuation of "then"."""

    def label(self) -> str:
        """Return one or two words, for diagrams."""
        port = f" {self.captures_at}" if self.captures_at else ""
        return self.calls or (self.name or self.describe().partition(" (")[0]) + port


class _Verdict(Target):
    """Base of targets that only decide."""

    def xt(self, family: Family) -> str:
        return self.name

    def nft(self, family: Family) -> tuple[str, ...]:
        return (self.name.lower(),)


class Return(_Verdict):
    """Returns to the calling chain; in a built-in chain the policy decides."""

    name = "RETURN"

    def act(self, packet: Traversal) -> Verdict:
        return BACK

    def describe(self) -> str:
        return "return to the calling chain"


class Jump(Target):
    """Jumps to another chain. Without a decision processing returns here; after a `goto` (`-g`) to this chain's caller."""

    chain: str
    goto: bool = False

    @property
    def option(self) -> str:  # type: ignore[override] # computed here
        return "-g" if self.goto else "-j"

    @property
    def calls(self) -> str:  # type: ignore[override] # computed here
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
    """Base of targets that redirect to a local port."""

    port: int

    @property
    def captures_at(self) -> int:  # type: ignore[override] # computed here
        return self.port


class Redirect(Capture):
    """Changes the destination to a local port (section REDIRECT)."""

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


class Accept(_Verdict):
    """Accepts the packet in this table, unchanged."""

    name = "ACCEPT"

    def act(self, packet: Traversal) -> Verdict:
        return ACCEPTED

    def describe(self) -> str:
        return "accept it"


class Drop(_Verdict):
    """Drops the packet without an answer."""

    name = "DROP"

    def act(self, packet: Traversal) -> Verdict:
        return packet.drop()

    def describe(self) -> str:
        return "drop it"


class Reject(Target):
    """Rejects the packet with an error message, by default "port unreachable" (section REJECT)."""

    name = "REJECT"
    message: str = ""  # in iptables syntax, if not the default

    @property
    def nft_spells_family(self) -> bool:  # type: ignore[override]
        return not self.message or self.message.startswith("icmp")

    def xt(self, family: Family) -> str:
        usual = f"icmp{'' if family is IPV4 else '6'}-port-unreachable"
        return f"REJECT --reject-with {self.message or usual}"

    def nft(self, family: Family) -> tuple[str, ...]:
        if self.message == "tcp-reset":
            return ("reject with tcp reset",)
        kind, _, name = self.message.partition("-")
        usual = "icmp" if family is IPV4 else "icmpv6"
        return (f"reject with {kind or usual} type {name or 'port-unreachable'}",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.refuse()

    def describe(self) -> str:
        return f"refuse it with {self.message}" if self.message else "refuse it"


class Tproxy(Capture):
    """Delivers the packet, unchanged, to a local transparent socket and sets a mark (section TPROXY)."""

    name = "TPROXY"
    mark: int
    address: str = ""  # of the socket; empty: any. Only foreign rules set one
    closes: bool = True  # drop in nft too if no socket is open

    def xt(self, family: Family) -> str:
        where = self.address or family.any_address
        return f"TPROXY --on-port {self.port} --on-ip {where} --tproxy-mark {self.mark:#x}/{FULL_MASK:#x}"

    def nft(self, family: Family) -> tuple[str, ...]:
        """Return two rules: without a socket, nft's tproxy continues where TPROXY drops."""
        handed = f"tproxy {family.nft} to {self.address}:{self.port} meta mark set {self.mark:#010x} accept"
        return (handed, "drop") if self.closes else (handed,)

    def act(self, packet: Traversal) -> Verdict:
        return packet.hand_over(self.port, self.mark)

    def describe(self) -> str:
        return f"hand it to the transparent socket on port {self.port} and mark it {self.mark}"


class SetMark(Target):
    """Clears the bits in `mask` of the packet's or connection's mark, then xors `value` (sections MARK, CONNMARK)."""

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
        return self.connection


class _CopyMark(Target):
    """Base of targets that copy a whole mark."""

    tracks = True
    verb = ""

    def xt(self, family: Family) -> str:
        return f"CONNMARK --{self.verb}-mark --nfmask {FULL_MASK:#x} --ctmask {FULL_MASK:#x}"


class SaveMark(_CopyMark):
    """Copies the packet's mark to its connection (section CONNMARK)."""

    verb = "save"

    def nft(self, family: Family) -> tuple[str, ...]:
        return ("ct mark set meta mark",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.save_mark()

    def describe(self) -> str:
        return "copy its mark to the connection"


class RestoreMark(_CopyMark):
    """Copies the connection's mark to the packet (section CONNMARK)."""

    verb = "restore"

    def nft(self, family: Family) -> tuple[str, ...]:
        return ("meta mark set ct mark",)

    def act(self, packet: Traversal) -> Verdict:
        return packet.restore_mark()

    def describe(self) -> str:
        return "copy the connection's mark to it"


class TrackZone(Target):
    """Tracks the packet's connection in a separate conntrack zone (section CT)."""

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
    """Logs the packet to the kernel log or an NFLOG group (sections LOG, NFLOG)."""

    only_observes = True
    prefix: str
    group: int = 0  # 0: the kernel log

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
