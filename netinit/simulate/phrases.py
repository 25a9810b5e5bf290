"""What a rule's matches ask for, in the few words of a drawing: "not uid 1337, to lo"."""

from __future__ import annotations

from collections.abc import Iterable

from netinit.base.net import Network, bounds_of
from netinit.rules.matches import Match, format_not, format_ranges
from netinit.rules.matches.context import BARE_SYN, TcpFlags
from netinit.rules.matches.packet import AddressMatch, InterfaceMatch, Owner, Port, Protocol, drop_implied_protocols
from netinit.rules.model import Rule

_LEADS = ("it is ", "its ", "it ")  # of Match.describe, which continues "when"


def phrase_rule(rule: Rule) -> str:
    """What the rule asks for: protocol and port first, then who sends it, where it comes from and goes; empty if nothing."""
    return ", ".join([_phrase(match) for match in sorted(drop_implied_protocols(rule.matches), key=_order)])


def _order(match: Match) -> tuple[int, int]:
    kinds = (Port, Protocol, Owner, AddressMatch, InterfaceMatch)
    return next((at for at, kind in enumerate(kinds) if isinstance(match, kind)), len(kinds)), match.place


def _phrase(match: Match) -> str:
    if isinstance(match, Port):
        ports = _either(format_ranges(map(bounds_of, match.ports), " to "))
        side = " from" if match.source else ""
        return f"{match.protocol.upper()}{side}{' but not' if match.negated else ''} port {ports}"
    if isinstance(match, Protocol):
        return f"{format_not(match.negated)}{match.name.upper()}"
    if isinstance(match, Owner):
        ids = str(match.first) if match.first == match.last else f"{match.first} to {match.last}"
        return f"{format_not(match.negated)}{match.kind} {ids}"
    if isinstance(match, AddressMatch):
        return f"{format_not(match.negated)}{'from' if match.source else 'to'} {_either(map(_name, match.networks))}"
    if isinstance(match, InterfaceMatch):
        return f"{format_not(match.negated)}{'from' if match.inbound else 'to'} {_either(match.names)}"
    if isinstance(match, TcpFlags):
        return f"TCP {'but not with' if match.negated else 'with'} {_flags(match)}"
    text = match.describe()
    return text.removeprefix(next((lead for lead in _LEADS if text.startswith(lead)), ""))


def _flags(match: TcpFlags) -> str:
    if match.replace(negated=False) == BARE_SYN:
        return "SYN"
    mask, flags = "/".join(match.mask), "/".join(match.flags) or "none"
    return flags if mask == flags else f"{flags} of {mask}"


def _either(words: Iterable[str]) -> str:
    return " or ".join(words)


def _name(network: Network) -> str:
    """The network, or the address if it holds one only."""
    return str(network).removesuffix(f"/{network.family.bits}")
