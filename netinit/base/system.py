"""The operating system's own module: `posix`, without the time that `os` takes to import.

What answers questions about files and options runs on every system. Elsewhere than on Linux, flags of open(2) that the system
lacks are 0, and calls that it lacks fail as such; commands that change or read a kernel are refused before (LINUX).
"""

from __future__ import annotations

import sys

__all__ = ["LINUX", "fcntl", "posix"]
TYPE_CHECKING = False
LINUX = sys.platform == "linux"
if LINUX or TYPE_CHECKING:
    import fcntl
    import posix
else:
    try:
        import fcntl
    except ImportError:  # Windows
        fcntl = None
    try:
        import posix as _own
    except ImportError:  # Windows
        import nt as _own

    class _System:
        """The module, with what it lacks."""

        def __getattr__(self, name: str) -> object:
            if hasattr(_own, name) or name.isupper():
                return getattr(_own, name, 0)

            def refuse(*_: object, **__: object) -> object:
                raise OSError(38, f"{name} needs Linux")  # ENOSYS

            return refuse

    posix = _System()
