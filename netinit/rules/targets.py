"""Targets of rules: syntax, effect, description; see iptables-extensions(8), and "Add a target" in CONTRIBUTING.md."""

from __future__ import annotations

from _struct import pack
from abc import abstractmethod

from netinit.base.net import FULL_MASK, IPV4, Family, number_of
from netinit.base.records import Record
from netinit.rules import numbers, structs
from netinit.rules.structs import UNREACHABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet_interfaces import Traversal, Verdict
    from netinit.rules.rule_builder import RuleBuilder

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
    is_final = False  # True: no packet goes on with the next rule
    tracks = False  # whether a rule with it enables connection tracking
    nft_lists_family = False  # whether nft lists the address family in a rule with it
    xt_text = nft_text = words = ""  # its syntax and its description, if these only repeat fields: `{0.port}`
    verdict = 0  # as legacy tables number it, if it only decides
    whole_mark = -1  # what it sets the packet's mark to
    compat = ""  # the field of CompatForm that says whether iptables-nft writes expressions for it; empty: a struct
    only_observes = False  # True: the packet is unchanged and continues, so it does not matter whether the rule matches
    unfollowed = "netinit does not know the target"  # why no packet is followed past it, where none is
    copies = False  # whether it sends a copy of the packet to another host or device

    def xt(self, family: Family) -> str:
        """Return the target in iptables-save syntax, without its option; empty if there is none."""
        return self.xt_text.format(self)

    def nft(self, family: Family) -> str:
        """Return the target in nft syntax."""
        return self.nft_text.format(self)

    def nft_targets(self) -> tuple[Target, ...]:
        """Return the targets of the rules that nft needs for it, each with all matches."""
        return (self,)

    def express(self, writer: RuleBuilder, family: Family) -> None:
        """Append the target as nf_tables expressions. Raises ValueError if nft has none."""
        raise ValueError(f"{type(self).__name__}: nft has no expression for it")

    def struct(self, family: Family) -> structs.Struct:
        """Return the struct of iptables' extension. Raises ValueError if iptables has none."""
        raise ValueError(f"{type(self).__name__}: iptables has no extension for it")

    def take(self, following: list[Target]) -> list[Target]:
        """Return the target with those that follow in an nf_tables rule; several may be one target of iptables."""
        return [self, *following]

    @abstractmethod
    def act(self, packet: Traversal) -> Verdict:
        """Apply the target to the packet; return how processing continues."""

    def describe(self) -> str:
        """Describe the target, as the continuation of "then"."""
        return self.words.format(self)

    def label(self) -> str:
        """Return one or two words, for diagrams."""
        port = f" {self.captures_at}" if self.captures_at else ""
        return self.calls or (self.name or self.describe().partition(" (")[0]) + port


class _Verdict(Target):
    """Base of targets that only decide."""

    is_final = True
    compat = "always"
    xt_text = "{0.name}"

    def nft(self, family: Family) -> str:
        return self.name.lower()

    @property
    def code(self) -> int:
        """The verdict as nf_tables numbers it."""
        return self.verdict if self.verdict == structs.RETURNING else -self.verdict - 1

    def express(self, writer: RuleBuilder, family: Family) -> None:
        writer.decide(self.code)


class Return(_Verdict):
    """Returns to the calling chain; in a built-in chain the policy decides."""

    name = "RETURN"
    verdict = structs.RETURNING
    words = "return to the calling chain"

    def act(self, packet: Traversal) -> Verdict:
        return BACK


class Jump(Target):
    """Jumps to another chain. Without a decision processing returns here; after a `goto` (`-g`) to this chain's caller."""

    compat = "always"
    xt_text = "{0.chain}"
    chain: str
    goto: bool = False

    @property
    def option(self) -> str:  # type: ignore[override] # computed here
        return "-g" if self.goto else "-j"

    @property
    def calls(self) -> str:  # type: ignore[override] # computed here
        return self.chain

    def nft(self, family: Family) -> str:
        return f"{'goto' if self.goto else 'jump'} {format_chain(self.chain)}"

    def express(self, writer: RuleBuilder, family: Family) -> None:
        writer.decide(numbers.NFT_GOTO if self.goto else numbers.NFT_JUMP, self.chain)

    def act(self, packet: Traversal) -> Verdict:
        verdict = packet.call(self.chain)
        return BACK if self.goto and verdict == GO_ON else verdict

    def describe(self) -> str:
        return f"go {'over to' if self.goto else 'through'} chain {self.chain}"


class Capture(Target):
    """Base of targets that redirect to a local port."""

    is_final = True
    transparent = False  # True: both addresses of the packet are kept
    port: int

    @property
    def captures_at(self) -> int:  # type: ignore[override] # computed here
        return self.port

    @property
    def socket_address(self) -> str:
        """The address of the socket, if it is another than the packet goes to."""
        return ""


