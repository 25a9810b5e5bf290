"""What iptables-nft-restore does with a plan: the oracle for the backend that programs the same by netlink."""

from __future__ import annotations

from netinit.backends import encoded_rules
from netinit.backends.iptables import RestoreBackend
from netinit.backends.kernel_support import Need, has_for_nft
from netinit.base.net import Family
from netinit.base.snapshot import Snapshot
from netinit.kernel import detect, netlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.encoded_rules import EncodedFamilies


class NftByProgram(RestoreBackend):
    """Observes the tables of iptables-nft, and changes them by input for its programs."""

    name = "iptables-nft"
    variant = detect.NFT

    def has(self, family: Family, need: Need) -> bool:
        return has_for_nft(family, need)

    def read(self, families: tuple[Family, ...], snapshot: Snapshot | None = None) -> EncodedFamilies:
        if not any(chain.family in netlink.OF_IPTABLES for chain in netlink.list_nft_chains()):
            return ()
        return encoded_rules.read_nft(families)[1]
