"""The backend that feeds nft: tables of its own, replaced in one transaction for both families.

The kernel is asked over netlink which of our tables are there, so a first run starts one program, `nft -f -`. A second
run starts one for each of our tables, and compares what nft prints with what the plan reads in the same words; only
where the two texts differ is nft's JSON parsed, since another version of nft may spell the same rules differently.

nft prints names and comments as they are, quotes and newlines included. So the text is believed only where each chain
has as many rules by netlink as the plan, and where no line could hold another list of names. Its JSON escapes what it
prints, but nft ends by a failed assertion where a name is no UTF-8, and takes minutes to list a set of a million: what
cannot be listed is reported, never listed again, and replaced whole.
"""

from __future__ import annotations

import posix

from netinit.backends import INET, IPV4_TABLES, IPV6_TABLES
from netinit.backends.base import Backend, Change, Comparison, State
from netinit.base.errors import ApplyError, BackendUnavailableError, NetinitError, ParseError
from netinit.base.net import FAMILIES, Family
from netinit.kernel import detect, run
from netinit.kernel.run import Finished
from netinit.rules.model import EXTRA, MISSING, Difference, Plan
from netinit.rules.nft.writer import DIALECT, TABLE_NAMES, Written, render_replacement, render_tables, write_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.kernel import netlink
    from netinit.rules.census import Census
    from netinit.rules.nft.reading import Tables

FROM_INPUT = ("-f", "-")
_ONE_NAME = 2  # quotes
OLDEST_NFT = (1, 0, 1)
OLDEST_KERNEL = (5, 2)  # nat and route chains for inet
MAX_MESSAGE = 400
NOT_INSTALLED = "nft is not installed: add the package nftables to the image"


class NftState(State):
    """The owned tables that exist, in the kernel's order, how nft lists them, counters left out, and what the kernel counts.

    `unread` says why they were not listed.
    """

    tables: tuple[str, ...]
    text: str
    counts: Census
    comments: bool  # those of rules are written
    unread: str = ""

    def compare(self, plan: Plan) -> NftComparison:
        return NftComparison(plan, self)

    def describe(self) -> dict[str, str]:
        return {DIALECT: self.text} if self.text else {}


class NftComparison(Comparison):
    """The tables beside the plan in nft's words."""

    def __init__(self, plan: Plan, state: NftState) -> None:
        self.plan = plan
        self.state = state
        self.written = write_plan(plan, comments=state.comments)
        self.differences = _find_differences(self.written, state)

    def ours(self) -> dict[str, tuple[str, ...]]:
        return {f"{DIALECT} {name}": tuple(_rules_of(self.state.text, name)) for name in self.state.tables}

    def shadows(self) -> tuple[Difference, ...]:
        """Nothing: no foreign rule can stand in tables of our own."""
        return ()

    def resumable(self) -> bool:
        """Only where nothing is there: a transaction is never half made."""
        return not self.state.ours

    def change(self, *, force: bool = False) -> Change:
        wrong = {difference.table for difference in self.differences}
        wanted = {name: chains for name, chains in self.written.items() if force or name in wrong}
        # Only what is there is deleted: a deletion makes the kernel wait for all its readers, some 15 ms.
        replaced = [name for name in self.state.tables if name in wanted or name not in self.written]
        return self._make_change(render_replacement(render_tables(wanted), replaced))

    def removal(self) -> Change:
        return self._make_change(render_replacement("", self.state.tables))

    def _make_change(self, script: str) -> Change:
        return Change(scripts={DIALECT: script} if script else {}, before=self.state, plan=self.plan)


