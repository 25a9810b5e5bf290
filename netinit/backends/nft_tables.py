"""Our nft tables that are there: read from the kernel, compared with the plan, listed by nft to be written back; and nft's errors.

Loaded only where such tables are, or where something failed: most pods' first run finds nothing.

What decides is what the kernel holds, never what nft prints: it prints names and comments as they are, ends by a failed assertion
where a name is no UTF-8, and takes minutes to list a set of a million. What cannot be read is reported, and replaced whole.
"""

from __future__ import annotations

import posix

from netinit.backends.known_chains import of_own_tables
from netinit.base.errors import ApplyError, BackendUnavailableError, NetinitError
from netinit.base.records import Record
from netinit.base.snapshot import SET_ANONYMOUS, Snapshot
from netinit.kernel import run
from netinit.kernel.netlink import EFBIG, INET
from netinit.kernel.plain_namespace import KnownChain
from netinit.kernel.run import Finished
from netinit.kernel.snapshot import nf_tables_dump
from netinit.rules.expressions.native import encode_live, encode_plan, find_unequal
from netinit.rules.model import EXTRA, Difference
from netinit.rules.nft import DIALECT, Written, miss_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.snapshot import Unknown
    from netinit.kernel.netlink import NftChain
    from netinit.rules.model import Plan

OLDEST_NFT = (1, 0, 1)
OLDEST_KERNEL = (5, 2)  # nat and route chains for inet
MAX_MESSAGE = 400


class Listed(Record):
    """Tables, in the kernel's order, and how nft lists them, counters left out. `unread` says why they were not listed."""

    tables: tuple[str, ...]
    text: str
    unread: str


class HeldTables(Record):
    """Tables as the kernel has them; `unread` says why they could not be read."""

    tables: tuple[str, ...]
    chains: tuple[NftChain, ...]
    snapshot: Snapshot
    unread: str = ""


def read_held(chains: tuple[NftChain, ...], tables: tuple[str, ...]) -> HeldTables:
    """These tables. BackendUnavailableError where the kernel does not tell."""
    unknown: list[Unknown] = []
    snapshot, unread = Snapshot(), ""
    try:
        snapshot = Snapshot(**nf_tables_dump.read(unknown, family=INET, tables=tables))
    except OSError as error:
        if error.errno != EFBIG:
            raise BackendUnavailableError(
                f"the kernel does not tell its rules: {posix.strerror(error.errno or 0)}"
            ) from None
        unread = "they are too long"
    if unknown:
        unread = "; ".join([f"{one.place}: {one.reason}" for one in unknown])
    own = tuple([one for one in chains if one.family == INET and one.table in tables])
    return HeldTables(tables=tables, chains=own, snapshot=snapshot, unread=unread)


def read_listed(held: HeldTables) -> Listed:
    """The tables as nft lists them."""
    text, unread = "", held.unread
    try:
        text = "" if unread else "".join(_list("--stateless", held.tables))
    except ApplyError as error:  # nft ended without telling, or not in time: remove and --reconcile must not need it
        unread = str(error)
    return Listed(tables=held.tables, text=text, unread=unread)


def compare_held(plan: Plan, written: Written, held: HeldTables) -> tuple[Difference, ...]:
    """How the tables differ from the plan; where they cannot be read, by that."""
    if held.unread:
        return _distrust(written, held)
    if _is_hooked(written, held) and _is_as_planned(plan, held):
        return ()
    from netinit.rules.expressions import table_differences  # only where something differs

    return table_differences.compare_tables(plan, table_differences.decode_tables(held.snapshot))


def _is_hooked(written: Written, held: HeldTables) -> bool:
    """Whether the chains are the plan's, each entered from where it should be, and nothing is dropped at their ends."""
    return all(one.accepts for one in held.chains) and of_own_tables(written) == {
        (one.family, one.table, one.name): KnownChain(
            uses=one.uses, hook=one.hook, kind=one.kind, priority=one.priority
        )
        for one in held.chains
    }


def _is_as_planned(plan: Plan, held: HeldTables) -> bool:
    """Whether the tables hold the plan's rules, byte for byte as a release of nft programs them, and nothing else."""
    snapshot = held.snapshot
    named = {one.table for one in snapshot.objects} | {one.table for one in snapshot.sets if not one.flags & SET_ANONYMOUS}
    if named.intersection(held.tables):
        return False
    for splits_ranges in (True, False):
        planned = encode_plan(plan, splits_ranges=splits_ranges)
        if all(not find_unequal(table, encode_live(snapshot, name, table.chains)) for name, table in planned.items()):
            return True
    return False


def _list(option: str, tables: tuple[str, ...]) -> list[str]:
    """Our tables as nft lists them; it lists one in a run, and foreign sets may be as long as they like."""
    path = run.find("nft") if tables else ""
    running = [run.start(path, (option, "list", "table", "inet", name)) for name in tables]
    finished = [run.finish(started) for started in running]
    for result in finished:
        if result.status:
            raise explain(result, path)
    return [result.output for result in finished]


def rules_of(text: str, table: str) -> list[str]:
    """The rules of a table in nft's listing."""
    lines = text.split("\n")
    head = f"table inet {table} {{"
    start = lines.index(head) + 1 if head in lines else len(lines)
    end = lines.index("}", start) if "}" in lines[start:] else len(lines)
    inside = [line.strip() for line in lines[start:end]]
    return [line for line in inside if line not in ("", "}") and not line.startswith(("chain ", "type "))]


def reads_files(text: str) -> bool:
    """Whether nft would open files that a listing names: others may have written the comments in it."""
    parts = text.split('"')
    return len(parts) % 2 == 0 or any("include" in part for part in parts[::2])


def _distrust(written: Written, held: HeldTables) -> tuple[Difference, ...]:
    """The differences of tables that cannot be read: they are not as planned, and to be replaced."""
    rule = f"the whole table, which cannot be read safely: {held.unread}"
    found = [Difference(kind=EXTRA, where=DIALECT, table=name, rule=rule) for name in held.tables]
    return (*found, *miss_all({name: chains for name, chains in written.items() if name not in held.tables}))


def explain(result: Finished, path: str) -> NetinitError:
    """The error of nft in terms of its cause and remedy; nothing was changed, since a transaction is whole."""
    lines = [line for line in result.errors.splitlines() if "rror:" in line] or result.errors.splitlines()
    said = "; ".join(dict.fromkeys(lines)) or f"ended with status {result.status} and no message"
    cause = f"nft: {said[:MAX_MESSAGE]}"
    version = _read_version(path)
    if version and version < OLDEST_NFT:
        return BackendUnavailableError(
            f"{cause}; this is nft {_dotted(version)}: install nftables {_dotted(OLDEST_NFT)} or newer",
        )
    from netinit.backends.errors import explain_nft  # seldom

    kernel = _read_numbers(posix.uname().release)
    old = f"kernel {_dotted(kernel)} is older than {_dotted(OLDEST_KERNEL)}" if kernel[:2] < OLDEST_KERNEL else ""
    return explain_nft(result.errors, cause, old)


def _read_version(path: str) -> tuple[int, ...]:
    """The version of nft, as in `nftables v1.0.6 (Lester Gooch #5)`; empty when it does not say."""
    words = run.finish(run.start(path, ("--version",))).output.split()
    return _read_numbers(words[1].lstrip("v")) if len(words) > 1 else ()


def _read_numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 6, 1, 0 for 6.1.0-18-amd64."""
    numbers = []
    for part in text.split("-", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join([str(number) for number in version])
