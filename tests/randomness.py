"""How many random examples a test draws, and which: the same few in `make test`, others and many more in `make prove`."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("NETINIT_EXAMPLES", "0"))
SEED = int(os.environ.get("NETINIT_SEED", "1"))  # of what draws by itself; a failure shows it, to be repeated


def some(number: int) -> int:
    """Half of so many examples in `make test`, and NETINIT_EXAMPLES times as many in `make prove`."""
    return number * TIMES if TIMES else (number + 1) // 2
