"""Read BPF programs attached to this network namespace, its devices and the cgroups (version 2) of its processes: bpf(2).

A program of a cgroup may redirect connect(2) and sendmsg(2), drop or rewrite packets or set marks, unseen by nf_tables. A
pod's cgroups are known outside of it only: from /proc/PID/cgroup, or by the folder that the kubelet named after the pod. So
they are read before a pod is entered and then remembered for snapshots.
"""

from __future__ import annotations

import functools
from _struct import pack_into, unpack_from

from netinit.base.snapshot import AttachedProgram, Unknown
from netinit.base.system import posix
from netinit.kernel import Closing, libc
from netinit.kernel.processes import list_processes, namespace_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Found = tuple[tuple[AttachedProgram, ...], tuple[Unknown, ...]]

SYSCALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, PROG_QUERY = 13, 15, 16
OF_NAMESPACE = {36: "sk_lookup", 17: "flow_dissector"}  # attachment types of linux/bpf.h
OF_DEVICES = {46: "tcx ingress", 47: "tcx egress", 54: "netkit", 55: "netkit peer"}
ATTRIBUTE_SIZE, MAX_PROGRAMS = 64, 64  # of union bpf_attr; BPF_CGROUP_MAX_PROGS of the kernel, the highest of its own limits
INFO_SIZE, NAME_AT, NAME_SIZE = 256, 64, 16  # struct bpf_prog_info, BPF_OBJ_NAME_LEN
NOT_KNOWN = (22, 38, 95)  # EINVAL, ENOSYS, EOPNOTSUPP: a kernel without bpf(2), or without this attachment type
UNKNOWN_CALL = 38  # ENOSYS
OTHER_DEVICE, NO_DEVICE = 6, 19  # ENXIO: netkit's, of another kind of device; ENODEV: the device is gone
FORBIDDEN = (1, 13)  # EPERM, EACCES: not in the initial user namespace, or seccomp filters bpf(2), as in most containers
PLACE = "BPF programs"
NAMESPACE = "/proc/thread-self/ns/net"
# Attachment types of linux/bpf.h that may redirect, rewrite or drop, by libbpf's names; not here: device, sysctl,
# sock_release and Unix sockets.
OF_CGROUPS = {
    0: "ingress", 1: "egress", 2: "sock_create", 3: "sock_ops", 8: "bind4", 9: "bind6", 10: "connect4", 11: "connect6",
    12: "post_bind4", 13: "post_bind6", 14: "sendmsg4", 15: "sendmsg6", 19: "recvmsg4", 20: "recvmsg6", 21: "getsockopt",
    22: "setsockopt", 29: "getpeername4", 30: "getpeername6", 31: "getsockname4", 32: "getsockname6",
}  # fmt: skip
EFFECTIVE = 1  # BPF_F_QUERY_EFFECTIVE: with those of the cgroups above
FIRST_OF_PROCESSES, FIRST_OF_CGROUPS = 0xEFFFFFFC, 0xEFFFFFFB  # PROC_PID_INIT_INO, PROC_CGROUP_INIT_INO of linux/proc_ns.h
MAX_CGROUPS = 1024  # 80 ms; a pod has one for each container, and one for itself
MAX_FILE_BYTES = 1 << 16  # of /proc/PID/cgroup: one line for each hierarchy, with paths of 4 KiB at most
GONE = (2, 3, 19)  # ENOENT, ESRCH, ENODEV: the process or the cgroup has ended
_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC

_remembered: list[Found] = []


def read_devices(devices: Mapping[int, str], unknown: list[Unknown]) -> tuple[AttachedProgram, ...]:
    """Return the programs attached to this namespace and its devices, given by index and name."""
    found: list[AttachedProgram] = []
    if posix.uname().machine not in SYSCALLS:
        unknown.append(Unknown(place=PLACE, reason=f"bpf(2) has no known number on {posix.uname().machine}"))
        return ()
    with Closing(posix.open(NAMESPACE, posix.O_RDONLY | posix.O_CLOEXEC)) as descriptor:
        points = [(descriptor, kind, f"{label} of the network namespace") for kind, label in OF_NAMESPACE.items()]
        points += [(index, kind, f"{label} on {name}") for index, name in devices.items() for kind, label in OF_DEVICES.items()]
        for target, kind, where in points:
            try:
                found += [AttachedProgram(where=where, number=number) for number in query(target, kind)]
            except OSError as error:
                forbidden = error.errno in FORBIDDEN
                place = PLACE if forbidden else where
                unknown.append(Unknown(place=place, reason=f"bpf(2): {error.strerror}", is_forbidden=forbidden))
                if forbidden:
                    break
    return tuple(found)


