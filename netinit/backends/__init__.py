"""The ways to program the kernel. A new one is a module and a line in BACKENDS."""

from __future__ import annotations

from netinit.backends.base import Backend
from netinit.host import detect
from netinit.options import Options
from netinit.rules.network import FAMILIES, Family

NFT, LEGACY, NFTABLES, LIBIPTC, MEMORY = "iptables-nft", "iptables-legacy", "nftables", "libiptc", "memory"

# name -> (module, class); imported when it is used: libiptc alone takes 90 ms.
BACKENDS = {
    NFT: ("netinit.backends.restore", "NftVariant"),
    LEGACY: ("netinit.backends.restore", "LegacyVariant"),
    NFTABLES: ("netinit.backends.nftables", "NftablesBackend"),
    LIBIPTC: ("netinit.backends.libiptc", "LibiptcBackend"),
    MEMORY: ("netinit.backends.memory", "MemoryBackend"),
}
AUTO_ORDER = (NFT, LEGACY, NFTABLES, LIBIPTC)
INET, IPV4_TABLES, IPV6_TABLES = 1, 2, 10  # families of nf_tables; iptables-nft keeps its rules in the last two
NATIVE_TABLES = "istio-proxy-"


def load(name: str, options: Options, families: tuple[Family, ...]) -> Backend:
    """The backend of this name for these options; `families` are those that the kernel has."""
    module, attribute = BACKENDS[name]
    made: Backend = getattr(__import__(module, fromlist=[attribute]), attribute)(
        comments=options.rule_comments,
        families=families,
        lock_timeout=options.lock_timeout,
        own_files=not options.cni_mode,
    )
    return made


def named(options: Options) -> str:
    """The backend that the options ask for, or auto."""
    if options.native_nftables:
        return NFTABLES
    return f"iptables-{options.force_iptables_binary}" if options.force_iptables_binary else options.backend


def populated(*, thorough: bool = True) -> tuple[str, ...]:
    """The sides of the kernel that may hold rules: those that are known to be empty need not be looked through.

    Where the kernel does not name its legacy tables, a look creates them: it is only taken when `thorough` is set.
    """
    chains = detect.nft_chains()
    found = []
    if chains is None or any(chain.family in (IPV4_TABLES, IPV6_TABLES) for chain in chains):
        found.append(NFT)
    legacy = [detect.legacy_tables(family) for family in FAMILIES]
    if any(legacy) or (thorough and None in legacy):
        found.append(LEGACY)
    if chains is not None and any(chain.family == INET and chain.table.startswith(NATIVE_TABLES) for chain in chains):
        found.append(NFTABLES)
    return tuple(found)
