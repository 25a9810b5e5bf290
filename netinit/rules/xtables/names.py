"""Names and numbers of netfilter: protocols (/etc/protocols), ICMP codes, address types."""

from __future__ import annotations

UNREACHABLE = {4: 3, 6: 4}  # ICMP codes of "port unreachable", and the numbers of these rejections
WARNING = 4  # the default level of a report
ADDRESS_TYPES = (
    "UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW", "NAT",
    "XRESOLVE",
)  # RTN_*, by number  # fmt: skip
_NAMES = {
    1: "icmp", 2: "igmp", 4: "ipencap", 6: "tcp", 17: "udp", 33: "dccp", 41: "ipv6", 47: "gre", 50: "esp", 51: "ah",
    58: "ipv6-icmp", 89: "ospf", 103: "pim", 112: "vrrp", 115: "l2tp", 132: "sctp", 136: "udplite",
}  # fmt: skip


def protocol_name(number: int) -> str:
    """Return a protocol's name, or its number as text."""
    return _NAMES.get(number, str(number))


def protocol_number(name: str) -> int:
    """Return the number of a name from `protocol_name`. Raises ValueError."""
    for number, known in _NAMES.items():
        if known == name:
            return number
    return int(name)
