"""Backends: what changes rules in the kernel.

In this process's network namespace a backend observes the live rules, pure code computes a change to the plan, and the
backend commits it or rolls it back, all families or none. A new backend is a module here and a line in
netinit.options.BACKENDS.
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.errors import BackendUnavailableError
from netinit.base.logs import Log
from netinit.base.net import FAMILIES, Family
from netinit.base.records import Record
from netinit.base.system import EMBEDDED
from netinit.kernel import detect
from netinit.kernel.netlink import INET, OF_IPTABLES
from netinit.options import BACKENDS, FIRST_WITH, LEGACY_TABLES, NF_TABLES, TABLES_OF_OUR_OWN, RunOptions
from netinit.rules.model import BUILTIN_CHAINS, NFT_PREFIXES, Plan, expected_base
from netinit.rules.targets import format_chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from abc import ABC
    from collections.abc import Iterator
    from typing import TypeVar

    from netinit.base.snapshot import Snapshot
    from netinit.kernel.plain_namespace import KnownChains
    from netinit.rules import nft
    from netinit.rules.iptables.write import Written
    from netinit.rules.model import Difference
    from netinit.rules.promises import Unsupported

    Kind = TypeVar("Kind")
else:
    ABC = object  # as for records: abstract methods are for the type checker

__all__ = ["AUTO_ORDER", "BACKENDS", "load", "populated"]

AUTO_ORDER = tuple(BACKENDS)
SETS = "netinit.backends.ipset"  # has the classes with address sets: for long lists, or if an earlier run created sets
MANY_RULES = 20_000  # rules above which reading warns: the kernel lists 100,000 in 10 s


class State(Record):
    """The live rules that a backend observed, which subclasses keep in their own form."""

    ours: bool  # rules of this project (or of Istio) are there
    foreign: bool  # foreign rules exist; those in the same tables as ours are found by `compare` only
    comments: bool  # whether rules are written with comments
    notices: tuple[str, ...] = ()  # messages for the operator about the observed rules
    in_use: bool = True  # rules exist, or policies other than accept; empty tables and chains do not count
    of_nf_tables: bool = False  # the rules are those of iptables-nft
    beside: object = None  # what else was read for a comparison, which is not in a snapshot

    @abstractmethod
    def compare(self, plan: Plan) -> Comparison:
        """Compare the live rules with those of a plan."""

    @abstractmethod
    def removal(self, plan: Plan) -> Change:
        """Return the change that deletes every rule of ours. Raises ApplyError if foreign rules jump to our chains.

        `plan`: whose rules in built-in chains are ours.
        """

    @abstractmethod
    def removed(self, plan: Plan) -> dict[str, tuple[str, ...]]:
        """Return the rules that `removal` deletes, by place (family, table, chain)."""

    def list_chains(self) -> dict[Family, tuple[str, ...]]:
        """Return the names of the live chains by family, as the plan has them."""
        return {}

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return the live rules as the program lists them, by family or dialect."""


class Comparison(ABC):
    """The live rules compared with a plan."""

    state: State
    _differences: tuple[Difference, ...] | None = None

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The differences in the order of the rules, found when they are first asked for; empty if they match."""
        if self._differences is None:
            self._differences = self.find_differences()
        return self._differences

    @abstractmethod
    def find_differences(self) -> tuple[Difference, ...]:
        """Compare everything: see `differences`."""

    def known_chains(self) -> KnownChains | None:
        """Return the plan's nf_tables chains as the kernel holds them afterwards; None if the rules must be read to know.

        A listing may show a rule as planned although the kernel holds another: only a first run knows what it committed.
        """
        return None

    def differs(self) -> bool:
        """Whether there are differences."""
        return bool(self.differences)

    def shadows(self) -> tuple[Difference, ...]:
        """Return foreign rules before ours, which may decide first."""
        return ()

    @abstractmethod
    def resumable(self) -> bool:
        """Whether the live rules are what an interrupted first run of this plan leaves."""

    @abstractmethod
    def change(self, *, force: bool = False) -> Change:
        """Return the change to the plan; without `force` correct parts are left out."""

    def committed(self) -> dict[str, str]:
        """Return the rules after the commit, as `State.describe` does; empty if only the kernel knows them."""
        return {}


class Change(Record):
    """A change to commit, and the state to roll back to."""

    scripts: dict[str, str]  # destination (family name, or the backend's name) -> input, of backends that have any
    before: State
    plan: Plan


def of_kind(one: object, kind: type[Kind]) -> Kind:
    """Return a change, or a state, which must be of this kind. Raises TypeError for that of another backend."""
    if not isinstance(one, kind):
        raise TypeError(f"the change of another backend: {type(one).__name__}")
    return one


def filled(scripts: dict[str, str]) -> dict[str, str]:
    """Return the scripts that are not empty."""
    return {name: script for name, script in scripts.items() if script}


class Lock:
    """A lock held while rules change, as a context manager; this one does nothing, since transactions separate runs."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Backend(ABC):
    """One way to program the kernel."""

    name: str
    met_others = False  # whether other programs changed its tables between the last observation and the commit

    @abstractmethod
    def observe(self, snapshot: Snapshot | None = None) -> State:
        """Return the live rules: those of a snapshot, or read now what the backend needs.

        Raises BackendUnavailableError if the backend cannot work here, LockedError.
        """

    def keep(self, change: Change) -> Change:
        """Return the change, not yet committed, with what undoes it once it is; without it `roll_back` only undoes a part."""
        return change

    @abstractmethod
    def commit(self, change: Change) -> None:
        """Commit the change; after an error call `roll_back`, since part of it may be in the kernel.

        Raises ApplyError, LockedError, BackendUnavailableError.
        """

    @abstractmethod
    def roll_back(self, change: Change) -> None:
        """Restore the rules from before the change, committed or not.

        Raises the errors of `commit`; ApplyError names what could not be restored.
        """

    def find_unsupported(self, plan: Plan) -> Unsupported:  # noqa: ARG002 - a backend that asks overrides it
        """Return the plan's rules that the kernel does not take, asked of the kernel, by family, with what they need.

        Raises OSError if the kernel does not say, NetinitError.
        """
        return {}

    def lock(self) -> Lock:
        """Return the lock that other programs respect, for a whole run; entering it raises LockedError."""
        return Lock()


