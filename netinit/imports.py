"""Finds and reads netinit's own compiled modules, in half of the time that Python's own finder takes.

A start by path (the image's) imports some forty modules, which is most of an `apply`. Python looks for each of them among
shared libraries too, in folders that it lists first, with eight more calls to the system for each file. Here a module
is where its name says. What is no module of ours, or has no compiled file that is of its source, is left to Python.
"""

from __future__ import annotations

import posix
import sys
from _frozen_importlib import ModuleSpec  # importlib's own, without importing it
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader, _compile_bytecode  # type: ignore[attr-defined]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

PREFIX = f"{__package__}."
SUFFIX = f".{sys.implementation.cache_tag}.pyc"
# How a compiled file begins (PEP 552): of a source of this time and size, or never to be compared with its source.
TIMED, UNCHECKED = MAGIC_NUMBER + bytes(4), MAGIC_NUMBER + b"\1\0\0\0"
HEADER = 16  # bytes before the code
MOST = 40 << 10  # bytes that are read at once; the largest module of the lean path has 31 KiB


def begin(package: str) -> None:
    """From here on the modules of the package in this folder are found so; the folder itself is no place to import from."""
    sys.path = [path for path in sys.path if path != package]
    sys.meta_path.insert(0, CompiledFinder(package))


class CompiledLoader(SourceFileLoader):
    """Python's loader of sources, but that a compiled file is read at once."""

    def __init__(self, name: str, path: str, compiled: str) -> None:
        super().__init__(name, path)
        self._compiled = compiled

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code; SourceFileLoader's where the compiled file is not the source's."""
        try:
            descriptor = posix.open(self._compiled, posix.O_RDONLY | posix.O_CLOEXEC)
        except OSError:
            return super().get_code(fullname)
        try:
            data = posix.read(descriptor, MOST)
        finally:
            posix.close(descriptor)
        kind = data[:8]
        if len(data) == MOST or (kind != UNCHECKED and (kind != TIMED or data[8:HEADER] != self._stamp())):
            return super().get_code(fullname)
        code: CodeType = _compile_bytecode(memoryview(data)[HEADER:], fullname, self._compiled, self.path)
        return code

    def _stamp(self) -> bytes:
        """The source's time and size as compiled files have them."""
        status = posix.stat(self.path)
        return (int(status.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (status.st_size & 0xFFFFFFFF).to_bytes(4, "little")


class CompiledFinder:
    """Finds the modules of the package in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Where a module of ours is; None for every other, and for one that has no source there."""
        if not name.startswith(PREFIX):
            return None
        base = f"{self._folder}/{name[len(PREFIX) :].replace('.', '/')}"
        if posix.access(f"{base}.py", posix.F_OK):
            folder, _, stem = base.rpartition("/")
            return self._describe(name, f"{base}.py", f"{folder}/__pycache__/{stem}{SUFFIX}")
        if not posix.access(f"{base}/__init__.py", posix.F_OK):
            return None
        spec = self._describe(name, f"{base}/__init__.py", f"{base}/__pycache__/__init__{SUFFIX}")
        spec.submodule_search_locations = [base]
        return spec

    def _describe(self, name: str, path: str, compiled: str) -> ModuleSpec:
        spec = ModuleSpec(name, CompiledLoader(name, path, compiled), origin=path)
        spec.cached = compiled
        spec.has_location = True
        return spec
