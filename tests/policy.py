"""A second oracle: what a pod's options mean for one connection, said in the words of the policy.

It knows nothing of rules, chains, tables and marks, and imports nothing of netinit but the fields of the options that it
is given. `expected_fate` reads from top to bottom; the first sentence that applies decides. Where Istio's behaviour
is odd, the sentence says so: the oddity is part of what is promised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network

DIRECT = "direct"  # it goes on to where it was going, unchanged
REFUSED = "refused"
RESOLVER_PORT = 15053
DNS = 53
SSH = 22
HTTPS = 443


def is_named(interface, names):
    """Whether the interface is listed, by its name or by a prefix with + behind it."""
    return any(fnmatchcase(interface, f"{name[:-1]}*") if name[-1] == "+" else interface == name for name in names)


@dataclass(frozen=True)
class Connection:
    """A new connection (or first datagram): sent by a socket in the pod, or come in through `interface`.

    `device` is what a packet of the pod leaves through: `lo` for the pod's own addresses. What comes in is for the pod,
    or `passes` through it to somebody else.
    """

    protocol: str
    source: str
    destination: str
    port: int
    uid: int = 0
    gid: int = 0
    device: str = ""
    interface: str = ""
    passes: bool = False

    @property
    def version(self) -> int:
        return ip_address(self.destination).version


def captured(port: int) -> str:
    """It reaches the proxy's listener on this port."""
    return f"captured on {port}"


def expected_fate(options, connection: Connection) -> str:
    """Where the connection ends. Of IPv6 that is refused that is what would be captured of TCP, but for what the pod sends to itself."""
    if connection.version == 6 and options.ipv6 == "reject":
        if connection.device == "lo" or (connection.protocol == "udp" and connection.port != HTTPS):
            return DIRECT
        by_tproxy = options.layout == "classic" and options.inbound_mode == "TPROXY"  # which IPv6 never is there
        redirecting = options.replace(ipv6="on", redirect_outbound_udp=(), **({"inbound_mode": "REDIRECT"} if by_tproxy else {}))
        fate = expected_fate(redirecting, connection)
        return fate if fate == DIRECT or connection.protocol == "udp" else REFUSED
    if options.layout == "classic":
        return _classic_inbound(options, connection) if connection.interface else _classic_outbound(options, connection)
    if connection.version == 6 and options.ipv6 == "off":
        return DIRECT
    if options.layout == "ambient":
        return _ambient(options, connection)
    return _inbound(options, connection) if connection.interface else _outbound(options, connection)


# --- the current layout -----------------------------------------------------------------------------------------------


def _outbound(options, one: Connection) -> str:
    fate = _sent(options, one)
    if fate == DIRECT and _comes_in_by_tproxy(options, one):
        return captured(options.inbound_port)
    return fate


def _sent(options, one: Connection) -> str:
    """What happens to it when it is sent."""
    tcp = one.protocol == "tcp"
    if _refuses_quic(options, one):
        return REFUSED
    if is_named(one.device, options.exclude_interfaces) or _lists(options.exclude_outbound_ports, one.port):
        return DIRECT
    if one.device == "lo" and one.source == _passthrough(one):
        return DIRECT  # the proxy hands an inbound connection on to the application
    owner = _owner_that_decides(options, one)
    if owner == "nobody of the proxy's, to itself":
        return DIRECT
    if owner:  # the proxy's own traffic is never outbound traffic; to its own pod it is inbound traffic
        left_alone = [options.tunnel_port] + ([DNS] if _captures_dns(options) and owner == "uid" else [])
        if tcp and one.device == "lo" and not _is_loopback(options, one) and one.port not in left_alone:
            return captured(options.inbound_port)
        return DIRECT
    if _is_spared(options, one) or _is_of_another_group(options, one):
        return DIRECT
    if (
        one.port == DNS
        and _captures_dns(options)
        and (options.capture_all_dns or one.destination in options.dns_servers)
    ):
        return captured(RESOLVER_PORT)
    if _is_loopback(options, one) or holds_address(options.exclude_outbound_cidrs, one.destination) or _is_metadata(options, one):
        return DIRECT
    if not tcp:
        return _redirected_datagram(options, one)
    if _lists(options.outbound_ports, one.port) or _is_included(options, one):
        return captured(options.outbound_port)
    return DIRECT


def _redirected_datagram(options, one: Connection) -> str:
    """UDP to a port of a list goes to the pod's port for it, unless it stays in the pod anyway."""
    to = [item.to for item in options.redirect_outbound_udp if _lists((item.port,), one.port)]
    return captured(to[0]) if to and one.protocol == "udp" and one.device != "lo" else DIRECT


def _is_of_another_group(options, one: Connection) -> bool:
    """Whether its group is excluded, or not among those that are captured."""
    if options.owner_groups == "*":
        return one.gid in options.exclude_owner_groups
    return bool(options.owner_groups) and one.gid not in options.owner_groups


