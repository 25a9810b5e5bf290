"""Numbers that the package has of C headers: sizes and places in structs, calls and constants, on each architecture that a compiler here builds for."""

from __future__ import annotations

import shutil
import struct
import subprocess

import pytest

from netinit.kernel import (
    address_sets,
    capabilities,
    children,
    conntrack,
    detect,
    extensions,
    file_changes,
    files,
    links,
    listeners,
    namespaces,
    netlink,
    nf_tables,
    open_pod,
    run,
    sockets,
    table_replacement,
    tcp_sockets,
    trace_messages,
)
from netinit.kernel.snapshot import bpf, legacy_tables, reader
from netinit.lab import wiring
from netinit.pods.probe import neighbour
from netinit.rules import structs
from netinit.rules.xtables.building import ENTRY_FORMS, EXTENSION_HEADER

COMPILERS = {machine: f"{machine.replace('ppc', 'powerpc')}-linux-gnu-gcc" for machine in bpf.SYSCALLS}
HEADERS = """
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <net/if.h>
#include <netinet/in.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/inet_diag.h>
#include <linux/neighbour.h>
#include <linux/net_namespace.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/xt_CONNMARK.h>
#include <linux/netfilter/xt_CT.h>
#include <linux/netfilter/xt_MARK.h>
#include <linux/netfilter/xt_NFLOG.h>
#include <linux/netfilter/xt_TPROXY.h>
#include <linux/netfilter/xt_addrtype.h>
#include <linux/netfilter/xt_comment.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter/xt_iprange.h>
#include <linux/netfilter/xt_limit.h>
#include <linux/netfilter/xt_multiport.h>
#include <linux/netfilter/xt_owner.h>
#include <linux/netfilter/xt_set.h>
#include <linux/netfilter/xt_socket.h>
#include <linux/netfilter/xt_tcpudp.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv4/ipt_LOG.h>
#include <linux/netfilter_ipv4/ipt_REJECT.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <linux/nsfs.h>
#include <linux/openat2.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/veth.h>
#include <linux/xfrm.h>
"""
EXTENSIONS = {  # the struct of each extension
    ("comment", 0): "xt_comment_info", ("tcp", 0): "xt_tcp", ("udp", 0): "xt_udp", ("multiport", 1): "xt_multiport_v1",
    ("iprange", 1): "xt_iprange_mtinfo", ("owner", 1): "xt_owner_match_info", ("mark", 1): "xt_mark_mtinfo1", ("connmark", 1): "xt_connmark_mtinfo1",
    ("conntrack", 3): "xt_conntrack_mtinfo3", ("socket", 3): "xt_socket_mtinfo3", ("addrtype", 1): "xt_addrtype_info_v1", ("limit", 0): "xt_rateinfo",
    ("set", 4): "xt_set_info_match_v4", ("REDIRECT", 0): "nf_nat_range", ("DNAT", 2): "nf_nat_range2", ("SNAT", 0): "nf_nat_ipv4_multi_range_compat",
    ("SNAT", 1): "nf_nat_range", ("NETMAP", 0): "nf_nat_range",
    ("MARK", 2): "xt_mark_tginfo2", ("CONNMARK", 1): "xt_connmark_tginfo1", ("CONNMARK", 2): "xt_connmark_tginfo2", ("CT", 2): "xt_ct_target_info_v1",
    ("TPROXY", 1): "xt_tproxy_target_info_v1", ("REJECT", 0): "ipt_reject_info", ("LOG", 0): "ipt_log_info", ("NFLOG", 0): "xt_nflog_info",
}  # fmt: skip
PLACES = {  # C expressions, and what the package says that they are
    "sizeof(struct ipt_ip)": ENTRY_FORMS[4].packet,
    "sizeof(struct ipt_entry)": ENTRY_FORMS[4].header,
    "offsetof(struct ipt_entry, counters)": ENTRY_FORMS[4].counters,
    "offsetof(struct ipt_entry, target_offset)": legacy_tables.TARGET_AT[4],
    "sizeof(struct ip6t_ip6)": ENTRY_FORMS[6].packet,
    "sizeof(struct ip6t_entry)": ENTRY_FORMS[6].header,
    "offsetof(struct ip6t_entry, counters)": ENTRY_FORMS[6].counters,
    "offsetof(struct ip6t_entry, target_offset)": legacy_tables.TARGET_AT[6],
    "sizeof(struct xt_entry_match)": EXTENSION_HEADER,
    "sizeof(struct xt_entry_target)": EXTENSION_HEADER,
    "offsetof(struct xt_standard_target, verdict)": legacy_tables.VERDICT_AT,
    "sizeof(struct ipt_getinfo)": legacy_tables.INFO_SIZE,
    "sizeof(struct ip6t_getinfo)": legacy_tables.INFO_SIZE,
    "offsetof(struct ipt_getinfo, valid_hooks)": legacy_tables.HOOKS_AT,
    "offsetof(struct ipt_getinfo, underflow)": legacy_tables.POLICIES_AT,
    "offsetof(struct ipt_get_entries, entrytable)": legacy_tables.ENTRIES_HEADER,
    "offsetof(struct ip6t_get_entries, entrytable)": legacy_tables.ENTRIES_HEADER,
    "sizeof(struct ipt_replace)": 96,  # as table_replacement packs it
    "sizeof(struct ip6t_replace)": 96,
    "offsetof(struct ipt_replace, counters)": 88,
    "sizeof(struct xt_counters)": table_replacement.COUNTERS,
    "sizeof(struct xt_counters_info)": 40,
    "sizeof(struct xt_get_revision)": extensions.REVISION_SIZE,
    "offsetof(struct xt_multiport_v1, ports)": structs.MULTIPORT_NUMBERS,
    "offsetof(struct xt_multiport_v1, pflags)": structs.MULTIPORT_RANGES,
    "offsetof(struct xt_multiport_v1, invert)": structs.MULTIPORT_INVERTED,
    "offsetof(struct xt_conntrack_mtinfo3, match_flags)": structs.CONNTRACK_AT,
    "offsetof(struct nf_nat_range, min_proto)": structs.RANGE_PORTS,
    "sizeof(struct inet_diag_msg)": listeners._SIZE,
    "offsetof(struct inet_diag_msg, id.idiag_sport)": listeners._PORT,
    "offsetof(struct inet_diag_msg, id.idiag_src)": listeners._ADDRESS,
    "offsetof(struct inet_diag_msg, id.idiag_if)": listeners._INTERFACE,
    "offsetof(struct inet_diag_msg, idiag_rqueue)": listeners._QUEUES,
    "sizeof(struct inet_diag_sockid)": tcp_sockets._ID_SIZE,
    "sizeof(struct inet_diag_req_v2)": 56,
    "sizeof(struct nlmsghdr)": netlink.NLMSG_HEADER,
    "sizeof(struct ifaddrmsg)": netlink.ADDRESS_SIZE,
    "sizeof(struct rtmsg)": netlink.ROUTE_SIZE,
    "sizeof(struct fib_rule_hdr)": netlink.ROUTE_SIZE,
    "sizeof(struct nfgenmsg)": netlink.NETFILTER_SIZE,
    "sizeof(struct ifinfomsg)": netlink.LINK_SIZE,
    "sizeof(struct ndmsg)": struct.calcsize(links.NEIGHBOUR),
    "sizeof(struct rlimit)": children.LIMIT_SIZE,
    "sizeof(struct tcmsg)": netlink.CONTROL_SIZE,
    "offsetof(struct ifaddrmsg, ifa_flags)": wiring._ADDRESS_FLAGS,
    "offsetof(struct rtmsg, rtm_type)": wiring._ROUTE_TYPE,
    "sizeof(struct open_how)": 24,
    "offsetof(struct bpf_prog_info, name)": bpf.NAME_AT,
    "BPF_OBJ_NAME_LEN": bpf.NAME_SIZE,
}
NUMBERS = {
    "SYS_openat2": files._OPENAT2,
    "RESOLVE_IN_ROOT": files.IN_ROOT, "RESOLVE_BENEATH": files.BENEATH, "RESOLVE_NO_SYMLINKS": files.NO_LINKS,
    "S_IFMT": 0o170000, "S_IFREG": 0o100000, "S_IFDIR": 0o040000,
    "CLONE_NEWNET": namespaces.NETWORK, "CLONE_NEWUSER": namespaces.USER,
    "F_SETSIG": run._F_SETSIG, "SIGKILL": run._SIGKILL,
    "IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVE | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF": file_changes._MASK,
    "_LINUX_CAPABILITY_VERSION_3": capabilities._VERSION, "PR_CAP_AMBIENT": capabilities._PR_CAP_AMBIENT,
    "PR_CAP_AMBIENT_CLEAR_ALL": capabilities._PR_CAP_AMBIENT_CLEAR_ALL, "PR_CAPBSET_READ": capabilities._PR_CAPBSET_READ,
    "PR_CAPBSET_DROP": capabilities._PR_CAPBSET_DROP, "PR_SET_NO_NEW_PRIVS": capabilities._PR_SET_NO_NEW_PRIVS,
    "PR_SET_DUMPABLE": capabilities._PR_SET_DUMPABLE,
    "CAP_SETPCAP": capabilities.CAP_SETPCAP, "CAP_SETGID": detect.CAP_SETGID, "CAP_SETUID": detect.CAP_SETUID,
    "CAP_NET_ADMIN": detect.CAP_NET_ADMIN, "CAP_NET_RAW": detect.CAP_NET_RAW, "CAP_SYS_ADMIN": detect.CAP_SYS_ADMIN,
    "AF_NETLINK": netlink.AF_NETLINK, "AF_INET": tcp_sockets.AF_INET, "AF_INET6": tcp_sockets.AF_INET6, "MSG_TRUNC": netlink.MSG_TRUNC,
    "MSG_DONTWAIT": nf_tables.MSG_DONTWAIT, "SO_SNDBUF": nf_tables.SO_SNDBUF, "SO_SNDBUFFORCE": nf_tables.SO_SNDBUFFORCE,
    "SOL_NETLINK": nf_tables.SOL_NETLINK, "NETLINK_CAP_ACK": nf_tables.NETLINK_CAP_ACK, "NETLINK_EXT_ACK": nf_tables.NETLINK_EXT_ACK,
    "SOL_PACKET": neighbour._SOL_PACKET, "PACKET_QDISC_BYPASS": neighbour._PACKET_QDISC_BYPASS,
    "SO_ORIGINAL_DST": sockets.SO_ORIGINAL_DST, "IP_TRANSPARENT": sockets.IP_TRANSPARENT, "IPV6_TRANSPARENT": sockets.IPV6_TRANSPARENT,
    "IPT_SO_GET_INFO": legacy_tables.GET_INFO, "IP6T_SO_GET_INFO": legacy_tables.GET_INFO, "IPT_SO_GET_ENTRIES": legacy_tables.GET_ENTRIES,
    "IP6T_SO_GET_ENTRIES": legacy_tables.GET_ENTRIES, "IPT_SO_SET_REPLACE": table_replacement.SET_REPLACE,
    "IP6T_SO_SET_REPLACE": table_replacement.SET_REPLACE, "IPT_SO_SET_ADD_COUNTERS": table_replacement.SET_ADD_COUNTERS,
    "IPT_SO_GET_REVISION_MATCH": extensions.REVISIONS[4][0], "IPT_SO_GET_REVISION_TARGET": extensions.REVISIONS[4][1],
    "IP6T_SO_GET_REVISION_MATCH": extensions.REVISIONS[6][0], "IP6T_SO_GET_REVISION_TARGET": extensions.REVISIONS[6][1],
    "RTM_GETLINK": netlink.RTM_GETLINK, "RTM_NEWADDR": netlink.RTM_NEWADDR, "RTM_NEWROUTE": netlink.RTM_NEWROUTE, "RTM_NEWRULE": netlink.RTM_NEWRULE,
    "RTM_GETTCLASS": reader.RTM_GETTCLASS, "RTM_GETTFILTER": reader.RTM_GETTFILTER, "XFRM_MSG_GETPOLICY": reader.XFRM_MSG_GETPOLICY,
    "NFNL_SUBSYS_NFTABLES": nf_tables.SUBSYSTEM, "NFNL_SUBSYS_IPSET << 8": address_sets.SUBSYSTEM, "NFNL_SUBSYS_CTNETLINK << 8": conntrack.SUBSYSTEM,
    "NFNL_SUBSYS_NFT_COMPAT << 8": extensions.NFNL_MSG_COMPAT_GET, "NFNL_SUBSYS_ULOG << 8": trace_messages.NFULNL_MSG_PACKET,
    "RLIMIT_AS": children.RLIMIT_AS, "RLIMIT_FSIZE": children.RLIMIT_FSIZE, "RTM_NEWNEIGH": links.RTM_NEWNEIGH, "NDA_DST": links.NDA_DST,
    "NDA_LLADDR": links.NDA_LLADDR, "NUD_PERMANENT": links.NUD_PERMANENT, "IFF_UP": links.IFF_UP, "IFLA_ADDRESS": links.IFLA_ADDRESS,
    "IFLA_IFNAME": links.IFLA_IFNAME, "IFLA_LINKINFO": links.IFLA_LINKINFO, "IFLA_NET_NS_FD": links.IFLA_NET_NS_FD,
    "IFLA_INFO_KIND": links.IFLA_INFO_KIND, "IFLA_INFO_DATA": links.IFLA_INFO_DATA, "VETH_INFO_PEER": links.VETH_INFO_PEER,
    "IFA_F_NODAD": links.IFA_F_NODAD,
    "SIOCETHTOOL": wiring._SIOCETHTOOL, "SO_NETNS_COOKIE": reader.SO_NETNS_COOKIE,
    "BPF_PROG_GET_FD_BY_ID": bpf.PROG_GET_FD_BY_ID, "BPF_OBJ_GET_INFO_BY_FD": bpf.OBJ_GET_INFO_BY_FD, "BPF_PROG_QUERY": bpf.PROG_QUERY,
    "EPERM": bpf.FORBIDDEN[0], "EACCES": bpf.FORBIDDEN[1], "ENOENT": extensions.ENOENT, "ESRCH": bpf.GONE[1], "EINTR": netlink.EINTR,
    "EAGAIN": legacy_tables.EAGAIN, "ENXIO": bpf.OTHER_DEVICE, "ENODEV": bpf.NO_DEVICE, "EINVAL": extensions.EINVAL, "EFBIG": netlink.EFBIG, "ENOSYS": bpf.UNKNOWN_CALL,
    "EBADMSG": tcp_sockets.EBADMSG, "ENOPROTOOPT": extensions.ENOPROTOOPT, "EPROTONOSUPPORT": extensions.EPROTONOSUPPORT,
    "EOPNOTSUPP": nf_tables.EOPNOTSUPP, "ENOBUFS": trace_messages.ENOBUFS, "EMSGSIZE": 90,
}  # fmt: skip


