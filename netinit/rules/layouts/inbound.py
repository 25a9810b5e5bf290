"""Inbound traffic: which connections to the pod go to the proxy."""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV6, Network
from netinit.options import Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, Exclusion
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, Port, Protocol, Source
from netinit.rules.model import ISTIO_IN_REDIRECT, ISTIO_INBOUND, ISTIO_REDIRECT, NAT, PREROUTING
from netinit.rules.targets import Jump, Redirect

TCP = Protocol(name="tcp")
PASSTHROUGH = Source(networks=tuple([Network.parse(family.passthrough) for family in FAMILIES]))


def loopback(options: Interception) -> tuple[Network, ...]:
    """Return the loopback network of each family."""
    return options.loopback_cidr, Network.parse(IPV6.loopback)


def not_to_loopback(options: Interception) -> Destination:
    """Return a match for destinations other than loopback."""
    return Destination(networks=loopback(options), negated=True)


def define_redirects(builder: Builder, options: Interception) -> None:
    """Add the chains that redirect connections to the proxy, one for each direction."""
    outwards, inwards = Redirect(port=options.outbound_port), Redirect(port=options.inbound_port)
    builder.append(NAT, ISTIO_REDIRECT, TCP, to=outwards, why="outbound connections go to the proxy", origin="outbound_port")
    builder.append(NAT, ISTIO_IN_REDIRECT, TCP, to=inwards, why="inbound connections go to the proxy", origin="inbound_port")


def capture(builder: Builder, options: Interception) -> None:
    """Redirect the chosen inbound ports to the proxy."""
    enter(builder, options, NAT)
    finish(builder, options, NAT, ISTIO_IN_REDIRECT)


def enter(builder: Builder, options: Interception, table: str) -> None:
    """Add the jump to the inbound chain, and its exclusions."""
    jump = Jump(chain=ISTIO_INBOUND)
    builder.append(table, PREROUTING, TCP, to=jump, why="inbound connections are checked", origin="inbound_ports")
    builder.exclude(table, ISTIO_INBOUND, excluded_sources(options), *excluded_ports(options))


def finish(builder: Builder, options: Interception, table: str, chain: str) -> None:
    """Send the chosen ports to a chain that captures."""
    why = "inbound connections to these ports go to the proxy"
    if options.inbound_ports == ALL:
        why = "all inbound TCP is captured; no exclusion matches"
    builder.append(table, ISTIO_INBOUND, chosen(options), to=Jump(chain=chain), why=why, origin="inbound_ports")


def chosen(options: Interception) -> Match:
    """Return the match for the chosen inbound ports."""
    if options.inbound_ports == ALL:
        return TCP
    return Port(protocol="tcp", ports=tuple([port for port in options.inbound_ports if not isinstance(port, str)]))


def excluded_tunnel(options: Interception) -> Exclusion:
    """Return the exclusion of the proxy's tunnel port, if there is a tunnel."""
    port = Port(protocol="tcp", ports=(options.tunnel_port,) if options.tunnel_port else ())
    return Exclusion(matches=(port,), origin="tunnel_port", why="tunnelled connections reach the proxy as they are")


def excluded_ports(options: Interception) -> list[Exclusion]:
    """Return the exclusions from "all ports": the layout's, and the option's."""
    return [
        Exclusion(matches=(Port(protocol="tcp", ports=ports),), origin=origin, why="these inbound ports are not captured")
        for ports, origin in ((options.traits.uncaptured_ports, ""), (options.exclude_inbound_ports, "exclude_inbound_ports"))
        if options.inbound_ports == ALL
    ]


def excluded_sources(options: Interception) -> Exclusion:
    """Return the exclusion of source networks."""
    why = "connections from these networks are not captured"
    return Exclusion(matches=(Source(networks=options.exclude_inbound_cidrs),), origin="exclude_inbound_cidrs", why=why)
