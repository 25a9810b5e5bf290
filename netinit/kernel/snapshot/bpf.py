"""Read BPF programs attached to this network namespace and its devices (BPF_PROG_QUERY of bpf(2))."""

from __future__ import annotations

import posix
from _struct import pack_into, unpack_from

from netinit.kernel import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from netinit.base.snapshot import AttachedProgram, Device, Unknown

SYSCALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, PROG_QUERY = 13, 15, 16
SK_LOOKUP, FLOW_DISSECTOR, TCX_INGRESS, TCX_EGRESS, NETKIT_PRIMARY, NETKIT_PEER = 36, 17, 46, 47, 54, 55
OF_NAMESPACE = {SK_LOOKUP: "sk_lookup", FLOW_DISSECTOR: "flow_dissector"}
OF_DEVICES = {TCX_INGRESS: "tcx ingress", TCX_EGRESS: "tcx egress", NETKIT_PRIMARY: "netkit", NETKIT_PEER: "netkit peer"}
ATTRIBUTE_SIZE, MAX_PROGRAMS = 64, 64  # of union bpf_attr; BPF_CGROUP_MAX_PROGS of the kernel, the highest of its own limits
INFO_SIZE, NAME_AT, NAME_SIZE = 256, 64, 16  # struct bpf_prog_info, BPF_OBJ_NAME_LEN
NOT_KNOWN = (22, 38, 95)  # EINVAL, ENOSYS, EOPNOTSUPP: a kernel without bpf(2), or without this attachment type
UNKNOWN_CALL = 38  # ENOSYS
NO_DEVICE = 19  # ENODEV, for another kind of device
FORBIDDEN = (1, 13)  # EPERM, EACCES: not in the initial user namespace, or seccomp filters bpf(2), as in most containers
NAMESPACE = "/proc/thread-self/ns/net"


def read(links: tuple[Device, ...], unknown: list[Unknown]) -> tuple[AttachedProgram, ...]:
    """Return all attached programs that the kernel reports."""
    from netinit.base.snapshot import AttachedProgram, Unknown  # not needed by `apply`

    found = []

    def add(target: int, kind: int, where: str) -> None:
        try:
            found.extend([AttachedProgram(where=where, number=number) for number in query(target, kind)])
        except OSError as error:
            if error.errno in FORBIDDEN:
                raise
            unknown.append(Unknown(place=where, reason=f"bpf(2): {error.strerror}"))

    if posix.uname().machine not in SYSCALLS:
        unknown.append(Unknown(place="BPF programs", reason=f"bpf(2) has no known number on {posix.uname().machine}"))
        return ()
    found += [AttachedProgram(where=f"XDP on {link.name}", number=link.xdp) for link in links if link.xdp]
    descriptor = posix.open(NAMESPACE, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        for kind, label in OF_NAMESPACE.items():
            add(descriptor, kind, f"{label} of the network namespace")
        for link in links:
            for kind, label in OF_DEVICES.items():
                add(link.index, kind, f"{label} on {link.name}")
    except OSError as error:
        unknown.append(Unknown(place="BPF programs", reason=f"bpf(2): {error.strerror}", is_forbidden=True))
    finally:
        posix.close(descriptor)
    return tuple(found)


def has_any(devices: Collection[int]) -> bool:
    """Whether any program is attached to this namespace or to a device, given by index. Raises OSError.

    False if this process may not query: most containers may not, and cannot attach any either.
    """
    descriptor = posix.open(NAMESPACE, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        asked = [(descriptor, kind) for kind in OF_NAMESPACE] + [(index, kind) for index in devices for kind in OF_DEVICES]
        return any(query(target, kind) for target, kind in asked)
    except OSError as error:
        if error.errno in FORBIDDEN:
            return False
        raise
    finally:
        posix.close(descriptor)


def name_of(number: int) -> str:
    """Return the name of a program; empty if it has none, or without SYS_ADMIN."""
    asked = libc.buffer(ATTRIBUTE_SIZE)
    pack_into("=I", asked, 0, number)
    try:
        descriptor = _call(PROG_GET_FD_BY_ID, asked)
    except OSError:
        return ""
    try:
        info = libc.buffer(INFO_SIZE)
        pack_into("=IIQ", asked, 0, descriptor, INFO_SIZE, libc.address_of(info))
        _call(OBJ_GET_INFO_BY_FD, asked)
    except OSError:
        return ""
    finally:
        posix.close(descriptor)
    name: bytes = info.raw[NAME_AT : NAME_AT + NAME_SIZE]
    return name.partition(b"\0")[0].decode("utf-8", "replace")


def query(target: int, kind: int, flags: int = 0) -> tuple[int, ...]:
    """Return the programs at one attachment point; empty if the kernel lacks it. Raises OSError."""
    numbers, request = libc.buffer(4 * MAX_PROGRAMS), libc.buffer(ATTRIBUTE_SIZE)
    pack_into("=IIIIQI", request, 0, target, kind, flags, 0, libc.address_of(numbers), MAX_PROGRAMS)
    try:
        _call(PROG_QUERY, request)
    except OSError as error:
        if error.errno in (*NOT_KNOWN, NO_DEVICE):
            return ()
        raise
    count = min(unpack_from("=I", request, 24)[0], MAX_PROGRAMS)
    return unpack_from(f"={count}I", numbers)


def _call(command: int, request: Any) -> int:
    call = SYSCALLS.get(posix.uname().machine)
    if call is None:
        raise OSError(UNKNOWN_CALL, posix.strerror(UNKNOWN_CALL))
    done = libc.function("syscall")(call, command, request, ATTRIBUTE_SIZE)
    if done < 0:
        raise OSError(libc.errno(), posix.strerror(libc.errno()))
    return done
