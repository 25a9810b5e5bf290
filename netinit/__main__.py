"""The program: `netinit`, `python -m netinit`, or `python3 -I -S …/netinit/__main__.py` without any installation."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line of this process and ends it with the command's exit code."""
    gc.disable()  # the init container's run is over before there is garbage; click's commands switch it on again
    from netinit.cli import start

    start.main()


if __name__ == "__main__":
    if not __package__:  # started by its path: the package's parent is on no path, or its own folder is
        package = __file__.rpartition("/")[0] or "."
        sys.path = [path for path in sys.path if path != package]
        sys.path.insert(0, f"{package}/..")
    main()
