"""Options whose rules are asked for in the form of each release of Istio."""

from __future__ import annotations

from typing import Any

from netinit.options import Options, SettledOptions, offline

ALL: dict[str, Any] = {"inbound_ports": "*", "outbound_cidrs": "*", "proxy_gids": "7"}
DNS = {**ALL, "redirect_dns": True}
SETS: dict[str, dict[str, Any]] = {
    "all-ports": {**ALL, "exclude_inbound_ports": "15020,15008", "ipv6": "off"},
    "all-ports-of-both-families": {**ALL, "exclude_inbound_ports": "15020", "ipv6": "on", "drop_invalid": True},
    "listed": {
        "inbound_ports": "80,443", "outbound_cidrs": "10.0.0.0/8,fd00::/8", "exclude_outbound_cidrs": "10.1.0.0/16", "outbound_ports": "8080",
        "exclude_outbound_ports": "5432", "virtual_interfaces": ("tap0",), "exclude_interfaces": ("eth7",), "owner_groups": "5", "ipv6": "on",
    },
    "networks-of-ipv4": {"inbound_ports": "80", "outbound_cidrs": "10.0.0.0/8,192.0.2.0/24", "tunnel_port": 0, "ipv6": "on"},
    "tproxy": {**ALL, "inbound_mode": "TPROXY", "exclude_inbound_ports": "15020", "drop_invalid": True, "virtual_interfaces": ("tap0",), "ipv6": "on"},
    "tproxy-listed": {**ALL, "inbound_ports": "80,443", "inbound_mode": "TPROXY", "ipv6": "off"},
    "tproxy-nothing": {"inbound_mode": "TPROXY", "virtual_interfaces": ("tap0",), "outbound_cidrs": "10.0.0.0/8", "ipv6": "on"},
    "dns": {**DNS, "dns_servers": "10.0.0.10,fd00::10", "tunnel_port": 15009, "ipv6": "on"},
    "dns-of-ipv4": {**DNS, "dns_servers": "10.0.0.10", "inbound_mode": "TPROXY", "ipv6": "on"},
    "dns-of-all-servers": {**DNS, "capture_all_dns": True, "ipv6": "off"},
    "nothing": {"ipv6": "off", "keep_local_loopback": True},
    "ipv6-rejected": {**ALL, "outbound_cidrs": "10.0.0.0/8", "ipv6": "reject"},
    "more-than-istio-has": {
        **DNS, "capture_all_dns": True, "redirect_forwarded_dns": True, "virtual_interfaces": ("tap0",), "exclude_outbound_for_uids": "5",
        "exclude_outbound_for_gids": "5", "exclude_inbound_cidrs": "10.0.0.0/8", "exclude_cloud_metadata": True, "reject_quic": True,
        "redirect_outbound_udp": "514:10514", "log_rules": True, "ipv6": "off",
    },
}  # fmt: skip


def settle(name: str, **changes: Any) -> SettledOptions:
    """The options of a set, with some changed."""
    return Options(**SETS[name] | changes).settle(offline())
