"""Call functions of the C library through `_ctypes`: its import takes 0.7 ms, that of ctypes 4, a tenth of an `apply`."""

from __future__ import annotations

import _ctypes

from netinit.base.system import LINUX, NEEDS_LINUX, posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NOW = 2  # RTLD_NOW of dlfcn.h


class _Status(_ctypes._SimpleCData):  # type: ignore[type-arg] # noqa: SLF001 - its name, not privacy
    _type_ = "i"


class _Byte(_ctypes._SimpleCData):  # type: ignore[type-arg] # noqa: SLF001
    _type_ = "c"


class _Number(_ctypes._SimpleCData):  # type: ignore[type-arg] # noqa: SLF001
    _type_ = "I"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Status


def function(name: str) -> Callable[..., int]:
    """Return a C function that takes ints and buffers and returns an int."""
    if not LINUX:
        raise OSError(NEEDS_LINUX)
    process: Any = None  # its own libraries: dlopen(3) with no name
    return _Function(_ctypes.dlsym(_ctypes.dlopen(process, NOW), name))


def call(name: str, *arguments: Any) -> int:
    """Call a C function and return its result. Raises OSError if that is negative."""
    done = function(name)(*arguments)
    if done < 0:
        raise OSError(_ctypes.get_errno(), posix.strerror(_ctypes.get_errno()))
    return done


def buffer(size: int, content: bytes = b"") -> Any:
    """Return a buffer that begins with `content`; its `raw` is what it holds."""
    made: Any = (_Byte * size)()
    made.raw = content + bytes(size - len(content))
    return made


def pointer_to_number(value: int) -> object:
    """Return a pointer to an unsigned int."""
    return _ctypes.byref(_Number(value))


def address_of(buffer: Any) -> int:
    """Return the address of a buffer."""
    return _ctypes.addressof(buffer)
