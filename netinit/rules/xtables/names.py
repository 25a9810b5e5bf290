"""Names of transport protocols, as iptables lists them (/etc/protocols)."""

from __future__ import annotations

_NAMES = {
    1: "icmp", 2: "igmp", 4: "ipencap", 6: "tcp", 17: "udp", 33: "dccp", 41: "ipv6", 47: "gre", 50: "esp", 51: "ah",
    58: "ipv6-icmp", 89: "ospf", 103: "pim", 112: "vrrp", 115: "l2tp", 132: "sctp", 136: "udplite",
}  # fmt: skip


def protocol_name(number: int) -> str:
    """The name of a protocol, or its number where it has none here."""
    return _NAMES.get(number, str(number))
