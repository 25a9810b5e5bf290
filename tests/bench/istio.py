"""Beside the program that netinit replaces: `pilot-agent istio-iptables` of the folder ISTIO_ASSETS, with the same arguments.

Each run is a whole process in a network namespace of its own, in which its contender alone has been; the contenders take
turns. Both get a sidecar's default options. CPU is that of the process and all it started, memory the largest of them.
Two floors stand beside: each program doing nothing. Without its floor, pilot-agent's figure is what istio-iptables would take
as a program of its own, but for some milliseconds of Go's start. netinit is that of this checkout, or with --program the executable.

    ISTIO_ASSETS=FOLDER python tests/bench/istio.py
    ISTIO_ASSETS=FOLDER python tests/bench/istio.py --runs 31 --json FILE
    ISTIO_ASSETS=FOLDER python tests/bench/istio.py --networks 1000 --program FILE
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from apply import SIDECAR, excluded_networks, fresh_namespace, peak_memory, write_results  # noqa: E402 - the path must be set first

BACKENDS = {
    "iptables-nft": (["--force-iptables-binary", "nft"], ["--backend", "iptables-nft"]),
    "iptables-legacy": (["--force-iptables-binary", "legacy"], ["--backend", "iptables-legacy"]),
    "nftables": (["--native-nftables"], ["--native-nftables"]),
}
JOBS = {"first": SIDECAR, "second": SIDECAR, "remove": ("--cleanup-only",)}
AGENT, OWN = "pilot-agent", "netinit"
NETWORK = """link set lo up
link add eth0 type veth peer outside
address add 10.77.0.2/24 dev eth0
link set eth0 up
link set outside up
route add default via 10.77.0.1
"""
Cell = tuple[str, str, str]  # backend, job, contender


def fresh_pod() -> None:
    """This process is in a new network namespace with an IPv4 address and a default route, which both programs ask for."""
    fresh_namespace()
    subprocess.run(["ip", "-batch", "-"], input=NETWORK, text=True, check=True)


def measure(command: list[str]) -> tuple[float, float]:
    """Wall and CPU time in ms of a program that must succeed, with the programs that it started."""
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    before = time.perf_counter()
    _, status, usage = os.wait4(os.posix_spawn(command[0], command, os.environ, file_actions=quiet), 0)
    took = time.perf_counter() - before
    if status:
        raise SystemExit(f"{' '.join(command)} failed with {os.waitstatus_to_exitcode(status)}; run it by hand")
    return took * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def run_round(programs: dict[str, list[str]], more: tuple[str, ...], figures: dict[Cell, list[tuple[float, float]]], memory: dict[Cell, float]) -> None:
    """Every job of every backend once for each contender; memory in the first round alone, since measuring it adds a process."""
    for backend, chosen in BACKENDS.items():
        for who, choice in zip(programs, chosen, strict=True):
            fresh_pod()
            for job, arguments in JOBS.items():
                command = [*programs[who], *choice, *arguments, *(more if arguments is SIDECAR else ())]
                figures.setdefault((backend, job, who), []).append(measure(command))
            fresh_pod()  # where networks are excluded, Istio's removal leaves what its next first run fails by
            for job, arguments in JOBS.items():
                if (backend, job, who) not in memory:
                    memory[backend, job, who] = peak_memory([*programs[who], *choice, *arguments, *(more if arguments is SIDECAR else ())])


def main() -> None:
    """Measures and prints; what there is nothing to measure with is said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--networks", type=int, default=0, metavar="COUNT")
    parser.add_argument("--program", type=pathlib.Path, metavar="FILE")
    given = parser.parse_args()
    agent = pathlib.Path(os.environ.get("ISTIO_ASSETS", "")) / AGENT
    if not os.access(agent, os.X_OK) or "ISTIO_ASSETS" not in os.environ:
        print(f"istio: not measured: ISTIO_ASSETS names no folder with {AGENT}")
        return
    python = "/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else sys.executable
    programs = {AGENT: [str(agent), "istio-iptables"], OWN: [python, "-I", "-S", str(ROOT / "netinit" / "__main__.py")]}
    if given.program:
        programs[OWN] = [str(given.program)]
    idle = {AGENT: [str(agent), "version", "--short"], OWN: [python, "-I", "-S", "-c", "pass"]}
    figures: dict[Cell, list[tuple[float, float]]] = {}
    memory: dict[Cell, float] = {}
    for _ in range(given.runs):
        for who, command in idle.items():
            figures.setdefault(("", "floor", who), []).append(measure(command))
        run_round(programs, ("-x", excluded_networks(given.networks)) if given.networks else (), figures, memory)
    for who, command in idle.items():
        memory["", "floor", who] = peak_memory(command)
    rows = summarize(figures, memory)
    print_table(rows)
    if given.json:
        write_results(given.json, rows)


def summarize(figures: dict[Cell, list[tuple[float, float]]], memory: dict[Cell, float]) -> list[dict[str, float | str]]:
    """A row for each backend and job: medians of both, and netinit's share of pilot-agent's."""
    rows: list[dict[str, float | str]] = []
    idle = statistics.median(one[1] for one in figures["", "floor", AGENT])
    for backend, job in dict.fromkeys((backend, job) for backend, job, _ in figures):
        row: dict[str, float | str] = {"backend": backend, "job": job}
        for number, name in enumerate(("wall", "cpu")):
            medians = {who: statistics.median(one[number] for one in figures[backend, job, who]) for who in (AGENT, OWN)}
            row |= {f"{name} {who}": value for who, value in medians.items()} | {f"{name} ratio": medians[OWN] / medians[AGENT]}
        row["cpu istio-iptables alone"] = alone = row[f"cpu {AGENT}"] - idle  # type: ignore[operator]
        row["alone ratio"] = row[f"cpu {OWN}"] / alone if backend else 0.0  # type: ignore[operator]
        peaks = {who: memory[backend, job, who] for who in (AGENT, OWN)}
        rows.append(row | {f"MiB {who}": value for who, value in peaks.items()} | {"MiB ratio": peaks[OWN] / peaks[AGENT]})
    return rows


def print_table(rows: list[dict[str, float | str]]) -> None:
    """The figures for people."""
    print(f"{'backend':16} {'job':7}" + "".join(f"{name:>29}" for name in ("wall ms", "CPU ms", "peak MiB")))
    print(" " * 24 + f"{AGENT:>12}{OWN:>9}{'ratio':>8}" * 3 + "   CPU without pilot-agent's floor, ratio")
    for row in rows:
        cells = "".join(f"{row[f'{name} {AGENT}']:12.1f}{row[f'{name} {OWN}']:9.1f}{row[f'{name} ratio']:8.2f}" for name in ("wall", "cpu", "MiB"))
        alone = f"{row['cpu istio-iptables alone']:12.1f}{row['alone ratio']:8.2f}" if row["backend"] else ""
        print(f"{row['backend']:16} {row['job']:7}{cells}{alone}")
    print(f"medians; ratio: {OWN} to {AGENT}; floor: `{AGENT} version` and `python3 -I -S -c pass`")


if __name__ == "__main__":
    main()
