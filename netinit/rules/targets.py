"""One class per target: what iptables calls it, and what it does in words.

Sections are those of iptables-extensions(8). `ends` tells whether a packet's way through the table ends here.
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.net import Family
from netinit.base.records import Record

FULL_MASK = "0xffffffff"


class Target(Record):
    """What happens to a packet that matched."""

    @abstractmethod
    def xt(self, family: Family) -> str:
        """The target as iptables-save lists it, without `-j`."""

    @abstractmethod
    def nft(self, family: Family) -> tuple[str, ...]:
        """The target as nft lists it; several where it takes that many rules, each with all the matches."""

    @abstractmethod
    def describe(self) -> str:
        """The target in words, to stand after "then"."""


class Accept(Target):
    """Ends the table: the packet goes on unchanged."""

    def xt(self, family: Family) -> str:  # noqa: ARG002 - spelled alike in both families
        return "ACCEPT"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return ("accept",)

    def describe(self) -> str:
        return "accept it"


class Drop(Target):
    """The packet vanishes."""

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return "DROP"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return ("drop",)

    def describe(self) -> str:
        return "drop it"


class Reject(Target):
    """The packet is refused with an ICMP message (section REJECT)."""

    def xt(self, family: Family) -> str:
        return f"REJECT --reject-with {'icmp-port-unreachable' if family.version == 4 else 'icmp6-port-unreachable'}"  # noqa: PLR2004

    def nft(self, family: Family) -> tuple[str, ...]:
        return (f"reject with {'icmp' if family.version == 4 else 'icmpv6'} type port-unreachable",)  # noqa: PLR2004

    def describe(self) -> str:
        return "refuse it"


class Return(Target):
    """Back to the calling chain; in a built-in chain the policy decides."""

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return "RETURN"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return ("return",)

    def describe(self) -> str:
        return "return to the calling chain"


class Jump(Target):
    """On to another chain; it comes back if that one does not decide."""

    chain: str

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return self.chain

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return (f"jump {self.chain.lower().replace('_', '-')}",)

    def describe(self) -> str:
        return f"go through chain {self.chain}"


class Redirect(Target):
    """The destination becomes a local port; the original one can be asked for with SO_ORIGINAL_DST (section REDIRECT)."""

    port: int

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return f"REDIRECT --to-ports {self.port}"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return (f"redirect to :{self.port}",)

    def describe(self) -> str:
        return f"redirect it to port {self.port}"


class Tproxy(Target):
    """The packet goes to a local transparent socket, both addresses kept, and is marked for policy routing (section TPROXY)."""

    port: int
    mark: int

    def xt(self, family: Family) -> str:
        return f"TPROXY --on-port {self.port} --on-ip {family.any_address} --tproxy-mark {self.mark:#x}/{FULL_MASK}"

    def nft(self, family: Family) -> tuple[str, ...]:
        """Two rules: nft's tproxy ends a rule when no transparent socket is open, where iptables' TPROXY drops."""
        return (f"tproxy {family.nft} to :{self.port} meta mark set {self.mark:#010x} accept", "drop")

    def describe(self) -> str:
        return f"hand it to the transparent socket on port {self.port} and mark it {self.mark}"


class SetMark(Target):
    """The packet's mark is set (section MARK)."""

    value: int

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return f"MARK --set-xmark {self.value:#x}/{FULL_MASK}"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return (f"meta mark set {self.value:#010x}",)

    def describe(self) -> str:
        return f"mark it {self.value}"


class SaveMark(Target):
    """The packet's mark is copied to its connection (section CONNMARK)."""

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return f"CONNMARK --save-mark --nfmask {FULL_MASK} --ctmask {FULL_MASK}"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return ("ct mark set meta mark",)

    def describe(self) -> str:
        return "copy its mark to the connection"


class RestoreMark(Target):
    """The connection's mark is copied to the packet (section CONNMARK)."""

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return f"CONNMARK --restore-mark --nfmask {FULL_MASK} --ctmask {FULL_MASK}"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return ("meta mark set ct mark",)

    def describe(self) -> str:
        return "copy the connection's mark to it"


class TrackZone(Target):
    """The packet's connection is tracked in a zone of its own (section CT)."""

    zone: int

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return f"CT --zone {self.zone}"

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return (f"ct zone set {self.zone}",)

    def describe(self) -> str:
        return f"track it in zone {self.zone}"


class UnknownTarget(Target):
    """A target that this project does not know, as listed."""

    text: str

    def xt(self, family: Family) -> str:  # noqa: ARG002
        return self.text

    def nft(self, family: Family) -> tuple[str, ...]:  # noqa: ARG002
        return (self.text,)

    def describe(self) -> str:
        return f"do `{self.text}` (not known to netinit)"
