"""The little of io_uring that makes a connection: raw system calls, since Python's library has none (linux/io_uring.h)."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
import time
from typing import Any

SQPOLL = 2  # IORING_SETUP_SQPOLL: a thread of the kernel's takes what is submitted
_SETUP, _ENTER = 425, 426  # __NR_io_uring_setup, __NR_io_uring_enter
_OP_CONNECT, _OP_SOCKET = 16, 45
_GET_EVENTS, _WAKE_UP = 1, 2
_SUBMISSIONS_AT, _ENTRIES_AT = 0, 0x10000000  # IORING_OFF_SQ_RING, IORING_OFF_SQES
_libc = ctypes.CDLL(None, use_errno=True)


class Ring:
    """One submission at a time, each waited for."""

    def __init__(self, flags: int = 0) -> None:
        parameters = bytearray(struct.pack("IIIIIII12x", 4, 0, flags, 0, 50, 0, 0) + bytes(80))
        self._descriptor = _call(_SETUP, 4, (ctypes.c_char * len(parameters)).from_buffer(parameters))
        entries, completions = struct.unpack_from("II", parameters, 0)
        self._head, self._tail, self._mask, _, _, _, self._array = struct.unpack_from("7I", parameters, 40)
        self._completed_head, self._completed_tail, self._completed_mask, _, _, self._completions = struct.unpack_from("6I", parameters, 80)
        size = max(self._array + 4 * entries, self._completions + 16 * completions)
        self._rings = mmap.mmap(self._descriptor, size, offset=_SUBMISSIONS_AT)
        self._entries = mmap.mmap(self._descriptor, 64 * entries, offset=_ENTRIES_AT)

    def close(self) -> None:
        self._rings.close()
        self._entries.close()
        os.close(self._descriptor)

    def socket(self, family: int, kind: int = socket.SOCK_STREAM) -> int:
        return self._submit(struct.pack("BBHiQQIIQ", _OP_SOCKET, 0, 0, family, kind, 0, 0, 0, 0))

    def connect(self, descriptor: int, address: bytes) -> int:
        """Returns 0 or an error number below 0, or None after a second without an answer."""
        held = ctypes.create_string_buffer(address, len(address))
        return self._submit(struct.pack("BBHiQQIIQ", _OP_CONNECT, 0, 0, descriptor, len(address), ctypes.addressof(held), 0, 0, 0))

    def _submit(self, entry: bytes) -> int:
        tail = self._read(self._tail)
        place = tail & self._read(self._mask)
        self._entries[64 * place : 64 * place + 64] = entry.ljust(64, b"\0")
        self._write(self._array + 4 * place, place)
        self._write(self._tail, tail + 1)
        end, seen = time.monotonic() + 1, self._read(self._completed_head)
        _call(_ENTER, self._descriptor, 1, 0, _GET_EVENTS | _WAKE_UP, None, 0)
        while self._read(self._completed_tail) == seen:
            if time.monotonic() > end:
                return -110  # ETIMEDOUT
            time.sleep(0.001)
            _call(_ENTER, self._descriptor, 0, 0, _GET_EVENTS, None, 0)
        result = struct.unpack_from("Qi", self._rings, self._completions + 16 * (seen & self._read(self._completed_mask)))[1]
        self._write(self._completed_head, seen + 1)
        return result

    def _read(self, place: int) -> int:
        return struct.unpack_from("I", self._rings, place)[0]

    def _write(self, place: int, value: int) -> None:
        struct.pack_into("I", self._rings, place, value)


def _call(number: int, *arguments: Any) -> int:
    result = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
