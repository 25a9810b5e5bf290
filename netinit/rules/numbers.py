"""Numbers and layouts of nf_tables expressions (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

from netinit.base.net import IPV4, IPV6

META_PROTOCOL, META_MARK, META_IIF, META_OIF, META_IIFNAME, META_OIFNAME = 1, 3, 4, 5, 6, 7
META_SKUID, META_SKGID, META_NFTRACE, META_NFPROTO, META_L4PROTO = 10, 11, 12, 15, 16
CT_STATE, CT_DIRECTION, CT_STATUS, CT_MARK, CT_ZONE = 0, 1, 2, 3, 17
NETWORK_HEADER, TRANSPORT_HEADER = 1, 2
FIB_ADDRTYPE, FIB_SADDR, FIB_DADDR = 3, 1, 2
SOCKET_TRANSPARENT, SOCKET_WILDCARD = 0, 2
OPERATORS = ("==", "!=", "<", "<=", ">", ">=")  # NFT_CMP_EQ and so on
NF_DROP, NF_ACCEPT, NFT_JUMP, NFT_GOTO = 0, 1, -3, -4
REJECT_ICMP, REJECT_RESET, REJECT_ICMPX = 0, 1, 2
ICMPX_PORT_UNREACHABLE = 1
ICMP_CODE, ICMPX_CODE = "icmp code ", "icmpx code "  # of rejections that iptables has no name for
ETHERTYPES = {0x0800: IPV4, 0x86DD: IPV6}
STATES = (("INVALID", 1), ("NEW", 8), ("RELATED", 4), ("ESTABLISHED", 2), ("UNTRACKED", 64))
STATUSES = (("SNAT", 0x10), ("DNAT", 0x20))  # IPS_SRC_NAT, IPS_DST_NAT
ADDRESSES = {IPV4: ((12, 4), (16, 4)), IPV6: ((8, 16), (24, 16))}  # source, destination in the network header: offset, length
PROTOCOL = {IPV4: (9, 1), IPV6: (6, 1)}
PORTS = ((0, 2, True), (2, 2, False))  # of the transport header: offset, length, whether it is the source's
TCP_FLAGS_AT = 13
INTERFACE_NAME = 16
# What loads a value: its attribute of the register, and all of them as the kernel lists them: the others are the key. Keys are
# NFT_META_*, a property of the packet; NFT_CT_*, of the connection; NFT_SOCKET_*, of the packet's socket; the header, offset and
# length; of a routing lookup its result and flags.
LOADS = {"meta": (1, (2, 1)), "ct": (1, (1, 2)), "payload": (1, (1, 2, 3, 4)), "fib": (1, (1, 2, 3)), "socket": (2, (1, 2))}
# Bytes that a load puts into a register by what is loaded; 4 for what is not here
META_LENGTHS = {META_PROTOCOL: 2, META_IIFNAME: 16, META_OIFNAME: 16, META_NFPROTO: 1, META_L4PROTO: 1, 19: 1}
CT_SIDE = 3  # NFTA_CT_DIRECTION
CT_LENGTHS = {CT_STATE: 4, CT_DIRECTION: 1, CT_STATUS: 4, CT_MARK: 4}
# Types of keys as nft numbers them (its datatype.h): the kernel keeps them beside a set and does not read them
TYPE_IPV4, TYPE_IPV6, TYPE_SERVICE, TYPE_FIB, TYPE_INTERFACE = 7, 8, 13, 21, 41