def remember(found: Found, *, afresh: bool = False) -> None:
    """Include these programs in all snapshots of this process; the first call counts until one of another pod is `afresh`."""
    if afresh or not _remembered:
        _remembered[:] = [found]


def read_cgroups(unknown: list[Unknown]) -> tuple[AttachedProgram, ...]:
    """Return the remembered programs, else those of this namespace's processes."""
    own = posix.stat(NAMESPACE)
    programs, unread = _remembered[0] if _remembered else of_processes((own.st_dev, own.st_ino))
    unknown += [one for one in unread if one not in unknown]  # that bpf(2) is refused is said once
    return programs


def of_processes(namespace: tuple[int, int]) -> Found:
    """Return the programs for the processes in a network namespace, given by device and inode number.

    A process that has entered it from outside, as this one may have, does not count.
    """
    is_own = namespace_of("self") == namespace
    entered = is_own and namespace_of(posix.getppid()) not in (None, namespace)
    paths: dict[str, None] = {}
    for pid in list_processes():
        if not (entered and pid == posix.getpid()) and namespace_of(pid) == namespace:
            path = _cgroup_of(pid, namespace)
            if path:
                paths[path] = None
    if not paths:
        sees_all = is_own or posix.stat("/proc/self/ns/pid").st_ino == FIRST_OF_PROCESSES
        return (), () if sees_all else (_forbidden("no process of the pod is visible here"),)
    mount = _find_mount()
    if mount is None:
        return (), () if set(paths) == {"/"} else (_forbidden("no cgroup file system is mounted here"),)
    # Inside a container with a cgroup namespace of its own, the topmost cgroup is the container's, else the node's.
    top = not is_own or posix.stat("/proc/self/ns/cgroup").st_ino == FIRST_OF_CGROUPS
    seen = [path for path in paths if path.split("/")[1] != ".."]  # else it is outside of this cgroup namespace
    programs, unread = _read_all(mount, seen, top_is_shared=top)
    hidden = () if len(seen) == len(paths) else (_forbidden("a process of the pod is in a cgroup that is not visible here"),)
    return programs, unread + hidden


