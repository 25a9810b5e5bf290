"""How long a pod waits for its init container: first run, second run and removal, beside the floor and the bare program.

Every figure is that of a whole process in a fresh network namespace, the contenders taking turns, so that a busy machine slows
all of them alike. Times are wall times. Ratios are of processor time, the programs that a run starts included, against
`python3 -I -S -c pass`, which no Python program can beat, measured right before and after; those to the bare program are of wall
time. Budgets are printed beside the figures; the clock never decides a test.

    python tests/bench/apply.py                  the sidecar's default options, then lists of excluded networks
    python tests/bench/apply.py --counts 0       the default options alone
    python tests/bench/apply.py --json FILE      the figures for other programs
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from ipset_input import render_steps  # noqa: E402
from netinit.base.net import FAMILIES  # noqa: E402
from netinit.kernel.links import Links  # noqa: E402
from netinit.kernel.netlink import LOOPBACK_INDEX  # noqa: E402
from netinit.options import BACKENDS as LINES  # noqa: E402 - the path must be set first
from netinit.options import Options, offline  # noqa: E402
from netinit.rules import nft  # noqa: E402
from netinit.rules.iptables import set_changes, sets  # noqa: E402
from netinit.rules.iptables.write import render_restore, write_plan  # noqa: E402
from netinit.rules.layouts import plan  # noqa: E402

BACKENDS = "iptables-nft,iptables-nft+unmet,iptables-nft+foreign,iptables-legacy,iptables-nft+ipset,iptables-legacy+ipset,nftables"
COUNTS = "0,100,1000,10000"
WITH_SETS = "+ipset"
FOREIGN_RULES = {  # beside rules of another program: those of dockerd
    # No planned packet meets them, and nothing is proved.
    "+unmet": (["-t", "filter", "-N", "DOCKER-USER"], ["-t", "filter", "-A", "FORWARD", "-j", "DOCKER-USER"]),
    # Planned packets meet them: their influence is proved.
    "+foreign": (["-t", "nat", "-N", "DOCKER"], ["-t", "nat", "-A", "OUTPUT", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "DOCKER"]),
}
CLONE_NEWNET = 0x40000000
SIDECAR = (
    "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021,15020",
)  # fmt: skip
BUDGETS = {  # (backend, figure, excluded networks) -> greatest ratio of processor time to the floor
    ("iptables-nft", "first", 0): 3.7,
    ("iptables-nft", "second", 0): 3.3,
    ("iptables-nft+unmet", "first", 0): 8.2,
    ("iptables-nft+unmet", "second", 0): 7.2,
    ("iptables-nft", "first", 1000): 8.0,
    ("iptables-nft", "second", 1000): 8.5,
    ("nftables", "first", 0): 2.9,
    ("nftables", "second", 0): 2.8,
    ("nftables", "remove", 0): 2.5,
}
BARE_BUDGETS = {("nftables", 10000): 1.3}  # (backend, excluded networks) -> greatest ratio of the first run to the bare program
RSS_BUDGET = 12.0  # MiB; the bare interpreter has 9
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def excluded_networks(count: int) -> str:
    """`count` networks as a comma list short enough for one argument of execve(2), which takes 128 KiB.

    None of them touch, so that nothing can be merged.
    """
    return ",".join([f"{1 + i // 2000}.{i // 50 % 40}.{i % 50 * 2}.0/24" for i in range(count)])


def choose_backend(name: str) -> list[str]:
    """The options that choose a backend of this bench: long lists are rules, or with `+ipset` sets."""
    backend, _, more = name.partition("+")
    sets = ["--ipset-threshold", "1" if f"+{more}" == WITH_SETS else "0"] if LINES[backend].with_sets else []
    return ["--backend", backend, *sets]


TRACEME, CONTINUE, SET_OPTIONS = 0, 7, 0x4200  # linux/ptrace.h
STARTS_AND_ENDS, AT_EXIT = 0x4E, 6  # PTRACE_O_TRACEFORK, VFORK, CLONE and EXIT; PTRACE_EVENT_EXIT
ALL_CHILDREN = 0x40000000  # __WALL


def peak_memory(arguments: list[str]) -> float:
    """Peak memory in MiB of a program that must succeed, or of the largest that it starts: VmHWM as each ends.

    What wait4(2) says includes the memory of this process, which a child has until it executes the program.
    """
    pid = os.fork()
    if not pid:
        try:
            quiet = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(quiet, number)
            _libc.ptrace(TRACEME, 0, None, None)
            os.execv(arguments[0], arguments)
        finally:
            os._exit(127)
    one, status = os.waitpid(pid, 0)
    _libc.ptrace(SET_OPTIONS, pid, None, STARTS_AND_ENDS)
    peak = 0
    while not (one == pid and (os.WIFEXITED(status) or os.WIFSIGNALED(status))):
        if os.WIFSTOPPED(status):
            event, number = status >> 16, os.WSTOPSIG(status)
            if event == AT_EXIT:
                peak = max(peak, int(re.findall(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{one}/status").read_text())[0]))
            _libc.ptrace(CONTINUE, one, None, 0 if event or number in (signal.SIGTRAP, signal.SIGSTOP) else number)
        one, status = os.waitpid(-1, ALL_CHILDREN)
    _check(arguments, status)
    return peak / 1024


def _check(arguments: list[str], status: int) -> None:
    if status:
        raise SystemExit(f"{' '.join(arguments)[:200]} failed with {os.waitstatus_to_exitcode(status)}; run it by hand")


def time_program(arguments: list[str], stdin: str = "") -> tuple[float, float]:
    """Wall and processor time in ms of a program that must succeed, with the programs that it waits for."""
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    given = [(os.POSIX_SPAWN_OPEN, 0, stdin or os.devnull, os.O_RDONLY, 0)]
    before = time.perf_counter()
    pid = os.posix_spawn(arguments[0], arguments, os.environ, file_actions=quiet + given)
    _, status, usage = os.wait4(pid, 0)
    took = (time.perf_counter() - before) * 1000
    _check(arguments, status)
    return took, (usage.ru_utime + usage.ru_stime) * 1000


_kept: list[int] = []  # namespaces that were left


def fresh_namespace() -> None:
    """This process (and what it starts from now on) is in a new, empty network namespace.

    The one before is kept to the end: the kernel takes one down under the locks that the next measurement waits for.
    """
    _kept.append(os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    if _libc.unshare(CLONE_NEWNET):
        raise SystemExit("a network namespace cannot be made: run as root")
    with Links() as links:
        links.set_up(LOOPBACK_INDEX)


class Contender:
    """A backend at one length of list, and what was measured of it."""

    def __init__(self, python: str, backend: str, count: int, folder: pathlib.Path) -> None:
        self.backend, self.count = backend, count
        options = [*choose_backend(backend), "--ipv6", "on", *SIDECAR, "-x", excluded_networks(count)]
        self._tool = [python, "-I", "-S", str(ROOT / "netinit" / "__main__.py")]
        self._apply = [*self._tool, *options]
        self._remove = [*self._tool, *choose_backend(backend), "--cleanup-only"]
        self._floor = [python, "-I", "-S", "-c", "pass"]
        name, plus, more = backend.partition("+")
        self._foreign = [[f"/usr/sbin/{name}", *rule] for rule in FOREIGN_RULES.get(plus + more, ())]
        self._bare = self._bare_inputs(Options.from_argv(options), folder)
        self.figures: dict[str, list[float]] = {}

    def _bare_inputs(self, options: Options, folder: pathlib.Path) -> list[tuple[list[str], str]]:
        """The programs that do the kernel's part of the job, with their arguments, and the files they read."""
        wanted = plan(options.settle(offline()))
        if self.backend == "nftables":
            return [(["/usr/sbin/nft", "-f", "-"], self._keep(folder, "nft", nft.render_tables(nft.write_steps(nft.plan_tables(wanted)))))]
        inputs = []
        variant = options.backend.removeprefix("iptables-")
        made: tuple[sets.PlannedSet, ...] = ()
        if options.ipset_threshold:
            wanted, made = sets.use_sets(wanted, f"netinit-{variant}", options.ipset_threshold)
        if made:
            inputs.append((["/usr/sbin/ipset", "restore"], self._keep(folder, "ipset", render_steps(set_changes.find_preparation(made, {})))))
        for family in FAMILIES:
            path = self._keep(folder, family.program, render_restore(write_plan(wanted, family)))
            inputs.append(([f"/usr/sbin/{family.program}-{variant}-restore", "--noflush"], path))
        return inputs

    def _keep(self, folder: pathlib.Path, name: str, text: str) -> str:
        path = folder / f"{self.backend}-{self.count}-{name}"
        path.write_text(text)
        return str(path)

    def run(self) -> None:
        """One round: first run, second run, removal, with the floor right before and after each, and the bare program around all."""
        bare = self._time_bare()
        self._enter_pod()
        before = time_program(self._floor)
        found = {}
        for name, arguments in (("first", self._apply), ("second", self._apply), ("remove", self._remove)):
            found[name] = time_program(arguments)
            after = time_program(self._floor)
            floor, floor_busy = [sum(both) / 2 for both in zip(before, after, strict=True)]
            before = after
            self._note("floor", floor)
            self._note(f"{name}/floor", found[name][1] / floor_busy)
        if "memory" not in self.figures:
            self._enter_pod()
            self._note("memory", peak_memory(self._apply))
        bare = (bare + self._time_bare()) / 2
        for name, took in (("bare", bare), *[(name, wall) for name, (wall, _) in found.items()]):
            self._note(name, took)
            self._note(f"{name}/bare", took / bare)

    def _enter_pod(self) -> None:
        fresh_namespace()
        for program in self._foreign:
            time_program(program)

    def _time_bare(self) -> float:
        fresh_namespace()
        return sum(time_program(program, path)[0] for program, path in self._bare)

    def _note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def medians(self) -> dict[str, float]:
        """The median of every figure; of memory the greatest."""
        return {name: max(values) if name == "memory" else statistics.median(values) for name, values in self.figures.items()}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default=COUNTS)
    parser.add_argument("--backends", default=BACKENDS)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    python = "/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else sys.executable
    folder = pathlib.Path(tempfile.mkdtemp(prefix="netinit-bench-"))
    counts = [int(count) for count in given.counts.split(",")]
    contenders = [Contender(python, backend, count, folder) for count in counts for backend in given.backends.split(",")]
    for _ in range(given.runs):
        for contender in contenders:
            contender.run()
    rows = [{"backend": c.backend, "excluded": c.count, **c.medians()} for c in contenders]
    print_table(rows)
    if given.json:
        write_results(given.json, rows)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def write_results(path: pathlib.Path, rows: list[dict[str, float | str]]) -> None:
    """The figures as JSON, a line each, to a hundredth."""
    lines = [json.dumps({name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()}) for row in rows]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def print_table(rows: list[dict[str, float | str]]) -> None:
    """The figures for people, with the budgets."""
    print(f"{'backend':22} {'excluded':>8} {'floor':>7} {'bare':>8} {'first':>8} {'second':>8} {'remove':>8} {'first/fl':>9} {'second/fl':>9} {'remove/fl':>9} {'first/bare':>11} {'MiB':>6}")
    for row in rows:
        cells = [f"{row['backend']:22} {row['excluded']:>8} {row['floor']:7.1f} {row['bare']:8.1f}"]
        cells += [f"{row[name]:8.1f}" for name in ("first", "second", "remove")]
        for name in ("first", "second", "remove"):
            budget = BUDGETS.get((row["backend"], name, row["excluded"]))
            ratio = row[f"{name}/floor"]
            mark = " " if budget is None else "✔" if ratio <= budget else "✘"
            cells.append(f"{ratio:8.2f}{mark}")
        budget, ratio = BARE_BUDGETS.get((row["backend"], row["excluded"])), row["first/bare"]
        cells.append(f"{ratio:10.2f}{' ' if budget is None else '✔' if ratio <= budget else '✘'}")
        cells.append(f"{row['memory']:6.1f}{' ' if row['memory'] <= RSS_BUDGET or row['excluded'] or row['backend'].endswith(tuple(FOREIGN_RULES)) else '✘'}")
        print(" ".join(cells))
    print("times in ms, medians; floor: python3 -I -S -c pass, /fl: processor time; bare: nft, or ipset and the restore programs, alone and one after the other")
    print(", ".join([f"{b} {n} at {c}: ≤ {v} × floor" for (b, n, c), v in BUDGETS.items()] + [f"{b} first at {c}: ≤ {v} × bare" for (b, c), v in BARE_BUDGETS.items()]))


if __name__ == "__main__":
    main()
