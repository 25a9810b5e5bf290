"""Import what a child may need before it enters a pod where it may not read netinit's files.

It has no DAC_OVERRIDE and may be another user namespace's root: imports from a directory of mode 0700 would fail. If
everyone can read the files nothing is imported early: all of it takes 0.2 s.
"""

from __future__ import annotations

import sys

from netinit.base.system import EMBEDDED, posix

ROOMS = ("base", "options", "rules", "simulate", "live", "questions/lint", "kernel", "backends", "pods")
# Imported inside functions; a test compares this list with the code.
LAZY = ("bisect", "difflib", "grp", "hashlib", "json", "pwd", "traceback", "warnings")
_TO_PASS, _TO_LIST = 0o1, 0o5  # permissions of others: for a directory on the path, and for the last one


def load() -> None:
    """Import everything if users other than the owner cannot read netinit or Python's library."""
    if EMBEDDED:
        return  # they are in the executable, which is open
    package = sys.modules["netinit"].__path__[0]
    library = str(sys.modules["codecs"].__file__).rpartition("/")[0]
    if not (is_open(package) and is_open(library)):
        load_all(package)


def load_all(package: str) -> None:
    """Import every module of ROOMS below the package's directory, and what they import late."""
    names = [name for room in ROOMS for name in find_modules(f"{package}/{room}", f"netinit.{room.replace('/', '.')}")]
    for name in (*LAZY, *names):
        __import__(name)


def find_modules(folder: str, name: str) -> list[str]:
    """Return the modules of a package, starting with itself."""
    found = [name]
    for entry in sorted(posix.listdir(folder)):
        path, inner = f"{folder}/{entry}", f"{name}.{entry.removesuffix('.py')}"
        if entry.endswith(".py"):
            found += [inner] if entry != "__init__.py" else []
        elif posix.access(f"{path}/__init__.py", posix.F_OK):
            found += find_modules(path, inner)
    return found


def is_open(folder: str) -> bool:
    """Whether everyone can read this directory, by the modes on its whole path."""
    parts = folder.split("/")
    folders = ["/".join(parts[:count]) or "/" for count in range(1, len(parts) + 1)]
    wanted = [(one, _TO_LIST if one == folder else _TO_PASS) for one in folders]
    return all(posix.stat(one).st_mode & bits == bits for one, bits in wanted)
