"""The static executable beside the bare interpreter, and beside pilot-agent: what a first and a second run and a removal take.

The executable is that of the image, which is built first, as `make image-test` does. Asserted are user instructions, counted by valgrind,
which no load of the machine changes, as a multiple of those of `python3 -I -S -c pass`, and the peak memory of each job. CPU times are
medians of runs that take turns with the interpreter's. With ISTIO_ASSETS, a folder with `pilot-agent`, that program takes turns too, in
namespaces of its own; asserted is the executable's share of its CPU time, that of the programs which it starts included.

    python tests/bench/executable.py
    python tests/bench/executable.py --runs 31 --store FOLDER     the image's storage is kept there
    python tests/bench/executable.py --program FILE               an executable that is built already
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "e2e")]

import istio  # noqa: E402 - the path must be set first
from apply import SIDECAR, fresh_namespace, peak_memory, time_program  # noqa: E402

from engine import Engine, find_obstacle  # noqa: E402

JOBS = {"first": SIDECAR, "second": SIDECAR, "remove": ("--cleanup-only",), "again": SIDECAR}  # legacy tables stay, without rules
BUDGETS = {  # backend -> greatest multiples of the interpreter's instructions, of each job
    "iptables-nft": (2.4, 2.5, 2.0, 2.4),
    "iptables-legacy": (2.2, 2.3, 2.1, 2.4),
    "nftables": (2.4, 2.7, 1.7, 2.4),
}
SHARES = {  # backend -> greatest shares of pilot-agent's CPU time, of its jobs
    "iptables-nft": {"first": 0.45, "second": 0.25, "remove": 0.25},
    "iptables-legacy": {"first": 0.45, "second": 0.28, "remove": 0.3},
    "nftables": {"first": 0.6, "second": 0.55, "remove": 0.55},
}
MOST_MEMORY = 9.0  # MiB; 4 of them are the process's own, the rest pages of the file, which containers share
PYTHON = "/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else sys.executable
FLOOR = [PYTHON, "-I", "-S", "-c", "pass"]


def count(command: list[str]) -> int:
    """The user instructions of a program that must succeed."""
    with tempfile.NamedTemporaryFile("r") as log:
        counted = ["valgrind", "--tool=lackey", f"--log-file={log.name}", *command]
        subprocess.run(counted, check=True, timeout=600, capture_output=True)
        found = re.search(r"guest instrs: +([0-9,]+)", log.read())
    if found is None:
        raise SystemExit(f"valgrind told no instructions of {command[0]}")
    return int(found[1].replace(",", ""))


def measure(program: str, backend: str, runs: int) -> dict[str, tuple[float, float, float]]:
    """For each job the multiples of instructions and of CPU time, and the peak memory in MiB."""
    commands = {job: [program, "--backend", backend, *words] for job, words in JOBS.items()}
    busy: dict[str, list[float]] = {job: [] for job in JOBS}
    for _ in range(runs):
        fresh_namespace()
        for job, command in commands.items():
            took = time_program(command)[1]
            busy[job].append(took / time_program(FLOOR)[1])
    fresh_namespace()
    memory = {job: peak_memory(command) for job, command in commands.items()}
    instructions = dict.fromkeys(JOBS, 0.0)
    if shutil.which("valgrind"):
        fresh_namespace()
        floor = count(FLOOR)
        instructions = {job: count(command) / floor for job, command in commands.items()}
    return {job: (instructions[job], statistics.median(busy[job]), memory[job]) for job in JOBS}


def measure_shares(agent: str, program: str, runs: int) -> dict[str, dict[str, float]]:
    """For each backend and job the executable's share of pilot-agent's CPU time, medians of runs that take turns."""
    busy: dict[tuple[str, str, str], list[float]] = {}
    programs = {istio.AGENT: [agent, "istio-iptables"], istio.OWN: [program]}
    for _ in range(runs):
        for backend, chosen in istio.BACKENDS.items():
            for who, choice in zip(programs, chosen, strict=True):
                istio.fresh_pod()
                for job in SHARES[backend]:
                    took = istio.measure([*programs[who], *choice, *JOBS[job]])[1]
                    busy.setdefault((backend, job, who), []).append(took)
    middle = {key: statistics.median(values) for key, values in busy.items()}
    return {
        backend: {job: middle[backend, job, istio.OWN] / middle[backend, job, istio.AGENT] for job in jobs}
        for backend, jobs in SHARES.items()
    }


def measure_all(program: str, runs: int) -> int:
    """Measure a program and print the figures; 1 if a budget is exceeded."""
    rows = {backend: measure(program, backend, runs) for backend in BUDGETS}
    agent = pathlib.Path(os.environ.get("ISTIO_ASSETS", "/nowhere")) / istio.AGENT
    if os.access(agent, os.X_OK):
        return print_table(rows, measure_shares(str(agent), program, runs))
    print(f"executable: not measured beside {istio.AGENT}: ISTIO_ASSETS names no folder with it")
    return print_table(rows, {})


def main() -> int:
    """Measures and prints; 1 where a budget is exceeded."""
    parser = argparse.ArgumentParser(description="the static executable against the bare interpreter")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--store", type=pathlib.Path, help="keep the image's storage here, and use what is there")
    parser.add_argument("--program", help="measure this executable: no image is built")
    chosen = parser.parse_args()
    if chosen.program:
        return measure_all(chosen.program, chosen.runs)
    obstacle = find_obstacle()
    if obstacle:
        print(f"executable: not measured: {obstacle}")
        return 0
    engine = Engine(chosen.store)
    try:
        engine.make_base()
        image = engine.build()
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "root").mkdir()
            root = engine.unpack(image, pathlib.Path(folder, "root"))
            program = shutil.copy(root / "usr/bin/netinit", folder)  # without capabilities, with which valgrind starts nothing
            return measure_all(program, chosen.runs)
    finally:
        engine.close()


def print_table(rows: dict[str, dict[str, tuple[float, float, float]]], shares: dict[str, dict[str, float]]) -> int:
    """The figures for people; 1 where one exceeds its budget."""
    if not shutil.which("valgrind"):
        print("executable: instructions are not counted: valgrind is not installed")
    print(
        f"executable, to {' '.join(FLOOR)}\n  {'backend':16} {'job':8} {'instructions':>13} {'budget':>7} {'CPU':>6} {'MiB':>6}   "
        f"budget {MOST_MEMORY:.0f}   of {istio.AGENT}'s CPU, budget"
    )
    missed = 0
    for backend, jobs in rows.items():
        for budget, (job, (instructions, busy, memory)) in zip(BUDGETS[backend], jobs.items(), strict=True):
            share, most = shares.get(backend, {}).get(job, 0.0), SHARES[backend].get(job, 0.0)
            over = instructions > budget or memory > MOST_MEMORY or share > most
            missed |= over
            beside = f"   {share:5.2f} {most:5.2f}" if share else ""
            print(f"  {backend:16} {job:8} {instructions:13.2f} {budget:7.1f} {busy:6.2f} {memory:6.1f}   {'MISSED' if over else 'kept  '}{beside}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
