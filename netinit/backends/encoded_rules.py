"""The iptables rules of a snapshot, and whether they are a plan's byte for byte.

At most restarts nothing is to be done: the bytes equal those that the programs make from the plan. If they differ, the
rules are decoded and compared one by one.
"""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.net import Family
from netinit.base.netlink_attributes import MalformedError, attributes_of
from netinit.base.records import Record
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE, NFTA_RULE_TABLE
from netinit.rules.iptables.write import KNOWN_TABLES
from netinit.rules.model import TABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from netinit.base.netlink_attributes import NftChain
    from netinit.base.snapshot import LegacyTable, Snapshot
    from netinit.rules.iptables.write import Listing, Written
    from netinit.rules.xtables.building import TableEntry

    Place = tuple[str, str]  # table, chain

MAX_RULES = 200_000  # rules of one family; comparing them takes some 20 s
TOO_MANY = "remove those that are not needed"
ACCEPTING = -2  # -NF_ACCEPT - 1


class EncodedRules(Record):
    """The rules of one family, by place: expressions of nf_tables, or entries of legacy tables."""

    family: Family
    rules: dict[Place, Sequence[object]]
    accepts: bool  # every policy
    snapshot: Callable[[], Snapshot]  # that has these rules: made only where they are decoded

    @property
    def listing(self) -> Listing:
        """The tables, decoded once. Raises ParseError."""
        made: Listing | None = self.__dict__.get("_listing")
        if made is None:
            made = self.__dict__["_listing"] = self.decode()
        return made

    def decode(self) -> Listing:
        """Decode the tables to iptables syntax."""
        from netinit.rules.live_listing import list_snapshot

        snapshot = self.snapshot()
        if not snapshot.address_sets:  # rules have their numbers; a backend's own read leaves the names out
            snapshot = snapshot.replace(address_sets=tuple(detect.set_names().items()))
        return list_snapshot(snapshot, self.family, legacy=isinstance(self, EncodedLegacy))

    def is_as_planned(self, written: Written) -> bool:
        """Whether the rules are the plan's, byte for byte as a version of iptables programs them."""
        live = self.settled() if self.accepts else {}
        for planned in self.encode(written) if self.accepts else ():
            if planned == live:
                return True
            if {place: len(rules) for place, rules in planned.items()} != {place: len(rules) for place, rules in live.items()}:
                return False
        return False

    def settled(self) -> dict[Place, tuple[object, ...]]:
        """Return the rules without what the kernel decides, and without empty chains."""
        return {place: tuple(rules) for place, rules in self.rules.items() if rules}

    def encode(self, written: Written) -> Iterator[Mapping[Place, tuple[object, ...]]]:
        """Yield the plan's rules as each version of iptables programs them, without empty chains."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """The number of rules."""
        return sum([len(rules) for rules in self.rules.values()])


class EncodedNft(EncodedRules):
    """The rules of iptables-nft."""

    rules: dict[Place, list[bytes]]  # type: ignore[assignment] # read only
    handles: Callable[[], dict[Place, list[int]]]  # of the rules: read only where they are removed

    def by_place(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Return handle and expressions of each rule. Raises ParseError if one is not understood."""
        handles = self.handles()
        return {place: list(zip(handles[place], rules, strict=True)) for place, rules in self.rules.items()}

    def settled(self) -> dict[Place, tuple[object, ...]]:
        from netinit.rules.rule_builder import settle

        return {place: tuple([settle(one) for one in rules]) for place, rules in self.rules.items() if rules}

    def encode(self, written: Written) -> Iterator[Mapping[Place, tuple[object, ...]]]:
        from netinit.rules.expressions.compat import FORM, FORMS, encode_plan

        for form in dict.fromkeys((FORM, *FORMS.values())):
            yield encode_plan(written, self.family, form)


class EncodedLegacy(EncodedRules):
    """The rules of legacy iptables."""

    rules: dict[Place, tuple[TableEntry, ...]]  # type: ignore[assignment] # read only

    def encode(self, written: Written) -> Iterator[Mapping[Place, tuple[object, ...]]]:
        from netinit.rules.xtables.building import encode_plan

        yield encode_plan(written, self.family)


if TYPE_CHECKING:
    EncodedFamilies = tuple[EncodedRules, ...]


def read_nft(families: tuple[Family, ...]) -> tuple[int, EncodedFamilies]:
    """Read the rules of iptables-nft from one generation of nf_tables, and return both.

    Raises OSError; ParseError if there are too many.
    """
    def read() -> EncodedFamilies:
        chains = netlink.list_nft_chains()
        return tuple([_read_family(family, chains) for family in families])

    return netlink.read_unchanged(read)


def _read_family(family: Family, chains: tuple[NftChain, ...]) -> EncodedNft:
    known = tuple([chain for chain in chains if chain.family == family.number and chain.table in KNOWN_TABLES])
    _check_size(family, sum([chain.uses for chain in known]))
    rules: dict[Place, list[bytes]] = {(one.table, one.name): [] for one in known}
    try:
        messages = netlink.list_nft_rules(family.number) if rules else []
    except OSError as error:
        raise _too_large(error) from None
    for body in messages:
        found = netlink.read_attributes(body, netlink.NETFILTER_SIZE)
        place = netlink.read_name(found[NFTA_RULE_TABLE]), netlink.read_name(found[NFTA_RULE_CHAIN])
        if place in rules:
            rules[place].append(found.get(NFTA_RULE_EXPRESSIONS, b""))
    accepts = all(chain.policy for chain in known)
    return EncodedNft(
        family=family, rules=rules, handles=lambda: _read_handles(known, messages), accepts=accepts,
        snapshot=lambda: _decode(known, messages),
    )  # fmt: skip


