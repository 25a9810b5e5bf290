"""The ways to program the kernel. A new one is a module and a line in BACKENDS."""

from __future__ import annotations

from netinit.backends.base import Backend
from netinit.base.logs import Log
from netinit.base.net import FAMILIES, Family
from netinit.kernel import detect, run
from netinit.options import Options

NFT, LEGACY, NFTABLES, LIBIPTC, MEMORY = "iptables-nft", "iptables-legacy", "nftables", "libiptc", "memory"

# name -> (module, class); imported when it is used: libiptc alone takes 90 ms.
BACKENDS = {
    NFT: ("netinit.backends.restore", "NftVariant"),
    LEGACY: ("netinit.backends.restore", "LegacyVariant"),
    NFTABLES: ("netinit.backends.nftables", "NftablesBackend"),
    LIBIPTC: ("netinit.backends.libiptc", "LibiptcBackend"),
    MEMORY: ("netinit.backends.memory", "MemoryBackend"),
}
SETS = {  # the same with address sets: for lists longer than the threshold, or where an earlier run made some
    NFT: ("netinit.backends.ipset", "NftVariantWithSets"),
    LEGACY: ("netinit.backends.ipset", "LegacyVariantWithSets"),
}
SET_PREFIXES = {NFT: "netinit-nft-", LEGACY: "netinit-legacy-"}
AUTO_ORDER = (NFT, LEGACY, NFTABLES, LIBIPTC)
INET, IPV4_TABLES, IPV6_TABLES = 1, 2, 10  # families of nf_tables; iptables-nft keeps its rules in the last two
NATIVE_TABLES = "istio-proxy-"
MANY_RULES = 20_000  # the kernel tells 100,000 in 10 s


def load(name: str, options: Options, families: tuple[Family, ...]) -> Backend:
    """The backend of this name for these options; `families` are those that the kernel has."""
    with_sets = name in SETS and (_has_long_list(options) or _sets_of(name))
    module, attribute = SETS[name] if with_sets else BACKENDS[name]
    more = {"threshold": options.ipset_threshold} if with_sets else {}
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


def _sets_of(name: str) -> bool:
    return any(found.startswith(SET_PREFIXES[name]) for found in detect.owned_sets())


def named(options: Options) -> str:
    """The backend that the options ask for, or auto."""
    if options.native_nftables:
        return NFTABLES
    return f"iptables-{options.force_iptables_binary}" if options.force_iptables_binary else options.backend


def populated(options: Options, *, thorough: bool = True) -> tuple[str, ...]:
    """The sides of the kernel that may hold rules: those that are known to be empty need not be looked through.

    Where the kernel does not name its legacy tables, a look creates them: it is only taken when `thorough` is set.
    Where reading will take seconds, a warning says so before.
    """
    chains = detect.nft_chains()
    uses = sum([chain.uses for chain in chains or ()])
    if uses > MANY_RULES:
        Log(options.log_level, as_json=options.log_as_json).warn(
            f"there are some {uses:,} rules: reading them takes seconds"
        )
    found = []
    if chains is None or any(chain.family in (IPV4_TABLES, IPV6_TABLES) for chain in chains) or _sets_of(NFT):
        found.append(NFT)
    legacy = [detect.legacy_tables(family) for family in FAMILIES]
    if any(legacy) or (thorough and None in legacy):
        found.append(LEGACY)
    if chains is not None and any(chain.family == INET and chain.table.startswith(NATIVE_TABLES) for chain in chains):
        found.append(NFTABLES)
    return tuple(found)
