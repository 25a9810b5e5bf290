"""The programs and libraries that program the kernel: what each does, and which there are.

A backend speaks to the kernel of the namespace that this process is in. It looks first; a change is computed by pure
code from what was seen and the plan, and is committed, or put back: all families or none. A new one is a module here and a line
in the table, netinit.options.BACKENDS. Beside them: `routes` (policy rules, routes and the address of a plan, the same for all).
"""

from __future__ import annotations

from abc import abstractmethod

from netinit.base.logs import Log
from netinit.base.net import FAMILIES, IPV4, Family
from netinit.base.records import Record
from netinit.kernel import detect, run
from netinit.kernel.netlink import INET, IPV4_TABLES, IPV6_TABLES
from netinit.options import (
    BACKENDS,
    IPTABLES_NFT,
    LEGACY_TABLES,
    LIBIPTC,
    NF_TABLES,
    NFTABLES,
    TABLES_OF_OUR_OWN,
    Options,
)
from netinit.rules.model import NFT_AMBIENT, NFT_SIDECAR, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from abc import ABC

    from netinit.kernel.plain_namespace import KnownChain, Place
    from netinit.rules.model import Difference
else:
    ABC = object  # as of records: abstract methods are the type checker's business

__all__ = ["AUTO_ORDER", "BACKENDS", "IPTABLES_NFT", "LIBIPTC", "NFTABLES", "load", "populated"]

AUTO_ORDER = tuple(BACKENDS)
SETS = "netinit.backends.ipset"  # has the classes with address sets: for long lists, or where an earlier run made some
NATIVE_TABLES = (NFT_SIDECAR, NFT_AMBIENT)  # what their names begin with
MANY_RULES = 20_000  # the kernel lists 100,000 in 10 s


class State(Record):
    """What a backend saw. A backend's own kind holds it in the backend's terms; here is what callers may ask."""

    ours: bool  # rules of this project (or of Istio) are there
    foreign: bool  # foreign rules are there; beside ours only a comparison's state knows
    notices: tuple[str, ...] = ()  # what the operator should know of what was seen
    in_use: bool = True  # there are rules, or policies that do not accept: empty tables and chains are left over from somebody
    of_nf_tables: bool = False  # the rules are those of iptables in nf_tables

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

    state: State
    differences: tuple[Difference, ...]
    is_first = False  # no rule of ours was there before
    is_whole = False  # no foreign rule was in the backend's tables either

    def known_chains(self) -> dict[Place, KnownChain] | None:
        """The plan's chains in nf_tables as the kernel has them once the rules are as planned; None where their rules must be read.

        A rule that listings show as planned may be another one in the kernel: only a first run knows what it has committed.
        """
        return None

    def differs(self) -> bool:
        """Whether there are any."""
        return bool(self.differences)

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

    @abstractmethod
    def observe(self) -> State:
        """The live rules. BackendUnavailableError when this backend cannot work here, LockedError when it must not now."""

    def prepare(self) -> None:
        """Gets ready what a commit will need, in the background; `release` when none will come."""

    def release(self) -> None:
        """Ends what `prepare` began and no commit has used."""

    @abstractmethod
    def commit(self, change: Change) -> None:
        """Makes the change. Where it fails a part of it may have been made: `put_back` is due.

        ApplyError, LockedError, BackendUnavailableError.
        """

    @abstractmethod
    def put_back(self, change: Change) -> None:
        """The inverse of a commit: our rules are what they were before the change, whatever of it was made, if anything.

        Errors as for `commit`; ApplyError names what could not be put back.
        """

    def lock(self) -> Lock:
        """What other programs of the dialect respect, to be held over a whole run. LockedError when it is entered."""
        return Lock()

    @abstractmethod
    def list_rules(self) -> dict[str, str]:
        """The live rules, spelled like a state's `describe`; quicker than to look."""


def load(name: str, options: Options, families: tuple[Family, ...]) -> Backend:
    """The backend of this name for these options; `families` are those that the kernel has."""
    line = BACKENDS[name]
    with_sets = line.with_sets and (_has_long_list(options) or _has_sets(line.variant))
    module, attribute = (SETS, line.with_sets) if with_sets else (line.module, line.made_by)
    more = {"threshold": options.ipset_threshold} if with_sets else {}
    # Imported when it is used: libiptc alone takes tens of milliseconds.
    made: Backend = getattr(__import__(module, fromlist=[attribute]), attribute)(
        comments=options.rule_comments,
        families=families,
        lock_timeout=options.lock_timeout,
        own_files=not options.cni_mode,
        **more,
    )
    return made


def _may_hold_rules(family: Family, table: str) -> bool:
    """Whether a legacy table has rules, or this process may not know."""
    from netinit.kernel.snapshot import legacy_tables  # seldom

    try:
        return legacy_tables.holds_rules(family, table)
    except OSError:  # NET_RAW is missing: the programs say so
        return True


def _has_long_list(options: Options) -> bool:
    """Whether a list is long enough for a set, and the program for sets is there."""
    longest = max([len(networks) for networks in (options.exclude_outbound_cidrs, options.outbound_cidrs)])
    return 0 < options.ipset_threshold < longest and bool(run.find("ipset"))


def owner_of_sets(variant: str) -> str:
    """How the names of the address sets begin that a variant of iptables asks."""
    return f"netinit-{variant}"


def _has_sets(variant: str) -> bool:
    if not detect.has_address_sets():
        return False
    from netinit.kernel.address_sets import owned_sets  # on many nodes no sets are

    return any(found.startswith(f"{owner_of_sets(variant)}-") for found in owned_sets())


def readers(name: str) -> tuple[str, ...]:
    """The backends that see the same tables as this one, itself included."""
    return tuple([line.name for line in BACKENDS.values() if line.tables == BACKENDS[name].tables])


def is_installed(name: str) -> bool:
    """Whether the programs that a backend starts are there, as far as IPv4 goes; true where it starts none."""
    variant = BACKENDS[name].variant
    return not variant or bool(detect.find_program(variant, IPV4, "restore"))


def populated(options: Options, *, thorough: bool = True) -> tuple[str, ...]:
    """The backends whose tables may hold rules: those that are known to be empty need not be looked through.

    Empty legacy tables and chains are nobody's, and only looked through when `thorough` is set; so are tables that the kernel
    does not name, since a look creates them.
    Where reading will take seconds, a warning says so before.
    """
    chains = detect.nft_chains()
    uses = sum([chain.uses for chain in chains or ()])
    if uses > MANY_RULES:
        Log(options.log_level, as_json=options.log_as_json).warn(f"there are some {uses:,} rules: reading them takes seconds")
    found = []
    of_nf_tables = chains is None or any(chain.family in (IPV4_TABLES, IPV6_TABLES) for chain in chains)
    if of_nf_tables or _has_sets(BACKENDS[IPTABLES_NFT].variant):
        found.append(NF_TABLES)
    legacy = [(family, detect.legacy_tables(family)) for family in FAMILIES]
    unsure = thorough and any(names != () for _, names in legacy)
    if unsure or any(_may_hold_rules(family, name) for family, names in legacy for name in names or ()):
        found.append(LEGACY_TABLES)
    if chains is not None and any(chain.family == INET and chain.table.startswith(NATIVE_TABLES) for chain in chains):
        found.append(TABLES_OF_OUR_OWN)
    first = {line.tables: line.name for line in reversed(BACKENDS.values())}
    return tuple([first[tables] for tables in found])
