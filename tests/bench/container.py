"""What netinit adds to the start of a container: from start to exit, beside the same container with a program that does nothing.

That program is compiled here, static as netinit's, and mounted into the container, since the image has no other. Both containers are
run by runc from the built image, in a pod's network namespace, taking turns, so that a busy machine slows both alike; the rules are
removed between the turns, which leaves legacy tables without rules. The image is built first, as `make image-test` does, which takes a
minute. `executable.py` measures the same program beside pilot-agent, which finds no iptables in this image.

    python tests/bench/container.py                  iptables-nft, iptables-legacy and nftables
    python tests/bench/container.py --runs 50
    python tests/bench/container.py --json FILE      the figures for other programs
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "e2e")]

from apply import SIDECAR, write_results  # noqa: E402 - the path must be set first
from istio import BACKENDS, OWN  # noqa: E402

from containers import Image  # noqa: E402
from engine import Engine, find_obstacle  # noqa: E402
from laboratory import Pod  # noqa: E402

BUDGET = 12.0  # milliseconds more than the container with the program that does nothing
IDLE = "true"
Figures = dict[tuple[str, str], list[tuple[float, float]]]  # (contender, job) -> wall and CPU time of each run, in ms


def time_run(image: Image, command: list[str]) -> tuple[float, float]:
    """Wall time, and CPU time of runc and of what it ran, in ms, of a container from start to exit; RuntimeError when it fails."""
    before = time.perf_counter_ns(), _used()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=image.engine.environment)
    took = (time.perf_counter_ns() - before[0]) / 1e6, _used() - before[1]
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return took


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000


def compile_idle(folder: pathlib.Path) -> dict[str, object]:
    """How to run a program that does nothing, which is compiled into a folder."""
    program = folder / IDLE
    subprocess.run(["gcc", "-static", "-O2", "-x", "c", "-o", program, "-"], input="int main(void) { return 0; }", text=True, check=True)
    return {"entrypoint": [f"/{IDLE}"], "mounts": {f"/{IDLE}": program}}


def measure(image: Image, idle: dict[str, object], backend: str, runs: int) -> Figures:
    """A first and a second run, and the program that does nothing, in turns."""
    figures: Figures = {}
    with Pod() as pod:
        for _ in range(runs):
            figures.setdefault((IDLE, ""), []).append(time_run(image, image.command(pod.pid, [], **idle)))
            for job in ("first", "second"):
                command = image.command(pod.pid, [*SIDECAR, *BACKENDS[backend][1]])
                figures.setdefault((OWN, job), []).append(time_run(image, command))
            time_run(image, image.command(pod.pid, ["remove"]))
    return figures


def summarize(backend: str, figures: Figures) -> list[dict[str, float | str]]:
    """A row for each job: medians of whole containers, and what netinit takes more than the program that does nothing."""
    def median(who: str, job: str, at: int) -> float:
        return statistics.median(one[at] for one in figures[who, job])

    rows: list[dict[str, float | str]] = []
    for job in ("first", "second"):
        row: dict[str, float | str] = {"backend": backend, "job": job}
        for at, name in enumerate(("wall", "cpu")):
            row |= {f"{name} {IDLE}": median(IDLE, "", at), f"{name} {OWN}": median(OWN, job, at)}
        row["over true"] = statistics.median(one[0] - bare[0] for one, bare in zip(figures[OWN, job], figures[IDLE, ""], strict=True))
        rows.append(row)
    return rows


def main() -> int:
    """Measures and prints; 0, also where there is nothing to measure with."""
    parser = argparse.ArgumentParser(description="start to exit of the container, against the same container with a program that does nothing")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--store", type=pathlib.Path, help="keep the image's storage here, and use what is there")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    chosen = parser.parse_args()
    obstacle = find_obstacle() or ("" if shutil.which("gcc") else "gcc is not installed")
    if obstacle:
        print(f"container: not measured: {obstacle}")
        return 0
    engine = Engine(chosen.store)
    try:
        engine.make_base()
        image = engine.build()
        idle = compile_idle(engine.folder)
        rows = [row for backend in BACKENDS for row in summarize(backend, measure(image, idle, backend, chosen.runs))]
    finally:
        engine.close()
    print_table(rows)
    if chosen.json:
        write_results(chosen.json, rows)
    return 0


def print_table(rows: list[dict[str, float | str]]) -> None:
    """The figures for people."""
    columns = (IDLE, OWN)
    head = "".join(f"{kind + ' ' + name:>18}" for kind in ("wall", "cpu") for name in columns)
    print(f"container, ms from start to exit  {head}   over true")
    for row in rows:
        cells = "".join(f"{row[f'{kind} {name}']:18.2f}" for kind in ("wall", "cpu") for name in columns)
        told = f"   budget +{BUDGET:.0f}: {'kept' if float(row['over true']) <= BUDGET else 'MISSED'}"
        print(f"  {row['backend']:<22} {row['job']:<8} {cells} {row['over true']:+10.1f}{told}")


if __name__ == "__main__":
    sys.exit(main())
