"""Matches and targets that no layout of this project writes but that rules of others in a pod are made of.

They exist so that a listing can be understood and simulated; what is not here stays `UnknownMatch`, `UnknownTarget`.
Sections are those of iptables-extensions(8).
"""

from __future__ import annotations

from netinit.rules.matches.base import EXTENSION, PROTOCOL, Match, XtMatch, spell_list, spell_not
from netinit.rules.network import Family
from netinit.rules.targets import Target


class OtherProtocol(Match):
    """The transport protocol is any but this one (iptables(8), `! -p`)."""

    name: str

    def xt(self) -> XtMatch:
        return XtMatch(place=PROTOCOL, alternatives=(f"! -p {self.name}",))

    def describe(self) -> str:
        return f"it is not {self.name.upper()}"


class PortRange(Match):
    """A port lies in one of the ranges, both ends included (sections tcp, udp, multiport)."""

    protocol: str
    ranges: tuple[tuple[int, int], ...]
    side: str  # source, destination or either
    negated: bool = False

    def xt(self) -> XtMatch:
        option = {"source": "--sport", "destination": "--dport", "either": "--port"}[self.side]
        texts = [str(low) if low == high else f"{low}:{high}" for low, high in self.ranges]
        no = "! " if self.negated else ""
        if len(texts) > 1 or self.side == "either":
            text = f"-m multiport {no}{option}s {','.join(texts)}"
        else:
            text = f"-m {self.protocol} {no}{option} {texts[0]}"
        return XtMatch(place=EXTENSION, alternatives=(text,), protocol=self.protocol)

    def describe(self) -> str:
        side = "a port" if self.side == "either" else f"its {self.side} port"
        ranges = [str(low) if low == high else f"{low} to {high}" for low, high in self.ranges]
        return f"it is {self.protocol.upper()} and {side} is {spell_not(self.negated)}{spell_list(ranges)}"


class TcpFlags(Match):
    """Of the TCP flags in `mask` exactly those in `flags` are set (section tcp)."""

    mask: tuple[str, ...]
    flags: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        no = "! " if self.negated else ""
        text = f"-m tcp {no}--tcp-flags {','.join(self.mask)} {','.join(self.flags) or 'NONE'}"
        return XtMatch(place=EXTENSION, alternatives=(text,), protocol="tcp")

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

    def describe(self) -> str:
        return f"its {self.side} address is {spell_not(self.negated)}of the type {' or '.join(self.types)}"


class OtherState(Match):
    """The state of the packet's connection is none of these (section conntrack)."""

    states: tuple[str, ...]
    module: str = "conntrack"

    def xt(self) -> XtMatch:
        option = "--ctstate" if self.module == "conntrack" else "--state"
        return XtMatch(place=EXTENSION, alternatives=(f"-m {self.module} ! {option} {','.join(self.states)}",))

    def describe(self) -> str:
        return f"its connection is neither {' nor '.join(self.states)}"


class _Spelled(Target):
    """A target that is spelled alike in both families, without `-j`."""

    def xt(self, family: Family) -> str:  # noqa: ARG002 - see above
        return self._text()

    def _text(self) -> str:
        raise NotImplementedError


class Nothing(_Spelled):
    """No target: the rule only counts, the packet goes on to the next one."""

    def _text(self) -> str:
        return ""

    def describe(self) -> str:
        return "count it and go on"


class Observe(_Spelled):
    """A target that reports on the packet or changes a field no rule looks at; the packet goes on to the next rule."""

    text: str

    def _text(self) -> str:
        return self.text

    def describe(self) -> str:
        return f"do `{self.text}` and go on"


class Goto(_Spelled):
    """On to another chain, from which RETURN leads to the caller of this one (iptables(8), `-g`)."""

    chain: str

    def _text(self) -> str:
        return f"-g {self.chain}"

    def describe(self) -> str:
        return f"go over to chain {self.chain}"


class RejectWith(_Spelled):
    """The packet is refused with this message (section REJECT)."""

    message: str

    def _text(self) -> str:
        return f"REJECT --reject-with {self.message}"

    def describe(self) -> str:
        return f"refuse it with {self.message}"


class Dnat(_Spelled):
    """The destination becomes this address and port; empty and 0 leave as they are (section DNAT)."""

    address: str
    port: int

    def _text(self) -> str:
        address = f"[{self.address}]" if ":" in self.address and self.port else self.address
        return f"DNAT --to-destination {address}{f':{self.port}' if self.port else ''}"

    def describe(self) -> str:
        return f"send it to {self._text().rpartition(' ')[2]} instead"


class SourceNat(_Spelled):
    """The source address is replaced, by what only the kernel knows beforehand (sections SNAT, MASQUERADE)."""

    text: str

    def _text(self) -> str:
        return self.text

    def describe(self) -> str:
        return f"replace its source address (`{self.text}`)"


class ChangeMark(_Spelled):
    """The bits of `mask` are cleared in the packet's or its connection's mark, then `value` is xored into it (MARK, CONNMARK)."""

    value: int
    mask: int
    connection: bool = False

    def _text(self) -> str:
        return f"{'CONNMARK' if self.connection else 'MARK'} --set-xmark {self.value:#x}/{self.mask:#x}"

    def describe(self) -> str:
        whose = "its connection's" if self.connection else "its"
        return f"change {whose} mark ({self.value:#x} under the mask {self.mask:#x})"


class Untrack(_Spelled):
    """The packet belongs to no tracked connection (section CT)."""

    def _text(self) -> str:
        return "CT --notrack"

    def describe(self) -> str:
        return "leave its connection untracked, out of reach of NAT"
