"""The ways to program the kernel. A new one is a module and a line in BACKENDS."""

from __future__ import annotations

from netinit.backends.base import Backend
from netinit.options import AUTO, Options
from netinit.rules.network import Family

LEGACY, NFT = "iptables-legacy", "iptables-nft"

# name -> (module, class); imported when it is used: libiptc alone takes 90 ms.
BACKENDS = {
    NFT: ("netinit.backends.restore", "NftVariant"),
    LEGACY: ("netinit.backends.restore", "LegacyVariant"),
    "libiptc": ("netinit.backends.libiptc", "LibiptcBackend"),
    "memory": ("netinit.backends.memory", "MemoryBackend"),
}
KERNEL_SIDES = (NFT, LEGACY)  # what can hold rules of ours; libiptc sees the same as iptables-legacy
AUTO_ORDER = (NFT, LEGACY, "libiptc")


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
    return f"iptables-{options.force_iptables_binary}" if options.force_iptables_binary else options.backend


def chosen_by_user(options: Options) -> bool:
    """Whether there is nothing to choose."""
    return named(options) != AUTO
