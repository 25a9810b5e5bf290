#!/usr/bin/python3 -IS
"""The program: `netinit`, `python -m netinit`, or `python3 -I -S …/netinit/__main__.py` without any installation.

Python compiles this file again at each start by path: it is as short as it can be.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not __package__:  # started by its path, or by that of a symbolic link (named istio-iptables, say)
        path = __file__
        while not path.endswith("/__main__.py"):
            from posix import readlink

            target = readlink(path)
            path = target if target[0] == "/" else f"{path.rpartition('/')[0]}/{target}"
        package = path.rpartition("/")[0]
        sys.path.insert(0, f"{package}/..")
        from netinit.cli.imports import begin

        begin(package)
    from netinit.cli.start import main

    main()
