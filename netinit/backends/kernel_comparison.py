"""Compare the kernel's iptables rules with a plan without starting a program.

At most restarts nothing is to be done: the bytes equal those that the programs make from the plan. If they differ, the
rules are decoded and compared one by one.
"""

from __future__ import annotations

from _struct import unpack_from

from netinit.base.errors import ParseError
from netinit.base.net import Family
from netinit.base.records import Record
from netinit.kernel import detect, netlink
from netinit.kernel.address_sets import set_names
from netinit.kernel.netlink import NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE
from netinit.rules.iptables.write import KNOWN_TABLES
from netinit.rules.model import OWNED_CHAINS, TABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from netinit.base.snapshot import LegacyTable
    from netinit.kernel.netlink import NftChain
    from netinit.rules.iptables.write import Listing
    from netinit.rules.model import Plan
    from netinit.rules.xtables.building import TableEntry

    Place = tuple[str, str]  # table, chain

MAX_RULES = 200_000  # rules of one family; comparing them takes some 20 s
TOO_MANY = "remove those that are not needed"
NFTA_RULE_USERDATA = 7
VERDICT_FROM_END, ACCEPTING = 8, -2  # in struct xt_standard_target; -NF_ACCEPT - 1


class HeldFamily(Record):
    """The rules of one family, by place."""

    family: Family
    rules: dict[Place, Sequence[object]]

    @property
    def listing(self) -> Listing:
        """The tables, decoded once."""
        made: Listing | None = self.__dict__.get("_listing")
        if made is None:
            made = self.__dict__["_listing"] = self.decode()
        return made

    def decode(self) -> Listing:
        """Decode the tables to iptables syntax. Raises ParseError."""
        raise NotImplementedError

    def is_as_planned(self, plan: Plan, *, comments: bool) -> bool:
        """Whether the rules are the plan's, byte for byte as iptables programs them."""
        raise NotImplementedError

    def without_counters(self) -> Self:
        """Return the rules with their counters at zero; the rules themselves where they hold none."""
        return self

    @property
    def has_chains_of_ours(self) -> bool:
        """Whether any chain has one of our names."""
        return any(place[1] in OWNED_CHAINS for place in self.rules)

    @property
    def size(self) -> int:
        """The number of rules."""
        return sum([len(rules) for rules in self.rules.values()])

    @property
    def in_use(self) -> bool:
        """Whether there is any rule, or a policy other than accept."""
        return bool(self.size) or any(table.holds_rules for table in self.listing.values())


class HeldNft(HeldFamily):
    """The rules of iptables-nft: netlink messages by place."""

    chains: tuple[NftChain, ...]
    rules: dict[Place, list[dict[int, bytes]]]  # type: ignore[assignment] # read only

    def is_as_planned(self, plan: Plan, *, comments: bool) -> bool:
        from netinit.rules.expressions.compat import FORM, FORMS, encode_plan
        from netinit.rules.rule_builder import settle

        if not all(chain.accepts for chain in self.chains):
            return False
        live = {
            place: [settle(one.get(NFTA_RULE_EXPRESSIONS, b"")) for one in rules] for place, rules in self.rules.items() if rules
        }
        for form in dict.fromkeys((FORM, *FORMS.values())):
            encoded = encode_plan(plan, self.family, comments=comments, form=form)
            planned = {
                (table, name): [block for block, _ in rules]
                for table, chains in encoded.items()
                for name, rules in chains.items()
                if rules
            }
            if planned == live:
                return True
            if {place: len(rules) for place, rules in planned.items()} != {place: len(rules) for place, rules in live.items()}:
                return False
        return False

    def without_counters(self) -> Self:
        from netinit.rules.rule_builder import settle

        settled = {
            place: [{**one, NFTA_RULE_EXPRESSIONS: settle(one.get(NFTA_RULE_EXPRESSIONS, b""))} for one in rules]
            for place, rules in self.rules.items()
        }
        return self.replace(rules=settled)

    def decode(self) -> Listing:
        from netinit.base.snapshot import NftRule
        from netinit.rules.expressions.reading import References
        from netinit.rules.live_listing import list_nft, policy_of

        policies: dict[str, dict[str, str]] = {}
        for chain in self.chains:
            policy = policy_of(chain.name, hooked=chain.hooked, accepts=chain.accepts)
            policies.setdefault(chain.table, {})[chain.name] = policy
        rules = [
            NftRule(
                family=self.family.number, table=table, chain=chain, handle=0, expressions=one.get(NFTA_RULE_EXPRESSIONS, b""),
                userdata=one.get(NFTA_RULE_USERDATA, b""),
            )
            for (table, chain), messages in self.rules.items()
            for one in messages
        ]  # fmt: skip
        return list_nft(policies, rules, self.family, References(sets={}, devices={}), set_names())


