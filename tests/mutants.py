"""`make mutants`: a random sample of changes to the package, one condition each. Does a test notice?

    make mutants SAMPLE=300 SEED=7 ROOMS='rules kernel'   # 300 of all rooms, of which those of two are tried

mutmut's operators make the changes. One run of all tests learns which tests run which functions, in whatever process: a probe
at the start of each function writes that down (`mutants/learned`; delete it to learn again). Then each change is tried in
a pytest of its own by the tests that run its function, the most specific first: those in the file that has the module's name, then
those that run the fewest functions. Survivors are tried again in the end, by more tests; the slowest are left out where not all fit. A run that was stopped goes on where
`mutants/found.json` ends; delete it to begin anew.

Forks of one pytest would save the import of pytest, a quarter of a second for each change, and no more: whatever may have read the changed module
has to be imported after the change, by the tests as by the commands that they start.

Learning and trying happen in mount, PID and network namespaces of their own, in which netinit/ has the probes or the change, everything
else is read-only and /tmp and /run are empty: a changed condition may be the one that keeps the machine alone.
A change after which the tests use up their processor time counts as noticed. What fails without the change too does not, and a
change whose tests do not end by the clock is undecided: the machine may be busy.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import difflib
import functools
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import libcst as cst
    from mutmut.mutation.file_mutation import Mutation

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "netinit"
WORK = ROOT / "mutants"
LEARNED, FOUND = WORK / "learned", WORK / "found.json"
GO_CACHE = Path(sys.prefix) / "go-cache"
ELSEWHERE = ("e2e", "cluster", "node", "mesh", "bench")  # folders of tests that want more than a machine
LEAST = 15  # changes of a room
AT_ONCE = 2
FIRST, BUDGETS = 12, (30.0, 150.0)  # tests that are tried first; seconds that those took when they were learned which are tried next, and at last
SECONDS, TIMES = 30, 5  # of processor time for the tests of one change: these, and so many times what they took without it
PATIENCE = 900.0  # seconds for the tests of one change, by the clock
BY_CLOCK = "(time)"  # the place of a test's name where PATIENCE ended
REMARKS = {"untested": "  (no test runs it)", "undecided": "  (its tests did not end by the clock)"}  # by outcome
MEMORY = 4 << 30  # bytes
MOUNT_FAILED = 32  # exit code of mount(8)
# Last arguments that are what Python takes without them (since 3.11), and names that it reads in upper case too
DEFAULTS = {("from_bytes", '"big"'), ("to_bytes", '"big"')}
CODECS = ("utf-8", "ascii", "latin-1")

# In the package that learns: every process writes each function once for each test, with the test that was running.
PROBE = """
import builtins as _b, posix as _p, sys as _s
if not hasattr(_b, "_netinit_hit"):
    _b._netinit_seen = set()
    def _hit(name):
        if name in _b._netinit_seen:
            return
        _b._netinit_seen.add(name)
        os = _s.modules.get("os")  # pytest, and the process that forks commands, change what is there
        test = os.environ.get("PYTEST_CURRENT_TEST", "") if os else _p.environ.get(b"PYTEST_CURRENT_TEST", b"").decode("utf-8", "surrogateescape")
        if not test:
            return
        try:
            file = _p.open({path!r}, _p.O_WRONLY | _p.O_APPEND | _p.O_CLOEXEC)
            _p.write(file, f"{{test.rpartition(' ')[0]}}\\t{{name}}\\n".encode("utf-8", "surrogateescape"))
            _p.close(file)
        except OSError:
            pass
    _b._netinit_hit = _hit
