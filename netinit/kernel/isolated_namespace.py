"""A new, unnamed network namespace: for probe peers, feature checks and the lab."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Self

from netinit.base.errors import LabError
from netinit.base.system import posix
from netinit.kernel import Closing, namespaces


class NamespaceSwitch:
    """Run a block in the namespace of a descriptor, or in a new one, and return the calling thread to its own.

    Raises NamespaceError.
    """

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor
        self._home = -1

    def __enter__(self) -> Self:
        self._home = namespaces.open_own()
        try:
            if self._descriptor < 0:
                namespaces.unshare()
            else:
                namespaces.enter(self._descriptor)
        except BaseException:
            posix.close(self._home)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with Closing(self._home):
            namespaces.enter(self._home)


class IsolatedNamespace:
    """A new network namespace with `lo` down, as a context manager that holds it open.

    What enters `_stack` lives until the block ends.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._stack = ExitStack()
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._descriptor = None
        self._stack.close()

    @property
    def descriptor(self) -> int:
        """The descriptor of the namespace, for setns(2)."""
        if self._descriptor is None:
            raise LabError(f"the namespace {self.name!r} is not open; use it inside its `with` block")
        return self._descriptor

    def entered(self) -> NamespaceSwitch:
        """Return a block in which the calling thread is in this namespace; sockets and processes made there stay in it."""
        return NamespaceSwitch(self.descriptor)

    def _open(self) -> None:
        with NamespaceSwitch():
            self._hold(namespaces.open_own())

    def _hold(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stack.callback(os.close, descriptor)
