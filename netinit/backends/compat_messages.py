"""Changes of the tables of iptables-nft as messages of nf_tables.

Tables and built-in chains are as iptables-nft creates them: a table and a built-in chain only once a rule needs it, after
our own chains, which `nft_removal` relies on. Rules have the form of `compat.FORM`. Foreign rules are never named, except as
the place before which a rule is inserted.
"""

from __future__ import annotations

from netinit.backends import Change, base_of
from netinit.backends.iptables import XtablesState
from netinit.base.net import Family
from netinit.base.records import Record
from netinit.kernel import netlink, nf_tables
from netinit.kernel.netlink import NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE, attribute
from netinit.kernel.nf_tables import name, rule_place
from netinit.rules.expressions.compat import encode_rule, write_protocol
from netinit.rules.iptables.write import WrittenRule
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from netinit.backends.iptables import FirstComparison
    from netinit.backends.listing_comparison import XtablesComparison
    from netinit.kernel.nf_tables import Message
    from netinit.rules.iptables.ownership import Owned
    from netinit.rules.iptables.write import WrittenChain

    # A rule, and the handle of the foreign rule before which it is inserted, or one of these places
    Placed = list[tuple[int, "WrittenRule | KeptRule"]]
    Part = tuple[Message, tuple[str, str, int, "WrittenRule | KeptRule | None"]]  # as in netinit.backends.nft_messages

NFTA_RULE_POSITION = 6
AT_END, AT_TOP = 0, -1  # places in a chain; AT_TOP is before all foreign rules


class KeptRule(Record):
    """A rule that was read, to be created again: its expressions, its protocol for the kernel, and its text."""

    expressions: bytes
    compat: bytes
    text: str


class FamilyChange(Record):
    """How one family's tables change."""

    family: Family
    target: dict[str, dict[str, Placed]]  # by table and chain; our other chains in these tables are deleted
    live: Mapping[tuple[str, str], Sequence[int]]  # the handles of the rules of each chain that is there
    owned: Owned  # which rules of built-in chains are ours, and are deleted

    def write(self) -> Iterator[Part]:
        """Yield the messages of all tables."""
        for table, chains in self.target.items():
            yield from self._write_table(table, chains)

    def _write_table(self, table: str, chains: dict[str, Placed]) -> Iterator[Part]:
        ours = [chain for at, chain in self.live if at == table and chain in OWNED_CHAINS]
        if chains:
            named = attribute(netlink.NFTA_TABLE_NAME, name(table))
            yield (nf_tables.NFT_MSG_NEWTABLE, netlink.NLM_F_CREATE, named), (table, "", 0, None)
        for chain in chains:
            if chain not in BUILTIN_CHAINS and chain not in ours:
                yield nf_tables.create_chain(table, chain, None), (table, chain, 0, None)
        for chain in ours:  # without its rules; they may jump to one another
            yield (nf_tables.NFT_MSG_DELRULE, 0, rule_place(table, chain)), (table, chain, 0, None)
        for (at, chain), indexes in self.owned.items():
            for index in indexes if at == table else ():
                handle = attribute(NFTA_RULE_HANDLE, self.live[at, chain][index].to_bytes(8, "big"))
                yield (nf_tables.NFT_MSG_DELRULE, 0, rule_place(table, chain) + handle), (table, chain, index + 1, None)
        for chain, placed in chains.items():
            if chain in BUILTIN_CHAINS and (table, chain) not in self.live:
                hook, kind, priority = base_of(table, chain)
                yield nf_tables.create_chain(table, chain, (kind, hook, priority)), (table, chain, 0, None)
            yield from self._write_rules(table, chain, placed)
        for chain in ours:
            if chain not in chains:
                body = attribute(netlink.NFTA_CHAIN_TABLE, name(table)) + attribute(netlink.NFTA_CHAIN_NAME, name(chain))
                yield (nf_tables.NFT_MSG_DELCHAIN, 0, body), (table, chain, 0, None)

    def _write_rules(self, table: str, chain: str, placed: Placed) -> Iterator[Part]:
        foreign = self.find_foreign(table, chain)
        place = rule_place(table, chain)
        top = foreign[0] if foreign else AT_END
        for number, (at, rule) in enumerate(placed, 1):
            body, flags = place + self._encode(rule), netlink.NLM_F_CREATE
            before = top if at == AT_TOP else at
            if before == AT_END:
                flags |= nf_tables.NLM_F_APPEND
            else:
                body += attribute(NFTA_RULE_POSITION, before.to_bytes(8, "big"))
            yield (nf_tables.NFT_MSG_NEWRULE, flags, body), (table, chain, number, rule)

    def find_foreign(self, table: str, chain: str) -> list[int]:
        """Return the handles of the foreign rules of a built-in chain."""
        deleted = self.owned.get((table, chain), ())
        rules = self.live.get((table, chain), ()) if chain in BUILTIN_CHAINS else ()
        return [handle for index, handle in enumerate(rules) if index not in deleted]

    def _encode(self, rule: WrittenRule | KeptRule) -> bytes:
        if isinstance(rule, KeptRule):
            return attribute(NFTA_RULE_EXPRESSIONS, rule.expressions) + rule.compat
        expressions = encode_rule(rule.matches, rule.rule.target, self.family, rule.comment)
        return attribute(NFTA_RULE_EXPRESSIONS, expressions) + write_protocol(rule.matches)


class CompatChange(Change):
    """A change by netlink. `renew` computes it again from a newer state."""

    before: XtablesState
    families: tuple[FamilyChange, ...]
    renew: Callable[[XtablesState], Change]


def write_first(comparison: FirstComparison) -> CompatChange:
    """Return the change of a namespace without rules to a plan; built-in chains may be there."""
    written = comparison.written
    live = {one.family: dict.fromkeys(one.rules, ()) for one in comparison.state.encoded}
    families = [FamilyChange(family=one, target=_place_plan(written[one]), live=live.get(one, {}), owned={}) for one in written]
    return CompatChange(
        scripts={}, before=comparison.state, plan=comparison.plan, families=tuple(families),
        renew=comparison.renew,
    )  # fmt: skip


def write_change(comparison: XtablesComparison, *, force: bool) -> CompatChange:
    """Return the change of compared rules to the plan; without `force` correct tables are left out."""
    families = []
    for one, held in comparison.with_encoded():
        planned = _place_plan(one.written)
        target = {name: planned.get(name, {}) for name in one.tables if force or not one.is_planned(name)}
        owned = {place: indexes for place, indexes in one.owned.items() if place[0] in target}
        families.append(FamilyChange(family=one.family, target=target, live=held.handles() if held else {}, owned=owned))
    return CompatChange(
        scripts={}, before=comparison.state, plan=comparison.plan, families=tuple(families),
        renew=lambda newer: comparison.repeat(newer).change(force=force),
    )  # fmt: skip


def _place_plan(written: dict[str, dict[str, WrittenChain]]) -> dict[str, dict[str, Placed]]:
    """Return the plan's rules as a target: inserted ones at the top of built-in chains, others at the end."""
    return {
        table: {
            chain: [(AT_TOP if index < planned.inserted else AT_END, one) for index, one in enumerate(planned.rules)]
            for chain, planned in chains.items()
        }
        for table, chains in written.items()
    }

