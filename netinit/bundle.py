"""The modules of a plain start in one file: finding and reading forty files is a third of what importing them costs.

`python -m netinit.bundle` writes the file beside the compiled modules, as an image's build does. A start by path uses it
while every source has the size and time that it had then; otherwise, and everywhere else, modules are imported as ever.

The file is marshal's (like .pyc files, of one version of Python) and is trusted like them: who can write it can write the
sources too.
"""

from __future__ import annotations

import marshal
import posix
import sys
from _frozen_importlib import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

# What a plain start imports, whichever backend it takes.
ROOTS = (
    "netinit.cli.start",
    "netinit.options.argv",
    "netinit.pods.apply",
    "netinit.backends.restore",
    "netinit.backends.nftables",
    "netinit.rules.layouts.current",
)
Stamps = dict[str, tuple[int, int]]  # module name -> time in ns and size of its source
Modules = dict[str, tuple[str, bytes]]  # module name -> path of its source below the root, marshalled code


class BundleFinder:
    """Finds the modules of a bundle for the interpreter's import (PEP 451)."""

    def __init__(self, root: str, modules: Modules) -> None:
        self._root = root
        self._modules = modules

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """The module's specification, or None for one that is not in the bundle."""
        found = self._modules.get(name)
        if found is None:
            return None
        source = f"{self._root}/{found[0]}"
        package = source.endswith("/__init__.py")
        spec = ModuleSpec(name, self, origin=source, is_package=package)  # type: ignore[arg-type]
        if package:
            spec.submodule_search_locations = [source.rpartition("/")[0]]
        spec.has_location = True
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Nothing special: the interpreter makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's code."""
        exec(marshal.loads(self._modules[module.__name__][1]), module.__dict__)  # noqa: S102, S302 - what import does


def path_of(root: str) -> str:
    """Where the bundle of the package below `root` lies, for this version of Python."""
    return f"{root}/netinit/__pycache__/start.{sys.implementation.cache_tag}.bundle"


def install(root: str, stamps: Stamps, modules: Modules) -> bool:
    """Lets imports come from the bundle; False, and nothing happens, when a source is not what it was."""
    try:
        for name, stamp in stamps.items():
            if _stamp(f"{root}/{modules[name][0]}") != stamp:
                return False
    except OSError:
        return False
    sys.meta_path.insert(0, BundleFinder(root, modules))
    return True


def write(root: str) -> str:
    """Writes the bundle for the package below `root` and returns its path. OSError where that is not possible."""
    for name in ROOTS:
        __import__(name)
    stamps: Stamps = {}
    modules: Modules = {}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "netinit" and name not in (__name__, "netinit.bundle", "netinit.__main__"):
            source = f"{name.replace('.', '/')}{'/__init__' if hasattr(module, '__path__') else ''}.py"
            stamps[name] = _stamp(f"{root}/{source}")
            modules[name] = (source, marshal.dumps(_compile(root, source)))
    own = _compile(root, "netinit/bundle.py")
    path = path_of(root)
    if not posix.access(path.rpartition("/")[0], posix.F_OK):
        posix.mkdir(path.rpartition("/")[0])
    fresh = f"{path}.{posix.getpid()}"
    with open(fresh, "wb") as file:  # noqa: PTH123 - pathlib is not worth its import here
        file.write(marshal.dumps((own, stamps, modules)))
    posix.replace(fresh, path)
    return path


def _compile(root: str, source: str) -> Any:
    with open(f"{root}/{source}", "rb") as file:  # noqa: PTH123
        return compile(file.read(), f"{root}/{source}", "exec", dont_inherit=True)


def _stamp(path: str) -> tuple[int, int]:
    status = posix.stat(path)
    return status.st_mtime_ns, status.st_size


if __name__ == "__main__":
    print(write(__file__.rpartition("/")[0].rpartition("/")[0]))  # noqa: T201 - tells where it is
