"""The operating system's own module: `posix`, without the time that `os` takes to import.

What answers questions about files and options runs on every system. Elsewhere than on Linux, flags of open(2) that the system
lacks are 0, and calls that it lacks fail as such; commands that change or read a kernel are refused before (LINUX).
"""

from __future__ import annotations

import sys

__all__ = ["EMBEDDED", "LINUX", "NEEDS_LINUX", "embedded", "fcntl", "posix"]
NEEDS_LINUX = "it needs Linux"
EMBEDDED = "_netinit" in sys.builtin_module_names  # in the executable, which holds every module and reads none from elsewhere
LINUX = sys.platform == "linux"  # False where `make lint` checks the types of what runs on other systems
if sys.platform == "linux":
    import fcntl
    import posix
else:
    from netinit.base.other_system import fcntl, posix
if EMBEDDED:
    import _netinit as embedded
else:
    embedded = None
