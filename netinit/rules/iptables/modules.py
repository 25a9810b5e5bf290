"""Which matches of a rule belong to one iptables module."""

from __future__ import annotations

from netinit.rules.matches.context import TcpFlags
from netinit.rules.matches.packet import Port, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.matches import Match


def take_module(rest: list[Match]) -> list[Match]:
    """Remove and return the next match, with those after it that belong to the same module tcp."""
    taken = [rest.pop(0)]
    while rest and _is_tcp(taken[-1]) and _is_tcp(rest[0]):
        taken.append(rest.pop(0))
    return taken


def _is_tcp(match: Match) -> bool:
    if isinstance(match, Protocol):
        return match.module and match.name == "tcp"
    return isinstance(match, TcpFlags) or (isinstance(match, Port) and len(match.ports) == 1 and match.protocol == "tcp")
