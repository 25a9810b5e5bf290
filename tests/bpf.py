"""Programs of BPF that let everything pass, for tests of what netinit says beside one: bpf(2), and rtnetlink(7) to attach it."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

from pyroute2 import IPRoute

_SYSCALL = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, TYPE_XDP, XDP_PASS = 5, 6, 2


def load_xdp() -> int:
    """The descriptor of a program that passes every packet on."""
    # sets r0 to XDP_PASS, and exits
    code = ctypes.create_string_buffer(struct.pack("=BBhi", 0xB7, 0, 0, XDP_PASS) + struct.pack("=BBhi", 0x95, 0, 0, 0))
    text = ctypes.create_string_buffer(b"GPL")
    asked = ctypes.create_string_buffer(
        struct.pack("=IIQQ", TYPE_XDP, 2, ctypes.addressof(code), ctypes.addressof(text)).ljust(128, b"\0"), 128
    )
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(_SYSCALL[platform.machine()], PROG_LOAD, asked, 128)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(descriptor)


def attach_xdp(device: str) -> None:
    """Attaches such a program to a device of this namespace."""
    descriptor = load_xdp()
    try:
        with IPRoute() as route:
            (index,) = route.link_lookup(ifname=device)
            route.link("set", index=index, xdp_fd=descriptor)
    finally:
        os.close(descriptor)
