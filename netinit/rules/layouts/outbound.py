"""Outbound traffic: connections of the application go to the proxy, those of the proxy do not."""

from __future__ import annotations

from netinit.base.net import IPV4, Network
from netinit.options import DNS_PORT, Interception
from netinit.options.kinds import ALL
from netinit.rules.layouts.builder import Builder, Exclusion, owners, proxy_owners
from netinit.rules.layouts.inbound import PASSTHROUGH, TCP, loopback, not_to_loopback
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port
from netinit.rules.model import ISTIO_IN_REDIRECT, ISTIO_OUTPUT, ISTIO_REDIRECT, MANGLE, NAT, OUTPUT, PREROUTING
from netinit.rules.targets import Jump, Return

HTTPS = 443
QUIC = Port(protocol="udp", ports=(HTTPS,))
ON_LOOPBACK = OutInterface(names=("lo",))
# Link-local and private addresses at which a cloud serves each machine its own metadata
CLOUD_METADATA = (
    "169.254.169.254/32",  # AWS, Google Cloud, Azure and most others
    "168.63.129.16/32",  # Azure's platform: agents, DNS, health probes
    "fd00:ec2::254/128",  # AWS
    "fd20:ce::254/128",  # Google Cloud
)


def excluded_interfaces(options: Interception, kind: type[InInterface | OutInterface]) -> Exclusion:
    """Return the exclusion of interfaces, inbound or outbound."""
    why = "traffic of these interfaces is not captured"
    return Exclusion(matches=(kind(names=options.exclude_interfaces),), origin="exclude_interfaces", why=why)


def exclude_interfaces(builder: Builder, options: Interception, transparent: bool) -> None:
    """Exclude interfaces in every table that captures."""
    for table in (NAT, MANGLE) if transparent else (NAT,):
        builder.exclude(table, PREROUTING, excluded_interfaces(options, InInterface))
        builder.exclude(table, OUTPUT, excluded_interfaces(options, OutInterface))


def capture_virtual_interfaces(builder: Builder, options: Interception) -> None:
    """Capture what VMs behind the pod send to captured networks, exclude the rest. Lists are reversed, as in Istio."""
    coming, origin = InInterface(names=options.virtual_interfaces[::-1]), "virtual_interfaces"
    captured = () if options.outbound_cidrs == ALL else (Destination(networks=captured_networks(options)[::-1]),)
    to_proxy, why = Jump(chain=ISTIO_REDIRECT), "what a VM behind the pod sends is outbound traffic"
    builder.append(NAT, PREROUTING, *captured, coming, to=to_proxy, inserted=True, why=why, origin=origin)
    why = "what a VM behind the pod sends is not inbound traffic"
    builder.append(NAT, PREROUTING, coming, to=Return(), inserted=True, why=why, origin=origin)


def excluded_ports(options: Interception, protocol: str) -> Exclusion:
    """Return the exclusion of destination ports."""
    port = Port(protocol=protocol, ports=options.exclude_outbound_ports)
    return Exclusion(matches=(port,), origin="exclude_outbound_ports", why="these outbound ports are not captured")


def enter(builder: Builder, options: Interception) -> None:
    """Add the jump to the outbound chain, and the excluded ports."""
    builder.append(NAT, OUTPUT, to=Jump(chain=ISTIO_OUTPUT), why="outbound traffic is checked")
    for protocol in ("tcp", "udp"):
        one = excluded_ports(options, protocol)
        paired = protocol == "tcp"
        builder.append(NAT, ISTIO_OUTPUT, *one.matches, to=Return(), why=one.why, origin=one.origin, paired=paired)


