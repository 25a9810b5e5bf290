"""Choose the connections to probe: for each kind of rule, one that matches and one that does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, count

from netinit.base.net import IPV4, Family, Network, bounds_of, lists_port, text_of
from netinit.options import NONE, RunOptions
from netinit.options.kinds import ALL
from netinit.pods.probe.validate import OUTSIDE

NAME_SERVER = {4: "192.0.2.53", 6: "2001:db8::53"}  # used if /etc/resolv.conf has none
LOCALHOST = {4: "127.0.0.1", 6: "::1"}
CANDIDATE_PORTS = (8080, 9080, 18080, 28080, 38080)
APPLICATIONS = (1000, 65534, 4242)
DNS = 53
MAX_OF_A_LIST = 3  # probes for each list
OUTBOUND, INBOUND = "outbound", "inbound"


@dataclass(frozen=True, slots=True)
class Ask:
    """A connection to make; inbound ones come in through `interface`."""

    direction: str
    family: Family
    protocol: str
    who: str
    target: str  # description
    destination: str
    port: int
    uid: int = 0
    gid: int = 0
    source: str = ""
    interface: str = ""


def plan_inbound(options: RunOptions, family: Family, own: str, listening: Collection[int], interface: str) -> tuple[Ask, ...]:
    """Return the connections from outside to `own` through an interface, given the ports that programs listen on.

    Prefers captured ports without a listener: with TPROXY only those show whether the proxy was reached.
    """
    if options.inbound_mode == NONE:
        return ()
    ports = [port for port in CANDIDATE_PORTS if not lists_port(options.exclude_inbound_ports, port) and port not in listening][:1]
    if options.inbound_ports != ALL:
        named = [bounds_of(port)[0] for port in options.inbound_ports if not isinstance(port, str)]
        ports = sorted(named, key=lambda port: port in listening)[:MAX_OF_A_LIST] + ports
    wanted = [(port, "a port") for port in ports]
    wanted += [(bounds_of(port)[0], "an excluded port") for port in options.exclude_inbound_ports[:MAX_OF_A_LIST]]
    if options.has("tunnel_port") and options.tunnel_port:
        wanted += [(options.tunnel_port, "the tunnel's port")]
    return tuple(
        Ask(INBOUND, family, "tcp", "a peer", f"{what} of the pod", own, port, interface=interface)
        for port, what in {port: (port, what) for port, what in reversed(wanted)}.values()
    )[::-1]


def plan_outbound(options: RunOptions, family: Family, own: str) -> Iterator[Ask]:
    """Yield the connections to make in the pod; `own` is its address, empty if it has none."""
    taken = {*options.proxy_uids, *options.proxy_gids}
    app = next(uid for uid in chain(APPLICATIONS, count(5000)) if uid not in taken)
    port = next(port for port in (80, *CANDIDATE_PORTS) if not lists_port(options.exclude_outbound_ports, port))
    outside = OUTSIDE[family]

    def ask(user: tuple[str, int, int], what: str, host: str, number: int, protocol: str = "tcp") -> Ask:
        who, uid, gid = user
        return Ask(OUTBOUND, family, protocol, who, what, host, number, uid, gid)

    anybody = ("app", app, app)
    yield ask(anybody, "an address outside", outside, port)
    if not options.traits.proxy_mark:
        yield ask(("proxy's uid", options.proxy_uids[0], app), "an address outside", outside, port)
        yield ask(("proxy's gid", app, options.proxy_gids[0]), "an address outside", outside, port)
    groups = options.owner_groups if isinstance(options.owner_groups, tuple) else ()
    for gid in (*groups[:MAX_OF_A_LIST], *options.exclude_owner_groups[:MAX_OF_A_LIST]):
        yield ask((f"app in group {gid}", app, gid), "an address outside", outside, port)
    for listed in options.exclude_outbound_ports[:MAX_OF_A_LIST]:
        yield ask(anybody, "an excluded port", outside, bounds_of(listed)[0])
    for listed in options.outbound_ports[:MAX_OF_A_LIST]:
        yield ask(anybody, "an included port", outside, bounds_of(listed)[0])
    for network in _of_family(options.exclude_outbound_cidrs, family):
        yield ask(anybody, "an excluded network", _host_in(network), port)
    if isinstance(options.outbound_cidrs, tuple):
        for network in _of_family(options.outbound_cidrs, family):
            yield ask(anybody, "an included network", _host_in(network), port)
    yield from _to_itself(options, family, own, app)
    servers = [server for server in options.dns_servers if (":" in server) == (family is not IPV4)]
    servers = servers[:1] if options.redirect_dns else []
    for server in (*servers, NAME_SERVER[family.version]):
        what = "a name server of resolv.conf" if server in servers else "another name server"
        for protocol in ("udp", "tcp") if options.redirect_dns else ("udp",):
            yield ask(anybody, what, server, DNS, protocol)
            if not options.traits.proxy_mark:
                yield ask(("proxy", options.proxy_uids[0], options.proxy_gids[0]), what, server, DNS, protocol)


def _to_itself(options: RunOptions, family: Family, own: str, app: int) -> Iterator[Ask]:
    uid, gid = options.proxy_uids[0], options.proxy_gids[0]
    loopback, passthrough = LOCALHOST[family.version], family.passthrough_address
    port = next(port for port in CANDIDATE_PORTS if not lists_port(options.exclude_outbound_ports, port))
    users = [("app", app, app)] if options.traits.proxy_mark else [("app", app, app), ("proxy", uid, gid)]
    for what, host in (("localhost", loopback), ("the pod's own address", own)):
        for who, user, group in users if host else ():
            yield Ask(OUTBOUND, family, "tcp", who, what, host, port, user, group)
    if options.traits.has_passthrough:
        yield Ask(OUTBOUND, family, "tcp", "proxy", "the passthrough address", passthrough, port, uid, gid, loopback)


def _of_family(networks: tuple[Network, ...], family: Family) -> tuple[Network, ...]:
    return tuple(network for network in networks if network.family is family)[:MAX_OF_A_LIST]


def _host_in(network: Network) -> str:
    """Return the network's last address but one, which is rarely used."""
    number = network.last - 1 if network.last - network.first > 1 else network.first
    return text_of(number, network.family)
