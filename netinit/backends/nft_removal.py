"""Delete our rules of iptables-nft by netlink, in one transaction for both families; no program is started.

Rules are deleted by handle, which the kernel never gives to another rule: where a rule was replaced meanwhile,
the transaction fails and changes nothing. Our chains are deleted with everything in them.

Most pods have nothing else in the built-in chains than jumps to our chains, which show whose they are. Only other rules
are decoded.

Empty tables and built-in chains that iptables-nft created for our rules go too, also after it has changed them. It creates our
chains before the built-in chains that jump to them, and handles rise in order of creation. So built-in chains with a higher
handle than our first chain are ours, and a table whose first chain is ours; older ones stay. The kernel refuses to delete what
is in use (NLM_F_NONREC of linux/netlink.h). Limit: a foreign table created without chains looks like ours.
"""

from __future__ import annotations

from netinit.backends import Change
from netinit.base.errors import ApplyError
from netinit.base.netlink_attributes import split_attributes
from netinit.base.records import Record
from netinit.base.system import posix
from netinit.kernel import detect, netlink
from netinit.kernel.netlink import attribute, read_attributes, read_name
from netinit.kernel.nf_tables import (
    NFT_MSG_DELCHAIN,
    NFT_MSG_DELRULE,
    NFT_MSG_DELTABLE,
    NLM_F_NONREC,
    NfTables,
    name,
    rule_place,
)
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS, TABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from netinit.backends import State
    from netinit.backends.encoded_rules import EncodedNft
    from netinit.base.net import Family
    from netinit.base.netlink_attributes import NftChain
    from netinit.kernel.nf_tables import Message
    from netinit.rules.iptables.ownership import Owned
    from netinit.rules.model import Plan

    Place = tuple[int, str, str]  # family, table, chain
    Rules = dict[tuple[str, str], list[tuple[int, bytes]]]  # handle and expressions by table and chain

NFTA_IMMEDIATE_DATA, NFTA_DATA_VERDICT, NFTA_VERDICT_CHAIN = 2, 2, 2
CHANGED = (2, 16)  # ENOENT, EBUSY: a rule was replaced, or a foreign one jumps to our chains; a table is in use, or gone


class NftRemoval(Change):
    """A removal by netlink: `deletions` by family, which delete `freed` rules of built-in chains."""

    deletions: tuple[tuple[int, Message], ...]
    freed: dict[Place, int]


def find_removal(state: State, live: Sequence[EncodedNft], plan: Plan, find_owned: Callable[[], dict[Family, Owned]]) -> NftRemoval:
    """Return the deletion of every rule of ours; `find_owned` decodes the rules.

    Raises ApplyError if foreign rules jump to our chains.
    """
    places = [one.by_place() for one in live]
    found = [_find_jumps(rules) for rules in places]
    ours = [one for one in found if one is not None]
    if len(ours) < len(live):
        owned = find_owned()
        ours = [
            {place: [rules[place][index] for index in indexes] for place, indexes in owned[one.family].items()}
            for one, rules in zip(live, places, strict=True)
        ]
    deletions: list[tuple[int, Message]] = []
    freed: dict[Place, int] = {}
    for one, rules in zip(live, ours, strict=True):
        deletions += [(one.family.number, message) for message in _write(one, rules)]
        freed |= {(one.family.number, *place): len(found) for place, found in rules.items()}
    return NftRemoval(
        scripts={one.family.name: "" for one in live}, before=state, plan=plan, deletions=tuple(deletions), freed=freed
    )


def commit(change: NftRemoval, chains: Collection[NftChain]) -> None:
    """Commit the removal, with what it leaves empty of the live `chains` if nothing has come into use. Raises ApplyError."""
    try:
        with NfTables() as link:
            empty = _find_empty(chains, find_parts(chains), change.freed, OWNED_CHAINS)
            refused = link.commit([*change.deletions, *empty])
            if refused and empty:
                refused = link.commit(change.deletions)
    except OSError as error:
        raise ApplyError(f"iptables-nft: its rules cannot be deleted: {error.strerror}") from None
    if refused:
        number = refused[0].number
        why = "they have changed meanwhile, or foreign rules jump to them" if number in CHANGED else posix.strerror(number)
        raise ApplyError(f"iptables-nft: netinit's rules cannot be deleted: {why}")


def _find_jumps(live: Rules) -> Rules | None:
    """Return the rules that jump to our chains; None if there are others, which must be decoded."""
    found: Rules = {}
    for (table, chain), rules in live.items():
        if chain in OWNED_CHAINS or not rules:
            continue
        if chain not in BUILTIN_CHAINS or not all(_jumps_to_ours(expressions) for _, expressions in rules):
            return None
        found[table, chain] = rules
    return found


