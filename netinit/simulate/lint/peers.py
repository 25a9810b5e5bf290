"""The same for options that other meshes have and Istio has not."""

from __future__ import annotations

from collections.abc import Iterator

from netinit.base.net import covers, lists_port
from netinit.options import NONE, Options
from netinit.simulate.lint.finding import WARNING, Finding, idle

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
    if options.exclude_inbound_cidrs and (options.inbound_mode == NONE or not options.inbound_ports):
        yield idle("--exclude-inbound-cidrs", "nothing inbound is captured; add -b '*' or ports")
    if options.log_group and not options.log_rules:
        yield idle("--log-group", "counts only with --log-rules")
    if options.redirect_dns and "127.0.0.11" in options.dns_servers and (options.native_nftables or options.backend == "nftables"):
        yield Finding(
            WARNING, "docker", "--backend",
            "Docker's resolver (127.0.0.11) is asked before tables of nft, so that no query is captured; use an iptables backend",
        )  # fmt: skip
    if options.reject_quic:
        yield from _idle_rejection(options)


def _idle_rejection(options: Options) -> Iterator[Finding]:
    """Reasons why QUIC is not refused anywhere."""
    if lists_port(options.exclude_outbound_ports, HTTPS):
        yield idle("--reject-quic", "--istio-local-outbound-ports-exclude lists 443, so TCP to it is not captured either")
    elif not (options.outbound_cidrs or lists_port(options.outbound_ports, HTTPS)):
        yield idle("--reject-quic", "no outbound connection to port 443 is captured; add -i '*' or networks")
    elif isinstance(options.outbound_cidrs, tuple) and options.outbound_cidrs and all(
        any(covers(wide, one) for wide in options.exclude_outbound_cidrs) for one in options.outbound_cidrs
    ):
        yield idle("--reject-quic", "--istio-service-exclude-cidr excludes all of --istio-service-cidr")
