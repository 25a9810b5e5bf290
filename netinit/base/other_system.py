"""What stands for the modules posix and fcntl elsewhere than on Linux: see netinit.base.system."""

from __future__ import annotations

import sys
from typing import Any


class OwnModule:
    """The system's own module, with what it lacks: constants are 0, and calls fail."""

    def __init__(self, *names: str) -> None:
        self._own = next((sys.modules[name] for name in names if sys.modules.get(name)), None)

    def __getattr__(self, name: str) -> Any:
        """Return what the module has of this name, or what stands for it."""
        if hasattr(self._own, name) or name.isupper():
            return getattr(self._own, name, 0)

        def refuse(*_: object, **__: object) -> object:
            raise OSError(38, f"{name} needs Linux")  # ENOSYS

        return refuse


posix, fcntl = OwnModule("posix", "nt"), OwnModule("fcntl")
