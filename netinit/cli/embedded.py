"""Finds the modules in netinit's executable for Python's import system, which netinit/bin/executable.c imports at need.

The executable runs the modules of the init container's jobs itself.
"""

from __future__ import annotations

import sys
from _frozen_importlib import ModuleSpec

import _netinit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any


class EmbeddedLoader:
    """Finds and loads the executable's modules, and reads its files."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Where a module of the executable is; None for every other."""
        is_package = _netinit.find(name)
        if is_package is None:
            return None
        loader: Any = self
        place = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        spec = ModuleSpec(name, loader, origin=place, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [name]
        return spec

    def create_module(self, _spec: ModuleSpec) -> ModuleType | None:
        """None: Python creates it."""

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's code."""
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - that is what a loader does

    def get_code(self, name: str) -> CodeType:
        """A module's code."""
        code: CodeType = _netinit.load(name)
        return code

    def get_source(self, _name: str) -> None:
        """None: sources are not in the executable."""

    def is_package(self, name: str) -> bool:
        """Whether a module is a package."""
        return bool(_netinit.find(name))

    def get_data(self, path: str) -> bytes:
        """The bytes of a file of the executable. Raises FileNotFoundError."""
        data: bytes = _netinit.read(path)
        return data


class Package:
    """What pkgutil asks for the modules of a package, whose __path__ is its name. Raises ImportError for every other path."""

    def __init__(self, path: str) -> None:
        if not _netinit.find(path):
            raise ImportError(path)
        self._start = f"{path}."
        self.find_spec = EmbeddedLoader().find_spec

    def iter_modules(self, prefix: str = "") -> list[tuple[str, bool]]:
        """The names of the modules after a prefix, and whether each is a package."""
        inner = [(name, name[len(self._start) :]) for name in _netinit.names() if name.startswith(self._start)]
        return [(prefix + own, bool(_netinit.find(name))) for name, own in inner if "." not in own]


sys.meta_path[:] = [EmbeddedLoader(), *sys.meta_path[:2]]  # those of built-in and frozen modules; no folder is searched
sys.path_hooks[:] = [Package]  # for pkgutil; no module is found by it
