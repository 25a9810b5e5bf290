"""Rules of iptables as the kernel itself holds them, beside a plan: nothing is listed where they are as planned.

A second run that has nothing to do is what most restarts of an init container are. It reads the rules by netlink or getsockopt(2) and
compares their bytes with those that programs make of the plan. Where they are others, as another release writes them, their meaning is
compared; that also sees what listings do not print. Only what differs then, or has foreign rules beside it, is listed by a program.
"""

from __future__ import annotations

from _struct import unpack_from

from netinit.backends import Change, Comparison, State, filled
from netinit.backends.known_chains import of_iptables
from netinit.base.net import IPV4, Family
from netinit.base.records import Record
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import IPV4_TABLES, IPV6_TABLES, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE
from netinit.rules.iptables.write import KNOWN_TABLES, Written, render_listing, write_plan, write_rule
from netinit.rules.model import OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.base.snapshot import LegacyTable
    from netinit.kernel.netlink import NftChain
    from netinit.kernel.plain_namespace import KnownChain
    from netinit.rules.model import Difference, Plan, Rule
    from netinit.rules.xtables.building import TableEntry

    Place = tuple[str, str]  # table, chain

MOST_RULES = 5_000  # of a family: a program lists them more quickly
MOST_ENTRIES = 1 << 20  # bytes of a legacy table, for the same reason
NFTA_RULE_USERDATA = 7
VERDICT_FROM_END, ACCEPTING = 8, -2  # in struct xt_standard_target; -NF_ACCEPT - 1


class HeldNft(Record):
    """The rules of iptables-nft of one family, as expressions with what is noted beside them."""

    family: Family
    rules: dict[Place, list[tuple[bytes, bytes]]]

    @property
    def in_use(self) -> bool:
        """Whether there is any rule."""
        return any(self.rules.values())

    def is_as_planned(self, plan: Plan, *, comments: bool) -> bool:
        """Whether these are the plan's rules and no others, byte for byte as a release of iptables-nft programs them."""
        from netinit.rules.expressions.building import settle
        from netinit.rules.expressions.compat import FORM, FORMS, encode_plan

        live = {place: [settle(block) for block, _ in rules] for place, rules in self.rules.items() if rules}
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

    def decode(self) -> dict[Place, list[Rule]]:
        """What the rules mean."""
        from netinit.base.snapshot import NftRule
        from netinit.rules.expressions.reading import References, decode_rule

        nothing = References(sets={}, devices={})
        number = _number_of(self.family)
        return {
            (table, chain): [
                rule
                for block, noted in rules
                for rule in decode_rule(
                    NftRule(family=number, table=table, chain=chain, handle=0, expressions=block, userdata=noted), nothing
                ).rules
            ]
            for (table, chain), rules in self.rules.items()
        }


class HeldLegacy(Record):
    """The tables of the older interface of one family, and the entries of each chain's rules."""

    family: Family
    tables: tuple[LegacyTable, ...]
    entries: dict[Place, list[TableEntry]]

    @property
    def in_use(self) -> bool:
        """Whether there is any rule."""
        return any(self.entries.values())

    def is_as_planned(self, plan: Plan, *, comments: bool) -> bool:
        """Whether these are the plan's rules and no others, byte for byte as iptables-legacy programs them."""
        from netinit.rules.xtables.building import encode_plan

        planned = {
            (table, name): [entry for entry, _ in rules]
            for table, chains in encode_plan(plan, self.family, comments=comments).items()
            for name, rules in chains.items()
            if rules
        }
        return planned == {place: entries for place, entries in self.entries.items() if entries}

    def decode(self) -> dict[Place, list[Rule]]:
        """What the rules mean."""
        from netinit.rules.xtables.tables import decode_table

        return {(table.name, chain.name): [one.rule for one in chain.rules] for table in self.tables for chain in decode_table(table)}


if TYPE_CHECKING:
    Held = tuple[HeldNft, ...] | tuple[HeldLegacy, ...]  # by family