def _read_handles(chains: tuple[NftChain, ...], messages: Sequence[bytes]) -> dict[Place, list[int]]:
    """Return the handles of the rules of each chain. Raises ParseError."""
    handles: dict[Place, list[int]] = {(one.table, one.name): [] for one in chains}
    try:
        for body in messages:
            found = attributes_of(body, netlink.NETFILTER_SIZE)
            place = netlink.read_name(found[NFTA_RULE_TABLE]), netlink.read_name(found[NFTA_RULE_CHAIN])
            if place in handles:
                handles[place].append(netlink.big(found.get(NFTA_RULE_HANDLE)))
    except MalformedError:
        _decode(chains, messages)  # its error says which rules are meant
        raise
    return handles


def _decode(chains: tuple[NftChain, ...], messages: Sequence[bytes]) -> Snapshot:
    """Return what was read as a snapshot. Raises ParseError."""
    from netinit.base.snapshot import Snapshot
    from netinit.kernel.snapshot.nf_tables_dump import decode_rules

    rules, unknown = decode_rules(messages)
    if unknown:
        raise ParseError("; ".join([f"{one.place}: {one.reason}" for one in unknown]))
    return Snapshot(rules=rules, chains=chains)


def nft_by_family(found: EncodedFamilies) -> dict[Family, EncodedNft]:
    """Return the rules of iptables-nft by family."""
    return {one.family: one for one in found if isinstance(one, EncodedNft)}


def nft_of_snapshot(snapshot: Snapshot, families: tuple[Family, ...]) -> EncodedFamilies:
    """Return the rules of iptables-nft in a snapshot; empty without tables. Raises ParseError if one is not understood."""
    unread = [f"{one.place}: {one.reason}" for one in snapshot.unknown if one.place.endswith((" of ip", " of ip6"))]
    if unread:
        raise ParseError("; ".join(unread))
    found: list[EncodedNft] = []
    for family in families:
        chains = [one for one in snapshot.chains if one.family == family.number and one.table in KNOWN_TABLES]
        rules: dict[Place, list[bytes]] = {(one.table, one.name): [] for one in chains}
        handles: dict[Place, list[int]] = {place: [] for place in rules}
        for one in snapshot.rules:
            if one.family == family.number and (one.table, one.chain) in rules:
                rules[one.table, one.chain].append(one.expressions)
                handles[one.table, one.chain].append(one.handle)
        accepts = all(one.policy for one in chains)
        found.append(EncodedNft(family=family, rules=rules, handles=handles.copy, accepts=accepts, snapshot=lambda: snapshot))
    return tuple(found) if any(one.rules for one in found) else ()


def read_legacy(families: tuple[Family, ...]) -> Snapshot:
    """Read the rules of legacy iptables. Raises OSError; ParseError if there are too many.

    Reading a table creates it, so only existing ones are read; all if the kernel does not list their names to this user.
    """
    from netinit.base.snapshot import Snapshot
    from netinit.kernel.snapshot.legacy_tables import read_table

    tables: list[LegacyTable] = []
    for family in families:
        names = detect.legacy_tables(family)
        try:
            tables += [read_table(family, name) for name in (TABLES if names is None else names) if name in KNOWN_TABLES]
        except OSError as error:
            raise _too_large(error) from None
    return Snapshot(legacy=tuple(tables))


def legacy_of_snapshot(snapshot: Snapshot, families: tuple[Family, ...]) -> EncodedFamilies:
    """Return the rules of legacy iptables in a snapshot; empty without tables.

    Raises ParseError if there are too many or one is not understood.
    """
    found = []
    for family in families:
        entries: dict[Place, tuple[TableEntry, ...]] = {}
        try:
            policies = [_split(table, entries) for table in snapshot.legacy if table.version == family.version]
        except ValueError as error:
            raise ParseError(f"{family.name}: {error}") from None
        _check_size(family, sum([len(rules) for rules in entries.values()]))
        found.append(EncodedLegacy(family=family, rules=entries, accepts=all(policies), snapshot=lambda: snapshot))
    return tuple(found) if snapshot.legacy else ()


def _split(table: LegacyTable, entries: dict[Place, tuple[TableEntry, ...]]) -> bool:
    """Add a table's entries by chain; return whether its policies accept. Raises ValueError."""
    from netinit.rules.xtables.building import ENTRY_FORMS, split_table, verdict_of

    accepts = True
    for chain in split_table(table) if table.name in KNOWN_TABLES else ():
        *rules, last = chain.entries
        accepts &= chain.hook < 0 or verdict_of(last, ENTRY_FORMS[table.version]) == ACCEPTING
        entries[table.name, chain.name] = tuple(rules)
    return accepts


def _check_size(family: Family, rules: int) -> None:
    if rules > MAX_RULES:
        raise ParseError(f"{family.name} has {rules:,} rules, and more than {MAX_RULES:,} are not read; {TOO_MANY}")


def _too_large(error: OSError) -> OSError | ParseError:
    return (
        ParseError(f"the rules are more than {netlink.MAX_BYTES >> 20} MB; {TOO_MANY}") if error.errno == netlink.EFBIG else error
    )
