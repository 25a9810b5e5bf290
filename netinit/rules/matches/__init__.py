"""One class per match: what iptables calls it, and what it means in words."""

from __future__ import annotations

from netinit.rules.matches.base import PROTOCOL, Match, XtMatch
from netinit.rules.matches.context import AddressType, ConnectionState, Mark, Owner, Socket, UnknownMatch
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Protocol, Source, TcpFlags

__all__ = [
    "PROTOCOL",
    "AddressType",
    "ConnectionState",
    "Destination",
    "InInterface",
    "Mark",
    "Match",
    "OutInterface",
    "Owner",
    "Port",
    "Protocol",
    "Socket",
    "Source",
    "TcpFlags",
    "UnknownMatch",
    "XtMatch",
]
