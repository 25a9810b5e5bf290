"""Things beside programmed rules that nobody who reads the rules can follow, and usual ones that change nothing."""

from __future__ import annotations

from struct import pack

from netinit.base.netlink_attributes import write_attribute
from netinit.base.snapshot import NETDEV
from netinit.kernel import nf_tables
from netinit.kernel.netlink import NLM_F_CREATE

NFTA_DEVICE_PREFIX = 2
# eth0 becomes the port of a bridge, which has the pod's address. A bridge's hooks come before PREROUTING and after POSTROUTING.
BRIDGE = (
    "ip link add br0 type bridge; ip link set br0 up; ip address flush dev eth0; ip link set eth0 master br0;"
    " ip address add 10.77.0.2/24 dev br0; ip route replace default via 10.77.0.1 dev br0"
)
REWRITES_ON_BRIDGE = (
    BRIDGE,
    ("nft add table bridge x; nft 'add chain bridge x p { type filter hook prerouting priority -300; }';"
    " nft add rule bridge x p tcp dport 80 tcp dport set 8081; nft 'add chain bridge x o { type filter hook output priority 300; }';"
    " nft add rule bridge x o tcp sport 8081 tcp sport set 80"),
)
ANSWERS_OF_PREFIX = (  # what the chain jumps to, and the answers' way back, which nft can write
    "nft add table netdev evil; nft add chain netdev evil r; nft add rule netdev evil r tcp dport 80 tcp dport set 8081;"
    " nft 'add chain netdev evil e { type filter hook egress device eth0 priority 0; }'; nft add rule netdev evil e tcp sport 8081 tcp sport set 80"
)


def hook_into_prefix(prefix: bytes = b"e") -> int:
    """Adds an ingress chain for all devices with this prefix, which jumps to the chain r; returns the kernel's error or 0."""
    table, chain = (write_attribute(kind, name) for kind, name in ((1, b"evil\0"), (3, b"i\0")))
    devices = write_attribute(4, write_attribute(NFTA_DEVICE_PREFIX, prefix + b"\0"))
    hook = write_attribute(4, write_attribute(1, pack(">I", 0)) + write_attribute(2, pack(">i", -500)) + devices)
    base = table + chain + hook + write_attribute(5, pack(">I", 1)) + write_attribute(7, b"filter\0")
    verdict = write_attribute(2, write_attribute(2, write_attribute(1, pack(">i", -3)) + write_attribute(2, b"r\0")))
    jump = write_attribute(1, b"immediate\0") + write_attribute(2, write_attribute(1, pack(">I", 0)) + verdict)
    rule = table + write_attribute(2, b"i\0") + write_attribute(4, write_attribute(1, jump))
    with nf_tables.NfTables() as link:
        refused = link.commit([
            (NETDEV, (nf_tables.NFT_MSG_NEWCHAIN, NLM_F_CREATE, base)), (NETDEV, (nf_tables.NFT_MSG_NEWRULE, NLM_F_CREATE | 0x800, rule)),
        ])  # fmt: skip
    return refused[0].number if refused else 0
