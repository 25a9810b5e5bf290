"""Reads a snapshot of this process's network namespace from the kernel: netlink, getsockopt(2), /proc/sys/net and bpf(2).

No program is started, no module loaded, no table created, nothing changed. One dump is consistent by itself (NLM_F_DUMP_INTR);
the dumps of nf_tables are consistent with each other because its generation is the same before and after them, else they
are read again.

A part that the kernel refuses is an Unknown in the snapshot; only what interception itself is made of (nf_tables, legacy
tables, devices, routes) raises OSError.
"""

from __future__ import annotations

import posix

from netinit.base.snapshot import Snapshot, Unknown
from netinit.kernel import netlink
from netinit.kernel.address_sets import set_names
from netinit.kernel.snapshot import bpf, devices, legacy_tables, nf_tables_dump, routing, settings

__all__ = ["read_host", "read_snapshot"]


def read_snapshot() -> Snapshot:
    """Everything here that decides about packets. OSError: EPERM without NET_ADMIN, EFBIG, EINTR where it never stands still."""
    unknown: list[Unknown] = []
    filtering = nf_tables_dump.read(unknown)
    legacy = legacy_tables.read(unknown)
    host = read_host(unknown)
    return host.replace(
        **filtering,
        legacy=legacy,
        programs=bpf.read(host.links, unknown),
        transforms=_count_transforms(unknown),
        address_sets=tuple(set_names().items()),
        unknown=tuple(unknown),
    )


def read_host(unknown: list[Unknown] | None = None) -> Snapshot:
    """The devices, addresses, routes and settings alone, which no privilege is needed for. OSError as of `read_snapshot`."""
    unknown = [] if unknown is None else unknown
    with netlink.Netlink(netlink.NETLINK_ROUTE) as link:
        links = devices.read_links(link, unknown)
        return Snapshot(
            links=links,
            addresses=devices.read_addresses(link),
            traffic_control=devices.read_traffic_control(link, links, unknown),
            routing_rules=routing.read_rules(link, unknown),
            routes=routing.read_routes(link, unknown),
            settings=settings.read([one.name for one in links]),
            unknown=tuple(unknown),
        )


NETLINK_XFRM, XFRM_MSG_GETPOLICY = 6, 0x15
PROTONOSUPPORT = 93


def _count_transforms(unknown: list[Unknown]) -> int:
    """The policies of IPsec, which can drop or encapsulate packets. Most kernels of containers have the code; few pods use it."""
    try:
        return len(netlink.dump(NETLINK_XFRM, XFRM_MSG_GETPOLICY, b"\0" * 4, 1 << 20))
    except OSError as error:
        if error.errno != PROTONOSUPPORT:
            unknown.append(Unknown(place="xfrm policies", reason=posix.strerror(error.errno or 0)))
        return 0
