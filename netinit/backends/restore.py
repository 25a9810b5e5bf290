"""The backends that feed iptables-restore: iptables-nft and iptables-legacy, both families at once."""

from __future__ import annotations

from netinit.backends.iptables import XtablesBackend
from netinit.base.errors import BackendUnavailableError, NetinitError, ParseError
from netinit.base.net import Family
from netinit.kernel import detect, run
from netinit.kernel.netlink import IPV4_TABLES, IPV6_TABLES
from netinit.kernel.run import Finished
from netinit.rules.model import OWNED_CHAINS, TABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from netinit.backends import Change
    from netinit.backends.held import Held
    from netinit.kernel.netlink import NftChain
    from netinit.kernel.run import Begun
    from netinit.rules.census import Census

LOCKED_STATUS = 4
NFT_FAMILIES = {IPV4_TABLES: "ip", IPV6_TABLES: "ip6"}


class RestoreBackend(XtablesBackend):
    """Rules through the programs iptables-{nft,legacy}-{save,restore} and their IPv6 siblings."""

    variant: str

    def listings(self, family: Family) -> tuple[tuple[str, ...], ...]:
        """The arguments of each program that lists; no program is started where the kernel says that nothing is there."""
        raise NotImplementedError

    def read(self, families: tuple[Family, ...], *, counted: bool = False) -> dict[Family, str]:
        return self._finish(families, self._start(families, counted=counted))

    def read_and_count(
        self, families: tuple[Family, ...], *, counted: bool
    ) -> tuple[dict[Family, str], dict[Family, Census]]:
        """Both at the same time: a long table takes the kernel as long to count as to list."""
        started = self._start(families, counted=counted)
        try:
            censuses = self.count(families)
        except ParseError:  # larger than what is read
            for _, begun in started:
                if not isinstance(begun, BackendUnavailableError):
                    run.kill(begun)
            raise
        return self._finish(families, started), censuses

    def _start(self, families: tuple[Family, ...], *, counted: bool) -> list[tuple[Family, Begun]]:
        wanted = [(family, arguments) for family in families for arguments in self.listings(family)]
        programs = {family: self._program(family, "save") for family, _ in wanted}
        option = ("-c",) if counted else ()
        begun = run.start_all([(programs[family], (*option, *arguments), "") for family, arguments in wanted])
        return [(family, one) for (family, _), one in zip(wanted, begun, strict=True)]

    def _finish(self, families: tuple[Family, ...], started: list[tuple[Family, Begun]]) -> dict[Family, str]:
        texts = dict.fromkeys(families, "")
        results = run.finish_all([begun for _, begun in started])
        for (family, _), result in zip(started, results, strict=True):
            if isinstance(result, BackendUnavailableError):
                raise result
            if result.status:
                raise self._explain(result, family)
            texts[family] += result.output
        return texts

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        programs = {family: self._program(family, "restore") for family in scripts}  # all there before any is started
        arguments = ["--noflush", *self._lock_arguments()]
        jobs = [(programs[family], arguments, script) for family, script in scripts.items()]
        with self.lock():
            results = self._run(jobs)
        return {
            family: result if isinstance(result, BackendUnavailableError) else self._explain(result, family)
            for family, result in zip(scripts, results, strict=True)
            if isinstance(result, BackendUnavailableError) or result.status
        }

    def can_list(self) -> bool:
        """Whether the programs are there that list what is not as planned."""
        return all(detect.find_program(self.variant, family, "save") for family in self._families)

    def _program(self, family: Family, action: str) -> str:
        path = detect.find_program(self.variant, family, action)
        if not path:
            raise BackendUnavailableError(
                f"{family.program}-{self.variant}-{action} is not installed: add the package iptables to the image"
            )
        return path

    def _run(self, jobs: Sequence[tuple[str, Sequence[str], str]]) -> list[Finished | BackendUnavailableError]:
        return run.finish_all(run.start_all(jobs))

    def _lock_arguments(self) -> list[str]:
        return []

    def _explain(self, result: Finished, family: Family) -> NetinitError:
        """The error of a program in terms of its cause and remedy."""
        said = " ".join(result.errors.split()) or f"ended with status {result.status} and no message"
        from netinit.backends.errors import condense, explain_iptables  # seldom

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
    _chains: frozenset[str] | None = None  # the families that have chains, when the kernel says

    def _start(self, families: tuple[Family, ...], *, counted: bool) -> list[tuple[Family, Begun]]:
        self._find_chains()
        return super()._start(families, counted=counted)

    def count(self, families: tuple[Family, ...]) -> dict[Family, Census]:
        chains = self._find_chains()
        if not self._chains:
            return {}
        from netinit.backends.tally import count_nft_families

        return count_nft_families(families, chains)

    def _read_held(self) -> Held:
        chains = detect.nft_chains() or ()
        if not any(chain.name in OWNED_CHAINS for chain in chains) or not self.can_list():
            return ()
        from netinit.backends.held import read_nft  # not on a first run

        try:
            return read_nft(self._families, chains)
        except OSError:  # more than is read, or nobody may know: the program says so
            return ()

    def commit(self, change: Change) -> None:
        """The same, and tables that iptables-nft made for rules of ours go with the last of these."""
        if not change.before.ours:
            super().commit(change)
            return
        from netinit.kernel.emptied import find_parts, remove_empty  # not on a first run

        parts = find_parts(TABLES, OWNED_CHAINS)
        super().commit(change)
        remove_empty(parts)

    def _return_to(self, change: Change, families: tuple[Family, ...]) -> list[str]:
        """The same, and tables that were made by the change go."""
        from netinit.kernel.emptied import find_parts, remove_empty

        parts = find_parts(TABLES, OWNED_CHAINS)
        lost = super()._return_to(change, families)
        remove_empty(parts)
        return lost

    def _find_chains(self) -> tuple[NftChain, ...]:
        chains = detect.nft_chains()
        self._chains = (
            None if chains is None else frozenset([NFT_FAMILIES[c.family] for c in chains if c.family in NFT_FAMILIES])
        )
        return chains or ()

    def listings(self, family: Family) -> tuple[tuple[str, ...], ...]:
        return ((),) if self._chains is None or family.nft in self._chains else ()
