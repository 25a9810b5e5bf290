"""Our nft tables that are there: listed by nft, counted by the kernel, compared with the plan; and nft's words for what failed.

Loaded only where such tables are, or where something failed: most pods' first run finds nothing.

nft prints names and comments as they are, quotes and newlines included. So the text is believed only where each chain
has as many rules by netlink as the plan, and where no line could hold another list of names. Its JSON escapes what it
prints, but nft ends by a failed assertion where a name is no UTF-8, and takes minutes to list a set of a million: what
cannot be listed is reported, never listed again, and replaced whole.
"""

from __future__ import annotations

import posix

from netinit.backends.tally import count_nft, find_large_sets
from netinit.base.errors import ApplyError, BackendUnavailableError, NetinitError, ParseError
from netinit.base.records import Record
from netinit.kernel import run
from netinit.kernel.netlink import INET
from netinit.kernel.run import Finished
from netinit.rules.model import EXTRA, Difference
from netinit.rules.nft import DIALECT, TABLE_NAMES, Written, miss_all, render_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.kernel import netlink
    from netinit.rules.census import Census
    from netinit.rules.nft.reading import Tables

_ONE_NAME = 2  # quotes
OLDEST_NFT = (1, 0, 1)
OLDEST_KERNEL = (5, 2)  # nat and route chains for inet
MAX_MESSAGE = 400


class Listed(Record):
    """Tables, in the kernel's order, how nft lists them, counters left out, and what the kernel counts.

    `unread` says why they were not listed.
    """

    tables: tuple[str, ...]
    text: str
    counts: Census
    unread: str


def read_listed(chains: tuple[netlink.NftChain, ...], tables: tuple[str, ...]) -> Listed:
    """What is there of these tables. BackendUnavailableError where the kernel does not count them."""
    counts = _count(chains)
    unread = find_large_sets(INET, tables)
    text = ""
    try:
        text = "" if unread else _spell_priority("".join(_list("--stateless", tables)))
    except ApplyError as error:  # nft ended without telling, or not in time: remove and --reconcile must not need it
        unread = str(error)
    return Listed(tables=tables, text=text, counts=counts, unread=unread)


def read_counted(seen: Listed) -> Tables:
    """The same in types, with their counters. BackendUnavailableError, ParseError where they cannot be read."""
    from netinit.rules.nft.reading import read_tables  # for people's commands alone

    if seen.unread:
        raise BackendUnavailableError(f"nft tables cannot be read safely: {seen.unread}")
    texts = _list("--json", seen.tables)
    _check_counts(texts, seen)
    return read_tables(texts)


def compare_listed(written: Written, seen: Listed) -> tuple[Difference, ...]:
    """How the tables differ from the plan; where they cannot be read, by that."""
    if seen.unread:
        return _distrust(written, seen, seen.unread)
    counted = _counted(seen)
    planned = {name: {chain: len(wanted.rules) for chain, wanted in chains.items()} for name, chains in written.items()}
    if (
        planned == counted
        and _has_one_meaning(seen.text)
        and seen.text == render_tables({name: written[name] for name in seen.tables})
    ):
        return ()
    from netinit.rules.nft.listing import compare_listing, parse_listing  # json and re: only where texts differ

    try:
        texts = _list("--json", seen.tables)
        listing = {name: table for text in texts for name, table in parse_listing(text).items()}
        _check_counts(texts, seen)
    except (ApplyError, ParseError) as error:
        return _distrust(written, seen, str(error))
    return compare_listing(written, listing)


def _counted(seen: Listed) -> dict[str, dict[str, int]]:
    return {name: table.chains for name, table in seen.counts.items()}


def _check_counts(texts: list[str], seen: Listed) -> None:
    """ParseError where nft's JSON has other rules than the kernel counts."""
    from netinit.rules.nft.listing import collect

    tables = {name: chains for text in texts for name, chains in collect(text).items()}
    listed = {name: {chain: len(rules) for chain, (_, rules) in chains.items()} for name, chains in tables.items()}
    if listed != _counted(seen):
        raise ParseError("the kernel counts other rules than nft lists")


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


def _spell_priority(text: str) -> str:
    """The listing as nft 1.0.6 prints it."""
    return text.replace(" hook output priority dstnat;", " hook output priority -100;")  # nft 1.1


def _has_one_meaning(text: str) -> bool:
    """Whether no rule of a listing names two interfaces: one name with quotes in it would read the same."""
    return '"' not in text or all(line.partition(' comment "')[0].count('"') <= _ONE_NAME for line in text.split("\n"))


def reads_files(text: str) -> bool:
    """Whether nft would open files that a listing names: others may have written the comments in it."""
    parts = text.split('"')
    return len(parts) % 2 == 0 or any("include" in part for part in parts[::2])


def _count(chains: tuple[netlink.NftChain, ...]) -> Census:
    try:
        return count_nft(INET, chains, frozenset(TABLE_NAMES))
    except OSError as error:
        raise BackendUnavailableError(f"the kernel does not say how many rules it has: {posix.strerror(error.errno or 0)}") from None


def _distrust(written: Written, seen: Listed, why: str) -> tuple[Difference, ...]:
    """The differences of tables that cannot be read: they are not as planned, and to be replaced."""
    rule = f"the whole table, which cannot be read safely: {why}"
    found = [Difference(kind=EXTRA, where=DIALECT, table=name, rule=rule) for name in seen.tables]
    return (*found, *miss_all({name: chains for name, chains in written.items() if name not in seen.tables}))


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
