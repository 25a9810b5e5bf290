"""Receive descriptors from a Unix socket."""

from __future__ import annotations

import socket
import struct


def receive_descriptors(channel: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Receive at most `size` bytes and `most` descriptors from a Unix socket, at once. Raises OSError if there is nothing.

    Before Python 3.12, `socket.recv_fds` passes no flags on: it waits, and programs inherit what it receives.
    """
    places = socket.CMSG_LEN(most * 4)
    data, controls, _, _ = channel.recvmsg(size, places, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    packed = b"".join([held for level, kind, held in controls if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)])
    return data, [number for (number,) in struct.iter_unpack("=i", packed[: len(packed) & ~3])]