def read_nft(families: tuple[Family, ...], chains: tuple[NftChain, ...]) -> tuple[HeldNft, ...]:
    """The rules of iptables-nft; nothing where none are ours, or where a program had better list them. OSError."""
    numbers = {_number_of(family): family for family in families}
    known = [chain for chain in chains if chain.family in numbers and chain.table in KNOWN_TABLES]
    if not (all(chain.accepts for chain in known) and any(chain.name in OWNED_CHAINS for chain in known)):
        return ()
    if sum([chain.uses for chain in known]) > MOST_RULES:
        return ()
    found = []
    for number, family in numbers.items():
        rules: dict[Place, list[tuple[bytes, bytes]]] = {(one.table, one.name): [] for one in known if one.family == number}
        for body in netlink.list_nft_rules(number) if rules else ():
            attributes = netlink.read_attributes(body, netlink.NETFILTER_SIZE)
            place = netlink.read_name(attributes[NFTA_RULE_TABLE]), netlink.read_name(attributes[NFTA_RULE_CHAIN])
            if place in rules:
                rules[place].append((attributes.get(NFTA_RULE_EXPRESSIONS, b""), attributes.get(NFTA_RULE_USERDATA, b"")))
        found.append(HeldNft(family=family, rules=rules))
    return tuple(found)


def _number_of(family: Family) -> int:
    return IPV4_TABLES if family is IPV4 else IPV6_TABLES


def read_legacy(families: tuple[Family, ...]) -> tuple[HeldLegacy, ...]:
    """The rules of the older interface; nothing where none are ours, or where a program had better list them. OSError, ValueError."""
    from netinit.kernel.snapshot.legacy_tables import read_table
    from netinit.rules.xtables.building import split_table

    found = []
    for family in families:
        names = detect.legacy_tables(family)
        tables = tuple([read_table(family, name) for name in names or ()])
        if names is None or any(len(table.entries) > MOST_ENTRIES for table in tables):
            return ()
        entries = {}
        for table in tables:
            for chain in split_table(table):
                *rules, last = chain.entries
                if chain.hook >= 0 and unpack_from("=i", last.data, len(last.data) - VERDICT_FROM_END)[0] != ACCEPTING:
                    return ()
                entries[table.name, chain.name] = rules
        found.append(HeldLegacy(family=family, tables=tables, entries=entries))
    return tuple(found) if any(chain in OWNED_CHAINS for one in found for _, chain in one.entries) else ()


class HeldState(State):
    """Rules of ours, as the kernel holds them. `list_all` has a program list them; its state answers what they do not."""

    held: Held
    list_all: Callable[[], State]
    comments: bool

    def compare(self, plan: Plan) -> Comparison:
        if all(one.is_as_planned(plan, comments=self.comments) for one in self.held) or self._means(plan):
            return HeldComparison(plan, self)
        return self.list_all().compare(plan)

    def describe(self) -> dict[str, str]:
        return self.list_all().describe()

    def _means(self, plan: Plan) -> bool:
        """Whether the rules say what the plan's do, in the same order."""
        for one in self.held:
            live = {
                place: [text for rule in rules for text in write_rule(rule, one.family, comments=self.comments)]
                for place, rules in one.decode().items()
                if rules
            }
            written = {
                (table, name): chain.texts
                for table, chains in write_plan(plan, one.family, comments=self.comments).items()
                for name, chain in chains.items()
                if chain.rules
            }
            if live != written:
                return False
        return True


class HeldComparison(Comparison):
    """Rules that are as planned, each of them."""

    state: HeldState
    differences: tuple[Difference, ...] = ()
    is_whole = True

    def __init__(self, plan: Plan, state: HeldState) -> None:
        self.plan = plan
        self.state = state
        self._made: dict[Family, Written] | None = None

    def known_chains(self) -> dict[tuple[int, str, str], KnownChain]:
        return of_iptables(self._written()) if self.state.of_nf_tables else {}

    def ours(self) -> dict[str, tuple[str, ...]]:
        return self._listed().ours()

    def shadows(self) -> tuple[Difference, ...]:
        """None: a foreign rule would be a difference."""
        return ()

    def resumable(self) -> bool:
        return True

    def change(self, *, force: bool = False) -> Change:
        return self._listed().change(force=force)

    def removal(self) -> Change:
        return self._listed().removal()

    def committed(self) -> dict[str, str]:
        return filled({family.name: render_listing(written) for family, written in self._written().items()})

    def _written(self) -> dict[Family, Written]:
        if self._made is None:
            self._made = self._write()
        return self._made

    def _write(self) -> dict[Family, Written]:
        return {one.family: write_plan(self.plan, one.family, comments=self.state.comments) for one in self.state.held}

    def _listed(self) -> Comparison:
        return self.state.list_all().compare(self.plan)
