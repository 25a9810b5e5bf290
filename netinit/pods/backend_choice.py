"""Find existing rules and decide which backends to try in which order.

Choosing changes nothing. Applying is the test: if a backend cannot
work, the next one is tried.
"""

from __future__ import annotations

from netinit.backends import AUTO_ORDER, BACKENDS, Backend, State, readers
from netinit.backends.machine import HERE, Machine
from netinit.base.errors import BackendUnavailableError
from netinit.base.records import Record
from netinit.options import AUTO, SettledOptions
from netinit.rules.model import LEFTOVER, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from netinit.base.snapshot import Snapshot


class Observed(Record):
    """A backend and what it observed."""

    backend: Backend
    state: State


class Survey:
    """The backends that hold rules here and the candidates to try, each loaded and read on demand, or from a snapshot."""

    def __init__(
        self, options: SettledOptions, *, thorough: bool = True, machine: Machine = HERE,
        snapshot: Snapshot | None = None,
    ) -> None:  # fmt: skip
        self._options = options
        self._observed: dict[str, Observed] = {}
        self._failures: dict[str, BackendUnavailableError] = {}
        self._machine = machine
        self._snapshot = snapshot
        self._excused: set[str] = set()  # backends that could not read what another could
        for name in machine.occupied(options, thorough=thorough):
            for reader in readers(name):
                if self._look(reader):
                    break
                self._excused.add(reader)
            else:
                self._excused -= set(readers(name))

    @property
    def failures(self) -> dict[str, BackendUnavailableError]:
        """The backends that could not read their tables, and why."""
        return {name: reason for name, reason in self._failures.items() if name not in self._excused}

    def holders(self) -> tuple[Observed, ...]:
        """The backends that hold rules of ours."""
        seen = self._observed
        first = [name for name in seen if name == next(one for one in seen if one in readers(name))]  # of those of the same tables
        return tuple([seen[name] for name in first if seen[name].state.ours])

    def others(self, chosen: Backend) -> tuple[Observed, ...]:
        """Return the backends beside the chosen one that hold rules of ours."""
        holders = [observed for observed in self.holders() if observed.state.in_use]
        return tuple([observed for observed in holders if observed.backend.name not in readers(chosen.name)])

    def candidates(self) -> Iterator[Observed]:
        """Yield the backends to try, in order.

        The one that the options name, else the one with rules of ours, then one that shares a table with foreign rules,
        then the rest in the order of `AUTO_ORDER`. Empty tables and chains do not count.
        """
        wanted = self._options.wanted_backend
        tried: set[str] = set()
        for name in (wanted,) if wanted != AUTO else self._names():
            if name not in tried and (observed := self._observed.get(name) or self._look(name)):
                yield observed
            tried.add(name)

    def _names(self) -> Iterator[str]:
        yield from [observed.backend.name for observed in self.holders() if observed.state.in_use]
        yield from [name for name, seen in self._observed.items() if seen.state.foreign and BACKENDS[name].joins_foreign]
        yield from AUTO_ORDER

    def _look(self, name: str) -> Observed | None:
        if name in self._failures:
            return None
        try:
            backend = self._machine.load(name, self._options, self._options.kernel_families)
            self._observed[name] = Observed(backend=backend, state=backend.observe(self._snapshot))
        except BackendUnavailableError as error:
            self._failures[name] = error
            return None
        return self._observed[name]


def describe_leftover(observed: Observed) -> Difference:
    """Return a difference for rules of ours that the chosen backend does not read."""
    rule = "rules of an earlier run are active beside the chosen backend's"
    return Difference(kind=LEFTOVER, where=observed.backend.name, rule=rule)
