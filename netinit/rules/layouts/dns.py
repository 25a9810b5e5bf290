"""DNS capture: the application's queries go to the proxy's resolver, in separate conntrack zones.

The zones separate the application's query from the proxy's to the same server, which may have the same addresses and
ports (istio/istio#33469).
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, Family, Network
from netinit.options import DNS_LISTENER, DNS_PORT, DOCKER_RESOLVER, INET, Interception
from netinit.rules.layouts.builder import Builder, hosts_of, proxy_owners
from netinit.rules.marking_targets import TrackZone
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, Port, Source
from netinit.rules.model import ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_OUTPUT_DNS, NAT, OUTPUT, PREROUTING, RAW
from netinit.rules.targets import Jump, Redirect, Return

PROXY_ZONE = 1
APPLICATION_ZONE = 2
ORIGIN = "redirect_dns"


def wanted(options: Interception, warnings: list[str]) -> bool:
    """Whether the requested DNS capture is possible; adds a warning if not."""
    if not options.capture_all_dns and not options.dns_servers:
        warnings.append(f"{options.flag(ORIGIN).label}: no name server in /etc/resolv.conf or --dns-servers, so DNS is not captured")
        return False
    return True


def capture(builder: Builder, options: Interception) -> None:
    """Redirect queries to the proxy's resolver, and separate the zones."""
    scopes = _scopes(options)
    everywhere = options.capture_all_dns or options.ipv6 == INET  # Istio's nft tables jump for both families
    served = FAMILIES if everywhere else tuple([families[0] for families, _, _ in scopes])
    why = "DNS queries get zones of their own"
    builder.append(RAW, OUTPUT, to=Jump(chain=ISTIO_OUTPUT_DNS), why=why, origin=ORIGIN)
    why = "DNS queries are looked at"
    builder.append(NAT, ISTIO_OUTPUT, to=Jump(chain=ISTIO_OUTPUT_DNS), why=why, origin=ORIGIN, families=served)
    if DOCKER_RESOLVER in options.dns_servers and not options.capture_all_dns:
        _come_before_docker(builder, options)
    for families, to_server, _ in scopes:
        for protocol in ("tcp", "udp"):
            builder.append(
                NAT, ISTIO_OUTPUT_DNS, *to_server, Port(protocol=protocol, ports=(DNS_PORT,)), to=Redirect(port=DNS_LISTENER),
                why="DNS queries go to the proxy's resolver", origin=ORIGIN, families=families,
            )  # fmt: skip
    _separate_proxy(builder, options)
    why = "DNS answers are looked at"
    builder.append(RAW, PREROUTING, to=Jump(chain=ISTIO_INBOUND), why=why, origin=ORIGIN, families=served)
    for families, to_server, from_server in scopes:
        builder.append(
            RAW, ISTIO_OUTPUT_DNS, *to_server, Port(protocol="udp", ports=(DNS_PORT,)), to=TrackZone(zone=APPLICATION_ZONE),
            why="the application's queries", origin=ORIGIN, families=families,
        )  # fmt: skip
        builder.append(
            RAW, ISTIO_INBOUND, *from_server, Port(protocol="udp", ports=(DNS_PORT,), source=True), to=TrackZone(zone=PROXY_ZONE),
            why="the servers' answers to the proxy", origin=ORIGIN, families=families,
        )  # fmt: skip


def _come_before_docker(builder: Builder, options: Interception) -> None:
    """Insert a jump for queries to Docker's resolver before Docker's rule, which redirects to the resolver's real port.

    The proxy's own queries return and reach Docker's rule. They stay in the default zone, where the connection shows from
    which port the answer comes.
    """
    resolver = Destination(networks=(Network.parse(f"{DOCKER_RESOLVER}/32"),))
    for protocol in ("tcp", "udp"):
        builder.append(
            NAT, OUTPUT, resolver, Port(protocol=protocol, ports=(DNS_PORT,)), to=Jump(chain=ISTIO_OUTPUT), inserted=True,
            why="queries to Docker's resolver are looked at before Docker's own rule", origin=ORIGIN, families=(IPV4,),
        )  # fmt: skip
    for owner, _ in proxy_owners(options):
        builder.append(
            RAW, ISTIO_OUTPUT_DNS, resolver, Port(protocol="udp", ports=(DNS_PORT,)), owner, to=Return(),
            why="the proxy's queries to Docker's resolver", origin=ORIGIN, families=(IPV4,),
        )  # fmt: skip


def queries(options: Interception) -> list[tuple[tuple[Family, ...], tuple[Match, ...]]]:
    """Return which queries are captured, by family and protocol."""
    return [
        (families, (*to_server, Port(protocol=protocol, ports=(DNS_PORT,))))
        for families, to_server, _ in _scopes(options)
        for protocol in ("tcp", "udp")
    ]


def _scopes(options: Interception) -> list[tuple[tuple[Family, ...], tuple[Match, ...], tuple[Match, ...]]]:
    """Return the families, and the matches to and from the name servers; none for all servers."""
    if options.capture_all_dns:
        return [(FAMILIES, (), ())]
    servers = [(family, hosts_of(options.dns_servers, family)) for family in FAMILIES]
    return [
        ((family,), (Destination(networks=found),), (Source(networks=found),)) for family, found in servers if found
    ]


def _separate_proxy(builder: Builder, options: Interception) -> None:
    """Put the proxy's queries, and its answers to the application, into separate zones."""
    for owner, _ in proxy_owners(options):
        builder.append(
            RAW, ISTIO_OUTPUT_DNS, Port(protocol="udp", ports=(DNS_PORT,)), owner, to=TrackZone(zone=PROXY_ZONE),
            why="the proxy's own queries", origin=ORIGIN,
        )  # fmt: skip
        builder.append(
            RAW, ISTIO_OUTPUT_DNS, Port(protocol="udp", ports=(DNS_LISTENER,), source=True), owner,
            to=TrackZone(zone=APPLICATION_ZONE), why="the proxy's answers to the application", origin=ORIGIN,
        )  # fmt: skip