def _jumps_to_ours(rule: bytes) -> bool:
    """Whether the only verdict of a rule's expressions is a jump to a chain of ours."""
    expressions = [read_attributes(one, 0) for _, one in split_attributes(rule)]
    names = [one.get(netlink.NFTA_EXPR_NAME, b"").rstrip(b"\0") for one in expressions]
    if names.count(b"immediate") != 1 or names[-1] != b"immediate":
        return False
    data = read_attributes(read_attributes(expressions[-1].get(netlink.NFTA_EXPR_DATA, b""), 0).get(NFTA_IMMEDIATE_DATA, b""), 0)
    verdict = read_attributes(data.get(NFTA_DATA_VERDICT, b""), 0)
    return read_name(verdict.get(NFTA_VERDICT_CHAIN, b"")) in OWNED_CHAINS


def _write(live: EncodedNft, ours: Rules) -> Iterator[Message]:
    for (table, chain), rules in ours.items():
        place = rule_place(table, chain)
        for handle, _ in rules:
            yield NFT_MSG_DELRULE, 0, place + attribute(netlink.NFTA_RULE_HANDLE, handle.to_bytes(8, "big"))
    chains = [place for place in live.rules if place[1] in OWNED_CHAINS]
    for table, chain in chains:  # all of their rules first: they jump to one another
        yield NFT_MSG_DELRULE, 0, rule_place(table, chain)
    for table, chain in chains:
        yield NFT_MSG_DELCHAIN, 0, attribute(netlink.NFTA_CHAIN_TABLE, name(table)) + attribute(netlink.NFTA_CHAIN_NAME, name(chain))


class OwnPart(Record):
    """A table of iptables-nft with chains of ours: the handle of the first, and whether no chain is older."""

    family: int
    table: str
    first: int
    alone: bool


def find_parts(live: Collection[NftChain]) -> tuple[OwnPart, ...]:
    """Return the tables of iptables-nft that contain chains of ours."""
    tables: dict[tuple[int, str], list[NftChain]] = {}
    for chain in live:
        if chain.family in netlink.OF_IPTABLES and chain.table in TABLES:
            tables.setdefault((chain.family, chain.table), []).append(chain)
    found = []
    for (family, table), chains in tables.items():
        ours = [chain.handle for chain in chains if chain.name in OWNED_CHAINS]
        if ours:
            alone = min(ours) == min([chain.handle for chain in chains])
            found.append(OwnPart(family=family, table=table, first=min(ours), alone=alone))
    return tuple(found)


def remove_empty(parts: Collection[OwnPart]) -> None:
    """Delete tables and built-in chains of ours without rules and with unchanged policies. Raises ApplyError."""
    chains = (detect.nft_chains() or ()) if parts else ()
    for part in parts:  # each for itself: all of a transaction, or nothing of it if any is in use
        messages = _find_empty(chains, (part,))
        if not messages:
            continue
        try:
            with NfTables() as link:
                wrong = [one.number for one in link.commit(messages) if one.number not in CHANGED]
        except OSError as error:
            wrong = [error.errno or 0]
        if wrong:
            raise ApplyError(f"empty tables of iptables-nft cannot be removed: {posix.strerror(wrong[0])}")


def _find_empty(
    chains: Collection[NftChain],
    parts: Collection[OwnPart],
    freed: Mapping[Place, int] | None = None,
    deleted: Collection[str] = (),
) -> list[tuple[int, Message]]:
    """Return the deletion of tables and built-in chains of ours, of these chains, without rules and with unchanged policies.

    For a transaction that deletes `freed` rules of a chain before it, and the chains with the names in `deleted`.
    """
    found: list[tuple[int, Message]] = []
    for part in parts:
        live = [one for one in chains if (one.family, one.table) == (part.family, part.table) and one.name not in deleted]
        empty = [
            one
            for one in live
            if one.is_base and one.policy and one.handle > part.first
            and one.uses == (freed or {}).get((part.family, part.table, one.name), 0)
        ]  # fmt: skip
        table = attribute(netlink.NFTA_CHAIN_TABLE, name(part.table))
        for one in empty:
            chain = table + attribute(netlink.NFTA_CHAIN_NAME, name(one.name))
            found += [(part.family, (NFT_MSG_DELCHAIN, NLM_F_NONREC, chain))]
        if part.alone and empty and len(empty) == len(live):
            found.append((part.family, (NFT_MSG_DELTABLE, NLM_F_NONREC, attribute(netlink.NFTA_TABLE_NAME, name(part.table)))))
    return found
