"""The same for options that other meshes have and Istio has not."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import MAX_PORT, Network, Ports, bounds_of, covers, join_ranges, lists_port
from netinit.options import DNS_PORT, DOCKER_RESOLVER, NONE, Options
from netinit.options.kinds import ALL
from netinit.options.users import PortsOfUsers
from netinit.rules.layouts.clouds import CLOUD_METADATA
from netinit.simulate.lint.finding import ERROR, WARNING, Finding, idle, shadowed

HTTPS = 443


def look_at_peers(options: Options) -> Iterator[Finding]:
    """What is wrong with these options beside the others."""
    captures = bool(options.outbound_cidrs or options.outbound_ports)
    for field in ("exclude_outbound_for_uids", "exclude_outbound_for_gids", "exclude_cloud_metadata"):
        if getattr(options, field) and not captures and not options.redirect_dns:
            yield idle(options.flag(field).label, "nothing outbound is captured; add -i '*', networks, or --istio-outbound-ports")
    for field, owners in (("exclude_outbound_for_uids", options.proxy_uids), ("exclude_outbound_for_gids", options.proxy_gids)):
        for one in getattr(options, field):
            if one.first == one.last and one.first in owners:
                yield idle(options.flag(field).label, f"{one.users} is the proxy's, whose traffic is never captured; leave it out")
    yield from _everything_excluded(options)
    yield from _needless_exceptions(options)
    if options.log_group and not options.log_rules:
        yield idle("--log-group", "counts only with --log-rules")
    elif options.log_group and options.backend == "libiptc":
        yield Finding(ERROR, "backend", "--log-group", "libiptc cannot make NFLOG rules; leave it out, or use another backend")
    if not options.retries and options.retry_delay != options.flag("retry_delay").default:
        yield idle("--retry-delay", "counts only with --retries")
    elif options.retries and options.retry_delay >= options.lock_timeout:
        yield idle("--retries", "--retry-delay is not shorter than --lock-timeout, which ends all attempts; shorten it")
    if options.redirect_dns and DOCKER_RESOLVER in options.dns_servers and (options.native_nftables or options.backend == "nftables"):
        yield Finding(
            WARNING, "docker", "--backend",
            f"Docker's resolver ({DOCKER_RESOLVER}) is asked before tables of nft: no query is captured; use an iptables backend",
        )  # fmt: skip
    if options.reject_quic:
        yield from _idle_rejection(options)


def _everything_excluded(options: Options) -> Iterator[Finding]:
    """Exceptions that leave nothing."""
    captures_inbound = bool(options.inbound_ports) and options.inbound_mode != NONE
    if options.exclude_inbound_cidrs and not captures_inbound:
        yield idle("--exclude-inbound-cidrs", "nothing inbound is captured; add -b '*' or ports")
    for network in options.exclude_inbound_cidrs if captures_inbound else ():
        if network.length == 0:
            message = f"captures no {network.family.name}, since --exclude-inbound-cidrs {network} excludes all of it"
            yield shadowed("--istio-inbound-ports", message)
    if captures_inbound and options.inbound_ports == ALL and _are_all(options.exclude_inbound_ports):
        yield shadowed("--istio-inbound-ports", "captures nothing, since --istio-local-exclude-ports lists every port")
    if (options.outbound_cidrs or options.outbound_ports) and _are_all(options.exclude_outbound_ports):
        captured = "--istio-service-cidr" if options.outbound_cidrs else "--istio-outbound-ports"
        yield shadowed(captured, "captures nothing, since --istio-local-outbound-ports-exclude lists every port")


def _needless_exceptions(options: Options) -> Iterator[Finding]:
    """Exceptions from what is not captured anyway."""
    for field in ("exclude_outbound_for_uids", "exclude_outbound_for_gids"):
        listed: tuple[PortsOfUsers, ...] = getattr(options, field)
        for one in listed:
            wider = next((other for other in listed if other is not one and _holds(other, one)), None)
            if wider is not None:
                yield shadowed(options.flag(field).label, f"{one} is in {wider} already; leave it out")
            elif one.protocol == "udp" and not _counts_for_udp(one, listed, options):
                message = f"{one}: UDP is not captured, but for port 53 with --redirect-dns; leave it out"
                yield idle(options.flag(field).label, message)
    included = options.outbound_cidrs
    if options.exclude_cloud_metadata and isinstance(included, tuple) and included and not options.outbound_ports:
        captured = [one for one in included if isinstance(one, Network)]
        if not any(covers(wide, address) for wide in captured for address in CLOUD_METADATA):
            yield idle("--exclude-cloud-metadata", "--istio-service-cidr captures none of these addresses; leave it out")


def _are_all(ports: Ports) -> bool:
    return join_ranges(sorted(map(bounds_of, ports))) == [(1, MAX_PORT)]


def _holds(wide: PortsOfUsers, narrow: PortsOfUsers) -> bool:
    """Whether one exception is a part of another."""
    ranges = join_ranges(sorted(map(bounds_of, wide.ports)))
    inside = all(any(low <= first and last <= high for low, high in ranges) for first, last in map(bounds_of, narrow.ports))
    ports = not wide.ports or (bool(narrow.ports) and inside)
    return wide.protocol == narrow.protocol and wide.first <= narrow.first and narrow.last <= wide.last and ports


def _counts_for_udp(one: PortsOfUsers, listed: tuple[PortsOfUsers, ...], options: Options) -> bool:
    """Whether it takes queries out of DNS capture, or belongs to one of TCP, as `*` makes them."""
    queries = options.redirect_dns and (not one.ports or lists_port(one.ports, DNS_PORT))
    return queries or one.replace(protocol="tcp") in listed


def _idle_rejection(options: Options) -> Iterator[Finding]:
    """Reasons why QUIC is not refused anywhere."""
    if lists_port(options.exclude_outbound_ports, HTTPS):
        yield idle("--reject-quic", "--istio-local-outbound-ports-exclude lists 443, so TCP to it is not captured either")
    elif not (options.outbound_cidrs or lists_port(options.outbound_ports, HTTPS)):
        yield idle("--reject-quic", "no outbound connection to port 443 is captured; add -i '*' or networks")
    elif options.virtual_interfaces:
        yield Finding(
            WARNING, "quic-passes", "--reject-quic",
            f"what a VM behind {', '.join(options.virtual_interfaces)} sends is forwarded, and no rule refuses QUIC there; "
            "refuse it in the VM",
        )  # fmt: skip
    elif isinstance(options.outbound_cidrs, tuple) and options.outbound_cidrs and all(
        any(covers(wide, one) for wide in options.exclude_outbound_cidrs) for one in options.outbound_cidrs
    ):
        yield idle("--reject-quic", "--istio-service-exclude-cidr excludes all of --istio-service-cidr")