def expected_on(machine):
    """What each C expression is on a machine, as uname(2) calls it."""
    sizes = {f"XT_ALIGN(sizeof(struct {name}))": structs.SIZES[extension] for extension, name in EXTENSIONS.items()}
    requests = {"NS_GET_USERNS": open_pod.NS_GET_USERNS, "NS_GET_NSTYPE": open_pod.NS_GET_NSTYPE}
    of_machine = {"SYS_bpf": bpf.SYSCALLS[machine], **{name: open_pod.request_of(number, machine) for name, number in requests.items()}}
    return {**PLACES, **NUMBERS, **sizes, **of_machine}


@pytest.mark.parametrize("machine", COMPILERS)
def test_the_numbers_of_headers_are_those_of_the_architecture(machine, tmp_path):
    compiler = shutil.which(COMPILERS[machine])
    if compiler is None:
        pytest.skip(f"{COMPILERS[machine]} is not installed")
    asserted = "".join(f'_Static_assert({one} == {value}, "{one} is not {value}");\n' for one, value in expected_on(machine).items())
    source = tmp_path / "numbers.c"
    source.write_text(f"{HEADERS}{asserted}")
    done = subprocess.run([compiler, "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", source], capture_output=True, text=True, check=False, timeout=60)
    if "No such file or directory" in done.stderr:
        pytest.skip(f"headers of Linux are missing: {done.stderr.splitlines()[0]}")
    assert done.stderr == ""


def test_every_extension_with_a_size_has_its_struct_here():
    assert set(EXTENSIONS) == set(structs.SIZES)
