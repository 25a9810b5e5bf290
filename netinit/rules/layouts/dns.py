"""DNS capture: the application's queries go to the proxy's resolver, in separate conntrack zones.

The zones separate the application's query from the proxy's to the same server, which may have the same addresses and
ports (istio/istio#33469). Istio's rules look up all answers of the servers in the zone of the proxy's queries, so an answer to
a query that the pod forwarded and masqueraded, for a container or a VM behind it, is lost (istio/istio#54689). Ours set the
zone of the proxy's queries in the original direction alone, where the two would meet: answers need none.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES, IPV4, IPV6, Family, Network
from netinit.options import DNS_LISTENER, DNS_PORT, DOCKER_RESOLVER, INET, TPROXY, Interception
from netinit.rules.layouts.builder import Builder, hosts_of, proxy_owners
from netinit.rules.marking_targets import TrackZone
from netinit.rules.matches import Match
from netinit.rules.matches.packet import Destination, InInterface, Port, Source
from netinit.rules.model import ISTIO_INBOUND, ISTIO_OUTPUT, ISTIO_OUTPUT_DNS, MANGLE, NAT, OUTPUT, PREROUTING, RAW
from netinit.rules.targets import Jump, Redirect, Return

OF_PROXY, OF_APPLICATION = TrackZone(zone=1), TrackZone(zone=2)
QUERY = Port(protocol="udp", ports=(DNS_PORT,))
ORIGIN = "redirect_dns"


def capture(builder: Builder, options: Interception) -> None:
    """Redirect queries to the proxy's resolver, and separate the zones."""
    served = _served(options)
    why = "DNS queries get zones of their own"
    builder.append(RAW, OUTPUT, to=Jump(chain=ISTIO_OUTPUT_DNS), why=why, origin=ORIGIN)
    why = "DNS queries are checked"
    builder.append(NAT, ISTIO_OUTPUT, to=Jump(chain=ISTIO_OUTPUT_DNS), why=why, origin=ORIGIN, families=served)
    if DOCKER_RESOLVER in options.dns_servers and not options.capture_all_dns:
        _come_before_docker(builder, options)
    for families, matches in queries(options):
        why, to_proxy = "DNS queries go to the proxy's resolver", Redirect(port=DNS_LISTENER)
        builder.append(NAT, ISTIO_OUTPUT_DNS, *matches, to=to_proxy, why=why, origin=ORIGIN, families=families)
    own = OF_PROXY if options.istio_exact else OF_PROXY.replace(side="orig")
    for owner, _ in proxy_owners(options):
        builder.append(RAW, ISTIO_OUTPUT_DNS, QUERY, owner, to=own, why="the proxy's own queries", origin=ORIGIN)
        answer, why = Port(protocol="udp", ports=(DNS_LISTENER,), source=True), "the proxy's answers to the application"
        builder.append(RAW, ISTIO_OUTPUT_DNS, answer, owner, to=OF_APPLICATION, why=why, origin=ORIGIN)
    asked, why = (*_of_servers(options, Destination), QUERY), "the application's queries"
    builder.append(RAW, ISTIO_OUTPUT_DNS, *asked, to=OF_APPLICATION, why=why, origin=ORIGIN)
    _come_in(builder, options, served, asked)


def _come_in(builder: Builder, options: Interception, served: tuple[Family, ...], asked: tuple[Match, ...]) -> None:
    """Set the zones of answers, as Istio does, and of queries from behind the pod that go to the proxy's resolver."""
    forwarded = options.redirect_forwarded_dns and bool(options.virtual_interfaces)
    if options.istio_exact or forwarded:
        why, origin = "DNS answers are checked", ORIGIN
        if not options.istio_exact:
            why, origin = "DNS queries from behind the pod are checked", "redirect_forwarded_dns"
        builder.append(RAW, PREROUTING, to=Jump(chain=ISTIO_INBOUND), why=why, origin=origin, families=served)
    if options.istio_exact:
        answered, why = (*_of_servers(options, Source), QUERY.replace(source=True)), "the servers' answers to the proxy"
        builder.append(RAW, ISTIO_INBOUND, *answered, to=OF_PROXY, why=why, origin=ORIGIN)
    if forwarded:
        coming, why = InInterface(names=options.virtual_interfaces), "queries from behind the pod that go to the proxy's resolver"
        asking = (*asked[:-1], coming, asked[-1])
        builder.append(RAW, ISTIO_INBOUND, *asking, to=OF_APPLICATION, why=why, origin="redirect_forwarded_dns")


def capture_forwarded(builder: Builder, options: Interception) -> None:
    """Redirect queries that come in through virtual interfaces; call it before these interfaces' own rules are added."""
    coming, origin = InInterface(names=options.virtual_interfaces), "redirect_forwarded_dns"
    why, look = "DNS queries from behind the pod are checked", Jump(chain=ISTIO_OUTPUT_DNS)
    builder.append(NAT, PREROUTING, coming, to=look, inserted=True, why=why, origin=origin, families=_served(options))
    if options.inbound_mode == TPROXY:
        over_tcp, why = QUERY.replace(protocol="tcp"), "DNS queries from behind the pod are redirected instead"
        asked = (*_of_servers(options, Destination), coming, over_tcp)
        builder.append(MANGLE, ISTIO_INBOUND, *asked, to=Return(), why=why, origin=origin)


def _come_before_docker(builder: Builder, options: Interception) -> None:
    """Insert a jump for queries to Docker's resolver before Docker's rule, which redirects to the resolver's real port.

    The proxy's own queries return and reach Docker's rule. They stay in the default zone, where the connection shows from
    which port the answer comes.
    """
    resolver, look = Destination(networks=(Network.parse(f"{DOCKER_RESOLVER}/32"),)), Jump(chain=ISTIO_OUTPUT)
    why = "queries to Docker's resolver are checked before Docker's own rule"
    for query in (QUERY.replace(protocol="tcp"), QUERY):
        builder.append(NAT, OUTPUT, resolver, query, to=look, inserted=True, why=why, origin=ORIGIN)
    for owner, _ in proxy_owners(options):
        why = "the proxy's queries to Docker's resolver"
        builder.append(RAW, ISTIO_OUTPUT_DNS, resolver, QUERY, owner, to=Return(), why=why, origin=ORIGIN)


def _served(options: Interception) -> tuple[Family, ...]:
    """Return the families in which queries are captured."""
    everywhere = options.capture_all_dns or options.ipv6 == INET  # Istio's nft tables jump for both families
    return tuple([family for family in FAMILIES if everywhere or hosts_of(options.dns_servers, family)])


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
