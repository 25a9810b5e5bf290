"""What every backend does: look, compare, change. And the names of what there is.

A backend speaks to the kernel of the namespace that this process is in. It looks first; a change is computed by pure
code from what was seen and the plan, and is committed whole: all families or none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from netinit.base.records import Record
from netinit.rules.model import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.model import Difference


class State(Record):
    """What a backend saw. A backend's own kind holds it in the backend's terms; here is what callers may ask."""

    ours: bool  # rules of this project (or of Istio) are there
    foreign: bool  # foreign rules are there
    notices: tuple[str, ...] = ()  # what the operator should know of what was seen

    @abstractmethod
    def compare(self, plan: Plan) -> Comparison:
        """The live rules beside those of a plan."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """The live rules as the dialect lists them, by family or dialect name, for the log."""


class Comparison(ABC):
    """What was seen beside a plan, and the changes that follow from it.

    `differences` say how the live rules differ from the plan, in the order of the rules; empty when they are as planned.
    """

    differences: tuple[Difference, ...]

    @abstractmethod
    def ours(self) -> dict[str, tuple[str, ...]]:
        """What a removal takes away: the rules of ours as listed, by backend's place (family, table, chain)."""

    @abstractmethod
    def shadows(self) -> tuple[Difference, ...]:
        """Foreign rules that stand before ours and may decide first."""

    @abstractmethod
    def resumable(self) -> bool:
        """True when the live rules are what an interrupted first run of this plan leaves (so finishing is safe)."""

    @abstractmethod
    def change(self, *, force: bool = False) -> Change:
        """What turns the live rules of ours into the plan's; what is right already is left out unless `force` is set."""

    def committed(self) -> dict[str, str]:
        """The rules once the change is committed, spelled like a state's `describe`; empty where only the kernel knows."""
        return {}

    @abstractmethod
    def removal(self) -> Change:
        """What removes every rule of ours; the plan helps to recognise those that could be anybody's.

        ApplyError when foreign rules lead into ours.
        """


class Change(Record):
    """A change that was computed and not made yet: what is to be fed to the kernel, and the state to return to."""

    scripts: dict[str, str]  # destination (a family's name, or the backend's) -> input
    before: State
    plan: Plan


def filled(scripts: dict[str, str]) -> dict[str, str]:
    """The scripts that have something in them."""
    return {name: script for name, script in scripts.items() if script}


class Lock:
    """What is held while rules are changed, by `with`: nothing, where the kernel's own transactions separate runs."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Backend(ABC):
    """A program or library that programs the kernel."""

    name: str
    in_kernel: bool = True  # False: routes and addresses are not to be touched either

    @abstractmethod
    def observe(self) -> State:
        """The live rules. BackendUnavailableError when this backend cannot work here, LockedError when it must not now."""

    def prepare(self) -> None:  # noqa: B027 - most backends gain nothing by it
        """Gets ready what a commit will need, in the background; `release` when none will come."""

    def release(self) -> None:  # noqa: B027
        """Ends what `prepare` began and no commit has used."""

    @abstractmethod
    def commit(self, change: Change) -> None:
        """Makes the change, wholly or not at all. ApplyError, LockedError, BackendUnavailableError."""

    @abstractmethod
    def put_back(self, change: Change) -> None:
        """The inverse of a commit: our rules are what they were before the change, whatever of it was made.

        Errors as for `commit`; ApplyError names what could not be put back.
        """

    def lock(self) -> Lock:
        """What other programs of the dialect respect, to be held over a whole run. LockedError when it is entered."""
        return Lock()

    @abstractmethod
    def list_rules(self) -> dict[str, str]:
        """The live rules, spelled like a state's `describe`; quicker than to look."""
