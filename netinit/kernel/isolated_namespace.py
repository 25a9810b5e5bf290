"""A new, unnamed network namespace: for probe peers, feature checks and the lab."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Self

from netinit.base.errors import LabError
from netinit.kernel import namespaces


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

    def entered(self) -> namespaces.NamespaceSwitch:
        """Return a block in which the calling thread is in this namespace; sockets and processes made there stay in it."""
        return namespaces.NamespaceSwitch(self.descriptor)

    def _open(self) -> None:
        with namespaces.NamespaceSwitch():
            self._hold(namespaces.open_own())

    def _hold(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stack.callback(os.close, descriptor)
