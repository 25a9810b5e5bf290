"""Layouts of extensions' structs (linux/netfilter/xt_*.h): formats, offsets, bits, and whole sizes."""

from __future__ import annotations

from netinit.base.net import IPV4, IPV6, Family
from netinit.base.records import Record

Struct = tuple[str, int, bytes]  # an extension's name, its revision, its struct

# Entries of a table
NAME = slice(2, 31)
ERROR_TARGET = "ERROR"
ACCEPTING, DROPPING, RETURNING = -2, -1, -5  # verdicts: -NF_ACCEPT - 1, -NF_DROP - 1, XT_RETURN
INVERTED_IN, INVERTED_OUT, INVERTED_SOURCE, INVERTED_DESTINATION, INVERTED_PROTOCOL = 1, 2, 8, 16, 64  # IPT_INV_*


class EntryForm(Record):
    """The layout of a family's entry."""

    family: Family
    address: int  # bytes of an address
    packet: int  # size of struct ipt_ip, ip6t_ip6
    header: int  # size of struct ipt_entry, ip6t_entry
    counters: int
    flags: int  # offset of the flags; the inversion flags follow
    goto: int  # the flag of -g
    allowed: int  # flags that are understood


ENTRY_FORMS = {
    4: EntryForm(family=IPV4, address=4, packet=84, header=112, counters=96, flags=82, goto=2, allowed=2),
    6: EntryForm(family=IPV6, address=16, packet=136, header=168, counters=152, flags=131, goto=4, allowed=5),
}
PROTOCOL_GIVEN = {4: 0, 6: 1}  # IP6T_F_PROTO, set where a protocol is asked

EXTENSION_HEADER = 32  # struct xt_entry_match, xt_entry_target: size, name, revision

# Matches
TCP, UDP = "=4H4B", "=4HB"  # ports from and to, of source and destination; option, mask, flags; what is inverted
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

SIZES = {
    ("comment", 0): 256, ("tcp", 0): 16, ("udp", 0): 16, ("multiport", 1): 48, ("iprange", 1): 72, ("owner", 1): 24, ("mark", 1): 16,
    ("connmark", 1): 16, ("conntrack", 3): 168, ("socket", 3): 8, ("addrtype", 1): 8, ("limit", 0): 40,
    ("REDIRECT", 0): 40, ("DNAT", 2): 48, ("MARK", 2): 8, ("CONNMARK", 1): 16, ("CONNMARK", 2): 16, ("CT", 2): 72,
    ("TPROXY", 1): 32, ("REJECT", 0): 8, ("LOG", 0): 32, ("NFLOG", 0): 80,
}  # by name and revision  # fmt: skip


def size_of(name: str, revision: int, family: Family) -> int:
    """Return the size of an extension's struct. Raises KeyError for an unknown one."""
    return 24 if name == "REDIRECT" and family is IPV4 else SIZES[name, revision]  # the older struct of NAT


def pad(name: str, revision: int, info: bytes, family: Family = IPV4) -> Struct:
    """Return an extension's struct at its whole size. Raises KeyError for an unknown one."""
    return name, revision, info.ljust(size_of(name, revision, family), b"\0")
