"""Detect addresses, name servers, address sets (ipset(8)), kernel features and privileges; changes nothing.

Uses /proc and netlink: 100 times faster than programs, and opening a legacy table would create it.
"""

from __future__ import annotations

from _struct import pack, unpack

from netinit.base.errors import NamespaceError
from netinit.base.net import FAMILIES, IPV6, Family, read_addresses
from netinit.base.netlink_attributes import NLA_F_NET_BYTEORDER
from netinit.base.records import Record
from netinit.base.system import posix
from netinit.kernel import Closing, netlink, read_text
from netinit.kernel.netlink import attribute, big, read_attributes, read_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.base.netlink_attributes import NftChain

CAP_SETGID, CAP_SETUID, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN = 6, 7, 12, 13, 21
NFT, LEGACY = "nft", "legacy"
MODULES = "/sys/module"
RESOLV_CONF = "/etc/resolv.conf"
WITHOUT_RESOLV_CONF = "name the servers with --dns-servers"
WITHOUT_NF_TABLES = (22, 93)  # EINVAL: no such subsystem of nfnetlink; EPROTONOSUPPORT: no nfnetlink
_TABLE_NAMES = {family: f"/proc/net/{'ip' if family is not IPV6 else 'ip6'}_tables_names" for family in FAMILIES}
_MAX_NAME_BYTES = 4096  # bytes: five tables of at most 31 characters each
_opened: dict[str, int] = {}  # path -> descriptor
_remembered: list[Sequence[str]] = []  # at most one: the name servers of the pod that this process is in
# linux/netfilter/ipset/ip_set.h
CMD_LIST = 6 << 8 | 7
ATTR_PROTOCOL, ATTR_SETNAME, ATTR_FLAGS, ATTR_DATA, ATTR_INDEX, ATTR_ELEMENTS = 1, 2, 6, 7, 11, 24
FLAG_LIST_HEADER = 4
NEWEST_PROTOCOL, OLDEST_PROTOCOL = 7, 6  # 7 since Linux 4.20; only it reports ids
OWNED = "netinit-"  # prefix of our sets


class AddressSetHeader(Record):
    """A set's name, number of elements and id, which rules use; -1 if the kernel does not report it."""

    name: str
    size: int
    number: int = -1


def kernel_families() -> tuple[Family, ...]:
    """Return the address families that the kernel supports, IPv4 first."""
    return tuple([family for family in FAMILIES if family is not IPV6 or posix.access("/proc/net/if_inet6", posix.F_OK)])


def list_addresses() -> tuple[str, ...]:
    """Return this namespace's addresses in the kernel's order; empty if they cannot be read."""
    try:
        return tuple([found.address for found in netlink.list_addresses()])
    except OSError:
        return ()


def remember_name_servers(servers: Sequence[str] | None) -> None:
    """Make `read_name_servers` return those of a pod that this process enters; None: those of its own resolv.conf."""
    _remembered[:] = [] if servers is None else [servers]


def known_name_servers() -> Sequence[str]:
    """Return the remembered name servers, empty without."""
    return _remembered[0] if _remembered else ()


def read_name_servers() -> Sequence[str]:
    """Return the remembered name servers, or those of this process's resolv.conf, none without this file.

    Raises NamespaceError if the file is not a small regular one, or cannot be read.
    """
    return _remembered[0] if _remembered else name_servers(read_resolv_conf())


def read_resolv_conf() -> str:
    """Return this process's resolv.conf, empty without one. Raises NamespaceError if it is not a small regular file."""
    from netinit.kernel import files  # only where DNS is captured

    try:
        return files.read_own(RESOLV_CONF)
    except OSError as error:
        raise NamespaceError(f"{RESOLV_CONF} cannot be read: {error.strerror}; {WITHOUT_RESOLV_CONF}") from None


