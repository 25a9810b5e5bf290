"""What the machine has: addresses, name servers, programs, kernel interfaces, privileges. Looks, never changes.

Files of /proc and netlink are asked before any program is started: they are a hundred times quicker and leave no trace
(opening a legacy table creates it).
"""

from __future__ import annotations

import posix

from netinit.base.net import FAMILIES, IPV6, Family, parse_address
from netinit.kernel import netlink, read_text, run

CAP_SETGID, CAP_SETUID, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN = 6, 7, 12, 13, 21
NFT, LEGACY = "nft", "legacy"
MODULES = "/sys/module"
RESOLV_CONF = "/etc/resolv.conf"
WITHOUT_NF_TABLES = (22, 93)  # EINVAL: no such subsystem of nfnetlink; EPROTONOSUPPORT: no nfnetlink
_TABLE_NAMES = {family: f"/proc/net/{'ip' if family is not IPV6 else 'ip6'}_tables_names" for family in FAMILIES}
_LONGEST_NAMES = 4096  # bytes: five tables of at most 31 characters each
_opened: dict[str, int] = {}  # path -> descriptor
MAX_LINKS = 16  # symbolic links followed from a program's name to the program


def kernel_families() -> tuple[Family, ...]:
    """The families that the kernel has, IPv4 first."""
    return tuple([family for family in FAMILIES if family is not IPV6 or posix.access("/proc/net/if_inet6", posix.F_OK)])


def list_addresses() -> tuple[str, ...]:
    """The addresses here as text, in the kernel's order; none where it does not say."""
    try:
        return tuple([found.address for found in netlink.list_addresses()])
    except OSError:
        return ()


def read_name_servers() -> list[str]:
    """The name servers that this process asks."""
    return name_servers(read_text(RESOLV_CONF))


def name_servers(text: str) -> list[str]:
    """The name servers of a resolv.conf (resolv.conf(5)), zone indexes dropped, what is no address ignored."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            try:
                address = parse_address(words[1].partition("%")[0])
            except ValueError:
                continue
            if address not in found:
                found.append(address)
    return found


def legacy_tables(family: Family) -> tuple[str, ...] | None:
    """The legacy tables that exist in this namespace. Reading their names creates none.

    None when the kernel does not say: the names belong to the root of the user namespace, and to nobody in it when the
    network namespace was made before its users were mapped.
    """
    path = _TABLE_NAMES[family]
    if path in _opened:
        return tuple(posix.pread(_opened[path], _LONGEST_NAMES, 0).decode().split())
    names = tuple(read_text(path).split())
    if not names and posix.access(path, posix.F_OK) and not posix.access(path, posix.R_OK):
        return None
    return names


def open_table_names() -> None:
    """Keep the names of legacy tables readable when this process gives up the rights that opening their files needs."""
    for path in _TABLE_NAMES.values():
        if posix.access(path, posix.R_OK):
            _opened[path] = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)


def nft_chains() -> tuple[netlink.NftChain, ...] | None:
    """The chains of nf_tables in this namespace, none without nf_tables; None when the kernel does not say."""
    try:
        return netlink.list_nft_chains()
    except OSError as error:
        return () if error.errno in WITHOUT_NF_TABLES else None


def has_address_sets() -> bool:
    """Whether there may be address sets (ipset(8)): asking a kernel that has the code for them not loaded would load it."""
    return not posix.access(MODULES, posix.F_OK) or posix.access(f"{MODULES}/ip_set", posix.F_OK)


def has_capability(number: int) -> bool:
    """Whether this process has a capability in effect (capabilities(7))."""
    for line in read_text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def is_root() -> bool:
    """Whether this process runs as root of its user namespace."""
    return posix.geteuid() == 0


def find_program(variant: str, family: Family, action: str) -> str:
    """The program of `nft` or `legacy` iptables for an action, `save` or `restore`; empty where it is not installed.

    A name without variant serves when it leads there.
    """
    path = run.find(f"{family.program}-{variant}-{action}")
    if path:
        return path
    path = run.find(f"{family.program}-{action}")
    return path if path and _leads_to(path, variant) else ""


def _leads_to(path: str, variant: str) -> bool:
    """Whether a program without variant in its name is of this one: the multi-call binary says it."""
    for _ in range(MAX_LINKS):
        try:
            link = posix.readlink(path)
        except OSError:
            break
        path = link if link.startswith("/") else f"{path.rpartition('/')[0]}/{link}"
    name = path.rpartition("/")[2]
    return variant in name or (variant == LEGACY and name in ("xtables-multi", "iptables-multi", "ip6tables-multi"))
