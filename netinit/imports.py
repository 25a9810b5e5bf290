"""Finds and reads netinit's own compiled modules, in half of the time that Python's own finder takes.

A start by path (the image's) imports some forty modules, which is most of an `apply`. Python looks for each of them among
shared libraries too, in folders that it lists first, with eight more calls to the system for each file. Here a module
is where its name says. What is no module of ours, or has no compiled file that is of its source, is left to Python.

Python's account of an import (locks, specifications, lists of finders) takes as long as to read a module. What an `apply`
imports is known, so it is loaded without one: see TOGETHER.
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

PREFIX = f"{__package__}."
SUFFIX = f".{sys.implementation.cache_tag}.pyc"
# How a compiled file begins (PEP 552): of a source of this time and size, or never to be compared with its source.
TIMED, UNCHECKED = MAGIC_NUMBER + bytes(4), MAGIC_NUMBER + b"\1\0\0\0"
HEADER = 16  # bytes before the code
MOST = 40 << 10  # bytes that are read at once; the largest module of the lean path has 31 KiB

# By module of the lean path: the files of what it imports, in the order in which they need each other. A test holds the
# lists against what a plain `apply` imports; where one is wrong, Python imports what is missing.
TOGETHER = {
    "netinit.cli.start": "base/__init__ base/errors base/shown base/logs base/records",
    "netinit.options": "base/net options/kinds options/declare options/interception options/argv",
    "netinit.pods.apply": (
        "kernel/__init__ kernel/netlink kernel/run kernel/detect rules/__init__ rules/matches/__init__ rules/targets rules/model"
        " backends/__init__ backends/routes kernel/namespaces backends/machine pods/inspect pods/transaction rules/layouts/__init__"
    ),
    "netinit.backends.nftables": "rules/matches/packet rules/nft/__init__",
    "netinit.backends.restore": "rules/iptables/__init__ rules/iptables/write backends/iptables",
    "netinit.rules.layouts.current": (
        "rules/matches/packet rules/layouts/builder rules/layouts/inbound rules/layouts/outbound"
        " rules/matches/context rules/more_targets rules/layouts/untranslated"
    ),
}


def begin(package: str) -> None:
    """From here on the modules of the package in this folder are found so; the folder itself is no place to import from."""
    gc.disable()  # as for all of an apply, see netinit.cli.start
    sys.path = [path for path in sys.path if path != package]
    sys.meta_path.insert(0, CompiledFinder(package))
    sys.modules["__future__"].__class__ = PlainModule  # every module of ours imports from it


class PlainModule(type(sys)):  # type: ignore[misc] # types.ModuleType, without importing types
    """A module without a function `__getattr__`. Each `from … import` asks whether it is a package: here the answer no is no error."""

    __getattribute__ = object.__getattribute__


class CompiledLoader(SourceFileLoader):
    """Python's loader of sources, but that a compiled file is read at once, and what the module imports is loaded before."""

    def __init__(self, name: str, path: str, finder: CompiledFinder) -> None:
        self.name, self.path, self._finder = name, path, finder
        folder, _, file = path.rpartition("/")
        self.compiled = f"{folder}/__pycache__/{file[:-3]}{SUFFIX}"

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's code."""
        if self.name in TOGETHER and "threading" not in sys.modules:  # there are no locks here
            for file in TOGETHER[self.name].split():
                self._finder.load(file)
        exec(self.get_code(self.name), module.__dict__)  # noqa: S102 - that is what a loader does

    def get_code(self, fullname: str) -> CodeType:
        """The module's code; SourceFileLoader's where the compiled file is not the source's."""
        try:
            descriptor = posix.open(self.compiled, posix.O_RDONLY | posix.O_CLOEXEC)
        except OSError:
            return self._compile(fullname)
        try:
            data = posix.read(descriptor, MOST)
        finally:
            posix.close(descriptor)
        kind = data[:8]
        if len(data) == MOST or (kind != UNCHECKED and (kind != TIMED or data[8:HEADER] != self._stamp())):
            return self._compile(fullname)
        code: CodeType = _compile_bytecode(memoryview(data)[HEADER:], fullname, self.compiled, self.path)
        return code

    def _compile(self, fullname: str) -> CodeType:
        code: CodeType = super().get_code(fullname)  # type: ignore[assignment] # a source always has some
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
        place = name[len(PREFIX) :].replace(".", "/")
        for file in (place, f"{place}/__init__"):
            if posix.access(f"{self._folder}/{file}.py", posix.F_OK):
                return self._describe(name, file)
        return None

    def load(self, file: str) -> None:
        """Loads a module of ours, whose package is loaded already, as an import would."""
        name = PREFIX + file.removesuffix("/__init__").replace("/", ".")
        if name in sys.modules:
            return
        spec = self._describe(name, file)
        loader: CompiledLoader = spec.loader  # type: ignore[assignment]
        module = PlainModule(name)
        names = module.__dict__
        names["__spec__"], names["__loader__"], names["__package__"] = spec, loader, spec.parent
        names["__file__"], names["__cached__"] = spec.origin, spec.cached
        if spec.submodule_search_locations is not None:
            names["__path__"] = spec.submodule_search_locations
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        package, _, stem = name.rpartition(".")
        setattr(sys.modules[package], stem, module)

    def _describe(self, name: str, file: str) -> ModuleSpec:
        path = f"{self._folder}/{file}.py"
        loader = CompiledLoader(name, path, self)
        spec = ModuleSpec(name, loader, origin=path)
        spec.cached = loader.compiled
        spec.has_location = True
        if file.endswith("/__init__"):
            spec.submodule_search_locations = [path.rpartition("/")[0]]
        return spec