def _is_spared(options, one: Connection) -> bool:
    """Whether somebody's own list of ports has it."""
    by = [(item, one.uid) for item in options.exclude_outbound_for_uids] + [(item, one.gid) for item in options.exclude_outbound_for_gids]
    return any(
        item.protocol == one.protocol and item.first <= owner <= item.last and (not item.ports or _lists(item.ports, one.port))
        for item, owner in by
    )


def _is_metadata(options, one: Connection) -> bool:
    known = ("169.254.169.254", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254")
    return options.exclude_cloud_metadata and one.destination in known


def _refuses_quic(options, one: Connection) -> bool:
    """UDP to port 443 is refused where the same sender's TCP would be captured for its address, and it has no listener in the pod."""
    if not options.reject_quic or (one.protocol, one.port) != ("udp", 443) or one.device == "lo":
        return False
    tcp = replace(one, protocol="tcp")
    if is_named(one.device, options.exclude_interfaces) or _lists(options.exclude_outbound_ports, 443) or _is_spared(options, tcp):
        return False
    if one.uid in options.proxy_uids or one.gid in options.proxy_gids:
        return False
    if _is_of_another_group(options, one):
        return False
    if holds_address(options.exclude_outbound_cidrs, one.destination) or _is_metadata(options, one):
        return False
    if not _is_spared(options, one) and not _is_loopback(options, one) and _redirected_datagram(options, one) != DIRECT:
        return False
    return _lists(options.outbound_ports, 443) or _is_included(options, one)


def _owner_that_decides(options, one: Connection) -> str:
    """Which of the proxy's owners sends it: `uid`, `gid`, or the empty word for the application.

    Over the loopback interface traffic is the application's with itself, unless the proxy's first user sends it: the
    users and groups are asked one after another, and each sends everybody else away (as Istio has it). Nobody is sent
    away where a loopback address is to be captured, nor, with DNS capture, over UDP or to port 53.
    """
    with_itself = one.device == "lo" and not any(
        ip_address(str(network).partition("/")[0]).is_loopback for network in _listed(options.outbound_cidrs)
    )
    if _captures_dns(options):
        with_itself = with_itself and one.protocol == "tcp" and one.port != DNS
    owners = [("uid", uid, one.uid) for uid in options.proxy_uids] + [
        ("gid", gid, one.gid) for gid in options.proxy_gids
    ]
    for kind, number, sender in owners:
        if sender == number:
            return kind
        if with_itself:
            return "nobody of the proxy's, to itself"
    return ""


def _comes_in_by_tproxy(options, one: Connection) -> bool:
    """In TPROXY mode what any of the proxy's users and groups sends to its own pod comes in like from outside."""
    of_the_proxy = one.uid in options.proxy_uids or one.gid in options.proxy_gids
    return (
        options.inbound_mode == "TPROXY"
        and one.protocol == "tcp"
        and one.device == "lo"
        and not is_named("lo", options.exclude_interfaces)
        and of_the_proxy
        and not _is_loopback(options, one)
        and one.source != _passthrough(one)
        and not holds_address(options.exclude_inbound_cidrs, one.source)
        and _port_is_captured(options, one.port)
    )


def _inbound(options, one: Connection) -> str:
    asked = _captures_dns(options) and (options.capture_all_dns or one.destination in options.dns_servers)
    if asked and _is_query_from_behind(options, one):
        return captured(RESOLVER_PORT)
    if one.protocol != "tcp":
        return DIRECT
    excluded = is_named(one.interface, options.exclude_interfaces)
    spared = holds_address(options.exclude_inbound_cidrs, one.source)
    if options.inbound_mode == "TPROXY" and not excluded and not spared and _port_is_captured(options, one.port):
        return captured(
            options.inbound_port
        )  # before anything is asked of virtual machines and tunnels, as Istio has it
    if is_named(one.interface, options.virtual_interfaces):  # what a VM behind the pod sends is outbound traffic
        return captured(options.outbound_port) if _is_included(options, one) else DIRECT
    if options.inbound_mode != "REDIRECT" or excluded or spared or one.port == options.tunnel_port:
        return DIRECT
    return captured(options.inbound_port) if _port_is_captured(options, one.port) else DIRECT


def drops_what_belongs_to_no_connection(options, one: Connection) -> bool:
    """Whether a packet like this, in the middle of a connection that nobody knows, is dropped when it comes in."""
    of_ipv6_alone = one.version == 6 and options.ipv6 != "on"
    if options.drop_invalid and not of_ipv6_alone and not (options.inbound_mode == "TPROXY" and is_named(one.interface, options.exclude_interfaces)):
        return True
    fate = expected_fate(options, one)
    if fate == captured(RESOLVER_PORT) and not options.istio_exact:
        return True
    by_nat = (options.inbound_mode == "REDIRECT" or _classic_ipv6_redirect(options, one)) and bool(options.inbound_ports)
    if options.istio_exact or fate not in {captured(port) for port in (options.inbound_port, options.outbound_port)}:
        return False
    return by_nat or (is_named(one.interface, options.virtual_interfaces) and _is_included(options, one))


# --- the classic layout -----------------------------------------------------------------------------------------------


def _classic_outbound(options, one: Connection) -> str:
    fate = _classic_sent(options, one)
    if fate == DIRECT and one.device == "lo":
        if one.version == 6 and options.ipv6 == "off":
            return DIRECT if one.destination == "::1" else REFUSED
        if _classic_tproxy(options, one) and one.destination != "127.0.0.1":
            return captured(options.outbound_port)
    return fate


def _classic_sent(options, one: Connection) -> str:
    if one.protocol != "tcp" or (one.version == 6 and options.ipv6 == "off"):
        return DIRECT
    itself = _is_loopback(options, one)
    if one.device == "lo" and not itself and not options.keep_local_loopback:
        return captured(options.outbound_port)  # the application calls its own service
    if one.uid in options.proxy_uids or one.gid in options.proxy_gids or itself:
        return DIRECT
    if holds_address(options.exclude_outbound_cidrs, one.destination):
        return DIRECT
    return captured(options.outbound_port) if _is_included(options, one) else DIRECT


def _classic_inbound(options, one: Connection) -> str:
    if one.version == 6 and options.ipv6 == "off":
        return DIRECT if one.passes else REFUSED
    if one.protocol != "tcp":
        return DIRECT
    if _classic_tproxy(options, one):
        return captured(options.outbound_port)
    if is_named(one.interface, options.virtual_interfaces):
        return captured(options.outbound_port) if _is_included(options, one) else DIRECT
    redirects = options.inbound_mode == "REDIRECT" or _classic_ipv6_redirect(options, one)
    return captured(options.inbound_port) if redirects and _classic_port(options, one.port) else DIRECT


def _classic_ipv6_redirect(options, one: Connection) -> bool:
    """TPROXY is IPv4's alone in the classic layout: IPv6 is redirected, but left alone by Istio's own rules."""
    of_ipv6 = options.layout == "classic" and one.version == 6 and options.ipv6 == "on"
    return of_ipv6 and options.inbound_mode == "TPROXY" and not options.istio_exact


def _classic_tproxy(options, one: Connection) -> bool:
    """TPROXY is IPv4's alone."""
    fits = options.inbound_mode == "TPROXY" and one.protocol == "tcp" and one.version == 4
    return fits and _classic_port(options, one.port)


def _classic_port(options, port: int) -> bool:
    """Where all ports are captured, that of ssh is not."""
    return _port_is_captured(options, port) and not (options.inbound_ports == "*" and port == SSH)


# --- the ambient layout, for connections of anybody but the node's proxy -------------------------------------------------


def _ambient(options, one: Connection) -> str:
    tcp, itself = one.protocol == "tcp", one.destination in ("127.0.0.1", "::1")
    probe = (one.source if one.interface else one.destination) in options.host_probe_addresses
    if options.redirect_dns and _is_query_from_behind(options, one):
        return captured(RESOLVER_PORT)
    if is_named(one.interface, options.virtual_interfaces):
        return captured(options.outbound_port) if tcp else DIRECT
    if one.interface:
        ours = tcp and not options.ingress and not probe and not itself and one.port != options.tunnel_port
        return captured(options.inbound_port) if ours else DIRECT
    if tcp and probe:
        return DIRECT
    if options.redirect_dns and one.port == DNS and (not itself if tcp else one.device != "lo"):
        return captured(RESOLVER_PORT)
    if one.device == "lo":
        # What the pod sends to itself goes out as it is and comes in again, with the connection that NAT has decided on.
        return DIRECT
    return captured(options.outbound_port) if tcp and not itself else DIRECT


# --- words that all share --------------------------------------------------------------------------------------------


def _port_is_captured(options, port: int) -> bool:
    if options.inbound_ports == "*":
        return not _lists(options.exclude_inbound_ports, port)
    return _lists(options.inbound_ports, port)


def _lists(ports, port: int) -> bool:
    """Whether a list of ports and pairs, each the first and the last of a range, holds the port."""
    return any(one[0] <= port <= one[1] if isinstance(one, tuple) else one == port for one in ports)


def _is_included(options, one: Connection) -> bool:
    return options.outbound_cidrs == "*" or holds_address(options.outbound_cidrs, one.destination)


def _is_query_from_behind(options, one: Connection) -> bool:
    """Whether something behind the pod asks a name server, which the proxy's resolver then answers."""
    return options.redirect_forwarded_dns and is_named(one.interface, options.virtual_interfaces) and one.port == DNS


def _captures_dns(options) -> bool:
    return options.redirect_dns and bool(options.capture_all_dns or options.dns_servers)


def _is_loopback(options, one: Connection) -> bool:
    """The addresses whose traffic stays in the pod."""
    if one.version == 6:
        return one.destination == "::1"
    return holds_address([options.loopback_cidr], one.destination)


def _passthrough(one: Connection) -> str:
    return "127.0.0.6" if one.version == 4 else "::6"


def holds_address(networks, address: str) -> bool:
    """Whether the address is in one of the networks."""
    host = ip_address(address)
    return any(
        host in ip_network(str(network)) for network in networks if ip_network(str(network)).version == host.version
    )


def _listed(networks):
    return () if networks == "*" else networks
