"""The programs and libraries that program the kernel. A new one is a module here and a line in the table, netinit.options.BACKENDS."""

from __future__ import annotations

from netinit.backends.base import Backend
from netinit.base.logs import Log
from netinit.base.net import FAMILIES, IPV4, Family
from netinit.kernel import detect, run
from netinit.options import (
    BACKENDS,
    IPTABLES_LEGACY,
    IPTABLES_NFT,
    LEGACY_TABLES,
    LIBIPTC,
    MEMORY,
    NF_TABLES,
    NFTABLES,
    TABLES_OF_OUR_OWN,
    VARIANTS,
    Options,
)
from netinit.rules.model import NFT_AMBIENT, NFT_SIDECAR

__all__ = ["AUTO_ORDER", "BACKENDS", "IPTABLES_LEGACY", "IPTABLES_NFT", "LIBIPTC", "MEMORY", "NFTABLES", "load", "named", "populated"]

AUTO_ORDER = tuple([line.name for line in BACKENDS.values() if line.automatic])
SETS = "netinit.backends.ipset"  # has the classes with address sets: for long lists, or where an earlier run made some
INET, IPV4_TABLES, IPV6_TABLES = 1, 2, 10  # families of nf_tables; iptables-nft keeps its rules in the last two
NATIVE_TABLES = (NFT_SIDECAR, NFT_AMBIENT)  # what their names begin with
MANY_RULES = 20_000  # the kernel lists 100,000 in 10 s


def load(name: str, options: Options, families: tuple[Family, ...]) -> Backend:
    """The backend of this name for these options; `families` are those that the kernel has."""
    line = BACKENDS[name]
    with_sets = line.with_sets and (_has_long_list(options) or _has_sets(line.variant))
    module, attribute = (SETS, line.with_sets) if with_sets else (line.module, line.made_by)
    more = {"threshold": options.ipset_threshold} if with_sets else {}
    # Imported when it is used: libiptc alone takes 90 ms.
    made: Backend = getattr(__import__(module, fromlist=[attribute]), attribute)(
        comments=options.rule_comments,
        families=families,
        lock_timeout=options.lock_timeout,
        own_files=not options.cni_mode,
        **more,
    )
    return made


def _has_long_list(options: Options) -> bool:
    """Whether a list is long enough for a set, and the program for sets is there."""
    longest = max([len(networks) for networks in (options.exclude_outbound_cidrs, options.outbound_cidrs)])
    return 0 < options.ipset_threshold < longest and bool(run.find("ipset"))


def owner_of_sets(variant: str) -> str:
    """How the names of the address sets begin that a variant of iptables asks."""
    return f"netinit-{variant}"


def _has_sets(variant: str) -> bool:
    return any(found.startswith(f"{owner_of_sets(variant)}-") for found in detect.owned_sets())


def readers(name: str) -> tuple[str, ...]:
    """The backends that see the same tables as this one, itself included."""
    return tuple([line.name for line in BACKENDS.values() if line.tables == BACKENDS[name].tables])


def is_installed(name: str) -> bool:
    """Whether the programs that a backend starts are there, as far as IPv4 goes; true where it starts none."""
    line = BACKENDS[name]
    if line.variant:
        return bool(detect.programs(line.variant, IPV4).restore)
    return bool(run.find(line.program)) if line.program else True


def named(options: Options) -> str:
    """The backend that the options ask for, or auto."""
    if options.native_nftables:
        return NFTABLES
    return VARIANTS.get(options.force_iptables_binary, options.backend)


def populated(options: Options, *, thorough: bool = True) -> tuple[str, ...]:
    """The backends whose tables may hold rules: those that are known to be empty need not be looked through.

    Where the kernel does not name its legacy tables, a look creates them: it is only taken when `thorough` is set.
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
    legacy = [detect.legacy_tables(family) for family in FAMILIES]
    if any(legacy) or (thorough and None in legacy):
        found.append(LEGACY_TABLES)
    if chains is not None and any(chain.family == INET and chain.table.startswith(NATIVE_TABLES) for chain in chains):
        found.append(TABLES_OF_OUR_OWN)
    first = {line.tables: line.name for line in reversed(BACKENDS.values())}
    return tuple([first[tables] for tables in found])