def name_servers(text: str) -> list[str]:
    """Return the name servers of a resolv.conf(5) text, without zone indexes and invalid addresses."""
    lines = [line.split() for line in text.splitlines()]
    named = [words[1].partition("%")[0] for words in lines if len(words) > 1 and words[0] == "nameserver"]
    return list(dict.fromkeys(read_addresses(named)))


def legacy_tables(family: Family) -> tuple[str, ...] | None:
    """Return the names of the legacy tables that exist in this namespace, without creating any.

    None if they cannot be read: the file belongs to root of the user namespace, or to an unmapped user if the network
    namespace is older than the user mapping.
    """
    path = _TABLE_NAMES[family]
    if path in _opened:
        return _read_table_names(_opened[path])
    try:
        with Closing(posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)) as file:
            return _read_table_names(file)
    except FileNotFoundError:
        return ()
    except OSError:
        return None


def _read_table_names(descriptor: int) -> tuple[str, ...]:
    return tuple(posix.pread(descriptor, _MAX_NAME_BYTES, 0).decode().split())


def open_table_names() -> None:
    """Keep the names of legacy tables readable after this process drops its privileges."""
    for path in _TABLE_NAMES.values():
        if posix.access(path, posix.R_OK):
            _opened[path] = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)


def nft_chains() -> tuple[NftChain, ...] | None:
    """Return this namespace's nf_tables chains, empty without nf_tables; None if they cannot be read."""
    try:
        return netlink.list_nft_chains()
    except OSError as error:
        return () if error.errno in WITHOUT_NF_TABLES else None


def has_address_sets() -> bool:
    """Whether there may be address sets (ipset(8)), without loading the module."""
    return not posix.access(MODULES, posix.F_OK) or posix.access(f"{MODULES}/ip_set", posix.F_OK)


def _dump_sets(protocol: int) -> list[bytes]:
    body = pack("=BBH", 0, 0, 0) + attribute(ATTR_PROTOCOL, bytes((protocol,)))
    body += attribute(ATTR_FLAGS | NLA_F_NET_BYTEORDER, pack(">I", FLAG_LIST_HEADER))
    return netlink.dump(netlink.NETLINK_NETFILTER, CMD_LIST, body)


def _read_set(body: bytes) -> AddressSetHeader:
    attributes = read_attributes(body, netlink.NETFILTER_SIZE)
    size = big(read_attributes(attributes.get(ATTR_DATA, b""), 0).get(ATTR_ELEMENTS))
    number = unpack(">H", attributes[ATTR_INDEX])[0] if ATTR_INDEX in attributes else -1
    return AddressSetHeader(name=read_name(attributes[ATTR_SETNAME]), size=size, number=number)


def loaded_sets() -> tuple[AddressSetHeader, ...]:
    """Return all sets, without elements; empty if ipset is not loaded (a query would load it) or does not answer."""
    for protocol in (NEWEST_PROTOCOL, OLDEST_PROTOCOL) if has_address_sets() else ():
        try:
            return tuple(map(_read_set, _dump_sets(protocol)))
        except OSError:
            continue
    return ()


def owned_sets() -> dict[str, int]:
    """Return our sets with their sizes. A name with characters that netinit does not use is foreign."""
    ours = [one for one in loaded_sets() if one.name.startswith(OWNED)]
    return {one.name: one.size for one in ours if one.name.isascii() and one.name.replace("-", "").isalnum()}


def set_names() -> dict[int, str]:
    """Return the names of all sets by id."""
    return {one.number: one.name for one in loaded_sets() if one.number >= 0}


def has_capability(number: int) -> bool:
    """Whether a capability (capabilities(7)) is effective in this process."""
    return bool(read_capabilities("CapEff") >> number & 1)


def read_capabilities(which: str) -> int:
    """Return a capability set by its name in proc(5): CapPrm, CapEff, CapBnd; 0 if /proc does not show it."""
    lines = [line.split() for line in read_text("/proc/self/status").splitlines() if line.startswith(which)]
    return int(lines[0][1], 16) if lines else 0
