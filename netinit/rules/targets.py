"""One class per target: what iptables and nft call it, what it does to a packet, and the same in words.

Sections are those of iptables-extensions(8).
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.net import Family
from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.traversal import Traversal, Verdict

GO_ON: Verdict = "go on"  # with the next rule
BACK: Verdict = "back"  # with the chain that called this one
ACCEPTED: Verdict = "accepted"  # with the next table
ENDED: Verdict = "ended"  # nowhere


_NFT_NAMES = {"ISTIO_PRERT": "istio-prerouting"}


def spell_chain(name: str) -> str:
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
        return (f"{'goto' if self.goto else 'jump'} {spell_chain(self.chain)}",)

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
