"""What applying, removing and verifying need of a machine: privileges, locks, addresses, routes, and its backends.

The one that this process runs on is the default everywhere. memory_machine has one that is a value in memory, so that
whole runs, their failures too, are tested without privileges.
"""

from __future__ import annotations

import posix

from netinit import backends
from netinit.backends import Backend, Lock
from netinit.base.net import Family
from netinit.kernel import detect, namespaces, netlink
from netinit.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from abc import abstractmethod
    from collections.abc import Callable
    from typing import Protocol, TypeVar

    from netinit.backends.routes import RouteNetlink

    Result = TypeVar("Result")

    class Machine(Protocol):
        """A machine, seen from one network namespace; `link` lists and changes policy rules, routes and addresses."""

        link: RouteNetlink

        @abstractmethod
        def has_capability(self, number: int) -> bool:
            """Whether a capability is in effect (capabilities(7))."""

        @abstractmethod
        def refuse_own_namespace(self) -> None:
            """NamespaceError where this is the machine's own network namespace."""

        @abstractmethod
        def lock(self, nanoseconds: int) -> Lock:
            """The namespace's lock, for one run; LockedError when it is entered and not had in time."""

        @abstractmethod
        def settle(self, options: Options) -> detect.Settled:
            """The options without what they leave to the pod's addresses and name servers."""

        @abstractmethod
        def occupied(self, options: Options, *, thorough: bool) -> tuple[str, ...]:
            """The backends whose tables may hold rules; `thorough` where looking may register tables."""

        @abstractmethod
        def load(self, name: str, options: Options, families: tuple[Family, ...]) -> Backend:
            """The backend of this name; `families` are those that the kernel has."""

        @abstractmethod
        def inside(self, options: Options, action: Callable[[Options, str], Result]) -> Result:
            """What the action returned in the namespace that the options name; it gets a warning where that is the machine's."""
else:
    Machine = object  # what a machine can do is the type checker's business; a class is paid for at each start


class NamespaceLock(Lock):
    """The lock of this process's network namespace."""

    def __init__(self, nanoseconds: int) -> None:
        self._nanoseconds = nanoseconds

    def __enter__(self) -> None:
        self._descriptor = namespaces.lock(self._nanoseconds)

    def __exit__(self, *_: object) -> None:
        posix.close(self._descriptor)


class ThisMachine(Machine):
    """The machine and the namespace that this process is in."""

    link = netlink

    def has_capability(self, number: int) -> bool:
        return detect.has_capability(number)

    def refuse_own_namespace(self) -> None:
        namespaces.refuse_machine()

    def lock(self, nanoseconds: int) -> Lock:
        return NamespaceLock(nanoseconds)

    def settle(self, options: Options) -> detect.Settled:
        return detect.settle(options)

    def occupied(self, options: Options, *, thorough: bool) -> tuple[str, ...]:
        return backends.populated(options, thorough=thorough)

    def load(self, name: str, options: Options, families: tuple[Family, ...]) -> Backend:
        return backends.load(name, options, families)

    def inside(self, options: Options, action: Callable[[Options, str], Result]) -> Result:
        from netinit.kernel.pods import inside

        return inside(options, action)


HERE = ThisMachine()
