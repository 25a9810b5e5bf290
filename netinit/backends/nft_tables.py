"""Our existing nft tables: compare, save, restore and list them, and explain the kernel's errors.

Not loaded on a successful first run. Tables that cannot be read are reported and replaced as a whole.
"""

from __future__ import annotations

from _struct import unpack_from
from itertools import takewhile

from netinit.backends import chains_of_tables
from netinit.backends.nft_messages import NFTA_TABLE_USERDATA, delete_tables
from netinit.base.errors import ApplyError, BackendUnavailableError, NetinitError
from netinit.base.netlink_attributes import HEADER
from netinit.base.system import posix
from netinit.kernel import netlink, nf_tables
from netinit.kernel.netlink import attribute, big, read_attributes, read_name
from netinit.kernel.nf_tables import Refusal, dump_tables
from netinit.rules.model import EXTRA, Difference
from netinit.rules.nft import DIALECT, EncodedTable, are_equal, encode_steps, miss_all, render_tables
from netinit.rules.rule_builder import EncodedSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from netinit.backends.nft_messages import Part
    from netinit.base.netlink_attributes import NftChain
    from netinit.base.snapshot import Snapshot, Unknown
    from netinit.kernel.nf_tables import TableDump
    from netinit.rules.model import Plan
    from netinit.rules.nft import Steps

NFTA_TABLE_HANDLE, NFTA_SET_ID = 4, 10
# The objects of a table, each after those that it needs: message, and the attributes that a program sets; the kernel itself adds
# handles and use counts.
UNNAMED = "needed expression"  # older kernels do not say which one they refuse
OBJECTS = (
    (nf_tables.NFT_MSG_NEWTABLE, (1, 2, 6)),
    (nf_tables.NFT_MSG_NEWCHAIN, (1, 3, 4, 5, 7)),
    (nf_tables.NFT_MSG_NEWSET, (*range(1, 10), *range(11, 16), 17, 18)),
    (nf_tables.NFT_MSG_NEWOBJ, (1, 2, 3, 4, 8)),
    (nf_tables.NFT_MSG_NEWFLOWTABLE, (1, 2, 3, 7)),
    (nf_tables.NFT_MSG_NEWSETELEM, (1, 2, 3)),
    (nf_tables.NFT_MSG_NEWRULE, (1, 2, 4, 7)),
)


def compare_live(
    plan: Plan, steps: dict[str, Steps], tables: tuple[str, ...], chains: tuple[NftChain, ...], snapshot: Snapshot | None
) -> tuple[Difference, ...]:
    """Return the differences between tables and plan. Raises BackendUnavailableError."""
    if snapshot is None and all(one.policy for one in chains):
        hooked = {(one.family, one.table, one.name): one.facts for one in chains}
        if chains_of_tables(steps) == hooked and _is_as_planned(steps, tables, chains):
            return ()
    snapshot, unread = (snapshot, _find_unread(snapshot.unknown, tables)) if snapshot else _read_snapshot(tables)
    if unread:
        return _distrust(steps, tables, unread)
    from netinit.rules.expressions import table_differences  # only where something differs

    return table_differences.compare_tables(plan, snapshot)


def _is_as_planned(steps: dict[str, Steps], tables: tuple[str, ...], chains: tuple[NftChain, ...]) -> bool:
    """Whether the tables hold the plan's rules, byte for byte as this backend or a release of nft writes them."""
    try:
        dump = dump_tables(netlink.INET, tables, whole=False)
    except OSError:  # the next read reports it
        return False
    for body in dump[nf_tables.NFT_MSG_NEWTABLE]:
        found = read_attributes(body, 0)
        table = read_name(found[netlink.NFTA_TABLE_NAME])
        if big(found[nf_tables.NFTA_TABLE_USE]) != len([one for one in chains if one.table == table]):
            return False  # objects other than chains: named sets and the like
    live = {name: _encoded(dump, name) for name in steps}
    return any(
        all(are_equal(encode_steps(planned, splits_ranges=splits_ranges), live[name]) for name, planned in steps.items())
        for splits_ranges in (True, False)
    )


