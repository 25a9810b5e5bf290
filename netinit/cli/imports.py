"""Finds and reads netinit's own compiled modules, in half of the time that Python's own finder takes.

A start by path (the image's) imports some forty modules, which is most of an `apply`. Python looks for each of them among
shared libraries too, in folders that it lists first, with eight more calls to the system for each file. Here a module
is where its name says. What is not a module of ours, or has no compiled file that is of its source, is left to Python.
"""

from __future__ import annotations

import gc
import posix
import sys
from _frozen_importlib import ModuleSpec  # importlib's own, without importing it
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader, _compile_bytecode  # type: ignore[attr-defined]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType

PREFIX = "netinit."
SUFFIX = f".{sys.implementation.cache_tag}.pyc"
# How a compiled file begins (PEP 552): of a source of this time and size, or never to be compared with its source.
TIMED, UNCHECKED = MAGIC_NUMBER + bytes(4), MAGIC_NUMBER + b"\1\0\0\0"
HEADER = 16  # bytes before the code
MAX_MODULE_BYTES = 40 << 10  # bytes that are read at once; the largest module of the lean path has 31 KiB


def begin(package: str) -> None:
    """From here on the modules of the package in this folder are found so; the folder itself is no place to import from."""
    gc.disable()  # as for all of an apply, see netinit.cli.start
    sys.path = [path for path in sys.path if path != package]
    sys.meta_path.insert(0, CompiledFinder(package))


class CompiledLoader(SourceFileLoader):
    """Python's loader of sources, except that it reads a compiled file in one call."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        folder, _, file = path.rpartition("/")
        self.compiled = f"{folder}/__pycache__/{file[:-3]}{SUFFIX}"

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code."""
        exec(self.get_code(self.name), module.__dict__)  # noqa: S102 - that is what a loader does

    def get_code(self, fullname: str) -> CodeType:
        """The module's code; SourceFileLoader's where the compiled file is not the source's."""
        try:
            descriptor = posix.open(self.compiled, posix.O_RDONLY | posix.O_CLOEXEC)
        except OSError:
            return self._compile(fullname)
        try:
            data = posix.read(descriptor, MAX_MODULE_BYTES)
        finally:
            posix.close(descriptor)
        kind = data[:8]
        if len(data) == MAX_MODULE_BYTES or (kind != UNCHECKED and (kind != TIMED or data[8:HEADER] != self._source_stamp())):
            return self._compile(fullname)
        code: CodeType = _compile_bytecode(memoryview(data)[HEADER:], fullname, self.compiled, self.path)
        return code

    def _compile(self, fullname: str) -> CodeType:
        code: CodeType = super().get_code(fullname)  # type: ignore[assignment] # a source always has some
        return code

    def _source_stamp(self) -> bytes:
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
        place = name[len(PREFIX) :].replace(".", "/")
        for file in (place, f"{place}/__init__"):
            path = f"{self._folder}/{file}.py"
            if posix.access(path, posix.F_OK):
                loader = CompiledLoader(name, path)
                spec = ModuleSpec(name, loader, origin=path)
                spec.cached = loader.compiled
                spec.has_location = True
                if file.endswith("/__init__"):
                    spec.submodule_search_locations = [path.rpartition("/")[0]]
                return spec
        return None
