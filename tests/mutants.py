"""`make mutants`: the core with one condition changed, thousands of times. Does a test notice?

    make mutants MUTANTS='netinit.rules.layouts* netinit.pods.apply*' SAMPLE=60

mutmut makes the changed functions in mutants/ and learns which tests run which of them. Its own loop starts a pytest for each
change, which costs ten times as much as the tests that notice it. Here one pytest collects all tests, and each change is
tried in a fork of it, the quickest tests first. A sample is drawn by the name of the file: always the same.

What runs while modules are imported ran before the fork, and is known as run by the test that imported them: a change that
survives is tried once more, by all tests of its module in a pytest of its own.
A change after which the tests do not end within their limit of time counts as noticed.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
COPY = ROOT / "mutants"
FOLDER = COPY / "netinit"
SURVIVED, UNTESTED = 0, (5, 33)  # exit codes of mutmut: every test passed; there is none that runs the function
KILLED, BROKEN = 1, 3  # a test failed; pytest itself did
FIRST = "netinit.rules.matches.x_spell_not__*"  # what mutmut tries itself, since it makes nothing without trying
SECONDS, TIMES = 20, 5  # of processor time for the tests of one change: these, and so many times what they took without it
AT_ONCE = 2
AFRESH = 1200.0  # seconds for the tests of one change in a pytest of its own
MEMORY = 2 << 30  # bytes for one change


def report(folder: Path) -> str:
    """A line for each file that was tried, and below the names of the changes that survived."""
    lines, survivors = [f"{'':36}{'tried':>7}{'killed':>8}{'%':>7}"], []
    for path in sorted(folder.rglob("*.meta")):
        codes = {name: code for name, code in json.loads(path.read_text())["exit_code_by_key"].items() if code is not None}
        if not codes:
            continue
        lost = [name for name, code in codes.items() if code == SURVIVED or code in UNTESTED]
        survivors += [f"{name}{'  (no test runs it)' if codes[name] in UNTESTED else ''}" for name in lost]
        killed = len(codes) - len(lost)
        name = str(path.relative_to(folder)).removesuffix(".py.meta")
        lines.append(f"{name:36}{len(codes):7}{killed:8}{100 * killed / len(codes):7.1f}")
    remedy = ["", "mutmut show NAME prints what was changed"] if survivors else []
    return "".join(f"{line}\n" for line in [*lines, "", *survivors, *remedy])


def choose(folder: Path, patterns: Iterable[str], most: int) -> Iterator[str]:
    """The changes whose names fit one of the patterns, at most so many of each file (0: all); one of each file, then the
    next, so that a run that is ended early has seen something of all."""
    files = []
    for path in sorted(folder.rglob("*.meta")):
        names = sorted(json.loads(path.read_text())["exit_code_by_key"])
        fitting = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        random.Random(str(path.relative_to(folder))).shuffle(fitting)
        files.append(fitting[: most or None])
    return (name for turn in itertools.zip_longest(*files) for name in turn if name)


def keep(folder: Path, codes: dict[str, int]) -> None:
    """Writes what was found where mutmut keeps it, and forgets what was found before."""
    for path in folder.rglob("*.meta"):
        content = json.loads(path.read_text())
        content["exit_code_by_key"] = {name: codes.get(name) for name in content["exit_code_by_key"]}
        path.write_text(json.dumps(content, indent=4))


class Forks:
    """A plugin of pytest that tries each change in a fork of the process that collected the tests."""

    def __init__(self, names: Iterable[str], stats: dict[str, Any]) -> None:
        self.names = list(names)
        self.tests: dict[str, list[str]] = stats["tests_by_mangled_function_name"]
        self.seconds: dict[str, float] = stats["duration_by_test"]
        self.codes: dict[str, int] = {}
        self.running: dict[int, str] = {}
        self.is_fork = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_fork and report.failed:
            os._exit(KILLED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.freeze()
        for name in self.names:
            names = sorted(self.tests.get(name.rpartition("__mutmut_")[0], ()), key=lambda test: self.seconds[test])
            tests = [items[test] for test in names if test in items]
            if len(self.running) == AT_ONCE:
                self.wait()
            if process := os.fork():
                self.running[process] = name
            else:
                self.is_fork = True
                limit = SECONDS + TIMES * int(sum(self.seconds[test.nodeid] for test in tests))
                os._exit(attempt(name, tests, limit))
        while self.running:
            self.wait()
        return True

    def wait(self) -> None:
        process, status = os.wait()
        self.codes[self.running.pop(process)] = os.waitstatus_to_exitcode(status)
        if len(self.codes) % 50 == 0:  # a run takes hours: what ends it loses little
            keep(FOLDER, self.codes)
        if sys.stderr.isatty():
            print(f"\r{len(self.codes)} of {len(self.names)}", end="", file=sys.stderr)


def attempt(name: str, tests: list[pytest.Item], limit: int) -> int:
    """Runs the tests with the change, in a process that ends with the first that fails; mutmut's exit code."""
    if not tests:
        return UNTESTED[-1]
    os.environ["MUTANT_UNDER_TEST"] = name
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # a loop without end may collect something
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        for test, after in zip(tests, [*tests[1:], None], strict=True):
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
    except BaseException:  # noqa: BLE001 - whatever it is, the change was noticed
        return BROKEN
    return SURVIVED


def find_tests(name: str, tests: dict[str, list[str]]) -> list[str]:
    """All tests that run anything of the module in which the change is."""
    module = name.rpartition(".")[0]
    return sorted({test for function, known in tests.items() if function.rpartition(".")[0] == module for test in known})


def attempt_afresh(name: str, tests: Iterable[str], more: Iterable[str]) -> int:
    """The same in a pytest that has the change from its first import on."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", *more, *tests]
    try:
        done = subprocess.run(command, cwd=COPY, env={**os.environ, "MUTANT_UNDER_TEST": name}, check=False, capture_output=True, timeout=AFRESH)
    except subprocess.TimeoutExpired:
        return BROKEN
    return done.returncode


def run(patterns: list[str], most: int) -> None:
    """Tries the changes and writes down what was found."""
    made = subprocess.run([Path(sys.executable).parent / "mutmut", "run", FIRST], cwd=ROOT, check=False, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"{made.stdout[-2000:]}\n{made.stderr[-2000:]}\nmutmut failed")
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    plugin = Forks(choose(FOLDER, patterns, most), json.loads((COPY / "mutmut-stats.json").read_text()))
    os.chdir(COPY)
    sys.path[:] = [str(COPY), *[entry for entry in sys.path if Path(entry).resolve() not in (ROOT, ROOT / "tests")]]
    os.environ["MUTANT_UNDER_TEST"] = ""
    more = ["--rootdir", ".", "-s", "-p", "no:cacheprovider", *asked["pytest_add_cli_args"]]
    code = pytest.main([*more, *asked["pytest_add_cli_args_test_selection"]], plugins=[plugin])
    for name in [name for name, found in plugin.codes.items() if found == SURVIVED]:
        plugin.codes[name] = attempt_afresh(name, find_tests(name, plugin.tests), more)
    keep(FOLDER, plugin.codes)
    if len(plugin.codes) != len(plugin.names):
        raise SystemExit(f"{report(FOLDER)}\npytest ended with {code!r} and {len(plugin.codes)} of {len(plugin.names)} changes tried")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of changes, with *")
    parser.add_argument("--sample", type=int, default=0, help="at most so many of each file")
    given = parser.parse_args()
    run(given.patterns or ["*"], given.sample)
    print(report(FOLDER), end="")
