"""pyroute2, for veth pairs and what else the laboratory and the probes' neighbour want of rtnetlink.

One of its modules imports `ssl`, for a message that nobody here sends; an image without OpenSSL has no such module. Then an
empty one stands there while pyroute2 is loaded, and not longer.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def load() -> Any:
    """The module pyroute2. ImportError where it is not installed."""
    if "pyroute2" in sys.modules:
        return sys.modules["pyroute2"]
    if find_spec("_ssl"):
        return import_module("pyroute2")
    import_module("asyncio")  # which looks for ssl too, and does without
    sys.modules["ssl"] = ModuleType("ssl")
    try:
        return import_module("pyroute2")
    finally:
        del sys.modules["ssl"]
