"""pyroute2, for veth pairs and what else the laboratory and the probes' neighbour want of rtnetlink.

Two of its modules import `ssl` and `sqlite3`, for a message and a database that are not used here; an image without OpenSSL
and SQLite has no such modules. Then empty ones stand there while pyroute2 is loaded, and not longer.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

UNUSED = {"ssl": "_ssl", "sqlite3": "_sqlite3"}  # a module, and the part of it that is built with a library


def load() -> Any:
    """The module pyroute2. ImportError where it is not installed."""
    if "pyroute2" in sys.modules:
        return sys.modules["pyroute2"]
    missing = [name for name, built in UNUSED.items() if not (find_spec(name) and find_spec(built))]
    import_module("asyncio")  # which looks for ssl too, and does without
    sys.modules.update({name: ModuleType(name) for name in missing})
    try:
        return import_module("pyroute2")
    finally:
        for name in missing:
            del sys.modules[name]
