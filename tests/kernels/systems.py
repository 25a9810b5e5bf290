"""Systems of nodes whose kernels Debian does not have, and which of the modules that rules need their configurations leave out.

    python tests/kernels/systems.py FILE

prints what a kernel's configuration (/proc/config.gz unpacked, /boot/config-*, or its maker's sources) leaves out, for SYSTEMS below.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

# What builds a module: any one of these options. Kernels after 6.16 build the tables of iptables-legacy only with an option more, without which
# their configurations name none of them.
BUILT_BY = {
    **{f"{prefix}table_{table}": (f"{option}_NF_{end}",) for prefix, option in (("ip", "IP"), ("ip6", "IP6")) for table, end in (
        ("nat", "NAT"), ("filter", "FILTER"), ("mangle", "MANGLE"), ("raw", "RAW"),
    )},
    "nf_tables": ("NF_TABLES",), "nft_compat": ("NFT_COMPAT",), "nft_chain_nat": ("NFT_NAT",), "nft_redir": ("NFT_REDIR",), "nft_meta": ("NF_TABLES",),
    "nft_ct": ("NFT_CT",), "nft_tproxy": ("NFT_TPROXY",), "nft_socket": ("NFT_SOCKET",), "nft_reject_inet": ("NFT_REJECT_INET", "NFT_REJECT"),
    "nft_fib": ("NFT_FIB", "NFT_FIB_INET"), "nft_fib_inet": ("NFT_FIB_INET",), "nft_fib_ipv4": ("NFT_FIB_IPV4",), "nft_fib_ipv6": ("NFT_FIB_IPV6",),
    "xt_REDIRECT": ("NETFILTER_XT_TARGET_REDIRECT", "IP_NF_TARGET_REDIRECT"), "xt_owner": ("NETFILTER_XT_MATCH_OWNER",),
    "xt_tcpudp": ("NETFILTER_XTABLES",), "xt_multiport": ("NETFILTER_XT_MATCH_MULTIPORT",), "xt_conntrack": ("NETFILTER_XT_MATCH_CONNTRACK",),
    "xt_mark": ("NETFILTER_XT_MARK", "NETFILTER_XT_TARGET_MARK", "NETFILTER_XT_MATCH_MARK"),
    "xt_connmark": ("NETFILTER_XT_CONNMARK", "NETFILTER_XT_TARGET_CONNMARK", "NETFILTER_XT_MATCH_CONNMARK"),
    "xt_TPROXY": ("NETFILTER_XT_TARGET_TPROXY",), "xt_socket": ("NETFILTER_XT_MATCH_SOCKET",), "ipt_REJECT": ("IP_NF_TARGET_REJECT",),
    "ip6t_REJECT": ("IP6_NF_TARGET_REJECT",), "xt_addrtype": ("NETFILTER_XT_MATCH_ADDRTYPE",), "xt_CT": ("NETFILTER_XT_TARGET_CT",),
    "xt_comment": ("NETFILTER_XT_MATCH_COMMENT",), "ip_set": ("IP_SET",), "ip_set_hash_net": ("IP_SET_HASH_NET",), "xt_set": ("NETFILTER_XT_SET",),
}  # fmt: skip
LEGACY_TABLES = tuple(name for name in BUILT_BY if re.fullmatch(r"ip6?table_\w+", name))


class System(NamedTuple):
    """A system: its kernel, what that leaves out of BUILT_BY (None: its configuration was not read), and what was tried, or why nothing."""

    name: str
    kernel: str
    lacks: tuple[str, ...] | None
    tried: str = ""


_NOT_DEBIANS = "`make kernels` boots packages of Debian, which has none of it"
SYSTEMS = (
    System("AKS (Azure Linux 3)", "6.6.134", ("nft_socket", "nft_fib_inet", "nft_fib_ipv6")),
    System("AKS (Ubuntu)", "Ubuntu's `linux-azure`", None, f"no: {_NOT_DEBIANS}"),
    System(
        "GKE Sandbox (gVisor)", "gVisor's own network stack", None,
        "Debian's runsc (20221219): it has no nf_tables and no policy rules; `doctor` says that pods will not work, `apply` fails with code 1 and changes nothing;"
        " GKE's is newer",
    ),
    System("OpenShift 4.13 to 4.18 (RHCOS)", "5.14 of RHEL 9 (5.14.0-362 was read); SELinux", (), f"no: {_NOT_DEBIANS}; SELinux was not tried"),
    System("Flatcar", "6.12.103", ("nft_tproxy", "nft_socket")),
    System("Bottlerocket", "Amazon's 6.1 and 6.12; SELinux, no shell", None, "no: its sources have only what they change of Amazon's configuration, and nothing of netfilter"),
    System("Talos", "6.18.45; no shell, a root that cannot be written", LEGACY_TABLES),
)  # fmt: skip


def name_rig(system: System) -> str:
    """The kernel of `make kernels` that lacks what this system's lacks."""
    return f"6.12 with the modules of {system.name.partition(' (')[2].rstrip(')') or system.name}"


def find_lacking(configuration: str) -> list[str]:
    """The modules that a kernel with this configuration has neither as modules nor built in. Options that it does not name are not built."""
    built = set(re.findall(r"^CONFIG_(\w+)=[ym]$", configuration, re.MULTILINE))
    return [module for module, options in BUILT_BY.items() if not built.intersection(options)]


if __name__ == "__main__":
    print(", ".join(find_lacking(Path(sys.argv[1]).read_text("utf-8"))) or "none")
