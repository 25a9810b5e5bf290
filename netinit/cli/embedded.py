"""Runs netinit in its executable (netinit/bin/executable.c), and imports the modules that are in that file.

What a job of the init container imports lies there as one record, in the order in which it is run: without the specifications
and locks of Python's import system, which cost more than most modules. Every other module is a record of its own, which Python's
import system runs.
"""

from __future__ import annotations

import sys
from _frozen_importlib import ModuleSpec

import _netinit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any

MODULE = type(sys)


class EmbeddedLoader:
    """Finds and loads the executable's modules, and reads its files."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Where a module of the executable is; None for every other."""
        is_package = _netinit.find(name)
        if is_package is None:
            return None
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=place_of(name, is_package), is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [name]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module, run with its job's; None where Python makes and runs it."""
        if not _netinit.is_shared(spec.name) or "threading" in sys.modules:  # another thread would see modules that are half run
            return None
        run(spec.name)
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's code, unless `create_module` has."""
        if "__builtins__" not in module.__dict__:
            exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - that is what a loader does

    def get_code(self, name: str) -> CodeType:
        """A module's code."""
        found: CodeType = next(code for one, _, code in _netinit.load(name)[1] if one == name)
        return found

    def get_source(self, _name: str) -> None:
        """None: sources are not in the executable."""

    def is_package(self, name: str) -> bool:
        """Whether a module is a package."""
        return bool(_netinit.find(name))

    def get_data(self, path: str) -> bytes:
        """The bytes of a file of the executable. Raises FileNotFoundError."""
        data: bytes = _netinit.read(path)
        return data


LOADER = EmbeddedLoader()


class Package:
    """What pkgutil asks for the modules of a package, whose __path__ is its name. Raises ImportError for every other path."""

    def __init__(self, path: str) -> None:
        if not _netinit.find(path):
            raise ImportError(path)
        self._start = f"{path}."

    def iter_modules(self, prefix: str = "") -> list[tuple[str, bool]]:
        """The names of the modules after a prefix, and whether each is a package."""
        inner = [(name, name[len(self._start) :]) for name in _netinit.names() if name.startswith(self._start)]
        return [(prefix + own, bool(_netinit.find(name))) for name, own in inner if "." not in own]


def place_of(name: str, is_package: int) -> str:
    """What a module's __file__ says."""
    return name.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def run(name: str) -> None:
    """Import the modules of a record, after that of another, without Python's import system."""
    before, members = _netinit.load(name)
    known = sys.modules
    if before and before not in known:
        run(before)
    members = [member for member in members if member[0] not in known]
    for one, is_package, _ in members:  # all at first: a package may be run after its modules, which only want that it is there
        module = known[one] = MODULE(one)
        names = module.__dict__
        names["__file__"] = place_of(one, is_package)
        names["__loader__"] = LOADER
        names["__package__"] = one if is_package else one.rpartition(".")[0]
        if is_package:
            names["__path__"] = [one]
    for one, _, code in members:
        module = known[one]
        exec(code, module.__dict__)  # noqa: S102 - that is what a loader does
        above, _, own = one.rpartition(".")
        if above:
            setattr(known[above], own, module)


if __name__ == "__main__":
    sys.meta_path[:] = [LOADER, *sys.meta_path[:2]]  # those of built-in and frozen modules; no folder is searched
    sys.path_hooks.clear()
    sys.path_hooks.append(Package)  # type: ignore[arg-type] # for pkgutil; no module is found by it
    run("netinit.cli.start")
    sys.modules["netinit.cli.start"].main()
