"""Structs of extensions (linux/netfilter/xt_*.h): formats, offsets, bits, whole sizes; and netfilter's names of numbers."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import FULL_MASK, IPV4, Family

Struct = tuple[str, int, bytes]  # an extension's name, its revision, its struct

ACCEPTING, DROPPING, RETURNING = -2, -1, -5  # verdicts: -NF_ACCEPT - 1, -NF_DROP - 1, XT_RETURN

# Matches
TCP, UDP = "=4H4B", "=4HB"  # ports from and to, of source and destination; option, mask, flags; what is inverted
TCP_FLAGS = 5  # the field of the flags' mask
SOURCE_INVERTED, DESTINATION_INVERTED, FLAGS_INVERTED = 1, 2, 4
MULTIPORT, MULTIPORT_NUMBERS, MULTIPORT_RANGES, MULTIPORT_INVERTED = "=2B", 2, 32, 47  # the first two; offsets of the rest
MULTIPORT_EITHER = 2  # XT_MULTIPORT_EITHER
MULTIPORT_SIDES = (True, False)  # XT_MULTIPORT_SOURCE, XT_MULTIPORT_DESTINATION
OWNER = "=4I2B"
OWNER_BITS = {"uid": 1, "gid": 2}
OWNER_SOCKET = 4  # XT_OWNER_SOCKET
ADDRESS_RANGE, RANGE_INVERTED = "=16s16s16s16sB", 4  # first and last source, first and last destination; IPRANGE_*_INV
MARK = "=2IB"  # mark and connmark: value, mask, whether it is inverted
CONNTRACK, CONNTRACK_AT = "=3H", 146  # what is asked, what of it is inverted, bits of states
STATE, DIRECTION, STATE_ALIAS = 1, 1 << 12, 1 << 13  # XT_CONNTRACK_*: inverted, a direction is REPLY; the alias is `-m state`
STATE_BITS = (("INVALID", 1), ("NEW", 8), ("RELATED", 4), ("ESTABLISHED", 2))  # XT_CONNTRACK_STATE_BIT, as iptables lists them
ORIGINAL_ADDRESSES, ORIGINAL_PORTS = {True: 4, False: 8}, {True: 256, False: 512}  # XT_CONNTRACK_ORIG*, by whether of the source
ORIGINAL_ADDRESSES_AT, ORIGINAL_PORTS_AT = {True: 0, False: 32}, {True: (138, 154), False: (140, 156)}  # then a mask; the ends
CONNTRACK_BITS = (*STATE_BITS, ("UNTRACKED", 256), ("SNAT", 64), ("DNAT", 128))
ADDRESS_TYPE = "=2HI"  # types of the source, of the destination, what is inverted
SIDES = (("source", 1), ("destination", 2))
LIMIT = "=2I"
LIMIT_SCALE = 10_000  # XT_LIMIT_SCALE: a credit is a ten thousandth of a second

# Targets
MULTI_RANGE, MULTI_RANGE_PORTS = "=2I4s4s", 16  # nf_nat_ipv4_multi_range_compat: how many, flags, addresses; then ports
RANGE, RANGE_PORTS = "=I16s16s", 36  # nf_nat_range, nf_nat_range2
PORTS = ">2H"
MAP_ADDRESSES, MAP_PORTS = 1, 2  # NF_NAT_RANGE_MAP_IPS, NF_NAT_RANGE_PROTO_SPECIFIED
SET_MARK = "=2I"
CONNMARK, CONNMARK_SHIFTED = "=3IB", "=3I3B"  # value, mask of the connection's mark, of the packet's; shift; mode
CONNMARK_SET, CONNMARK_SAVE, CONNMARK_RESTORE = 0, 1, 2
CT = "=2H2I"  # flags, zone, events
NOTRACK = 1  # XT_CT_NOTRACK
ZONE_SIDES = {"orig": 4, "reply": 8}  # XT_CT_ZONE_DIR_ORIG, XT_CT_ZONE_DIR_REPL
TPROXY = "=2I"  # mask and value of the mark; an address and the port follow
REJECT = "=I"
REJECTIONS = {
    4: (
        "icmp-net-unreachable", "icmp-host-unreachable", "icmp-proto-unreachable", "", "", "icmp-net-prohibited",
        "icmp-host-prohibited", "tcp-reset", "icmp-admin-prohibited",
    ),
    6: (
        "icmp6-no-route", "icmp6-adm-prohibited", "", "icmp6-addr-unreachable", "", "", "tcp-reset", "icmp6-policy-fail",
        "icmp6-reject-route",
    ),
}  # enum ipt_reject_with, ip6t_reject_with; empty for "port unreachable", which is usual, and for an echo reply  # fmt: skip
LOG = "=2B30s"  # level, flags, prefix
NFLOG = "=I4H64s"  # length, group, threshold, flags, nothing, prefix

# Names and numbers: ICMP codes, levels, address types, protocols (/etc/protocols)
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
_NUMBERS = {name: number for number, name in _NAMES.items()}

SIZES = {
    ("comment", 0): 256, ("tcp", 0): 16, ("udp", 0): 16, ("multiport", 1): 48, ("iprange", 1): 72, ("owner", 1): 24, ("mark", 1): 16,
    ("connmark", 1): 16, ("conntrack", 3): 168, ("socket", 3): 8, ("addrtype", 1): 8, ("limit", 0): 40, ("set", 4): 48,
    ("REDIRECT", 0): 40, ("DNAT", 2): 48, ("SNAT", 0): 24, ("SNAT", 1): 40, ("MARK", 2): 8, ("CONNMARK", 1): 16,
    ("CONNMARK", 2): 16, ("CT", 2): 72, ("TPROXY", 1): 32, ("REJECT", 0): 8, ("LOG", 0): 32, ("NFLOG", 0): 80,
    ("NETMAP", 0): 40,
}  # by name and revision  # fmt: skip


def pad(name: str, revision: int, info: bytes, family: Family = IPV4) -> Struct:
    """Return an extension's struct at its whole size. Raises KeyError for an unknown one."""
    size = 24 if name in ("REDIRECT", "NETMAP") and family is IPV4 else SIZES[name, revision]  # the older struct of NAT
    return name, revision, info.ljust(size, b"\0")


def pad_conntrack(asked: int, inverted: int, bits: int) -> Struct:
    """Return struct xt_conntrack_mtinfo3 that asks for a state or a direction."""
    return pad("conntrack", 3, bytes(CONNTRACK_AT) + pack(CONNTRACK, asked, inverted, bits))


def pad_connmark(mode: int, value: int = 0, mask: int = FULL_MASK, mark_mask: int = FULL_MASK) -> Struct:
    """Return struct xt_connmark_tginfo2 without a shift."""
    return pad("CONNMARK", 2, pack(CONNMARK_SHIFTED, value, mask, mark_mask, 0, 0, mode))


def pad_comment(text: str) -> Struct:
    """Return a comment as the match that iptables has for it."""
    return pad("comment", 0, text.encode("utf-8", "surrogateescape"))


def protocol_name(number: int) -> str:
    """Return a protocol's name, or its number as text."""
    return _NAMES.get(number, str(number))


def protocol_number(name: str) -> int:
    """Return the number of a name from `protocol_name`. Raises ValueError."""
    return _NUMBERS.get(name) or int(name)
