"""What netinit adds to the start of a container: from start to exit, beside the same container with `true`.

`true` is this machine's, mounted into the container, since the image has none. Where it does not start there (it may want
a newer C library), the image's own `ldconfig --version`, a static program that does next to nothing, is in its place, and
the output says so. Both containers are run by runc from the built image, in a pod's network namespace, taking turns, so
that a busy machine slows both alike; the rules are removed between the turns. The image is built first, as `make
image-test` does, which takes a minute.

    python tests/bench/container.py                  iptables-nft, iptables-legacy and nftables
    python tests/bench/container.py --runs 50
    python tests/bench/container.py --json FILE      the figures for other programs
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "e2e")]

from apply import SIDECAR, write_results  # noqa: E402 - the path must be set first

from containers import Image  # noqa: E402
from engine import Engine, find_obstacle  # noqa: E402
from netinit.lab import Pod  # noqa: E402

BACKENDS = ("iptables-nft", "nftables", "iptables-legacy")
BUDGETS = {("iptables-nft", "first"): 25.0}  # milliseconds more than the container with `true`
TRUE = {"entrypoint": ["/true"], "mounts": {"/true": pathlib.Path("/usr/bin/true")}}
STATIC = {"entrypoint": ["/usr/sbin/ldconfig", "--version"]}


def time_run(image: Image, command: list[str]) -> float:
    """Wall time in ms of a container from start to exit; RuntimeError when it fails."""
    environment = image.engine.environment
    before = time.perf_counter_ns()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    took = (time.perf_counter_ns() - before) / 1e6
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return took


def choose_idle(image: Image) -> dict[str, object]:
    """How to run what does nothing: `true` where it starts in the image, else what is static."""
    with Pod() as pod:
        return TRUE if image.run(pod.pid, [], **TRUE).returncode == 0 else STATIC


def measure(image: Image, idle: dict[str, object], backend: str, runs: int) -> dict[str, float]:
    """Medians in ms: `true`, and what the first and the second run take more, each against the `true` beside it."""
    arguments = [*SIDECAR, "--dual-stack", "--backend", backend]
    bare, first, second = [], [], []
    with Pod() as pod:
        for _ in range(runs):
            bare.append(time_run(image, image.command(pod.pid, [], **idle)))
            first.append(time_run(image, image.command(pod.pid, arguments)) - bare[-1])
            second.append(time_run(image, image.command(pod.pid, arguments)) - bare[-1])
            time_run(image, image.command(pod.pid, ["remove"]))
    return {"true": statistics.median(bare), "first": statistics.median(first), "second": statistics.median(second)}


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
        results = {backend: measure(image, idle, backend, chosen.runs) for backend in BACKENDS}
    finally:
        engine.close()
    if idle is STATIC:
        print("container: this machine's `true` does not start in the image: `ldconfig --version`, which is static, is in its place")
    print("container, ms from start to exit       true     first run   second run")
    for backend, figures in results.items():
        budget = BUDGETS.get((backend, "first"))
        told = f"   budget of the first run: +{budget:.0f}, {'kept' if figures['first'] <= budget else 'MISSED'}" if budget else ""
        print(f"  {backend:<34} {figures['true']:6.1f}       +{figures['first']:5.1f}       +{figures['second']:5.1f}{told}")
    if chosen.json:
        write_results(chosen.json, [{"backend": backend, **figures} for backend, figures in results.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
