#!/usr/bin/python3 -IS
"""The program: `netinit`, `python -m netinit`, or `python3 -I -S …/netinit/__main__.py` without any installation."""

from __future__ import annotations

import gc
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line of this process and ends it with the command's exit code."""
    gc.disable()  # apply and inject make no garbage that would grow with their work; click's commands switch it on again
    from netinit.cli import start

    start.main()


def _folder_of(path: str) -> str:
    """The folder of a file; of the file that it leads to where it is a symbolic link (named istio-iptables, say)."""
    folder = path.rpartition("/")[0] or "."
    try:
        target = posix.readlink(path)
    except OSError:  # the usual case: no link
        return folder
    return _folder_of(target if target[0] == "/" else f"{folder}/{target}")


if __name__ == "__main__":
    if not __package__:  # started by its path: the package's parent is on no path, its own folder may be
        package = _folder_of(__file__)
        sys.path = [f"{package}/..", *[path for path in sys.path if path != package]]
        from netinit.imports import CompiledFinder

        sys.meta_path.insert(0, CompiledFinder(package))
    main()
