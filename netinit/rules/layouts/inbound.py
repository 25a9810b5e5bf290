"""Inbound traffic: which connections to the pod go to the proxy, by REDIRECT or TPROXY."""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, Family, Network
from netinit.options import TPROXY, Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder
from netinit.rules.matches import ConnectionState, Destination, Match, Port, Protocol
from netinit.rules.model import (
    ISTIO_DIVERT,
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_REDIRECT,
    ISTIO_TPROXY,
    MANGLE,
    NAT,
    PREROUTING,
)
from netinit.rules.targets import Accept, Jump, Redirect, Return, SetMark, Tproxy

TCP = Protocol(name="tcp")


def loopback(options: Interception, family: Family) -> Network:
    """The loopback network of the family as the options have it."""
    return options.loopback_cidr if family is IPV4 else Network.parse(family.loopback)


def not_to_loopback(options: Interception, family: Family) -> Destination:
    """Matches what does not stay on the loopback addresses."""
    return Destination(networks=(loopback(options, family),), negated=True)


def exclude_tunnel(builder: Builder, options: Interception) -> None:
    """Tunnelled connections reach the proxy's tunnel port as they are."""
    port = Port(protocol="tcp", ports=(options.tunnel_port,))
    builder.append(
        NAT, ISTIO_INBOUND, port, to=Return(),
        why="tunnelled connections reach the proxy as they are", origin="tunnel_port",
    )  # fmt: skip


def define_redirects(builder: Builder, options: Interception) -> None:
    """The two chains that send connections to the proxy, one for each direction."""
    builder.append(
        NAT, ISTIO_REDIRECT, TCP, to=Redirect(port=options.outbound_port),
        why="outbound connections go to the proxy", origin="outbound_port",
    )  # fmt: skip
    builder.append(
        NAT, ISTIO_IN_REDIRECT, TCP, to=Redirect(port=options.inbound_port),
        why="inbound connections go to the proxy", origin="inbound_port",
    )  # fmt: skip


def capture(builder: Builder, options: Interception) -> None:
    """Sends the chosen inbound ports to the proxy."""
    transparent = options.inbound_mode == TPROXY
    table = MANGLE if transparent else NAT
    if transparent:
        define_tproxy(builder, options, options.inbound_port, "inbound_port")
    builder.append(
        table, PREROUTING, TCP, to=Jump(chain=ISTIO_INBOUND),
        why="inbound connections are looked at", origin="inbound_ports",
    )  # fmt: skip
    if options.inbound_ports == ALL:
        if options.exclude_inbound_ports:
            exclude_ports(builder, table, options.exclude_inbound_ports, "exclude_inbound_ports")
        chosen: Match = TCP
        why = "every other inbound connection goes to the proxy"
    else:
        chosen = Port(protocol="tcp", ports=tuple(int(port) for port in options.inbound_ports))
        why = "inbound connections to these ports go to the proxy"
    if transparent:
        established = ConnectionState(states=("RELATED", "ESTABLISHED"))
        divert(builder, chosen, established, paired=options.inbound_ports != ALL)
        builder.append(
            MANGLE, ISTIO_INBOUND, chosen, to=Jump(chain=ISTIO_TPROXY),
            why=why, origin="inbound_ports",
        )  # fmt: skip
    else:
        builder.append(
            NAT, ISTIO_INBOUND, chosen, to=Jump(chain=ISTIO_IN_REDIRECT),
            why=why, origin="inbound_ports",
        )  # fmt: skip


def exclude_ports(
    builder: Builder, table: str, ports: tuple[int, ...], origin: str, families: tuple[Family, ...] = FAMILIES
) -> None:
    """Inbound connections to these ports go to the application."""
    port = Port(protocol="tcp", ports=ports)
    builder.append(
        table, ISTIO_INBOUND, port, to=Return(),
        why="these inbound ports are not captured", origin=origin, families=families,
    )  # fmt: skip


def divert(
    builder: Builder, chosen: Match, known: Match, *, paired: bool, families: tuple[Family, ...] = FAMILIES
) -> None:
    """Packets of connections that the proxy has accepted already skip TPROXY."""
    builder.append(
        MANGLE, ISTIO_INBOUND, chosen, known, to=Jump(chain=ISTIO_DIVERT),
        why="the proxy has this connection already", origin="inbound_mode", paired=paired, families=families,
    )  # fmt: skip


def define_tproxy(
    builder: Builder, options: Interception, port: int, origin: str, families: tuple[Family, ...] = FAMILIES
) -> None:
    """The chains that hand connections to a transparent socket."""
    mode = "inbound_mode"
    why = "the policy route delivers marked packets here"
    builder.append(
        MANGLE, ISTIO_DIVERT, to=SetMark(value=options.tproxy_mark),
        why=why, origin="tproxy_mark", families=families,
    )  # fmt: skip
    builder.append(
        MANGLE, ISTIO_DIVERT, to=Accept(),
        why="nothing else is to happen to them", origin=mode, families=families,
    )  # fmt: skip
    for family in families:
        builder.append(
            MANGLE, ISTIO_TPROXY, not_to_loopback(options, family), TCP,
            to=Tproxy(port=port, mark=options.tproxy_mark),
            why="new connections go to the proxy, both addresses kept", origin=origin, families=(family,),
        )  # fmt: skip
