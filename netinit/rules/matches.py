"""One class per match: what iptables calls it, and what it means in words.

Sections are those of iptables(8) and iptables-extensions(8). A match that holds several values (networks, ports,
interfaces) means "one of them"; where iptables knows one value a rule, its spelling has an alternative for each.
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.records import Record
from netinit.rules.network import Network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The places of iptables' built-in matches in a listing; extensions follow in the order of the rule.
SOURCE, DESTINATION, IN_INTERFACE, OUT_INTERFACE, PROTOCOL, EXTENSION = range(6)


class XtMatch(Record):
    """A match as iptables-save lists it: one text for each alternative, `-m module` included."""

    place: int
    alternatives: tuple[str, ...]
    protocol: str = ""  # the protocol that the module belongs to: `-p` stands before it


class Match(Record):
    """A condition on a packet."""

    @abstractmethod
    def xt(self) -> XtMatch:
        """The match in iptables' spelling."""

    @abstractmethod
    def describe(self) -> str:
        """The match in words, to stand after "when"."""


class Source(Match):
    """The source address lies in one of the networks (iptables(8), `-s`)."""

    networks: tuple[Network, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=SOURCE, alternatives=_each("-s", self.networks, self.negated))

    def describe(self) -> str:
        return f"it comes {_not(self.negated)}from {_listed(self.networks)}"


class Destination(Match):
    """The destination address lies in one of the networks (iptables(8), `-d`)."""

    networks: tuple[Network, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=DESTINATION, alternatives=_each("-d", self.networks, self.negated))

    def describe(self) -> str:
        return f"it goes {_not(self.negated)}to {_listed(self.networks)}"


class InInterface(Match):
    """The packet came in through one of the interfaces (iptables(8), `-i`)."""

    names: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=IN_INTERFACE, alternatives=_each("-i", self.names, self.negated))

    def describe(self) -> str:
        return f"it came in {_not(self.negated)}through {_listed(self.names)}"


class OutInterface(Match):
    """The packet leaves through one of the interfaces (iptables(8), `-o`)."""

    names: tuple[str, ...]
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=OUT_INTERFACE, alternatives=_each("-o", self.names, self.negated))

    def describe(self) -> str:
        return f"it leaves {_not(self.negated)}through {_listed(self.names)}"


class Protocol(Match):
    """The transport protocol (iptables(8), `-p`)."""

    name: str

    def xt(self) -> XtMatch:
        return XtMatch(place=PROTOCOL, alternatives=(f"-p {self.name}",))

    def describe(self) -> str:
        return f"it is {self.name.upper()}"


class Port(Match):
    """The destination (or source) port is one of `ports`; implies the protocol (sections tcp, udp; negated lists: multiport)."""

    protocol: str
    ports: tuple[int, ...]
    source: bool = False
    negated: bool = False

    def xt(self) -> XtMatch:
        side = "--sport" if self.source else "--dport"
        if self.negated and len(self.ports) > 1:
            ports = ",".join([str(port) for port in self.ports])
            texts: tuple[str, ...] = (f"-m multiport ! {side}s {ports}",)
        else:
            texts = tuple([f"-m {self.protocol} {text}" for text in _each(side, self.ports, self.negated)])
        return XtMatch(place=EXTENSION, alternatives=texts, protocol=self.protocol)

    def describe(self) -> str:
        side = "source" if self.source else "destination"
        return f"it is {self.protocol.upper()} and its {side} port is {_not(self.negated)}{_listed(self.ports)}"


class Owner(Match):
    """The socket belongs to this user or group (section owner; only for packets made in this namespace)."""

    kind: str  # uid or gid
    number: int
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(
            place=EXTENSION,
            alternatives=(f"-m owner {'! ' if self.negated else ''}--{self.kind}-owner {self.number}",),
        )

    def describe(self) -> str:
        return f"its socket's {self.kind} is {_not(self.negated)}{self.number}"


class Mark(Match):
    """The packet's firewall mark (section mark)."""

    value: int
    negated: bool = False

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(f"-m mark {'! ' if self.negated else ''}--mark {self.value:#x}",))

    def describe(self) -> str:
        return f"its mark is {_not(self.negated)}{self.value}"


class ConnectionMark(Match):
    """The connection's mark (section connmark)."""

    value: int

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(f"-m connmark --mark {self.value:#x}",))

    def describe(self) -> str:
        return f"its connection's mark is {self.value}"


class ConnectionState(Match):
    """The state of the packet's connection, in the kernel's order of listing (section conntrack; `state` in the classic layout)."""

    states: tuple[str, ...]
    module: str = "conntrack"

    def xt(self) -> XtMatch:
        option = "--ctstate" if self.module == "conntrack" else "--state"
        return XtMatch(place=EXTENSION, alternatives=(f"-m {self.module} {option} {','.join(self.states)}",))

    def describe(self) -> str:
        return f"its connection is {' or '.join(self.states)}"


class Socket(Match):
    """A socket of this host is open for the packet (section socket)."""

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=("-m socket",))

    def describe(self) -> str:
        return "a socket is open for it"


class UnknownMatch(Match):
    """A match that this project does not know, as listed: kept to the letter, never assumed to hold or not to hold."""

    text: str

    def xt(self) -> XtMatch:
        return XtMatch(place=EXTENSION, alternatives=(self.text,))

    def describe(self) -> str:
        return f"`{self.text}` (not known to netinit) holds"


def _each(option: str, values: Iterable[object], negated: bool) -> tuple[str, ...]:
    prefix = f"! {option}" if negated else option
    return tuple([f"{prefix} {value}" for value in values])


def _not(negated: bool) -> str:
    return "not " if negated else ""


def _listed(words: Iterable[object]) -> str:
    return ", ".join([str(word) for word in words])