def of_folder(folder: str, path: str) -> Found:
    """Return the programs of a pod's cgroup and those below it, in the cgroup file system mounted at `folder`."""
    paths = {path: None}
    waiting = [path]
    while waiting and len(paths) <= MAX_CGROUPS:
        above = waiting.pop()
        try:
            descriptor = posix.open(folder + above, _FOLDER)
        except OSError as error:
            if error.errno in GONE and above != path:
                continue
            return (), (_forbidden(f"{folder}{above}: {error.strerror}"),)
        with Closing(descriptor), posix.scandir(descriptor) as entries:
            below = [f"{above}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False)]
        paths.update(dict.fromkeys(below))
        waiting += below
    return _read_all(folder, paths, top_is_shared=True)


def _forbidden(reason: str) -> Unknown:
    return Unknown(place=PLACE, reason=reason, is_forbidden=True)


def _cgroup_of(pid: int, namespace: tuple[int, int]) -> str:
    """Return a process's cgroup (version 2) if it is in the namespace, else ""; safe against reuse of the process id."""
    try:
        with Closing(posix.open(f"/proc/{pid}", _FOLDER)) as folder:
            status = posix.stat("ns/net", dir_fd=folder)
            with Closing(posix.open("cgroup", posix.O_RDONLY | posix.O_CLOEXEC, dir_fd=folder)) as descriptor:
                data = posix.read(descriptor, MAX_FILE_BYTES)
    except OSError:
        return ""
    if (status.st_dev, status.st_ino) != namespace:
        return ""
    lines = data.decode("utf-8", "surrogateescape").split("\n")  # a cgroup's name has no line feed (cgroup_mkdir)
    return next((line[3:] for line in lines if line.startswith("0::/")), "")


def _find_mount() -> str | None:
    with open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123 - pathlib is not needed here
        for line in file:
            fields, _, kind = line.partition(b" - ")
            words = fields.split(b" ")
            if kind.startswith(b"cgroup2 ") and words[3] == b"/":
                name: bytes = words[4]
                for escaped in (b" ", b"\t", b"\n", b"\\"):
                    name = name.replace(b"\\%03o" % escaped[0], escaped)
                return name.decode("utf-8", "surrogateescape")
    return None


def _read_all(mount: str, paths: Iterable[str], *, top_is_shared: bool) -> Found:
    """Return the programs of several cgroups, each with the topmost cgroup where it is attached."""
    list_attached = functools.cache(lambda path, kind: _query_folder(mount + path, kind))
    programs: dict[AttachedProgram, None] = {}
    unknown: dict[Unknown, None] = {}

    for path in sorted(paths)[:MAX_CGROUPS]:
        opened: list[int] = []  # once for all kinds
        for kind, label in OF_CGROUPS.items():
            try:
                opened = opened or [posix.open(mount + path, _FOLDER)]
                numbers = query(opened[0], kind, EFFECTIVE)
                places = [(above, list_attached(above, kind)) for above in _and_above(path)] if numbers else []
            except OSError as error:
                if error.errno in GONE:
                    break
                forbidden = error.errno in FORBIDDEN
                place = PLACE if forbidden else f"{label} of the cgroup {path}"
                unknown[Unknown(place=place, reason=f"bpf(2): {error.strerror}", is_forbidden=forbidden)] = None
                if forbidden:
                    break
                continue
            for number in numbers:
                place = next((above for above, attached in places if number in attached), "")
                shared = not place or (place == "/" and top_is_shared)
                where = f"{label} of the cgroup {place}" if place else f"{label} of a cgroup above those that are visible here"
                programs[AttachedProgram(where=where, number=number, name=name_of(number), is_of_node=shared)] = None
        for descriptor in opened:
            posix.close(descriptor)
    if len([*paths]) > MAX_CGROUPS:
        unknown[Unknown(place=PLACE, reason=f"the pod has more than {MAX_CGROUPS} cgroups")] = None
    return tuple(programs), tuple(unknown)


def _query_folder(path: str, kind: int) -> tuple[int, ...]:
    with Closing(posix.open(path, _FOLDER)) as descriptor:
        return query(descriptor, kind)


def _and_above(path: str) -> list[str]:
    words = [word for word in path.split("/") if word]
    return ["/" + "/".join(words[:count]) for count in range(len(words), -1, -1)]


def name_of(number: int) -> str:
    """Return the name of a program; empty if it has none, or without SYS_ADMIN."""
    asked = libc.buffer(ATTRIBUTE_SIZE)
    pack_into("=I", asked, 0, number)
    try:
        with Closing(_call(PROG_GET_FD_BY_ID, asked)) as descriptor:
            info = libc.buffer(INFO_SIZE)
            pack_into("=IIQ", asked, 0, descriptor, INFO_SIZE, libc.address_of(info))
            _call(OBJ_GET_INFO_BY_FD, asked)
    except OSError:
        return ""
    name: bytes = info.raw[NAME_AT : NAME_AT + NAME_SIZE]
    return name.partition(b"\0")[0].decode("utf-8", "replace")


def query(target: int, kind: int, flags: int = 0) -> tuple[int, ...]:
    """Return the programs at one attachment point; empty if the kernel lacks it. Raises OSError."""
    numbers, request = libc.buffer(4 * MAX_PROGRAMS), libc.buffer(ATTRIBUTE_SIZE)
    pack_into("=IIIIQI", request, 0, target, kind, flags, 0, libc.address_of(numbers), MAX_PROGRAMS)
    try:
        _call(PROG_QUERY, request)
    except OSError as error:
        if error.errno in (*NOT_KNOWN, OTHER_DEVICE, NO_DEVICE):
            return ()
        raise
    count = min(unpack_from("=I", request, 24)[0], MAX_PROGRAMS)
    return unpack_from(f"={count}I", numbers)


def _call(command: int, request: Any) -> int:
    call = SYSCALLS.get(posix.uname().machine)
    if call is None:
        raise OSError(UNKNOWN_CALL, posix.strerror(UNKNOWN_CALL))
    return libc.call("syscall", call, command, request, ATTRIBUTE_SIZE)
