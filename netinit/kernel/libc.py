"""Functions of the C library that Python has no own for, through the extension module behind ctypes.

`import ctypes` takes 4 ms, which is a tenth of an `apply`; `_ctypes` alone takes 0.7 ms. The rest are unused types
here: numbers and buffers are all that is handed over.
"""

from __future__ import annotations

import _ctypes

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
    """A function of the C library that returns a number; its error is in `errno`. Numbers are handed over as int."""
    process: Any = None  # its own libraries: dlopen(3) with no name
    return _Function(_ctypes.dlsym(_ctypes.dlopen(process, NOW), name))


def buffer(size: int, content: bytes = b"") -> Any:
    """A buffer of bytes that begins with a content: `raw` has what is in it then."""
    made: Any = (_Byte * size)()
    made.raw = content + bytes(size - len(content))
    return made


def pointer_to_number(value: int) -> object:
    """A pointer to an unsigned int, to be handed over."""
    return _ctypes.byref(_Number(value))


def address_of(held: Any) -> int:
    """Where a buffer lies."""
    return _ctypes.addressof(held)


def errno() -> int:
    """Why the last function failed."""
    return _ctypes.get_errno()