def _encoded(dump: TableDump, table: str) -> EncodedTable:
    rules, listed, saved = (  # of each, attribute 1 is the table's name
        [found for found in [read_attributes(body, 0) for body in bodies] if read_name(found[1]) == table]
        for bodies in (dump[nf_tables.NFT_MSG_NEWRULE], dump[nf_tables.NFT_MSG_NEWSETELEM], dump[nf_tables.NFT_MSG_NEWSET])
    )
    elements: dict[bytes, list[bytes]] = {}
    for found in listed:
        elements.setdefault(found[2], []).extend(_split(found.get(3, b"")))
    sets = [
        EncodedSet(
            name=read_name(found[2]), flags=big(found.get(3)), key_type=big(found.get(4)), key_length=big(found.get(5)),
            elements=tuple(elements.get(found[2], ())),
        )
        for found in saved
    ]  # fmt: skip
    chains: dict[str, list[bytes]] = {}
    for found in rules:
        chains.setdefault(read_name(found[netlink.NFTA_RULE_CHAIN]), []).append(found.get(netlink.NFTA_RULE_EXPRESSIONS, b""))
    return EncodedTable(chains=chains, sets=tuple(sets))


def _split(elements: bytes) -> Iterator[bytes]:
    at = 0
    while at + HEADER <= len(elements):
        length = max(HEADER, unpack_from("=H", elements, at)[0] + 3 & ~3)
        yield elements[at : at + length]
        at += length


def _read_snapshot(tables: tuple[str, ...]) -> tuple[Snapshot, str]:
    from netinit.base.snapshot import Snapshot
    from netinit.kernel.snapshot import nf_tables_dump

    unknown: list[Unknown] = []
    try:
        snapshot = Snapshot(**nf_tables_dump.read(unknown, family=netlink.INET, tables=tables))
    except OSError as error:
        if error.errno != netlink.EFBIG:
            raise BackendUnavailableError(f"the kernel does not list its rules: {posix.strerror(error.errno or 0)}") from None
        return Snapshot(), "they are too long"
    return snapshot, _find_unread(unknown, tables)


def _find_unread(unknown: Iterable[Unknown], tables: tuple[str, ...]) -> str:
    """Return what of these tables could not be read, and why."""
    places = (" of inet", *[f" of table inet {name}" for name in tables])
    return "; ".join([f"{one.place}: {one.reason}" for one in unknown if one.place.endswith(places)])


def _distrust(steps: dict[str, Steps], tables: tuple[str, ...], unread: str) -> tuple[Difference, ...]:
    rule = f"the whole table, which cannot be read safely: {unread}"
    found = [Difference(kind=EXTRA, where=DIALECT, table=name, rule=rule) for name in tables]
    return (*found, *miss_all([name for name in steps if name not in tables]))


# ---- listing ---------------------------------------------------------------------------------------------------------


def render_live(tables: tuple[str, ...]) -> str:
    """Return the tables in nft syntax, or one line `(not read: REASON)`. Raises BackendUnavailableError."""
    from netinit.rules.expressions.table_differences import decode_tables, format_chain_hook, format_live

    snapshot, unread = _read_snapshot(tables)
    return f"(not read: {unread})\n" if unread else render_tables({
        name: {chain: (format_chain_hook(one), [format_live(rule) for rule in one.rules]) for chain, one in chains.items()}
        for name, chains in decode_tables(snapshot).items()
    })  # fmt: skip


