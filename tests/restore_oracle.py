"""What the programs of iptables and ipset do with a plan: the oracle for the backends that program the same by netlink."""

from __future__ import annotations

import subprocess

from netinit.backends import Lock, encoded_rules
from netinit.backends.iptables import XtablesBackend
from netinit.backends.kernel_support import Need, has_exactly, has_for_nft
from netinit.base.errors import ApplyError, NetinitError
from netinit.base.net import Family
from netinit.base.snapshot import Snapshot
from netinit.kernel import detect, netlink
from programming import FOLDERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.encoded_rules import EncodedFamilies


def run_program(*words: str, stdin: str = "") -> str:
    """Run a program in this process's namespaces and return its output. Raises ApplyError with what it says."""
    done = subprocess.run(words, input=stdin, env={"PATH": FOLDERS, "LC_ALL": "C"}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ApplyError(f"{words[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


class RestoreBackend(XtablesBackend):
    """Rules through iptables-{nft,legacy}-restore and its IPv6 sibling."""

    variant: str

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        found: dict[Family, NetinitError] = {}
        with self.lock():
            for family, script in scripts.items():
                try:
                    run_program(f"{family.program}-{self.variant}-restore", "--noflush", stdin=script)
                except ApplyError as error:
                    found[family] = error
        return found

    def refusal(self, error: OSError) -> NetinitError:
        return ApplyError(str(error))


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


class LegacyByProgram(RestoreBackend):
    """Observes legacy tables, and changes them by input for iptables-legacy's programs, which take the lock themselves."""

    name = "iptables-legacy"
    variant = detect.LEGACY

    def has(self, family: Family, need: Need) -> bool:
        return has_exactly(family, need)

    def lock(self) -> Lock:
        return Lock()
