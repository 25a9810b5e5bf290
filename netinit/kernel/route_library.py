"""Load pyroute2, which the lab and the probes' peer use for veth pairs, also on images without OpenSSL and SQLite.

Two of its modules import `ssl` and `sqlite3` without using them here; if they are missing, empty modules replace them
during the import.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

UNUSED = {"ssl": "_ssl", "sqlite3": "_sqlite3"}  # a module, and the part of it that is built with a library


def load() -> Any:
    """Return the module pyroute2. Raises ImportError if it is not installed."""
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
