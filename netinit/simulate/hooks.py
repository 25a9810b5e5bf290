"""Netfilter hooks and their priorities (linux/netfilter_ipv4.h, enum nf_ip_hook_priorities)."""

from __future__ import annotations

from netinit.rules.model import FILTER, INPUT, MANGLE, NAT, OUTPUT, PREROUTING, RAW, expected_base

FORWARD = "FORWARD"
POSTROUTING = "POSTROUTING"
TRACKING = "connection tracking"  # between raw and mangle, in PREROUTING and OUTPUT

STAGES = {
    PREROUTING: (RAW, TRACKING, MANGLE, NAT),
    INPUT: (MANGLE, FILTER, "security", NAT),
    FORWARD: (MANGLE, FILTER, "security"),
    OUTPUT: (RAW, TRACKING, MANGLE, NAT, FILTER, "security"),
    POSTROUTING: (MANGLE, NAT),
}
TABLES_OF_THE_KERNEL = (RAW, MANGLE, NAT, FILTER, "security")
TRANSLATES_DESTINATION = frozenset((PREROUTING, OUTPUT))  # at other hooks NAT translates the source

PRIORITY_OF_TRACKING = -200


def priority_at(hook: str, stage: str) -> int:
    """The priority of connection tracking, NAT or an iptables table at a hook."""
    return PRIORITY_OF_TRACKING if stage == TRACKING else expected_base(stage, hook)[1]


def shows_interface(hook: str, *, inbound: bool) -> bool:
    """Whether rules of a hook see the interface of arrival (`inbound`), or the one of departure."""
    return hook in (PREROUTING, INPUT, FORWARD) if inbound else hook not in (PREROUTING, INPUT)
