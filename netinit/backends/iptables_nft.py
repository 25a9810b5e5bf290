"""The backend for the tables of iptables-nft, by netlink: both families in one transaction, and no program is started.

A transaction names the generation of nf_tables that the change was computed from. If another program has changed something
since, the kernel refuses it, and the change is computed again from what is there then, as iptables-nft does.
"""

from __future__ import annotations

from netinit.backends import Change, of_kind
from netinit.backends.iptables import ChangeWriter, ReadingBackend, XtablesState
from netinit.base.errors import ApplyError, BusyError, KernelFeatureError, NetinitError
from netinit.base.system import posix
from netinit.kernel import detect, netlink
from netinit.rules.model import BUILTIN_CHAINS, NAT, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.compat_messages import CompatChange, Part
    from netinit.backends.encoded_rules import EncodedFamilies
    from netinit.backends.iptables import FirstComparison
    from netinit.backends.kernel_support import Need
    from netinit.backends.listing_comparison import XtablesComparison
    from netinit.base.net import Family
    from netinit.base.snapshot import Snapshot
    from netinit.kernel.nf_tables import Refusal

NAT_CHAIN = "nft nat"  # a key of netinit.backends.failure_causes.MODULES


class NetlinkWriter(ChangeWriter):
    """Writes changes as messages of nf_tables. What does so is loaded only where something changes."""

    def write_first(self, comparison: FirstComparison) -> CompatChange:
        from netinit.backends import compat_messages

        return compat_messages.write_first(comparison)

    def write_change(self, comparison: XtablesComparison, *, force: bool) -> CompatChange:
        from netinit.backends import compat_messages

        return compat_messages.write_change(comparison, force=force)

    def write_removal(self, state: XtablesState, plan: Plan) -> Change:
        from netinit.backends.nft_removal import find_removal

        return find_removal(state, state.encoded, plan, lambda: state.compare_rules(plan).find_owned())  # type: ignore[arg-type]


class NftVariant(ReadingBackend):
    """iptables on nf_tables."""

    name = "iptables-nft"
    variant = detect.NFT
    of_nf_tables = True
    writer = NetlinkWriter()
    _generation = 0  # of what was read last; 0: not known

    def has(self, family: Family, need: Need) -> bool:
        from netinit.backends.kernel_support import has_for_nft

        return has_for_nft(family, need)

    def read(self, families: tuple[Family, ...], snapshot: Snapshot | None = None) -> EncodedFamilies:
        self._generation = 0
        try:
            if not snapshot:
                self._generation = netlink.read_nft_generation()
                if not any(chain.family in netlink.OF_IPTABLES for chain in netlink.list_nft_chains()):
                    return ()
            from netinit.backends import encoded_rules  # not needed on a first run

            if snapshot:
                return encoded_rules.nft_of_snapshot(snapshot, families)
            self._generation, found = encoded_rules.read_nft(families)
        except OSError as error:
            if error.errno in detect.WITHOUT_NF_TABLES:
                return ()
            raise self.refusal(error) from None
        return found

    def observe(self, snapshot: Snapshot | None = None, families: tuple[Family, ...] | None = None) -> XtablesState:
        return super().observe(snapshot, families).replace(generation=self._generation)

    def refusal(self, error: OSError) -> NetinitError:
        return self._explain(error.errno or 0, f"{self.name}: the kernel does not list its rules")

    def commit(self, change: Change) -> None:
        if not change.before.ours:
            self._commit(change)
            return
        from netinit.backends import nft_removal  # not needed on a first run

        chains = detect.nft_chains() or ()
        if isinstance(change, nft_removal.NftRemoval):
            nft_removal.commit(change, chains)
        else:
            self._commit(change)
        nft_removal.remove_empty(nft_removal.find_parts(chains))

    def _commit(self, change: Change) -> None:
        from netinit.backends.compat_messages import CompatChange  # not needed for a removal
        from netinit.kernel.nf_tables import ERESTART, TRIES

        for _ in range(TRIES):
            change = of_kind(change, CompatChange)
            parts = self.write(change)
            if not parts:
                return
            refused = self._send(parts, change.before.generation)
            if not refused:
                return
            if refused[0].number != ERESTART:
                raise self._explain_refusal(refused[0], parts, change)
            self.met_others = True
            change = change.renew(self.observe())
        raise BusyError(f"{self.name}: other programs change nf_tables all the time: try again, or let --retries do it")

    def write(self, change: CompatChange) -> list[tuple[Family, Part]]:
        """Return the messages of a change, each with its family."""
        return [(one.family, part) for one in change.families for part in one.write()]

    def _send(self, parts: list[tuple[Family, Part]], generation: int) -> tuple[Refusal, ...]:
        from netinit.kernel.nf_tables import NfTables

        try:
            with NfTables() as link:
                return link.commit([(family.number, message) for family, (message, _) in parts], generation=generation)
        except OSError as error:
            raise self._explain(error.errno or 0, f"{self.name}: the rules cannot be sent to the kernel") from None

    def roll_back(self, change: Change) -> None:
        from netinit.backends import nft_return

        nft_return.roll_back(self, change, self._commit)

    def _explain_refusal(self, refusal: Refusal, parts: list[tuple[Family, Part]], change: CompatChange) -> NetinitError:
        place, text, modules = "the transaction", "", self.variant
        if refusal.message >= 0:
            family, (_, (table, chain, number, rule)) = parts[refusal.message]
            text = rule.text if rule else ""
            words = (family.name, f"table {table}", chain and f"chain {chain}", number and f"rule {number}", text and f"(`{text}`)")
            place = " ".join([word for word in words if word])
            modules = NAT_CHAIN if chain in BUILTIN_CHAINS and table == NAT and not rule else self.variant
        return self._explain(refusal.number, f"{self.name}: {place}", rule=text, modules=modules, plan=change.plan)

    def _explain(
        self, number: int, what: str, *, rule: str = "", modules: str = detect.NFT, plan: Plan | None = None
    ) -> NetinitError:
        from netinit.backends.failure_causes import explain_iptables, explain_missing, explain_owners

        said = posix.strerror(number)
        hint = explain_owners(rule)
        message = f"{what}: {said}{hint and f'; {hint}'}"
        error = explain_iptables(said, message, modules, privileged=detect.has_capability(detect.CAP_NET_ADMIN))
        if plan and type(error) in (ApplyError, KernelFeatureError) and (missing := self.missing_for(plan)):
            return explain_missing(message, missing)
        return error
