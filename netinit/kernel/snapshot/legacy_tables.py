"""Read the tables of legacy iptables with getsockopt(2) (linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6 alike).

Reading a table creates it, so only names in /proc/net/ip_tables_names are read. Python's getsockopt cannot send a request
and reads at most 1,024 bytes, so the C library's is called.
"""

from __future__ import annotations

from _socket import SOCK_RAW, socket
from _struct import pack, unpack_from

from netinit.base.net import FAMILIES, IPV6, Family
from netinit.base.system import posix
from netinit.kernel import Closing, detect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.snapshot import LegacyTable, Unknown

RAW_PROTOCOL = 255  # IPPROTO_RAW
GET_INFO, GET_ENTRIES = 64, 65  # IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES; IP6T's are the same
INFO_SIZE, ENTRIES_HEADER = 84, 40  # struct ipt_getinfo; struct ipt_get_entries before its entries
LEVELS = {4: 0, 6: 41}  # IPPROTO_IP, IPPROTO_IPV6
HOOKS_AT, POLICIES_AT, HOOKS = 32, 56, 5  # in struct ipt_getinfo: valid_hooks, underflow
TARGET_AT = {4: 88, 6: 140}  # target_offset in struct ipt_entry, behind struct ipt_ip and nfcache, and in struct ip6t_entry
VERDICT_AT, ACCEPTS = 32, -2  # in struct xt_standard_target; -NF_ACCEPT - 1
NAMES_CHAIN = b"ERROR\0"  # the target of the entry before a chain, and of a table's last one
MAX_BYTES = 1 << 26  # of a table: more than the 200,000 rules that are compared
ATTEMPTS = 20
EAGAIN, EFBIG = 11, 27


def read(unknown: list[Unknown]) -> tuple[LegacyTable, ...]:
    """Return all tables of both families. Raises OSError."""
    from netinit.base.snapshot import Unknown  # not where a second `apply` counts rules

    found = []
    for family in FAMILIES:
        names = detect.legacy_tables(family)
        if names is None and not _is_unused(family):
            reason = "the kernel names them only to root"
            unknown.append(Unknown(place=f"legacy tables of {family.name}", reason=reason, is_forbidden=True, may_capture=True))
        found += [read_table(family, table) for table in names or ()]
    return tuple(found)


def _is_unused(family: Family) -> bool:
    """Whether no table can exist on this node: each is a module that holds the one for all tables."""
    try:
        return not posix.listdir(f"{detect.MODULES}/{'ip6' if family is IPV6 else 'ip'}_tables/holders")
    except OSError:  # built into the kernel, where its tables would be too; or sysfs is not mounted
        return False


def read_table(family: Family, table: str) -> LegacyTable:
    """Return one table. Raises OSError as `read_whole`."""
    from netinit.base.snapshot import LegacyTable

    hooks, first, entries = read_whole(family, table)
    return LegacyTable(version=family.version, name=table, valid_hooks=hooks, hook_entries=first, entries=entries)


def read_whole(family: Family, table: str) -> tuple[int, tuple[int, ...], bytes]:
    """Return a table's hooks as bits, where each begins, and the entries; read again if it changes meanwhile.

    Raises OSError: EFBIG above MAX_BYTES.
    """
    for _ in range(ATTEMPTS):
        try:
            info, entries = read_bytes(family, table)
        except OSError as error:
            if error.errno == EAGAIN:  # another size than a moment ago
                continue
            raise
        return unpack_from("=I", info, 32)[0], unpack_from("=5I", info, 36), entries
    raise OSError(EAGAIN, f"legacy table {table} changes all the time")


def holds_rules(family: Family, table: str) -> bool:
    """Whether an existing table has a rule, or a policy that does not accept. Raises OSError.

    A built-in chain ends with an entry for its policy, any other has one with its name and one that returns, and one entry
    ends the table (struct ipt_entry, ip6t_entry).
    """
    info, entries = read_bytes(family, table)
    hooks = unpack_from("=I", info, HOOKS_AT)[0]
    policies = [unpack_from("=I", info, POLICIES_AT + 4 * hook)[0] for hook in range(HOOKS) if hooks >> hook & 1]
    offsets = TARGET_AT[family.version]
    named = at = count = 0
    while at < len(entries):
        target, following = unpack_from("=HH", entries, at + offsets)
        named += entries[at + target + 2 : at + target + 2 + len(NAMES_CHAIN)] == NAMES_CHAIN
        if at in policies and unpack_from("=i", entries, at + target + VERDICT_AT)[0] != ACCEPTS:
            return True
        count += 1
        at += following
    return count > len(policies) + 2 * (named - 1) + 1


def read_bytes(family: Family, table: str) -> tuple[bytes, bytes]:
    """Return struct ipt_getinfo and the entries of a table. Raises OSError."""
    from netinit.kernel import libc  # the socket module hands no request over in getsockopt(2)

    def ask(option: int, size: int, request: bytes) -> bytes:
        buffer = libc.buffer(size, request)
        libc.call("getsockopt", descriptor, LEVELS[family.version], option, buffer, libc.pointer_to_number(size))
        answer: bytes = buffer.raw
        return answer

    with Closing(socket(family.number, SOCK_RAW, RAW_PROTOCOL).detach()) as descriptor:
        info = ask(GET_INFO, INFO_SIZE, pack("=32s", table.encode()))
        size = unpack_from("=I", info, INFO_SIZE - 4)[0]
        if size > MAX_BYTES:
            raise OSError(EFBIG, posix.strerror(EFBIG))
        entries = ask(GET_ENTRIES, ENTRIES_HEADER + size, pack("=32sI", table.encode(), size))
    return info, entries[ENTRIES_HEADER:]