class Redirect(Capture):
    """Changes the destination to a local port (section REDIRECT)."""

    tracks = True
    name = "REDIRECT"
    xt_text, nft_text, words = "REDIRECT --to-ports {0.port}", "redirect to :{0.port}", "redirect it to port {0.port}"

    def express(self, writer: RuleBuilder, family: Family) -> None:
        writer.put(pack(">H", self.port))
        writer.add(b"redir", (1, 1), (2, 1), (3, 2))

    def struct(self, family: Family) -> structs.Struct:
        ports = pack(structs.PORTS, self.port, self.port)
        if family is IPV4:
            head = pack(structs.MULTI_RANGE, 1, structs.MAP_PORTS, b"", b"")
        else:
            head = pack(structs.RANGE, structs.MAP_PORTS, b"", b"")
        return structs.pad("REDIRECT", 0, head + ports, family)

    def act(self, packet: Traversal) -> Verdict:
        return packet.redirect(self.port)


class Accept(_Verdict):
    """Accepts the packet in this table, unchanged."""

    name = "ACCEPT"
    verdict = structs.ACCEPTING
    words = "accept it"

    def act(self, packet: Traversal) -> Verdict:
        return ACCEPTED


class Drop(_Verdict):
    """Drops the packet without an answer."""

    name = "DROP"
    verdict = structs.DROPPING
    words = "drop it"

    def act(self, packet: Traversal) -> Verdict:
        return packet.drop()


class Reject(Target):
    """Rejects the packet with an error message, by default "port unreachable" (section REJECT)."""

    is_final = True
    name = "REJECT"
    message: str = ""  # in iptables syntax, if not the default

    @property
    def nft_lists_family(self) -> bool:  # type: ignore[override]
        return not self.message or self.message.startswith("icmp")

    def xt(self, family: Family) -> str:
        usual = f"icmp{'' if family is IPV4 else '6'}-port-unreachable"
        return f"REJECT --reject-with {self.message or usual}"

    def nft(self, family: Family) -> str:
        if self.message == "tcp-reset":
            return "reject with tcp reset"
        kind, _, name = self.message.partition("-")
        usual = "icmp" if family is IPV4 else "icmpv6"
        return f"reject with {kind or usual} type {name or 'port-unreachable'}"

    def express(self, writer: RuleBuilder, family: Family) -> None:
        if self.message == "tcp-reset":
            writer.add(b"reject", (1, numbers.REJECT_RESET))
            return
        kind, code = numbers.REJECT_ICMP, UNREACHABLE[family.version]
        if self.message.startswith((numbers.ICMP_CODE, numbers.ICMPX_CODE)):
            kind = numbers.REJECT_ICMP if self.message.startswith(numbers.ICMP_CODE) else numbers.REJECT_ICMPX
            code = int(self.message.rpartition(" ")[2])
        elif self.message:
            raise ValueError(f"reject with {self.message}: nft has another name for it")
        elif writer.is_mixed:
            kind, code = numbers.REJECT_ICMPX, numbers.ICMPX_PORT_UNREACHABLE
        writer.add(b"reject", (1, kind), (2, bytes((code,))))

    def struct(self, family: Family) -> structs.Struct:
        """Return the struct. Raises ValueError for a message of the other family."""
        names = structs.REJECTIONS[family.version]
        kind = names.index(self.message) if self.message else UNREACHABLE[family.version]
        return structs.pad("REJECT", 0, pack(structs.REJECT, kind))

    def act(self, packet: Traversal) -> Verdict:
        return packet.refuse()

    def describe(self) -> str:
        return f"refuse it with {self.message}" if self.message else "refuse it"


class Tproxy(Capture):
    """Delivers the packet, unchanged, to a local transparent socket and sets a mark (section TPROXY)."""

    transparent = True
    name = "TPROXY"
    words = "hand it to the transparent socket on port {0.port} and mark it {0.mark}"
    mark: int
    mask: int = FULL_MASK  # bits of the mark
    address: str = ""  # of the socket; empty: any. Only foreign rules set one
    closes: bool = True  # drop in nft too if no socket is open

    def _values(self) -> tuple[object, ...]:
        return self.port, self.mark, self.mask, self.address  # of a rule, which nft has a second one beside

    @property
    def socket_address(self) -> str:
        return self.address

    def xt(self, family: Family) -> str:
        where = self.address or family.any_address
        return f"TPROXY --on-port {self.port} --on-ip {where} --tproxy-mark {self.mark:#x}/{self.mask:#x}"

    def nft(self, family: Family) -> str:
        return f"tproxy {family.nft} to {self.address}:{self.port} meta mark set {self.mark:#010x} accept"

    def nft_targets(self) -> tuple[Target, ...]:
        """Return two targets: without a socket, nft's tproxy continues where TPROXY drops."""
        return (self, Drop()) if self.closes else (self,)

    def express(self, writer: RuleBuilder, family: Family) -> None:
        writer.put(pack(">H", self.port))
        writer.add(b"tproxy", (1, family.number), (3, 1))
        writer.put(pack("=I", self.mark))
        writer.store_mark(connection=False)
        writer.decide(numbers.NF_ACCEPT)

    def struct(self, family: Family) -> structs.Struct:
        address = number_of(self.address).to_bytes(family.bits // 8, "big") if self.address else b""
        info = pack(structs.TPROXY, self.mask, self.mark) + address.ljust(16, b"\0") + pack(">H", self.port)
        return structs.pad("TPROXY", 1, info)

    def act(self, packet: Traversal) -> Verdict:
        return packet.deliver_to_socket(self.port, self.mark, self.mask)


VERDICTS: dict[int, _Verdict] = {one.verdict: one for one in (Accept(), Drop(), Return())}
