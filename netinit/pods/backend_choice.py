"""What is in the kernel already, and which backends are to be tried in which order.

Choosing leaves no trace: nothing is created to see whether it works, and programs are started only where the kernel says
that there is something to list. The attempt to apply is the test; a backend that cannot work makes room for the next.
"""

from __future__ import annotations

from netinit.backends import AUTO_ORDER, BACKENDS, Backend, State, is_installed, readers
from netinit.backends.machine import HERE, Machine
from netinit.base.errors import BackendUnavailableError
from netinit.base.net import Family
from netinit.base.records import Record
from netinit.options import AUTO, Options
from netinit.rules.model import LEFTOVER, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Observed(Record):
    """A backend and what it observed."""

    backend: Backend
    state: State


class Survey:
    """Who holds rules here, and whom to try. Backends are loaded and looked through when they are needed."""

    def __init__(
        self, options: Options, families: tuple[Family, ...], *, thorough: bool = True, machine: Machine = HERE
    ) -> None:
        self._options = options
        self._families = families
        self._observed: dict[str, Observed] = {}
        self._failures: dict[str, BackendUnavailableError] = {}
        self._machine = machine
        self._excused: set[str] = set()  # those that could not look where another could
        for name in machine.occupied(options, thorough=thorough):
            for reader in sorted(readers(name), key=_lacks_programs):  # all see the same, but these could not change it
                if self._look(reader):
                    break
                self._excused.add(reader)
            else:
                self._excused -= set(readers(name))

    @property
    def failures(self) -> dict[str, BackendUnavailableError]:
        """The backends that could not even look, and why."""
        return {name: reason for name, reason in self._failures.items() if name not in self._excused}

    def holders(self) -> tuple[Observed, ...]:
        """The backends that hold rules of ours."""
        first = {name: observed for name, observed in self._observed.items() if name == self._first_reader(name)}
        return tuple([observed for observed in first.values() if observed.state.ours])

    def prepare(self) -> None:
        """Looks through the first candidate, and gets it ready to program a namespace that has no rules of ours yet."""
        first = next(iter(self.candidates()), None)
        if first is not None and not first.state.ours:
            try:
                first.backend.prepare()
            except BackendUnavailableError:
                first.backend.release()  # its commit will fail as well, and say why

    def release(self) -> None:
        """Ends what was got ready and not used."""
        for observed in self._observed.values():
            observed.backend.release()

    def _first_reader(self, name: str) -> str:
        """The first of the backends that have looked at the same tables."""
        return next(reader for reader in self._observed if reader in readers(name))

    def others(self, chosen: Backend) -> tuple[Observed, ...]:
        """The others, beside the chosen backend, that hold rules of ours."""
        holders = [observed for observed in self.holders() if observed.state.in_use]
        return tuple([observed for observed in holders if observed.backend.name not in readers(chosen.name)])

    def candidates(self) -> Iterator[Observed]:
        """The backends to try, in order.

        The one the options name; or the one that holds our rules, then one that joins the foreign rules that
        are there, then those of the table in its order. Empty tables and chains are no rules.
        """
        wanted = self._options.wanted_backend
        for name in (wanted,) if wanted != AUTO else self._preference():
            observed = self._observed.get(name) or self._look(name)
            if observed:
                yield observed

    def _preference(self) -> tuple[str, ...]:
        holding = [observed.backend.name for observed in self.holders() if observed.state.in_use]
        foreign = [name for name, seen in self._observed.items() if seen.state.foreign and BACKENDS[name].joins_foreign]
        return tuple(dict.fromkeys((*holding, *foreign, *AUTO_ORDER)))

    def _look(self, name: str) -> Observed | None:
        if name in self._failures:
            return None
        try:
            backend = self._machine.load(name, self._options, self._families)
            self._observed[name] = Observed(backend=backend, state=backend.observe())
        except BackendUnavailableError as error:
            self._failures[name] = error
            return None
        return self._observed[name]


def _lacks_programs(name: str) -> bool:
    return not is_installed(name)


def describe_leftover(observed: Observed) -> Difference:
    """Rules of ours where the chosen backend does not look."""
    rule = "rules of an earlier run are active beside the chosen backend's"
    return Difference(kind=LEFTOVER, where=observed.backend.name, rule=rule)
