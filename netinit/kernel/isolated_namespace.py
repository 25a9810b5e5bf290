"""A fresh network namespace without a name: for a peer of a moment, for feature checks, and for the laboratory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from netinit.base.errors import LabError
from netinit.kernel import namespaces


class IsolatedNamespace:
    """A fresh network namespace with `lo` down, held by a descriptor of this process; use it in a `with` block.

    What is entered into `_stack` lives until the block ends.
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
        """The open file descriptor of the namespace, usable with setns(2)."""
        if self._descriptor is None:
            raise LabError(f"the namespace {self.name!r} is not open; use it inside its `with` block")
        return self._descriptor

    @property
    def path(self) -> str:
        """A path that other processes can open to enter the namespace, as `nsenter --net=PATH` does."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def entered(self) -> namespaces.Visit:
        """A block inside which the calling thread is in this namespace: sockets and processes made there stay in it."""
        return namespaces.Visit(self.descriptor)

    def set_sysctl(self, name: str, value: str | int) -> None:
        """The kernel setting (`net.ipv6.conf.all.disable_ipv6` or with slashes) has the value in this namespace."""
        with self.entered():
            write_sysctl(name, value)

    def _open(self) -> None:
        """The namespace exists, held open by `_descriptor`."""
        with namespaces.Visit():
            self._hold(namespaces.open_own())

    def _hold(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stack.callback(os.close, descriptor)


def write_sysctl(name: str, value: str | int) -> None:
    """The kernel setting has the value in this thread's network namespace.

    A name with slashes is taken as a path (interfaces may have dots in their names), else dots become slashes.
    Raises LabError when the kernel does not have the setting or /proc/sys is read-only.
    """
    path = Path("/proc/sys") / (name if "/" in name else name.replace(".", "/"))
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise LabError(f"cannot set {name}={value}: {error.strerror}") from error