def exclude_proxy(builder: Builder, options: Interception, capture_dns: bool) -> None:
    """Let the proxy's own traffic leave; what it sends to its own pod is inbound again."""
    why = "the proxy passes an inbound connection on to the application"
    builder.append(NAT, ISTIO_OUTPUT, PASSTHROUGH, ON_LOOPBACK, to=Return(), why=why)
    captures_loopback = any(_is_loopback(network) for network in captured_networks(options))
    for owner, origin in proxy_owners(options):
        # Istio exempts DNS over TCP for uids only: its own resolver runs under the proxy's uid.
        excluded: tuple[int, ...] = (DNS_PORT,) if capture_dns and owner.kind == "uid" else ()
        excluded += (options.tunnel_port,) if options.tunnel_port else ()
        inbound: Match = Port(protocol="tcp", ports=excluded, negated=True) if excluded else TCP
        again, why = Jump(chain=ISTIO_IN_REDIRECT), "application -> own service -> proxy -> this pod: inbound again"
        builder.append(NAT, ISTIO_OUTPUT, not_to_loopback(options), ON_LOOPBACK, inbound, owner, to=again, why=why, origin=origin)
        if not captures_loopback:
            port = (Port(protocol="tcp", ports=(DNS_PORT,), negated=True),) if capture_dns else ()
            others, why = owner.replace(negated=True), "the application talks to itself"
            builder.append(NAT, ISTIO_OUTPUT, ON_LOOPBACK, *port, others, to=Return(), why=why, origin=origin)
        builder.append(NAT, ISTIO_OUTPUT, owner, to=Return(), why="the proxy's own traffic goes out: no loops", origin=origin)


def _is_loopback(network: Network) -> bool:
    """Whether Go's net.IP.IsLoopback is true for the network's address."""
    return network.first >> 24 == 127 if network.family is IPV4 else network.first == 1  # noqa: PLR2004


def excluded_groups(options: Interception) -> list[Exclusion]:
    """Return the exclusions of groups."""
    if options.owner_groups == ALL:
        origin, why = "exclude_owner_groups", "traffic of this group is not captured"
        return [Exclusion(matches=(group,), origin=origin, why=why) for group in owners("gid", options.exclude_owner_groups)]
    others = tuple(owners("gid", map(int, options.owner_groups), negated=True))
    return [Exclusion(matches=others, origin="owner_groups", why="only these groups' traffic is captured")] if others else []


def exclude_networks(builder: Builder, options: Interception) -> None:
    """Exclude the loopback and the excluded networks."""
    own = Destination(networks=loopback(options))
    builder.append(NAT, ISTIO_OUTPUT, own, to=Return(), why="loopback traffic stays in the pod")
    builder.exclude(NAT, ISTIO_OUTPUT, *excluded_networks(options))


def excluded_networks(options: Interception) -> list[Exclusion]:
    """Return the exclusions of destination networks."""
    clouds = tuple(map(Network.parse, CLOUD_METADATA)) if options.exclude_cloud_metadata else ()
    return [
        Exclusion(matches=(Destination(networks=networks),), origin=origin, why=why)
        for networks, origin, why in (
            (options.exclude_outbound_cidrs, "exclude_outbound_cidrs", "these networks are not captured"),
            (clouds, "exclude_cloud_metadata", "the cloud's metadata service knows a machine by its own address"),
        )
    ]


def captured_networks(options: Interception) -> tuple[Network, ...]:
    """Return the networks to which everything is captured; none if that is said of all."""
    return () if isinstance(options.outbound_cidrs, str) else options.outbound_cidrs


def capture(builder: Builder, options: Interception) -> None:
    """Send the remaining traffic to the proxy, by port or by network."""
    to_proxy = Jump(chain=ISTIO_REDIRECT)
    ports, why = Port(protocol="tcp", ports=options.outbound_ports), "these outbound ports are captured whatever the address"
    builder.append(NAT, ISTIO_OUTPUT, ports, to=to_proxy, why=why, origin="outbound_ports")
    if options.outbound_cidrs == ALL:
        why = "all outbound TCP is captured; no exclusion matches"
        builder.append(NAT, ISTIO_OUTPUT, to=to_proxy, why=why, origin="outbound_cidrs")
    else:
        captured = Destination(networks=captured_networks(options))
        builder.append(NAT, ISTIO_OUTPUT, captured, to=to_proxy, why="these networks are captured", origin="outbound_cidrs")
