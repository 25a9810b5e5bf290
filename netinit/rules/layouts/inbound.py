"""Inbound traffic: which connections to the pod are redirected to the proxy, by REDIRECT or TPROXY."""

from __future__ import annotations

from netinit.base.net import IPV4, Family, Network
from netinit.options import Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, by_family
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, Port, Protocol, Source
from netinit.rules.model import (
    ISTIO_IN_REDIRECT,
    ISTIO_INBOUND,
    ISTIO_REDIRECT,
    NAT,
    PREROUTING,
)
from netinit.rules.targets import Jump, Redirect, Return

TCP = Protocol(name="tcp")


def loopback(options: Interception, family: Family) -> Network:
    """Return the family's loopback network according to the options."""
    return options.loopback_cidr if family is IPV4 else Network.parse(family.loopback)


def not_to_loopback(options: Interception, family: Family) -> Destination:
    """Return a match for destinations other than loopback."""
    return Destination(networks=(loopback(options, family),), negated=True)


def exclude_tunnel(builder: Builder, options: Interception) -> None:
    """Let tunnelled connections reach the proxy's tunnel port directly; no rule without a tunnel (port 0)."""
    if not options.tunnel_port:
        return
    port = Port(protocol="tcp", ports=(options.tunnel_port,))
    builder.append(
        NAT, ISTIO_INBOUND, port, to=Return(),
        why="tunnelled connections reach the proxy as they are", origin="tunnel_port",
    )  # fmt: skip


def define_redirects(builder: Builder, options: Interception) -> None:
    """Add the two chains that redirect connections to the proxy, one for each direction."""
    builder.append(
        NAT, ISTIO_REDIRECT, TCP, to=Redirect(port=options.outbound_port),
        why="outbound connections go to the proxy", origin="outbound_port",
    )  # fmt: skip
    builder.append(
        NAT, ISTIO_IN_REDIRECT, TCP, to=Redirect(port=options.inbound_port),
        why="inbound connections go to the proxy", origin="inbound_port",
    )  # fmt: skip


def capture(builder: Builder, options: Interception) -> None:
    """Redirect the chosen inbound ports to the proxy."""
    chosen, why = enter(builder, options, NAT)
    builder.append(
        NAT, ISTIO_INBOUND, chosen, to=Jump(chain=ISTIO_IN_REDIRECT),
        why=why, origin="inbound_ports",
    )  # fmt: skip


def enter(builder: Builder, options: Interception, table: str) -> tuple[Match, str]:
    """Add the jump to the inbound chain and its excluded ports; return the match for captured traffic, and its reason."""
    builder.append(
        table, PREROUTING, TCP, to=Jump(chain=ISTIO_INBOUND),
        why="inbound connections are looked at", origin="inbound_ports",
    )  # fmt: skip
    if options.exclude_inbound_cidrs:
        _exclude_sources(builder, options, table)
    if options.inbound_ports == ALL:
        if options.exclude_inbound_ports:
            exclude_ports(builder, table, options.exclude_inbound_ports, "exclude_inbound_ports")
        return TCP, "every other inbound connection goes to the proxy"
    chosen = Port(protocol="tcp", ports=tuple([port for port in options.inbound_ports if not isinstance(port, str)]))
    return chosen, "inbound connections to these ports go to the proxy"


def exclude_ports(
    builder: Builder, table: str, ports: tuple[int | tuple[int, int], ...], origin: str
) -> None:
    """Let inbound connections to these ports bypass the proxy."""
    port = Port(protocol="tcp", ports=ports)
    builder.append(
        table, ISTIO_INBOUND, port, to=Return(),
        why="these inbound ports are not captured", origin=origin,
    )  # fmt: skip


def _exclude_sources(builder: Builder, options: Interception, table: str) -> None:
    """Let inbound connections from these networks bypass the proxy."""
    for family, networks in by_family(options.exclude_inbound_cidrs):
        builder.append(
            table, ISTIO_INBOUND, Source(networks=networks), to=Return(),
            why="connections from these networks are not captured", origin="exclude_inbound_cidrs", families=(family,),
        )  # fmt: skip
