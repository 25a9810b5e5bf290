"""What is in the kernel already, and which backends are to be tried in which order.

Choosing leaves no trace: nothing is created to see whether it works, and programs are started only where the kernel says
that there is something to list. The attempt to apply is the test; a backend that cannot work makes room for the next.
"""

from __future__ import annotations

from netinit import backends
from netinit.backends import AUTO_ORDER, LEGACY, LIBIPTC
from netinit.backends.base import Backend, State
from netinit.backends.machine import HERE, Machine
from netinit.base.errors import BackendUnavailableError
from netinit.base.net import Family
from netinit.base.records import Record
from netinit.options import AUTO, Options
from netinit.rules.difference import LEFTOVER, Difference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Side(Record):
    """A backend and what it saw."""

    backend: Backend
    state: State


class Survey:
    """Who holds rules here, and whom to try. Backends are loaded and looked through when they are needed."""

    def __init__(
        self, options: Options, families: tuple[Family, ...], *, thorough: bool = True, machine: Machine = HERE
    ) -> None:
        self._options = options
        self._families = families
        self._sides: dict[str, Side] = {}
        self._failures: dict[str, str] = {}
        self._machine = machine
        for name in machine.occupied(options, thorough=thorough):
            if not self._look(name) and name == LEGACY:
                self._look(LIBIPTC)  # which sees the same without a program

    @property
    def failures(self) -> dict[str, str]:
        """The backends that could not even look, and why."""
        return {name: reason for name, reason in self._failures.items() if name != LEGACY or LIBIPTC not in self._sides}

    def holders(self) -> tuple[Side, ...]:
        """The sides of the kernel that hold rules of ours."""
        seen = [side for name, side in self._sides.items() if name != LIBIPTC or LEGACY not in self._sides]
        return tuple([side for side in seen if side.state.ours])

    def others(self, chosen: Backend) -> tuple[Side, ...]:
        """The sides that hold rules of ours beside the chosen backend's."""
        if not chosen.in_kernel:
            return ()
        own = (LEGACY, LIBIPTC) if chosen.name in (LEGACY, LIBIPTC) else (chosen.name,)  # the two see the same tables
        return tuple([side for side in self.holders() if side.backend.name not in own])

    def candidates(self) -> Iterator[Side]:
        """The backends to try, in order.

        The one the options name; or the one that holds our rules, then legacy if rules of others are there (both
        interfaces would be walked), then nft, then whatever is left.
        """
        wanted = backends.named(self._options)
        for name in (wanted,) if wanted != AUTO else self._preference():
            side = self._sides.get(name) or self._look(name)
            if side:
                yield side

    def _preference(self) -> tuple[str, ...]:
        holding = [side.backend.name for side in self.holders()]
        crowded = [LEGACY] if LEGACY in self._sides and self._sides[LEGACY].state.others else []
        return tuple(dict.fromkeys((*holding, *crowded, *AUTO_ORDER)))

    def _look(self, name: str) -> Side | None:
        if name in self._failures:
            return None
        try:
            backend = self._machine.load(name, self._options, self._families)
            self._sides[name] = Side(backend=backend, state=backend.observe())
        except BackendUnavailableError as error:
            self._failures[name] = str(error)
            return None
        return self._sides[name]


def describe_leftover(side: Side) -> Difference:
    """Rules of ours where the chosen backend does not look."""
    return Difference(
        kind=LEFTOVER, where=side.backend.name, rule="rules of an earlier run are active beside the chosen backend's"
    )
