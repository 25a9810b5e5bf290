"""The backends that run iptables-restore: iptables-nft and iptables-legacy, both families at once."""

from __future__ import annotations

import posix

from netinit.backends.iptables import XtablesBackend
from netinit.base.errors import BackendUnavailableError, NetinitError
from netinit.base.net import Family
from netinit.kernel import detect, netlink, run
from netinit.kernel.netlink import IPV4_TABLES, IPV6_TABLES
from netinit.kernel.run import Finished
from netinit.options import BACKENDS
from netinit.rules.model import OWNED_CHAINS, TABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.backends import Change, Lock
    from netinit.backends.held_rules import Held
    from netinit.base.snapshot import Snapshot

LOCKED_STATUS = 4
FAMILIES_OF_IPTABLES = (IPV4_TABLES, IPV6_TABLES)


class RestoreBackend(XtablesBackend):
    """Rules through iptables-{nft,legacy}-restore and its IPv6 sibling."""

    variant: str

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        programs = {family: self._program(family, "restore") for family in scripts}  # check that all exist before any is started
        arguments = ["--noflush", *self._lock_arguments()]
        jobs = [(programs[family], arguments, script) for family, script in scripts.items()]
        with self.lock():
            results = self._run(jobs)
        return {
            family: result if isinstance(result, BackendUnavailableError) else self._explain(result, family)
            for family, result in zip(scripts, results, strict=True)
            if isinstance(result, BackendUnavailableError) or result.status
        }

    def _program(self, family: Family, action: str) -> str:
        path = detect.find_program(self.variant, family, action)
        if not path:
            program = f"{family.program}-{self.variant}-{action}"
            raise BackendUnavailableError(f"{program} is not installed: add the package {BACKENDS[self.name].package} to the image")
        return path

    def _run(self, jobs: Sequence[tuple[str, Sequence[str], str]]) -> list[Finished | BackendUnavailableError]:
        return run.finish_all(run.start_all(jobs))

    def _lock_arguments(self) -> list[str]:
        return []

    def refusal(self, error: OSError) -> NetinitError:
        from netinit.backends.failure_causes import explain_iptables

        said = posix.strerror(error.errno or 0)
        message = f"{self.name}: the kernel does not list its rules: {said}"
        privileged = detect.has_capability(detect.CAP_NET_ADMIN)
        modules = self.variant if self.variant == detect.NFT else f"{self.variant} IPv4"
        return explain_iptables(said, message, modules, locked=False, privileged=privileged)

    def _explain(self, result: Finished, family: Family) -> NetinitError:
        said = " ".join(result.errors.split()) or f"ended with status {result.status} and no message"
        from netinit.backends.failure_causes import condense, explain_iptables  # rarely needed

        return explain_iptables(
            said,
            f"{result.program}: {condense(said)}",
            self.variant if self.variant == detect.NFT else f"{self.variant} {family.name}",
            locked=result.status == LOCKED_STATUS and ("lock" in said or not result.errors),
            privileged=detect.has_capability(detect.CAP_NET_ADMIN),
        )


class NftVariant(RestoreBackend):
    """iptables on nf_tables."""

    name = "iptables-nft"
    variant = detect.NFT
    of_nf_tables = True

    def read(self, families: tuple[Family, ...], snapshot: Snapshot | None = None) -> Held:
        try:
            if not (snapshot or any(chain.family in FAMILIES_OF_IPTABLES for chain in netlink.list_nft_chains())):
                return ()
            from netinit.backends import held_rules  # not needed on a first run

            return held_rules.hold_nft(snapshot, families) if snapshot else held_rules.read_nft(families)
        except OSError as error:
            if error.errno in detect.WITHOUT_NF_TABLES:
                return ()
            raise self.refusal(error) from None

    def commit(self, change: Change) -> None:
        if not change.before.ours:
            super().commit(change)
            return
        from netinit.backends import nft_removal  # not needed on a first run
        from netinit.kernel.empty_tables import find_parts, remove_empty

        parts = find_parts(TABLES, OWNED_CHAINS)
        if isinstance(change, nft_removal.NftRemoval):
            nft_removal.commit(change, parts)
        else:
            super().commit(change)
        remove_empty(parts)

    def _return_to(self, change: Change, families: tuple[Family, ...]) -> list[str]:
        from netinit.kernel.empty_tables import find_parts, remove_empty

        parts = find_parts(TABLES, OWNED_CHAINS)
        lost = super()._return_to(change, families)
        remove_empty(parts)
        return lost


class LegacyVariant(RestoreBackend):
    """iptables on the older kernel interface, which has one lock for the whole file system."""

    name = "iptables-legacy"
    variant = detect.LEGACY

    def lock(self) -> Lock:
        return self._legacy_lock()

    def _lock_arguments(self) -> list[str]:
        return ["-w", str(max(1, -(-self._lock_timeout // 10**9)))]  # whole seconds, rounded up

    def _run(self, jobs: Sequence[tuple[str, Sequence[str], str]]) -> list[Finished | BackendUnavailableError]:
        """Run them with a private lock file, since this process holds the real lock.

        Any process may hold a file with a name, even /dev/null, locked for ever.
        """
        nothing = posix.memfd_create("lock", 0)  # programs inherit it
        try:
            environment = {"XTABLES_LOCKFILE": f"/proc/self/fd/{nothing}"}
            return run.finish_all(run.start_all(jobs, environment=environment, waits=self._lock_timeout))
        finally:
            posix.close(nothing)
