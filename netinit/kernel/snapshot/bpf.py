"""BPF programs attached to this network namespace and to its devices, asked with bpf(2), BPF_PROG_QUERY (linux/bpf.h)."""

from __future__ import annotations

import posix
from _struct import pack_into, unpack_from

from netinit.base.snapshot import AttachedProgram, Device, Unknown

SYSCALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
PROG_QUERY = 16
SK_LOOKUP, FLOW_DISSECTOR, TCX_INGRESS, TCX_EGRESS, NETKIT_PRIMARY, NETKIT_PEER = 36, 17, 46, 47, 54, 55
OF_NAMESPACE = {SK_LOOKUP: "sk_lookup", FLOW_DISSECTOR: "flow_dissector"}
OF_DEVICES = {TCX_INGRESS: "tcx ingress", TCX_EGRESS: "tcx egress", NETKIT_PRIMARY: "netkit", NETKIT_PEER: "netkit peer"}
ATTRIBUTE_SIZE, MOST_PROGRAMS = 64, 64
NOT_KNOWN = (22, 38, 95)  # EINVAL, ENOSYS, EOPNOTSUPP: a kernel without bpf(2), or without this kind of attachment
NO_DEVICE = 19  # ENODEV, of a device that is of another kind
NAMESPACE = "/proc/thread-self/ns/net"


def read(links: tuple[Device, ...], unknown: list[Unknown]) -> tuple[AttachedProgram, ...]:
    """All programs that are attached where the kernel tells."""
    call = SYSCALLS.get(posix.uname().machine)
    if call is None:
        unknown.append(Unknown(place="BPF programs", reason=f"bpf(2) has no known number on {posix.uname().machine}"))
        return ()
    found = []
    descriptor = posix.open(NAMESPACE, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        for kind, label in OF_NAMESPACE.items():
            found += _query(call, descriptor, kind, f"{label} of the network namespace", unknown)
    finally:
        posix.close(descriptor)
    for link in links:
        found += [AttachedProgram(where=f"XDP on {link.name}", number=link.xdp)] if link.xdp else []
        for kind, label in OF_DEVICES.items():
            found += _query(call, link.index, kind, f"{label} on {link.name}", unknown)
    return tuple(found)


def _query(call: int, target: int, kind: int, where: str, unknown: list[Unknown]) -> list[AttachedProgram]:
    """The programs attached at one place: union bpf_attr.query has the target, the kind, two flags, a pointer and a count."""
    import ctypes

    numbers = (ctypes.c_uint32 * MOST_PROGRAMS)()
    request = ctypes.create_string_buffer(ATTRIBUTE_SIZE)
    pack_into("=IIIIQI", request, 0, target, kind, 0, 0, ctypes.addressof(numbers), MOST_PROGRAMS)
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(call, PROG_QUERY, request, ATTRIBUTE_SIZE) < 0:
        code = ctypes.get_errno()
        if code not in (*NOT_KNOWN, NO_DEVICE):
            unknown.append(Unknown(place=where, reason=f"bpf(2): {posix.strerror(code)}"))
        return []
    count = unpack_from("=I", request.raw, 24)[0]
    return [AttachedProgram(where=where, number=number) for number in list(numbers)[: min(count, MOST_PROGRAMS)]]