class NftablesBackend(Backend):
    """Rules in native nft tables, through the program nft."""

    name = "nftables"
    reads_back = False

    def __init__(
        self,
        *,
        comments: bool = False,
        families: tuple[Family, ...] = FAMILIES,  # noqa: ARG002 - inet tables take a kernel without IPv6 as it is
        lock_timeout: int = 0,  # noqa: ARG002 - the kernel's transactions need no lock
        own_files: bool = True,  # noqa: ARG002 - no file is used
    ) -> None:
        self._comments = comments
        self._prepared: run.Running | None = None

    def observe(self) -> NftState:
        chains = detect.nft_chains()
        if chains is None:
            raise BackendUnavailableError(
                "nf_tables cannot be asked: run with NET_ADMIN, on a kernel with nf_tables (module nf_tables)",
            )
        inet = dict.fromkeys([chain.table for chain in chains if chain.family == INET])
        tables = tuple([table for table in inet if table in TABLE_NAMES])
        if tables and not run.find("nft"):  # another backend beside these rules would capture everything twice
            raise ApplyError(f"rules in nft tables ({', '.join(tables)}) are here, but {NOT_INSTALLED}")
        foreign = [c for c in chains if c.family not in (INET, IPV4_TABLES, IPV6_TABLES)]
        counts = _count(chains) if tables else {}
        unread = _find_large_sets(tables) if tables else ""
        text = ""
        try:
            text = "" if unread else _spell_priority("".join(_list("--stateless", tables)))
        except ApplyError as error:  # nft ended without telling, or not in time: remove and --reconcile must not need it
            unread = str(error)
        return NftState(
            tables=tables,
            text=text,
            counts=counts,
            comments=self._comments,
            unread=unread,
            ours=bool(tables),
            foreign=len(inet) > len(tables) or bool(foreign),
        )

    def prepare(self) -> None:
        path = run.find("nft")
        if path and not self._prepared:
            self._prepared = run.prepare(path, FROM_INPUT)

    def release(self) -> None:
        if self._prepared:
            run.kill(self._prepared)
            self._prepared = None

    def commit(self, change: Change) -> None:
        script = change.scripts.get(DIALECT)
        if not script:
            return
        if self._prepared:
            prepared, self._prepared = self._prepared, None
            _finish(run.feed(prepared, script), run.find("nft"))
        else:
            self._run(FROM_INPUT, script)

    def put_back(self, change: Change) -> None:
        before = change.before
        if not isinstance(before, NftState):
            raise TypeError("the change of another backend")
        if before.unread:
            raise ApplyError(f"the nft tables of before could not be read: {before.unread}")
        if _reads_files(before.text):
            raise ApplyError("the nft tables of before name files to be read, and are not written back")
        self._run(FROM_INPUT, render_replacement(before.text, self.observe().tables))
        if self.observe().text != before.text:
            raise ApplyError(f"nft lists other tables than before ({', '.join(before.tables) or 'none'})")

    def check(self, script: str) -> None:
        """Lets nft and the kernel check a script without making its rules; errors as for `commit`."""
        self._run(("-c", *FROM_INPUT), script)

    def read(self) -> Tables:
        """Our tables in types, with their counters. BackendUnavailableError, ParseError where they cannot be read."""
        from netinit.rules.nft.reading import read_tables  # for people's commands alone

        seen = self.observe()
        if seen.unread:
            raise BackendUnavailableError(f"nft tables cannot be read safely: {seen.unread}")
        texts = _list("--json", seen.tables)
        _check_counts(texts, seen)
        return read_tables(texts)

    def list_rules(self, comparison: Comparison) -> dict[str, str]:
        """The rules of the transaction, which was committed whole; nft would take 40 ms to list 10,000 networks."""
        if not isinstance(comparison, NftComparison):
            raise TypeError("the comparison of another backend")
        return {DIALECT: render_tables(comparison.written)}

    def _run(self, arguments: tuple[str, ...], script: str = "") -> str:
        path = run.find("nft")
        if not path:
            raise BackendUnavailableError(NOT_INSTALLED)
        return _finish(run.start(path, arguments, stdin=script), path)


def _finish(running: run.Running, path: str) -> str:
    """What nft printed; the error where it failed."""
    result = run.finish(running)
    if result.status:
        raise _explain(result, path)
    return result.output


def _find_differences(written: Written, seen: NftState) -> tuple[Difference, ...]:
    if not seen.tables:
        return _miss_everything(written)
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


def _counted(seen: NftState) -> dict[str, dict[str, int]]:
    return {name: table.chains for name, table in seen.counts.items()}


def _check_counts(texts: list[str], seen: NftState) -> None:
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
            raise _explain(result, path)
    return [result.output for result in finished]


def _rules_of(text: str, table: str) -> list[str]:
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


def _reads_files(text: str) -> bool:
    """Whether nft would open files that a listing names: others may have written the comments in it."""
    parts = text.split('"')
    return len(parts) % 2 == 0 or any("include" in part for part in parts[::2])


def _count(chains: tuple[netlink.NftChain, ...]) -> Census:
    from netinit.kernel.tally import count_nft  # only where there are tables of ours

    try:
        return count_nft(INET, chains, frozenset(TABLE_NAMES))
    except OSError as error:
        raise BackendUnavailableError(f"the kernel does not say how many rules it has: {posix.strerror(error.errno or 0)}") from None


def _find_large_sets(tables: tuple[str, ...]) -> str:
    from netinit.kernel.tally import find_large_sets

    return find_large_sets(INET, tables)


def _distrust(written: Written, seen: NftState, why: str) -> tuple[Difference, ...]:
    """The differences of tables that cannot be read: they are not as planned, and to be replaced."""
    rule = f"the whole table, which cannot be read safely: {why}"
    found = [Difference(kind=EXTRA, where=DIALECT, table=name, rule=rule) for name in seen.tables]
    return (*found, *_miss_everything({name: chains for name, chains in written.items() if name not in seen.tables}))


def _miss_everything(written: Written) -> tuple[Difference, ...]:
    """The differences of a namespace in which none of the tables exists."""
    return tuple([Difference(kind=MISSING, where=DIALECT, table=table, rule="the whole table") for table in written])


def _explain(result: Finished, path: str) -> NetinitError:
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
    return explain_nft(said, cause, old)


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
