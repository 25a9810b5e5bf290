"""Call functions of the C library: through `_ctypes` (ctypes takes 4 ms to import, a tenth of an `apply`), or by the executable."""

from __future__ import annotations

import sys

from netinit.base.system import EMBEDDED, LINUX, NEEDS_LINUX, embedded, posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Buffer(bytearray):
    """Bytes that a function may change."""

    @property
    def raw(self) -> bytes:
        """What it holds."""
        return bytes(self)


if EMBEDDED:  # without a dynamic loader: netinit/bin/executable.c names the functions
    _call, address_of = embedded.call, embedded.address_of
else:
    import _ctypes

    class _Status(_ctypes._SimpleCData):  # type: ignore[type-arg] # noqa: SLF001 - its name, not privacy
        _type_ = "i"

    class _Byte(_ctypes._SimpleCData):  # type: ignore[type-arg] # noqa: SLF001
        _type_ = "c"

    class _Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = _Status

    _found: dict[str, Any] = {}  # finding one takes longer than most calls

    def _call(name: str, *arguments: Any) -> tuple[int, int]:
        if name not in _found:
            process: Any = None  # its own libraries: dlopen(3) with no name
            _found[name] = _Function(_ctypes.dlsym(_ctypes.dlopen(process, 2), name))  # RTLD_NOW of dlfcn.h
        done = _found[name](*[_share(one) if isinstance(one, Buffer) else one for one in arguments])
        return done, _ctypes.get_errno()

    def _share(buffer: Buffer) -> Any:
        return (_Byte * len(buffer)).from_buffer(buffer)

    def address_of(buffer: Buffer) -> int:
        """Return the address of a buffer."""
        return _ctypes.addressof(_share(buffer))


def function(name: str) -> Callable[..., int]:
    """Return a C function that takes ints, bytes and buffers and returns an int."""
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    return lambda *arguments: int(_call(name, *arguments)[0])


def call(name: str, *arguments: Any) -> int:
    """Call a C function and return its result. Raises OSError if that is negative."""
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    done: int
    done, number = _call(name, *arguments)
    if done < 0:
        raise OSError(number, posix.strerror(number))
    return done


def buffer(size: int, content: bytes = b"") -> Buffer:
    """Return a buffer that begins with `content`; its `raw` is what it holds."""
    return Buffer(content + bytes(size - len(content)))


def pointer_to_number(value: int) -> Buffer:
    """Return a buffer that holds an unsigned int."""
    return Buffer(value.to_bytes(4, sys.byteorder))
