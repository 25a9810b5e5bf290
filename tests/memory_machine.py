"""A machine in memory: a namespace whose backends, policy rules, routes, addresses and locks are values.

apply, remove and verify run on it without privileges. Each backend has tables of its own; the rules are spelled as
iptables' in all of them, and refused as memory_backend refuses. Any change can be made to fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from memory_backend import MemoryBackend, MemoryKernel
from netinit.backends import AUTO_ORDER, Backend, Lock
from netinit.backends.machine import Machine
from netinit.base.errors import BackendUnavailableError, LockedError, NamespaceError, NetinitError
from netinit.base.net import FAMILIES, Family, HostAddress
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW
from netinit.kernel.netlink import LOOPBACK_INDEX, LocalRoute, PolicyRule
from netinit.options import Facts, Options, SettledOptions

Result = TypeVar("Result")

NO_SUCH_THING, EXISTS = 2, 17  # ENOENT, EEXIST
FIRST_PRIORITY = 32765  # of policy rules, downwards


class MemoryLink:
    """Policy rules, routes and the addresses of lo, with the refusals of the kernel; `step` is called with each change."""

    def __init__(self, step: Callable[[str], None]) -> None:
        self.rules: list[PolicyRule] = []
        self.routes: list[LocalRoute] = []
        self.addresses: list[str] = []
        self._step = step

    def list_mark_rules(self, family: int, /) -> tuple[PolicyRule, ...]:
        """The rules of a family, the last added first, as the kernel lists them."""
        return tuple(sorted([rule for rule in self.rules if rule.family == family], key=lambda rule: rule.priority))

    def list_local_routes(self, family: int, /) -> tuple[LocalRoute, ...]:
        """The routes of a family."""
        return tuple([route for route in self.routes if route.family == family])

    def list_addresses(self) -> tuple[HostAddress, ...]:
        """The addresses of lo."""
        return tuple([HostAddress(family=10, address=text, length=128, index=LOOPBACK_INDEX) for text in self.addresses])

    def change_mark_rule(self, rule: PolicyRule, /, *, add: bool) -> None:
        """Adds a rule, at its priority or before all others, or removes exactly that one."""
        same = [one for one in self.rules if one.replace(priority=0) == rule.replace(priority=0)]
        places = [one for one in same if rule.priority in (0, one.priority)]
        free = min([one.priority for one in self.rules], default=FIRST_PRIORITY + 1) - 1
        self._change("rule", self.rules, places[:1], [rule if rule.priority else rule.replace(priority=free)], add=add)

    def change_local_route(self, route: LocalRoute, /, *, add: bool) -> None:
        """Adds a route, or removes it."""
        same = [one for one in self.routes if (one.family, one.table) == (route.family, route.table)]
        self._change("route", self.routes, same if add else [one for one in same if one == route], [route], add=add)

    def change_loopback_address(self, address: str, /, *, add: bool) -> None:
        """Adds an address to lo, or removes it."""
        self._change("address", self.addresses, [one for one in self.addresses if one == address], [address], add=add)

    def _change(self, kind: str, held: list[Result], found: list[Result], new: list[Result], *, add: bool) -> None:
        self._step(f"{'add' if add else 'delete'} {kind}")
        if bool(found) is add:
            raise OSError(EXISTS if add else NO_SUCH_THING, "refused")
        if add:
            held += new
        else:
            held.remove(found[0])


class MemoryLock(Lock):
    """A lock of the machine, by name: LockedError where another run has it."""

    def __init__(self, machine: MemoryMachine, name: str) -> None:
        self._machine = machine
        self._name = name

    def __enter__(self) -> None:
        if self._name in self._machine.locked:
            raise LockedError(f"{self._name} is held by process 1 (somebody)")
        self._machine.held.append(self._name)

    def __exit__(self, *_: object) -> None:
        self._machine.held.remove(self._name)


class MemoryMachineBackend(MemoryBackend):
    """A backend of a machine in memory, under the name of one of the kernel's."""

    def __init__(self, name: str, machine: MemoryMachine, families: tuple[Family, ...], *, comments: bool) -> None:
        super().__init__(comments=comments, families=families, kernel=machine.tables[name])
        self.name = name
        self._machine = machine

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """As of a backend in memory; each family's input is a step of its own."""
        failed: dict[Family, NetinitError] = {}
        for family, script in scripts.items():
            try:
                self._machine.step(f"{self.name} {family.name}")
            except NetinitError as error:
                failed[family] = error
            else:
                failed |= super().feed({family: script})
        return failed

    def lock(self) -> Lock:
        """One for each backend."""
        return MemoryLock(self._machine, self.name)


class MemoryMachine(Machine):
    """One pretended machine, and the pod's namespace on it.

    `own` makes the namespace the machine's; `locked` names the locks that others hold ("namespace", or a backend's name);
    `missing` the backends that cannot work. `fail` is asked at each change, by its description: what it returns is raised.
    """

    link: MemoryLink

    def __init__(self) -> None:
        self.tables = {name: MemoryKernel() for name in AUTO_ORDER}
        self.link = MemoryLink(self.step)
        self.families: tuple[Family, ...] = FAMILIES
        self.capabilities = {CAP_NET_ADMIN, CAP_NET_RAW}
        self.own = False
        self.locked: set[str] = set()
        self.held: list[str] = []
        self.missing: set[str] = set()
        self.steps: list[str] = []
        self.fail: Callable[[str], BaseException | None] = lambda _: None

    def step(self, what: str) -> None:
        """Notes a change that is about to be made; raises what `fail` returns."""
        self.steps.append(what)
        error = self.fail(what)
        if error is not None:
            raise error

    def snapshot(self) -> str:
        """All that a run may change, as text; empty tables are left out."""
        lines = [f"{name}\n{self.tables[name].list_rules(family)}" for name in self.tables for family in FAMILIES]
        rules = sorted(self.link.rules, key=lambda rule: rule.priority)
        return "\n".join([*lines, *map(repr, rules), *sorted(map(repr, self.link.routes)), *self.link.addresses])

    def has_capability(self, number: int) -> bool:
        return number in self.capabilities

    def refuse_own_namespace(self) -> None:
        if self.own:
            raise NamespaceError("this is the machine's own network namespace")

    def lock(self, nanoseconds: int) -> Lock:
        return MemoryLock(self, "namespace")

    def settle(self, options: Options) -> SettledOptions:
        """The machine's interfaces have no address, and nobody's name servers are known."""
        return options.settle(Facts(kernel_families=self.families, list_addresses=tuple))

    def occupied(self, options: Options, *, thorough: bool) -> tuple[str, ...]:
        return tuple([name for name, kernel in self.tables.items() if any(kernel.tables.values())])

    def load(self, name: str, options: Options, families: tuple[Family, ...]) -> Backend:
        if name in self.missing:
            raise BackendUnavailableError(f"{name} is not installed")
        return MemoryMachineBackend(name, self, families, comments=options.rule_comments)

    def renamed_loopback(self) -> str:
        return ""

    def dormant_tables(self) -> tuple[tuple[int, str], ...]:
        """None: the tables are no kernel's."""
        return ()

    def set_dormant(self, family: int, table: str, *, dormant: bool) -> None:
        """Nothing: see `dormant_tables`."""

    def read_snapshot(self) -> None:
        """Nothing: no kernel has these rules."""

    def is_plain(self, known: object, *, tables: object, addresses: object, excluded: object, own_legacy: bool, sure: bool) -> bool:
        """Always: no kernel has these rules."""
        return True

    def inside(self, options: Options, action: Callable[[Options, str], Result]) -> Result:
        return action(options, "")
