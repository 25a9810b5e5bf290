"""What netinit adds to the start of a container: from start to exit, beside the same container with `true`.

`true` is this machine's, mounted into the container, since the image has none. Where it does not start there (it may want
a newer C library), the image's own `ldconfig --version`, a static program that does next to nothing, is in its place, and
the output says so. Both containers are run by runc from the built image, in a pod's network namespace, taking turns, so
that a busy machine slows both alike; the rules are removed between the turns. The image is built first, as `make
image-test` does, which takes a minute.

With ISTIO_ASSETS, a folder with `pilot-agent`, that program takes turns too: in the same image, so with the same iptables and nft,
and with the same arguments.

    python tests/bench/container.py                  iptables-nft, iptables-legacy and nftables
    python tests/bench/container.py --runs 50
    python tests/bench/container.py --json FILE      the figures for other programs
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "e2e")]

from apply import SIDECAR, write_results  # noqa: E402 - the path must be set first
from istio import AGENT, BACKENDS, OWN  # noqa: E402

from containers import Image  # noqa: E402
from engine import Engine, find_obstacle  # noqa: E402
from laboratory import Pod  # noqa: E402

BUDGETS = {("iptables-nft", "first"): 25.0}  # milliseconds more than the container with `true`
TRUE = {"entrypoint": ["/true"], "mounts": {"/true": pathlib.Path("/usr/bin/true")}}
Figures = dict[tuple[str, str], list[tuple[float, float]]]  # (contender, job) -> wall and CPU time of each run, in ms
STATIC = {"entrypoint": ["/usr/sbin/ldconfig", "--version"]}


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


def choose_idle(image: Image) -> dict[str, object]:
    """How to run what does nothing: `true` where it starts in the image, else what is static."""
    with Pod() as pod:
        return TRUE if image.run(pod.pid, [], **TRUE).returncode == 0 else STATIC


def find_contenders(image: Image, backend: str) -> dict[str, tuple[list[str], dict[str, object]]]:
    """The arguments of each program for a backend, and how its container is configured."""
    theirs, ours = BACKENDS[backend]
    found: dict[str, tuple[list[str], dict[str, object]]] = {OWN: (ours, {})}
    agent = pathlib.Path(os.environ.get("ISTIO_ASSETS", "/nowhere")) / AGENT
    if os.access(agent, os.X_OK):
        locks = image.engine.folder / "run"  # where legacy iptables locks: Istio's template leaves the root writable
        locks.mkdir(exist_ok=True)
        found[AGENT] = (theirs, {"entrypoint": [f"/{AGENT}", "istio-iptables"], "mounts": {f"/{AGENT}": agent, "/run": locks}})
    return found


def measure(image: Image, idle: dict[str, object], backend: str, runs: int) -> Figures:
    """Every contender's first and second run, and `true`, in turns."""
    figures: Figures = {}
    with Pod() as pod:
        for _ in range(runs):
            figures.setdefault(("true", ""), []).append(time_run(image, image.command(pod.pid, [], **idle)))
            for who, (chosen, configured) in find_contenders(image, backend).items():
                for job in ("first", "second"):
                    command = image.command(pod.pid, [*SIDECAR, *chosen], **configured)
                    figures.setdefault((who, job), []).append(time_run(image, command))
                time_run(image, image.command(pod.pid, ["remove"]))
    return figures


def summarize(backend: str, figures: Figures) -> list[dict[str, float | str]]:
    """A row for each job: medians of whole containers, netinit's share of pilot-agent's, and what netinit takes more than `true`."""
    def median(who: str, job: str, at: int) -> float:
        return statistics.median(one[at] for one in figures[who, job])

    rows: list[dict[str, float | str]] = []
    for job in ("first", "second"):
        row: dict[str, float | str] = {"backend": backend, "job": job}
        for at, name in enumerate(("wall", "cpu")):
            row |= {f"{name} true": median("true", "", at), f"{name} {OWN}": median(OWN, job, at)}
            if (AGENT, job) in figures:
                row |= {f"{name} {AGENT}": median(AGENT, job, at), f"{name} ratio": median(OWN, job, at) / median(AGENT, job, at)}
        row["over true"] = statistics.median(one[0] - bare[0] for one, bare in zip(figures[OWN, job], figures["true", ""], strict=True))
        rows.append(row)
    return rows


def main() -> int:
    """Measures and prints; 0, also where there is nothing to measure with."""
    parser = argparse.ArgumentParser(description="start to exit of the container, against the same container with `true`")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--store", type=pathlib.Path, help="keep the image's storage here, and use what is there")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    chosen = parser.parse_args()
    obstacle = find_obstacle()
    if obstacle:
        print(f"container: not measured: {obstacle}")
        return 0
    engine = Engine(chosen.store)
    try:
        engine.make_base()
        image = engine.build()
        idle = choose_idle(image)
        rows = [row for backend in BACKENDS for row in summarize(backend, measure(image, idle, backend, chosen.runs))]
    finally:
        engine.close()
    if idle is STATIC:
        print("container: this machine's `true` does not start in the image: `ldconfig --version`, which is static, is in its place")
    print_table(rows)
    if chosen.json:
        write_results(chosen.json, rows)
    return 0


def print_table(rows: list[dict[str, float | str]]) -> None:
    """The figures for people."""
    columns = [name for name in ("true", OWN, AGENT, "ratio") if f"wall {name}" in rows[0]]
    head = "".join(f"{kind + ' ' + name:>18}" for kind in ("wall", "cpu") for name in columns)
    print(f"container, ms from start to exit  {head}   over true")
    for row in rows:
        cells = "".join(f"{row[f'{kind} {name}']:18.2f}" for kind in ("wall", "cpu") for name in columns)
        budget = BUDGETS.get((str(row["backend"]), str(row["job"])))
        told = f"   budget +{budget:.0f}: {'kept' if float(row['over true']) <= budget else 'MISSED'}" if budget else ""
        print(f"  {row['backend']:<22} {row['job']:<8} {cells} {row['over true']:+10.1f}{told}")


if __name__ == "__main__":
    sys.exit(main())