def load(name: str, options: RunOptions, families: tuple[Family, ...]) -> Backend:
    """Load a backend by name, for these options and the families that the kernel supports."""
    line = BACKENDS[name]
    longest = max(len(options.exclude_outbound_cidrs), len(options.outbound_cidrs))
    is_long = 0 < options.ipset_threshold < longest
    with_sets = line.with_sets and (is_long or _has_sets(line.variant))
    module, attribute = (SETS, line.with_sets) if with_sets else (line.module, line.made_by)
    more = {"threshold": options.ipset_threshold} if with_sets else {}
    # Imported on use: libiptc alone takes tens of milliseconds.
    try:
        loaded = __import__(module, fromlist=[attribute])
    except ModuleNotFoundError:
        if not EMBEDDED:
            raise
        raise BackendUnavailableError("not in this executable; choose another --backend") from None
    made: Backend = getattr(loaded, attribute)(
        comments=options.rule_comments, families=families, lock_timeout=options.lock_timeout, own_files=not options.cni_mode, **more
    )
    return made


def _may_hold_rules(family: Family, table: str) -> bool:
    from netinit.kernel.snapshot import legacy_tables  # rarely needed

    try:
        return legacy_tables.holds_rules(family, table)
    except OSError:  # NET_RAW is missing; the backend reports it
        return True


def owner_of_sets(variant: str) -> str:
    """Return the name prefix of an iptables variant's address sets."""
    return f"netinit-{variant}"


def _has_sets(variant: str) -> bool:
    return any(found.startswith(f"{owner_of_sets(variant)}-") for found in detect.owned_sets())


def readers(name: str) -> tuple[str, ...]:
    """Return the backends that read the same tables, including this one."""
    return tuple([line.name for line in BACKENDS.values() if line.tables == BACKENDS[name].tables])


def populated(options: RunOptions, *, thorough: bool = True) -> tuple[str, ...]:
    """Return the backends whose tables may hold rules; the others need not be read.

    Reading a legacy table creates it, so empty ones, and those whose names cannot be listed, count only if `thorough` is
    set. Logs a warning if reading will take seconds.
    """
    chains = detect.nft_chains()
    uses = sum([chain.uses for chain in chains or ()])
    if uses > MANY_RULES:
        Log(options.log_level, as_json=options.log_as_json).warn(f"there are some {uses:,} rules: reading them takes seconds")
    found = []
    of_nf_tables = chains is None or any(chain.family in OF_IPTABLES for chain in chains)
    if of_nf_tables or _has_sets(BACKENDS[FIRST_WITH[NF_TABLES]].variant):
        found.append(NF_TABLES)
    legacy = [(family, detect.legacy_tables(family)) for family in FAMILIES]
    unsure = thorough and any(names != () for _, names in legacy)
    if unsure or any(_may_hold_rules(family, name) for family, names in legacy for name in names or ()):
        found.append(LEGACY_TABLES)
    if chains is not None and any(chain.family == INET and chain.table.startswith(NFT_PREFIXES) for chain in chains):
        found.append(TABLES_OF_OUR_OWN)
    return tuple([FIRST_WITH[tables] for tables in found])


def notice_size(rules: int, family: Family) -> Iterator[str]:
    """Yield a notice for the operator about very many rules."""
    if rules > MANY_RULES:
        yield f"{family.name}: {rules:,} rules are here: each read takes seconds"


def chains_of_iptables(written: dict[Family, Written]) -> KnownChains:
    """Return the chains of iptables-nft as nf_tables holds them once they are programmed."""
    known = {}
    for family, tables in written.items():
        for table, chains in tables.items():
            targets = {name: [one.rule.target for one in chain.rules] for name, chain in chains.items()}
            jumps = [target.calls for own in targets.values() for target in own]
            for name, own in targets.items():
                known[family.number, table, name] = len(own) + jumps.count(name), *base_of(table, name)
    return known


def chains_of_tables(tables: dict[str, nft.Steps]) -> KnownChains:
    """Return the chains of our nft tables as nf_tables holds them once they are programmed."""
    known = {}
    for table, chains in tables.items():
        jumps = [format_chain(step.target.calls) for _, steps in chains.values() for step in steps if step.target.calls]
        for name, (hook, steps) in chains.items():
            base = base_of(table.rpartition("-")[2], name.upper() if hook else name)
            known[INET, table, name] = len(steps) + jumps.count(name), *base
    return known


def base_of(table: str, name: str) -> tuple[int, str, int]:
    """Return hook, kind and priority of a chain, as `NftChain` has them."""
    return (BUILTIN_CHAINS.index(name), *expected_base(table, name)) if name in BUILTIN_CHAINS else (-1, "", 0)
