"""DNS capture: the application's queries go to the proxy's resolver, in separate conntrack zones.

The zones separate the application's query from the proxy's to the same server, which may have the same addresses and
ports (istio/istio#33469).
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network
from netinit.options import DNS_LISTENER, DNS_PORT, DOCKER_RESOLVER, INET, Interception
from netinit.rules.layouts.builder import Builder, hosts_of, proxy_owners
from netinit.rules.marking_targets import TrackZone
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, Port, Source
from netinit.rules.model import ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_OUTPUT_DNS, NAT, OUTPUT, PREROUTING, RAW
from netinit.rules.targets import Jump, Redirect, Return

PROXY_ZONE = 1
APPLICATION_ZONE = 2
QUERY = Port(protocol="udp", ports=(DNS_PORT,))
ORIGIN = "redirect_dns"


def wanted(options: Interception, warnings: list[str]) -> bool:
    """Whether the requested DNS capture is possible; adds a warning if not."""
    if not options.capture_all_dns and not options.dns_servers:
        warnings.append(f"{options.flag(ORIGIN).label}: no name server in /etc/resolv.conf or --dns-servers, so DNS is not captured")
        return False
    return True


def capture(builder: Builder, options: Interception) -> None:
    """Redirect queries to the proxy's resolver, and separate the zones."""
    everywhere = options.capture_all_dns or options.ipv6 == INET  # Istio's nft tables jump for both families
    served = tuple([family for family in FAMILIES if everywhere or hosts_of(options.dns_servers, family)])
    why = "DNS queries get zones of their own"
    builder.append(RAW, OUTPUT, to=Jump(chain=ISTIO_OUTPUT_DNS), why=why, origin=ORIGIN)
    why = "DNS queries are looked at"
    builder.append(NAT, ISTIO_OUTPUT, to=Jump(chain=ISTIO_OUTPUT_DNS), why=why, origin=ORIGIN, families=served)
    if DOCKER_RESOLVER in options.dns_servers and not options.capture_all_dns:
        _come_before_docker(builder, options)
    for families, matches in queries(options):
        builder.append(
            NAT, ISTIO_OUTPUT_DNS, *matches, to=Redirect(port=DNS_LISTENER),
            why="DNS queries go to the proxy's resolver", origin=ORIGIN, families=families,
        )  # fmt: skip
    _separate_proxy(builder, options)
    why = "DNS answers are looked at"
    builder.append(RAW, PREROUTING, to=Jump(chain=ISTIO_INBOUND), why=why, origin=ORIGIN, families=served)
    builder.append(
        RAW, ISTIO_OUTPUT_DNS, *_of_servers(options, Destination), QUERY, to=TrackZone(zone=APPLICATION_ZONE),
        why="the application's queries", origin=ORIGIN,
    )  # fmt: skip
    builder.append(
        RAW, ISTIO_INBOUND, *_of_servers(options, Source), QUERY.replace(source=True), to=TrackZone(zone=PROXY_ZONE),
        why="the servers' answers to the proxy", origin=ORIGIN,
    )  # fmt: skip


def _come_before_docker(builder: Builder, options: Interception) -> None:
    """Insert a jump for queries to Docker's resolver before Docker's rule, which redirects to the resolver's real port.

    The proxy's own queries return and reach Docker's rule. They stay in the default zone, where the connection shows from
    which port the answer comes.
    """
    resolver = Destination(networks=(Network.parse(f"{DOCKER_RESOLVER}/32"),))
    for protocol in ("tcp", "udp"):
        builder.append(
            NAT, OUTPUT, resolver, QUERY.replace(protocol=protocol), to=Jump(chain=ISTIO_OUTPUT), inserted=True,
            why="queries to Docker's resolver are looked at before Docker's own rule", origin=ORIGIN,
        )  # fmt: skip
    for owner, _ in proxy_owners(options):
        builder.append(
            RAW, ISTIO_OUTPUT_DNS, resolver, QUERY, owner, to=Return(),
            why="the proxy's queries to Docker's resolver", origin=ORIGIN,
        )  # fmt: skip


def queries(options: Interception) -> list[tuple[tuple[Family, ...], tuple[Match, ...]]]:
    """Return which queries are captured, by family and protocol."""
    return [
        (families, (*_of_servers(options, Destination), QUERY.replace(protocol=protocol)))
        for families in ((FAMILIES,) if options.capture_all_dns else ((IPV4,), (IPV6,)))
        for protocol in ("tcp", "udp")
    ]


def _of_servers(options: Interception, side: type[Source | Destination]) -> tuple[Match, ...]:
    """Return the match for packets to or from the name servers; none for all servers."""
    return () if options.capture_all_dns else (side(networks=hosts_of(options.dns_servers, *FAMILIES)),)


def _separate_proxy(builder: Builder, options: Interception) -> None:
    """Put the proxy's queries, and its answers to the application, into separate zones."""
    for owner, _ in proxy_owners(options):
        zone, why = TrackZone(zone=PROXY_ZONE), "the proxy's own queries"
        builder.append(RAW, ISTIO_OUTPUT_DNS, QUERY, owner, to=zone, why=why, origin=ORIGIN)
        builder.append(
            RAW, ISTIO_OUTPUT_DNS, Port(protocol="udp", ports=(DNS_LISTENER,), source=True), owner,
            to=TrackZone(zone=APPLICATION_ZONE), why="the proxy's answers to the application", origin=ORIGIN,
        )  # fmt: skip
