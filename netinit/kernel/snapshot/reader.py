"""Read a snapshot of this process's network namespace: netlink, getsockopt(2), /proc/sys/net and bpf(2).

Starts no program, loads no module, changes nothing. nf_tables is read from one generation. A part that the kernel refuses
becomes an Unknown; only those that interception needs (nf_tables, legacy tables, devices, routes) raise OSError.
"""

from __future__ import annotations

import posix

from netinit.base.snapshot import AttachedProgram, Device, Snapshot, Unknown
from netinit.kernel import netlink
from netinit.kernel.address_sets import set_names
from netinit.kernel.snapshot import bpf, cgroups, legacy_tables, nf_tables_dump
from netinit.kernel.snapshot.host import read_host


def read_snapshot() -> Snapshot:
    """Read everything that affects packets. Raises OSError: EPERM without NET_ADMIN, EFBIG, EINTR if it keeps changing."""
    unknown: list[Unknown] = []
    filtering = nf_tables_dump.read(unknown)
    legacy = legacy_tables.read(unknown)
    host = read_host(unknown)
    return host.replace(
        **filtering,
        legacy=legacy,
        programs=read_programs(host.links, unknown),
        transforms=count_transforms(unknown),
        address_sets=tuple(set_names().items()),
        unknown=tuple(unknown),
    )


def read_programs(links: tuple[Device, ...], unknown: list[Unknown]) -> tuple[AttachedProgram, ...]:
    """Read the BPF programs of this namespace, its devices and its processes' cgroups. Raises OSError without /proc."""
    return bpf.read(links, unknown) + cgroups.read(unknown)


NETLINK_XFRM, XFRM_MSG_GETPOLICY = 6, 0x15
PROTONOSUPPORT = 93


def count_transforms(unknown: list[Unknown]) -> int:
    """Return the number of IPsec policies, which can drop or encapsulate packets."""
    try:
        return len(netlink.dump(NETLINK_XFRM, XFRM_MSG_GETPOLICY, b"\0" * 4, 1 << 20))
    except OSError as error:
        if error.errno != PROTONOSUPPORT:
            unknown.append(Unknown(place="xfrm policies", reason=posix.strerror(error.errno or 0)))
        return 0