"""


@dataclass
class Learned:
    """What a run of all tests showed."""

    functions: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # of each test that passed
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Learned:
        """From lines `test<tab>function` of the probes and `test<tab>=outcome<tab>seconds` of pytest."""
        known, failed = cls(), set()
        for line in text.splitlines():
            test, _, what = line.partition("\t")
            if what.startswith("="):
                outcome, _, seconds = what[1:].partition("\t")
                known.seconds[test] = known.seconds.get(test, 0.0) + float(seconds)
                failed |= {test} - ({test} if outcome == "passed" else set())
            else:
                known.functions[test].add(what)
        known.functions = {test: found for test, found in known.functions.items() if test in known.seconds.keys() - failed}
        return known

    def find_tests(self, file: str, name: str) -> tuple[list[str], list[str], list[str]]:
        """The tests that run the function, then those that run another of its file, since what runs once is known of one test alone.

        In three parts, of which each costs more than the one before.
        """
        function = f"{file}:{name}"
        own = [test for test, found in self.functions.items() if function in found]
        others = [test for test, found in self.functions.items() if function not in found and any(one.startswith(f"{file}:") for one in found)]
        named = f"/test_{Path(file).stem}.py::"
        ordered = [*self._sort(own, named), *self._sort(others, named)]
        # A hundred rows of a golden take as long as one test on the kernel: but for the most specific, the quickest are chosen.
        rest = sorted(ordered[FIRST:], key=lambda test: (function not in self.functions[test], named not in test, self.seconds[test]))
        chosen, spent = set(ordered[:1]), sum(self.seconds[test] for test in ordered[:1])
        for test in [*ordered[1:FIRST], *rest]:
            if spent + self.seconds[test] <= BUDGETS[1]:
                chosen.add(test)
                spent += self.seconds[test]
        parts, spent = ([], [], []), 0.0
        for place, test in enumerate([test for test in ordered if test in chosen]):
            spent += self.seconds[test]
            parts[0 if place < FIRST else 1 if spent <= BUDGETS[0] else 2].append(test)
        return parts

    def _sort(self, tests: list[str], named: str) -> list[str]:
        """Those of the module's file first, then the most specific, and of a test with many rows one row before the next."""
        rows = defaultdict[str, int](int)
        places = {}
        for test in sorted(tests, key=lambda test: (named not in test, len(self.functions[test]), test)):
            places[test] = rows[test.partition("[")[0]]
            rows[test.partition("[")[0]] += 1
        return sorted(places, key=lambda test: (named not in test, places[test]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """While learning, each test begins with no function seen, and commands that are forked for it say its name."""
    getattr(builtins, "_netinit_seen", set()).clear()
    if os.environ.get("NETINIT_LEARNED"):
        import_module("prefork").ENVIRONMENT["PYTEST_CURRENT_TEST"] = f"{item.nodeid} (call)"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Writes how a test ended and how long it took, where NETINIT_LEARNED says."""
    path = os.environ.get("NETINIT_LEARNED")
    if path and not os.environ.get("PYTEST_XDIST_WORKER"):  # the process that starts the workers hears of every test
        with Path(path).open("a") as file:
            file.write(f"{report.nodeid}\t={report.outcome}\t{report.duration:.3f}\n")


def list_functions(source: str) -> list[tuple[str, int, int, ast.stmt]]:
    """Functions and methods that stand in no other function: name, first and last line, first statement."""
    found = []

    def visit(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                has_docstring = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant) and len(node.body) > 1
                found.append((f"{prefix}{node.name}", node.lineno, node.end_lineno or node.lineno, node.body[has_docstring]))
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")

    visit(ast.parse(source).body, "")
    return found


def add_probes(source: str, file: str) -> str:
    """The source with a probe at the start of each function."""
    lines = source.splitlines(keepends=True)
    for name, start, _, first in reversed(list_functions(source)):
        line = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", []))])
        if line > start and not lines[line - 1][: first.col_offset].strip():
            lines.insert(line - 1, f"{' ' * first.col_offset}_netinit_hit({f'{file}:{name}'!r})\n")
    return "".join(lines)


def enclose(mounts: dict[Path, Path], command: list[str]) -> list[str]:
    """The command in namespaces of its own, with the first of each pair of paths at the place of the second."""
    writable = [path for path in (WORK, GO_CACHE) if path.exists()]
    script = [
        *(f"mount --bind '{path}' '{path}'" for path in writable),
        *(f"mount --bind '{source}' '{target}'" for source, target in mounts.items()),
        "mount -o remount,bind,ro /",
        *(f"mount -t tmpfs -o mode=1777 none {folder}" for folder in ("/tmp", "/var/tmp", "/run")),
        "ip link set lo up",
        '"$@" || exit $?',  # by a shell that stays: the first process of a namespace collects orphans, which pytest does not
        "exit",
    ]
    return ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", "\n".join(script), "sh", *command]


def make_command(*more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "-p", "mutants", "--require-netns", "--hypothesis-profile", "mutants", "--timeout", f"{PATIENCE:.0f}"),
        *("-W", "ignore::pytest.PytestUnraisableExceptionWarning", *more),
    ]  # fmt: skip


def make_environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT / "tests"), "NETINIT_EXAMPLES": "5", **more}


def learn(paths: list[str], jobs: int) -> None:
    """Runs the tests with probes, and adds what they run to what is known."""
    probed = WORK / "probed"
    subprocess.run(["rm", "-rf", probed], check=True)
    subprocess.run(["cp", "-a", PACKAGE, probed], check=True)
    for path in probed.rglob("*.py"):
        path.write_text(add_probes(path.read_text(), str(path.relative_to(probed))))
    start = probed / "__init__.py"
    start.write_text(start.read_text() + PROBE.format(path=str(LEARNED)))
    LEARNED.touch()
    LEARNED.chmod(0o666)
    ignored = [f"--ignore=tests/{folder}" for folder in ELSEWHERE]
    command = make_command("-n", str(jobs), "--dist", "loadscope", "--no-loadscope-reorder", *ignored, *(paths or ["tests"]))
    subprocess.run(enclose({probed: PACKAGE}, command), cwd=ROOT, env=make_environment(NETINIT_LEARNED=str(LEARNED)), check=False)


@dataclass(frozen=True)
class Change:
    """One change: its file below netinit/, its number in it, its function and line, the file with it, and the difference."""

    file: str
    number: int
    function: str
    line: int
    text: str
    diff: str

    def __str__(self) -> str:
        return f"netinit/{self.file}:{self.line} #{self.number} {self.function}"


def says_the_same(change: Mutation) -> bool:
    """Whether Python takes the changed node for what it was, or never runs it: the methods of a Protocol have no body.

    None in the place of False counts as the same: both are untrue, and where a bool is wanted, mypy refuses None.
    """
    import libcst.matchers as m
    from libcst import AnnAssign, Assign, Attribute, Call, Module, SimpleString

    text = m.SimpleStatementLine(body=[m.Expr(m.SimpleString() | m.Ellipsis())])
    if m.matches(change.contained_by_top_level_function, m.FunctionDef(body=m.IndentedBlock(body=[text, m.ZeroOrMore(text)]) | m.SimpleStatementSuite(body=[m.Expr(m.Ellipsis())]))):
        return True

    old, new = change.original_node, change.mutated_node
    if isinstance(old, Assign | AnnAssign) and isinstance(new, Assign | AnnAssign):
        return m.matches(old.value, m.Name("False")) and m.matches(new.value, m.Name("None"))
    if isinstance(old, SimpleString) and isinstance(new, SimpleString):
        return old.evaluated_value in CODECS and str(new.evaluated_value).lower() == old.evaluated_value
    if isinstance(old, Call) and isinstance(new, Call) and isinstance(old.func, Attribute) and old.args and [*new.args] == [*old.args[:-1]]:
        return (old.func.attr.value, Module([]).code_for_node(old.args[-1].value)) in DEFAULTS
    return False


class Source:
    """A file with all its changes."""

    def __init__(self, path: Path) -> None:
        self.file, self.text = str(path.relative_to(PACKAGE)), path.read_text()
        self.room = self.file.partition("/")[0]

    @functools.cached_property
    def changes(self) -> tuple[cst.Module, list[Mutation]]:
        """What mutmut would change in functions and methods: with the tree, since a change is a node in it."""
        from libcst import FunctionDef
        from mutmut.mutation.file_mutation import create_mutations

        module, changes, *_ = create_mutations(self.file, self.text)
        in_functions = [change for change in changes if isinstance(change.contained_by_top_level_function, FunctionDef)]
        return module, [change for change in in_functions if not says_the_same(change)]

    def make(self, number: int) -> Change:
        module, changes = self.changes
        text = module.deep_replace(changes[number].original_node, changes[number].mutated_node).code  # type: ignore[attr-defined] # a module stays one
        pairs = zip(self.text.splitlines(), text.splitlines(), strict=False)
        line = next((place for place, (old, new) in enumerate(pairs, 1) if old != new), 1)
        name = next((name for name, start, end, _ in list_functions(self.text) if start <= line <= end), "")
        diff = difflib.unified_diff(self.text.splitlines(), text.splitlines(), lineterm="", n=0)
        return Change(self.file, number, name, line, text, "\n".join(part for part in diff if part[:3] not in {"---", "+++"}))


def draw(sources: list[Source], total: int, seed: str) -> Iterator[tuple[Source, float]]:
    """So many files and where in them to change something (0 to 1): each room and each file in proportion to its lines, but of no room fewer than LEAST."""
    rooms: dict[str, dict[Source, int]] = defaultdict(dict)
    for source in sources:
        rooms[source.room][source] = source.text.count("\n")
    whole = sum(sum(room.values()) for room in rooms.values())
    for name, room in sorted(rooms.items()):
        dice = random.Random(f"{seed} {name}")
        for source in dice.choices(list(room), list(room.values()), k=max(LEAST, round(total * sum(room.values()) / whole))):
            yield source, dice.random()


def attempt(change: Change, learned: Learned, *, again: bool) -> tuple[str, str]:
    """How it ended (killed, survived, untested, undecided), and the test that noticed it; `again` by the tests that cost more."""
    quick, more, costly = learned.find_tests(change.file, change.function)
    if not quick:
        return "untested", ""
    changed = WORK / "tried" / f"{change.file.replace('/', '.')}.{change.number}"
    changed.write_text(change.text)
    for part in [costly] if again else [quick, more]:
        if part and (noticed := run_tests(part, {changed: PACKAGE / change.file}, learned)):
            return "undecided" if noticed == BY_CLOCK else "killed", noticed
    return "survived", ""


def run_tests(tests: list[str], mounts: dict[Path, Path], learned: Learned, *more: str) -> str:
    """The first test that fails, or what else went wrong; nothing where all pass. `more`: arguments of pytest."""
    limit = SECONDS + TIMES * int(sum(learned.seconds[test] for test in tests))
    command = ["prlimit", f"--cpu={limit}", f"--as={MEMORY}", *make_command("-x", "-rfE", *more, *tests)]
    try:
        done = subprocess.run(enclose(mounts, command), cwd=ROOT, env=make_environment(), check=False, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return BY_CLOCK
    if done.returncode == 0:
        return ""
    if done.returncode == pytest.ExitCode.USAGE_ERROR and mounts and not run_tests(tests, {}, learned, "--collect-only"):
        there = [test for test in tests if f"not found: {ROOT / test}\n" not in done.stderr]
        if "ERROR collecting" in done.stdout or there == tests:
            return "(cannot be collected)"
        return run_tests(there, mounts, learned) if there else ""  # rows have other names with the change, which says nothing
    if done.returncode in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED, MOUNT_FAILED}:
        raise SystemExit(f"{done.stdout[-500:]}{done.stderr[-500:]}\nfiles or tests are not those of {LEARNED}: delete it")
    failed = [line.split(" ", 1)[1].partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    return failed[0] if failed else f"(exit {done.returncode}) {(done.stdout + done.stderr)[-300:]}"


def report(found: dict[str, dict[str, str]]) -> str:
    """A line for each room, and below the changes that no test noticed."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for one in found.values():
        rooms[one["room"]].append(one["outcome"])
    lines = [f"{'':12}{'tried':>7}{'killed':>8}{'%':>7}"]
    for room, outcomes in [*sorted(rooms.items()), ("all", [one["outcome"] for one in found.values()])]:
        killed = outcomes.count("killed")
        lines.append(f"{room:12}{len(outcomes):7}{killed:8}{100 * killed / len(outcomes):7.1f}")
    survivors = [f"{name}{REMARKS.get(one['outcome'], '')}\n{one['diff']}" for name, one in found.items() if one["outcome"] != "killed"]
    return "\n".join([*lines, "", *survivors])


def try_all(rooms: list[str], total: int, seed: str) -> dict[str, dict[str, str]]:
    """Tries a sample and writes down what was found."""
    learned = Learned.read(LEARNED.read_text())
    (WORK / "tried").mkdir(exist_ok=True)
    sources = [Source(path) for path in sorted(PACKAGE.glob("*/**/*.py")) if path.relative_to(PACKAGE).parts[0] != "data"]
    chosen = [one for one in draw(sources, total, seed) if not rooms or one[0].room in rooms]
    random.Random(seed).shuffle(chosen)  # a run that ends early has seen something of all
    found: dict[str, dict[str, str]] = json.loads(FOUND.read_text()) if FOUND.exists() else {}

    def try_one(one: tuple[Source, float], *, again: bool) -> None:
        source, place = one
        if not source.changes[1]:
            return
        change = source.make(int(place * len(source.changes[1])))
        if found.get(str(change), {}).get("outcome", "") != ("survived" if again else ""):
            return
        outcome, test = attempt(change, learned, again=again)
        found[str(change)] = {"room": source.room, "outcome": outcome, "test": test, "diff": change.diff}
        print(f"{len(found)} of {len(chosen)}: {outcome} {change} {test}", file=sys.stderr, flush=True)
        FOUND.write_text(json.dumps(dict(found), indent=1))

    for again in (False, True):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(functools.partial(try_one, again=again), chosen))
    for test in sorted({one["test"] for one in found.values() if one["test"].startswith("tests/")}):
        if run_tests([test], {}, learned) and run_tests([test], {}, learned):
            print(f"fails without a change: {test}", file=sys.stderr)
            for one in found.values():
                one["outcome"] = "survived" if one["test"] == test else one["outcome"]
    FOUND.write_text(json.dumps(found, indent=1))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", help="folders of netinit/; all where none is named")
    parser.add_argument("--sample", type=int, default=300, help="changes of all rooms")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--learn", nargs="*", help="tests to learn now; all where nothing is known")
    parser.add_argument("--jobs", type=int, default=4, help="tests at the same time while learning")
    given: Any = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    if given.learn is not None or not LEARNED.exists():
        learn(given.learn or [], given.jobs)
    if given.sample:
        print(report(try_all(given.rooms, given.sample, given.seed)))
