"""Ask the kernel which extensions of iptables, and which legacy tables, it has. Asking may load a module, as iptables does.

For legacy tables that is getsockopt(2) (IPT_SO_GET_REVISION_MATCH and the like, linux/netfilter_ipv4/ip_tables.h and
netfilter_ipv6 alike), for iptables-nft a message of nfnetlink (NFNL_MSG_COMPAT_GET, linux/netfilter/nf_tables_compat.h).
"""

from __future__ import annotations

from _socket import SOCK_RAW, socket
from _struct import pack

from netinit.base.net import IPV6, Family
from netinit.kernel import Closing, libc, netlink
from netinit.kernel.netlink import attribute
from netinit.kernel.snapshot.legacy_tables import GET_INFO, INFO_SIZE, LEVELS, RAW_PROTOCOL

MATCH, TARGET = 0, 1
REVISIONS = {4: (66, 67), 6: (68, 69)}  # IPT_SO_GET_REVISION_MATCH and _TARGET, IP6T_SO_GET_REVISION_*
REVISION_SIZE = 30  # struct xt_get_revision
NFNL_MSG_COMPAT_GET = 11 << 8  # of NFNL_SUBSYS_NFT_COMPAT
NFTA_COMPAT_NAME, NFTA_COMPAT_REV, NFTA_COMPAT_TYPE = 1, 2, 3
ENOENT, EINVAL, ENOPROTOOPT, EPROTONOSUPPORT = 2, 22, 92, 93
ABSENT = (ENOENT, EPROTONOSUPPORT)  # no such extension; not this revision


def has_legacy_table(family: Family, table: str) -> bool:
    """Whether legacy iptables has this table; creates it. Raises OSError if the kernel does not say."""
    return _ask_legacy(family, GET_INFO, pack("=32s", table.encode()), INFO_SIZE, (ENOENT, EINVAL, ENOPROTOOPT))


def load_by_match(family: Family) -> None:
    """Let nf_tables' compatibility layer load the module of legacy tables (ip_tables, ip6_tables), whose socket options load none.

    It loads modules by the names of matches, and that of ICMP is in the same module up to Linux 6.3 (its aliases are ipt_icmp,
    ip6t_icmp6). Later it is in xt_tcpudp, and no name of an extension or table leads to the module.
    """
    try:
        has_nft_extension(family, MATCH, "icmp6" if family is IPV6 else "icmp", 0)
    except OSError:  # a kernel without nf_tables
        return


def load_by_modprobe(family: Family) -> None:
    """Load the module of legacy tables as iptables-legacy does, with modprobe(8), where there is one; it needs SYS_MODULE."""
    from netinit.base.errors import BackendUnavailableError
    from netinit.kernel import run

    if modprobe := run.find("modprobe"):
        try:
            run.finish(run.start(modprobe, ("--quiet", "ip6_tables" if family is IPV6 else "ip_tables")))
        except BackendUnavailableError:  # in a pod's user namespace, where it could load nothing
            return


LOADERS = (load_by_match, load_by_modprobe)


def has_legacy_extension(family: Family, kind: int, name: str, revision: int) -> bool:
    """Whether legacy iptables has this revision of a match or target. Raises OSError if the kernel does not say.

    One that knows no revisions (ENOPROTOOPT) has the first, as libxtables takes it.
    """
    request = pack("=29sB", name.encode(), revision)
    return _ask_legacy(family, REVISIONS[family.version][kind], request, REVISION_SIZE, (*ABSENT, ENOPROTOOPT) if revision else ABSENT)


def _ask_legacy(family: Family, option: int, request: bytes, size: int, absent: tuple[int, ...]) -> bool:
    with Closing(socket(family.number, SOCK_RAW, RAW_PROTOCOL).detach()) as descriptor:
        buffer = libc.buffer(size, request)
        try:
            libc.call("getsockopt", descriptor, LEVELS[family.version], option, buffer, libc.pointer_to_number(size))
        except OSError as error:
            if error.errno in absent:
                return False
            if error.errno != ENOPROTOOPT:
                raise
    return True


def has_nft_extension(family: Family, kind: int, name: str, revision: int) -> bool:
    """Whether iptables-nft can use this revision of a match or target. Raises OSError if the kernel does not say."""
    body = pack(netlink.NETFILTER, family.number, 0, 0) + attribute(NFTA_COMPAT_NAME, name.encode() + b"\0")
    body += attribute(NFTA_COMPAT_REV, pack(">I", revision)) + attribute(NFTA_COMPAT_TYPE, pack(">I", kind))
    with netlink.Netlink(netlink.NETLINK_NETFILTER) as link:  # without nfnetlink it is not known
        try:
            link.request(NFNL_MSG_COMPAT_GET, 0, body)
        except OSError as error:
            if error.errno in ABSENT:
                return False
            raise
    return True
