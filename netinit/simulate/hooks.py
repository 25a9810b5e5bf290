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
