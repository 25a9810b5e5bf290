"""The older interface's tables, each as the one piece that the kernel hands out (linux/netfilter_ipv4/ip_tables.h, ipv6 alike).

Asking for a table by name creates it, so only names in /proc/net/ip_tables_names are asked for. Python's getsockopt reads at
most 1,024 bytes; ctypes, which has no such limit, is imported only where a table exists.
"""

from __future__ import annotations

import posix
from _socket import SOCK_RAW, socket
from _struct import pack, unpack_from

from netinit.base.net import FAMILIES, IPV4, Family
from netinit.kernel import detect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.snapshot import LegacyTable, Unknown

RAW_PROTOCOL = 255  # IPPROTO_RAW
GET_INFO, GET_ENTRIES = 64, 65  # IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES; IP6T's are the same
INFO_SIZE, ENTRIES_HEADER = 84, 40  # struct ipt_getinfo; struct ipt_get_entries before its entries
LEVELS = {4: 0, 6: 41}  # IPPROTO_IP, IPPROTO_IPV6
MOST_BYTES = 1 << 26
ATTEMPTS = 20
EAGAIN, EFBIG = 11, 27


def read(unknown: list[Unknown]) -> tuple[LegacyTable, ...]:
    """All tables of both families. OSError."""
    from netinit.base.snapshot import Unknown  # not where a second `apply` counts rules

    found = []
    for family in FAMILIES:
        names = detect.legacy_tables(family)
        if names is None:
            unknown.append(Unknown(place=f"legacy tables of {family.name}", reason="the kernel does not name them to this user"))
        found += [read_table(family, table) for table in names or ()]
    return tuple(found)


def read_table(family: Family, table: str) -> LegacyTable:
    """One table, read again where it changes meanwhile. OSError: EFBIG where it is larger than MOST_BYTES."""
    from netinit.base.snapshot import LegacyTable

    for _ in range(ATTEMPTS):
        try:
            info, entries = read_bytes(family, table)
        except OSError as error:
            if error.errno == EAGAIN:  # another size than a moment ago
                continue
            raise
        return LegacyTable(
            version=family.version, name=table, valid_hooks=unpack_from("=I", info, 32)[0],
            hook_entries=unpack_from("=5I", info, 36), underflows=unpack_from("=5I", info, 56), entries=entries,
        )  # fmt: skip
    raise OSError(EAGAIN, f"legacy table {table} changes all the time")


def read_bytes(family: Family, table: str) -> tuple[bytes, bytes]:
    """What the kernel gives of a table, struct ipt_getinfo and the entries. OSError."""
    import ctypes  # the socket module hands no request over in getsockopt(2)

    library = ctypes.CDLL(None, use_errno=True)

    def ask(descriptor: int, option: int, size: int, request: bytes) -> bytes:
        buffer = ctypes.create_string_buffer(request, size)
        length = ctypes.c_uint32(size)
        if library.getsockopt(descriptor, LEVELS[family.version], option, buffer, ctypes.byref(length)):
            code = ctypes.get_errno()
            raise OSError(code, posix.strerror(code))
        return buffer.raw

    asking = socket((IPV4 if family.version == 4 else family).number, SOCK_RAW, RAW_PROTOCOL)  # noqa: PLR2004
    try:
        info = ask(asking.fileno(), GET_INFO, INFO_SIZE, pack("=32s", table.encode()))
        size = unpack_from("=I", info, INFO_SIZE - 4)[0]
        if size > MOST_BYTES:
            raise OSError(EFBIG, posix.strerror(EFBIG))
        entries = ask(asking.fileno(), GET_ENTRIES, ENTRIES_HEADER + size, pack("=32sI", table.encode(), size))
    finally:
        asking.close()
    return info, entries[ENTRIES_HEADER:]
