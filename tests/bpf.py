"""Small BPF programs, assembled by hand, loaded and attached to cgroups of version 2 by bpf(2)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import socket
import struct
from pathlib import Path

import pytest
from pyroute2 import IPRoute

PROG_LOAD, PROG_ATTACH, PROG_DETACH = 5, 8, 9
ALLOW_OVERRIDE, ALLOW_MULTI = 1, 2
# Program type and attachment type (linux/bpf.h) of what can be attached to a cgroup.
KINDS = {
    "ingress": (8, 0), "egress": (8, 1), "sock_create": (9, 2), "sock_ops": (13, 3), "device": (15, 6), "bind4": (18, 8), "bind6": (18, 9),
    "connect4": (18, 10), "connect6": (18, 11), "post_bind4": (9, 12), "post_bind6": (9, 13), "sendmsg4": (18, 14), "sendmsg6": (18, 15),
    "sysctl": (23, 18), "recvmsg4": (18, 19), "recvmsg6": (18, 20), "getsockopt": (25, 21), "setsockopt": (25, 22), "getpeername4": (18, 29),
    "getpeername6": (18, 30), "getsockname4": (18, 31), "getsockname6": (18, 32), "sock_release": (9, 34),
    "xdp": (6, 37),
}  # fmt: skip
PORT_AT = 24  # user_port in struct bpf_sock_addr
_CALL = {"x86_64": 321, "aarch64": 280}.get(platform.machine(), -1)
_LIBC = ctypes.CDLL(None, use_errno=True)


def _instruction(code, registers=0, offset=0, value=0):
    return struct.pack("<BBhi", code, registers, offset, value)


PASS = _instruction(0xB7, value=1) + _instruction(0x95)  # r0 = 1; exit


def rewrite_port(port, to):
    """Where a socket is sent to this port, it is sent to the other one."""
    return b"".join([
        _instruction(0x61, 0x12, PORT_AT),  # r2 = r1->user_port
        _instruction(0x55, 0x02, 2, socket.htons(port)),  # if r2 != port, skip two
        _instruction(0xB7, 0x02, 0, socket.htons(to)),  # r2 = to
        _instruction(0x63, 0x21, PORT_AT),  # r1->user_port = r2
        PASS,
    ])


def _bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(120, b"\0"), 120)
    done = _LIBC.syscall(_CALL, command, buffer, 120)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def load(kind, code=PASS, name=b"rewrite"):
    """A descriptor of a loaded program."""
    program, attachment = KINDS[kind]
    held, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    addresses = (ctypes.addressof(held), ctypes.addressof(licence))
    return _bpf(PROG_LOAD, struct.pack("=IIQQIIQII16sII", program, len(code) // 8, *addresses, 0, 0, 0, 0, 0, name, 0, attachment))


@contextlib.contextmanager
def attached(cgroup, kind, code=PASS, name=b"rewrite", flags=ALLOW_MULTI):
    """The program acts on the processes of a cgroup, given by its folder."""
    program, folder = load(kind, code, name), os.open(cgroup, os.O_RDONLY)
    words = (folder, program, KINDS[kind][1])
    try:
        _bpf(PROG_ATTACH, struct.pack("=IIII", *words, flags))
        yield
        _bpf(PROG_DETACH, struct.pack("=III", *words))
    finally:
        os.close(program)
        os.close(folder)


def find_mount():
    """Where cgroups of version 2 are mounted; skips where none can be made or no program be loaded."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            folder = Path(line.split()[4])
            try:
                os.close(load("connect4"))
                probe = folder / f"netinit-probe-{os.getpid()}"  # another worker looks too
                probe.mkdir()
                probe.rmdir()
            except OSError as error:
                pytest.skip(f"BPF programs cannot be attached to cgroups here: {error}")
            return folder
    pytest.skip("no cgroup file system of version 2 is mounted here")


@contextlib.contextmanager
def cgroup(name):
    """A new cgroup, which is empty again at the end; `name` may have folders."""
    mount = find_mount()
    made = []
    try:
        for path in [*reversed(Path(name).parents), Path(name)][1:]:
            if not (mount / path).is_dir():
                (mount / path).mkdir()
                made.append(mount / path)
        yield mount / name
    finally:
        for path in reversed(made):
            path.rmdir()


def attach_xdp(device):
    """A program of XDP passes all packets of a device of this namespace, until that is gone (rtnetlink(7))."""
    program = load("xdp", _instruction(0xB7, value=2) + _instruction(0x95))  # r0 = XDP_PASS; exit
    try:
        with IPRoute() as route:
            (index,) = route.link_lookup(ifname=device)
            route.link("set", index=index, xdp_fd=program)
    finally:
        os.close(program)