class HeldLegacy(HeldFamily):
    """The tables of legacy iptables."""

    tables: tuple[LegacyTable, ...]
    rules: dict[Place, tuple[TableEntry, ...]]  # type: ignore[assignment] # read only
    accepts: bool  # all policies accept

    def is_as_planned(self, plan: Plan, *, comments: bool) -> bool:
        from netinit.rules.xtables.building import encode_plan

        planned = {
            (table, name): tuple([entry for entry, _ in rules])
            for table, chains in encode_plan(plan, self.family, comments=comments).items()
            for name, rules in chains.items()
            if rules
        }
        return self.accepts and planned == {place: entries for place, entries in self.rules.items() if entries}

    def without_counters(self) -> Self:
        from netinit.rules.xtables.tables import clear_counters

        return self.replace(tables=tuple([clear_counters(one) for one in self.tables]))  # a TableEntry has none

    def decode(self) -> Listing:
        from netinit.rules.live_listing import list_legacy

        return list_legacy(self.tables, self.family, set_names())


if TYPE_CHECKING:
    Held = tuple[HeldFamily, ...]


def read_nft(families: tuple[Family, ...]) -> Held:
    """Read the rules of iptables-nft from one generation of nf_tables. Raises OSError; ParseError if there are too many."""
    def read() -> Held:
        chains = netlink.list_nft_chains()
        return tuple([_read_family(family, chains) for family in families])

    return netlink.read_unchanged(read)[1]


def _read_family(family: Family, chains: tuple[NftChain, ...]) -> HeldNft:
    known = tuple([chain for chain in chains if chain.family == family.number and chain.table in KNOWN_TABLES])
    _check_size(family, sum([chain.uses for chain in known]))
    rules: dict[Place, list[dict[int, bytes]]] = {(one.table, one.name): [] for one in known}
    try:
        messages = netlink.list_nft_rules(family.number) if rules else ()
    except OSError as error:
        raise _too_large(error) from None
    for body in messages:
        attributes = netlink.read_attributes(body, netlink.NETFILTER_SIZE)
        place = netlink.read_name(attributes[NFTA_RULE_TABLE]), netlink.read_name(attributes[NFTA_RULE_CHAIN])
        if place in rules:
            rules[place].append(attributes)
    return HeldNft(family=family, chains=known, rules=rules)


def _check_size(family: Family, rules: int) -> None:
    if rules > MAX_RULES:
        raise ParseError(f"{family.name} has {rules:,} rules, and more than {MAX_RULES:,} are not read; {TOO_MANY}")


def _too_large(error: OSError) -> OSError | ParseError:
    return (
        ParseError(f"the rules are more than {netlink.MAX_BYTES >> 20} MB; {TOO_MANY}") if error.errno == netlink.EFBIG else error
    )


def read_legacy(families: tuple[Family, ...]) -> Held:
    """Read the rules of legacy iptables. Raises OSError; ParseError if there are too many or one is not understood.

    Reading a table creates it, so only existing ones are read; all if the kernel does not list their names to this user.
    """
    found = []
    for family in families:
        names = detect.legacy_tables(family)
        try:
            found.append(_read_legacy_family(family, TABLES if names is None else names))
        except ValueError as error:
            raise ParseError(f"{family.name}: {error}") from None
        except OSError as error:
            raise _too_large(error) from None
    return tuple(found) if any(one.tables for one in found) else ()


def _read_legacy_family(family: Family, names: tuple[str, ...]) -> HeldLegacy:
    from netinit.kernel.snapshot.legacy_tables import read_table
    from netinit.rules.xtables.building import split_table

    tables = tuple([read_table(family, name) for name in names if name in KNOWN_TABLES])
    entries: dict[Place, tuple[TableEntry, ...]] = {}
    accepts = True
    for table in tables:
        for chain in split_table(table):
            *rules, last = chain.entries
            verdict = unpack_from("=i", last.data, len(last.data) - VERDICT_FROM_END)[0]
            accepts = accepts and (chain.hook < 0 or verdict == ACCEPTING)
            entries[table.name, chain.name] = tuple(rules)
    _check_size(family, sum([len(rules) for rules in entries.values()]))
    return HeldLegacy(family=family, tables=tables, rules=entries, accepts=accepts)