def list_rules(tables: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the rules in nft syntax by `nft TABLE`; what is unreadable is left out. Raises BackendUnavailableError."""
    from netinit.rules.expressions import table_differences

    live = table_differences.decode_tables(_read_snapshot(tables)[0])
    return {
        f"{DIALECT} {name}": tuple([
            table_differences.format_live(rule) for chain in live.get(name, {}).values() for rule in chain.rules
        ])
        for name in tables
    }


def list_comments(tables: tuple[str, ...]) -> dict[str, str]:
    """Return the comment of each table."""
    from netinit.rules.expressions.rule_reader import read_comment

    found = [read_attributes(body, 0) for body in _list_tables(tables)]
    return {read_name(one[netlink.NFTA_TABLE_NAME]): read_comment(one.get(NFTA_TABLE_USERDATA, b"")) for one in found}


# ---- save and restore ------------------------------------------------------------------------------------------------------


def keep(tables: tuple[str, ...]) -> tuple[TableDump | None, str]:
    """Dump the tables with everything in them, or return why that failed."""
    try:
        return dump_tables(netlink.INET, tables, whole=True), ""
    except OSError as error:
        return None, posix.strerror(error.errno or 0)


def restore(tables: tuple[str, ...], saved: TableDump | None, unread: str) -> tuple[Part, ...]:
    """Return the transaction that restores the saved tables; empty if they are unchanged.

    Raises ApplyError if they could not be read.
    """
    if not unread and _handles(_list_tables(tables)) == (_handles(saved[nf_tables.NFT_MSG_NEWTABLE]) if saved else {}):
        return ()  # the kernel refused the transaction
    if unread:
        raise ApplyError(f"the previous nft tables could not be read: {unread}")
    made = list(delete_tables(tables))
    for kind, settable in OBJECTS:
        flags = netlink.NLM_F_CREATE | (nf_tables.NLM_F_APPEND if kind == nf_tables.NFT_MSG_NEWRULE else 0)
        for number, body in enumerate(saved[kind] if saved else (), 1):
            found = read_attributes(body, 0)
            if kind == nf_tables.NFT_MSG_NEWSETELEM and not found.get(3):
                continue
            given = b"".join([attribute(one, found[one]) for one in settable if one in found])
            if kind == nf_tables.NFT_MSG_NEWSET:
                given += attribute(NFTA_SET_ID, number.to_bytes(4, "big"))
            made.append(((kind, flags, given), (read_name(found[1]), "", 0, None)))
    return tuple(made)


def _list_tables(names: tuple[str, ...]) -> list[bytes]:
    bodies = netlink.dump(netlink.NETLINK_NETFILTER, netlink.NFT_MSG_GETTABLE, bytes((netlink.INET, 0, 0, 0)))
    return [body[netlink.NETFILTER_SIZE :] for body in bodies if read_name(read_attributes(body, netlink.NETFILTER_SIZE)[1]) in names]


def _handles(tables: Collection[bytes]) -> dict[bytes, bytes | None]:
    """Return the handle of each table by name; handles are never reused."""
    found = [read_attributes(body, 0) for body in tables]
    return {one[netlink.NFTA_TABLE_NAME]: one.get(NFTA_TABLE_HANDLE) for one in found}


# ---- errors --------------------------------------------------------------------------------------------------


def explain(refusal: Refusal, parts: tuple[Part, ...]) -> NetinitError:
    """Return the error of a refused transaction, naming the rule."""
    place, asked = "the transaction", ""
    if refusal.message >= 0:
        (_, _, attributes), (table, chain, number, step) = parts[refusal.message]
        place = " ".join([word for word in (DIALECT, "table", table, chain and f"chain {chain}", number and f"rule {number}") if word])
        if step:
            place += f" ({step.text()})"
            asked = _expression_at(attributes, refusal.offset) or UNNAMED
        elif chain:
            asked = f"chain {read_name(read_attributes(attributes, 0).get(netlink.NFTA_CHAIN_TYPE, b''))}"
    text = f": {refusal.text}" if refusal.text else ""
    return _explain(refusal.number, f"{place}: {posix.strerror(refusal.number)}{text}", asked)


def explain_socket(error: OSError) -> NetinitError:
    """Return the error of a transaction that could not be sent."""
    return _explain(error.errno or 0, f"nf_tables: {error.strerror}", "")


def _explain(number: int, message: str, asked: str) -> NetinitError:
    from netinit.backends.failure_causes import explain_nft  # rarely needed
    from netinit.options import BACKENDS, FIRST_WITH, TABLES_OF_OUR_OWN

    kernel = list(takewhile(str.isdigit, posix.uname().release.partition("-")[0].split(".")))  # 6, 1, 0 of 6.1.0-18-amd64
    oldest = BACKENDS[FIRST_WITH[TABLES_OF_OUR_OWN]].oldest_kernel
    is_old = tuple(map(int, kernel[:2])) < oldest
    old = f"kernel {'.'.join(kernel)} is older than {'.'.join(map(str, oldest))}" if is_old else ""
    return explain_nft(number, message, asked, old)


def _expression_at(attributes: bytes, offset: int) -> str:
    if not 0 <= offset <= len(attributes) - HEADER:
        return ""
    length = unpack_from("=H", attributes, offset)[0]
    found = read_attributes(attributes[offset + HEADER : offset + length], 0)
    return read_name(found.get(netlink.NFTA_EXPR_NAME, b""))
