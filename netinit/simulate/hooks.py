"""The kernel's hooks and the order of what happens in each (linux/netfilter_ipv4.h, enum nf_ip_hook_priorities)."""

from __future__ import annotations

from netinit.rules.model import FILTER, INPUT, MANGLE, NAT, OUTPUT, PREROUTING, RAW

FORWARD = "FORWARD"
POSTROUTING = "POSTROUTING"
TRACKING = "connection tracking"  # between raw and mangle, where packets come in and where they are made

STAGES = {
    PREROUTING: (RAW, TRACKING, MANGLE, NAT),
    INPUT: (MANGLE, FILTER, "security", NAT),
    FORWARD: (MANGLE, FILTER, "security"),
    OUTPUT: (RAW, TRACKING, MANGLE, NAT, FILTER, "security"),
    POSTROUTING: (MANGLE, NAT),
}
TABLES_OF_THE_KERNEL = (RAW, MANGLE, NAT, FILTER, "security")
TRANSLATES_DESTINATION = frozenset((PREROUTING, OUTPUT))  # NAT: the others translate the source
CONFIRMS = frozenset((INPUT, POSTROUTING))  # a new connection is remembered from the end of these on

# Of each chain of iptables its priority (linux/netfilter_ipv4.h, enum nf_ip_hook_priorities)
PRIORITIES = {RAW: -300, TRACKING: -200, MANGLE: -150, NAT: -100, FILTER: 0, "security": 50}
SOURCE_NAT = 100  # of NAT where it translates sources


def priority_at(hook: str, stage: str) -> int:
    """When the kernel comes to connection tracking, NAT or a table of iptables at a hook."""
    return SOURCE_NAT if stage == NAT and hook not in TRANSLATES_DESTINATION else PRIORITIES[stage]
