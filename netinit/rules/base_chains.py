"""The hooks of iptables' built-in chains (enum nf_ip_hook_priorities of linux/netfilter_ipv4.h)."""

from __future__ import annotations

from netinit.rules.model import BUILTIN_CHAINS, FILTER, INPUT, MANGLE, NAT, OUTPUT, RAW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.snapshot import HeldChain

FAMILIES_OF_IPTABLES = (2, 10)  # NFPROTO_IPV4, NFPROTO_IPV6
HOOKS_OF_IPTABLES = BUILTIN_CHAINS  # by number
PRIORITIES = {RAW: -300, MANGLE: -150, NAT: -100, FILTER: 0, "security": 50}
SOURCE_NAT = 100  # of the table nat where it translates sources: INPUT and POSTROUTING


def expected_base(table: str, chain: str) -> tuple[str, int]:
    """Return type and priority of a built-in chain."""
    if table == NAT:
        return "nat", SOURCE_NAT if chain in (INPUT, "POSTROUTING") else PRIORITIES[NAT]
    return "route" if (table, chain) == (MANGLE, OUTPUT) else "filter", PRIORITIES[table]


def is_of_iptables(chain: HeldChain) -> bool:
    """Whether iptables-nft creates a base chain of this table, name, type, hook and priority."""
    return (
        chain.family in FAMILIES_OF_IPTABLES
        and chain.table in PRIORITIES
        and chain.name in BUILTIN_CHAINS
        and 0 <= chain.hook < len(HOOKS_OF_IPTABLES)
        and chain.name == HOOKS_OF_IPTABLES[chain.hook]
        and (chain.kind, chain.priority) == expected_base(chain.table, chain.name)
    )
