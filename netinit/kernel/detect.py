"""What the machine has: addresses, name servers, programs, kernel interfaces, privileges. Looks, never changes.

Files of /proc and netlink are asked before any program is started: they are a hundred times quicker and leave no trace
(opening a legacy table creates it).
"""

from __future__ import annotations

import posix
from _socket import AF_INET6

from netinit.base.net import FAMILIES, IPV6, Family, parse_address
from netinit.base.records import Record
from netinit.kernel import netlink, read_text, run
from netinit.options import AMBIENT, AUTO, DOCKER_RESOLVER, OFF, ON, Options

CAP_SETGID, CAP_SETUID, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN = 6, 7, 12, 13, 21
NFT, LEGACY = "nft", "legacy"
OWNED_SETS = "netinit-"
MODULES = "/sys/module"
RESOLV_CONF = "/etc/resolv.conf"
WITHOUT_NF_TABLES = (22, 93)  # EINVAL: no such subsystem of nfnetlink; EPROTONOSUPPORT: no nfnetlink
MAX_LINKS = 16  # symbolic links followed from a program's name to the program


class Settled(Record):
    """Options without open questions, the families the kernel has, and what the user should know."""

    options: Options
    kernel_families: tuple[Family, ...]
    warnings: tuple[str, ...]


def settle(options: Options) -> Settled:
    """Decides what `options` leave to the pod: IPv6 by its addresses, DNS servers by /etc/resolv.conf.

    With --pid the pod's file is not this process's to open: netinit.kernel.pods has read it before it came here.
    IPv6 is on when the first address that is neither loopback nor link-local is an IPv6 one (with --dual-stack: when
    any is), as in Istio. No address at all, or no IPv6 in the kernel, is no error here: IPv6 is off then.
    """
    warnings = []
    kernel = tuple([family for family in FAMILIES if family is not IPV6 or _kernel_has_ipv6()])
    ipv6 = options.ipv6
    if ipv6 == AUTO:
        addresses = [address for address in _addresses() if not _is_local(address)]
        sixes = [address for address in addresses if address.family == AF_INET6]
        counted = sixes if options.dual_stack else sixes if addresses[:1] == sixes[:1] else []
        ipv6 = ON if counted and IPV6 in kernel else OFF
        if sixes and not counted:
            warnings.append(
                f"IPv6 stays uncaptured, though {sixes[0].address} is here: the first address is IPv4; "
                "use --dual-stack or --ipv6 on",
            )
    elif ipv6 == ON and IPV6 not in kernel:
        ipv6 = OFF
        warnings.append("--ipv6 on: the kernel has IPv6 disabled, so there is nothing to capture")
    servers = options.dns_servers
    if wants_servers(options) and not options.pid:
        servers = tuple(name_servers(read_text(RESOLV_CONF)))
    elif _captures_all_dns(options) and not options.pid and DOCKER_RESOLVER in name_servers(read_text(RESOLV_CONF)):
        warnings.append(
            f"--capture-all-dns: {DOCKER_RESOLVER} in {RESOLV_CONF} is Docker's resolver, whose rule stands first, so that queries to "
            "it are not captured, and its own come back to it by way of the proxy; leave --capture-all-dns out"
        )
    settled = (
        options
        if (ipv6, servers) == (options.ipv6, options.dns_servers)
        else options.replace(ipv6=ipv6, dns_servers=servers)
    )
    return Settled(options=settled, kernel_families=kernel, warnings=tuple(warnings))


def wants_servers(options: Options) -> bool:
    """Whether DNS is captured server by server, and the options do not name them."""
    return options.redirect_dns and not options.capture_all_dns and not options.dns_servers and options.layout != AMBIENT


def _captures_all_dns(options: Options) -> bool:
    return options.redirect_dns and options.capture_all_dns and options.layout != AMBIENT


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
    path = f"/proc/net/{'ip' if family is not IPV6 else 'ip6'}_tables_names"
    names = tuple(read_text(path).split())
    if not names and posix.access(path, posix.F_OK) and not posix.access(path, posix.R_OK):
        return None
    return names


def nft_chains() -> tuple[netlink.NftChain, ...] | None:
    """The chains of nf_tables in this namespace, none without nf_tables; None when the kernel does not say."""
    try:
        return netlink.list_nft_chains()
    except OSError as error:
        return () if error.errno in WITHOUT_NF_TABLES else None


def owned_sets() -> dict[str, int]:
    """The address sets of ours with the number of their elements; none where the kernel has none loaded: asking loads them.

    A name with other letters than we use is foreign.
    """
    if posix.access(MODULES, posix.F_OK) and not posix.access(f"{MODULES}/ip_set", posix.F_OK):
        return {}
    try:
        sets = netlink.list_address_sets()
    except OSError:
        return {}
    return {name: size for name, size in sets.items() if name.startswith(OWNED_SETS) and _is_plain(name)}


def _is_plain(name: str) -> bool:
    return name.isascii() and name.replace("-", "").isalnum()


def has_capability(number: int) -> bool:
    """Whether this process has a capability in effect (capabilities(7))."""
    for line in read_text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def is_root() -> bool:
    """Whether this process runs as root of its user namespace."""
    return posix.geteuid() == 0


def _addresses() -> tuple[netlink.InterfaceAddress, ...]:
    try:
        return netlink.list_addresses()
    except OSError:
        return ()


def _is_local(address: netlink.InterfaceAddress) -> bool:
    text = address.address
    if address.family == AF_INET6:
        return text in ("::1", "::6") or text[:3] in ("fe8", "fe9", "fea", "feb")
    return text.startswith(("127.", "169.254."))


def _kernel_has_ipv6() -> bool:
    return bool(posix.access("/proc/net/if_inet6", posix.F_OK))


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
