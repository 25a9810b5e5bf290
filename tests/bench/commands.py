"""How long people wait for an answer: CPU time of the commands they type, beside a bare interpreter in the same run.

    python tests/bench/commands.py [--rounds 15]

`--version`, `--help` and completion are compared with `python3 -I -S -c pass`. Questions about one pod have budgets in
milliseconds on a machine whose interpreter starts in 8 ms; they are checked as multiples of that start, so that a slow or
busy machine changes nothing. A command over its budget ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = 8.0  # ms, the start that the budgets in milliseconds assume
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: shop
  annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "5432", traffic.sidecar.istio.io/excludeInboundPorts: "9102"}
spec:
  containers:
  - {name: app, image: shop, ports: [{containerPort: 8080}, {containerPort: 9102}]}
status: {podIPs: [{ip: 192.0.2.10}]}
"""
COMPLETION = {"_NETINIT_COMPLETE": "bash_complete", "COMP_WORDS": "netinit exp", "COMP_CWORD": "1"}
# name -> (arguments, budget as a multiple of the interpreter's start, environment)
COMMANDS: dict[str, tuple[list[str], float, dict[str, str]]] = {
    "--version": (["--version"], 2.5, {}),
    "--help": (["--help"], 2.5, {}),
    "completion": ([], 2.5, COMPLETION),
    "render": (["render", "-b", "*", "-i", "*", "-d", "9102", "-o", "5432"], 150 / INTERPRETER, {}),
    "explain": (["explain", "--pod", "POD", "--to", "10.1.2.3:5432"], 150 / INTERPRETER, {}),
    "lint": (["lint", "--pod", "POD"], 150 / INTERPRETER, {}),
    "audit": (["audit", "--pod", "POD"], 250 / INTERPRETER, {}),
}
QUESTIONS = ("render", "explain", "lint", "audit")


def cpu_seconds(command: list[str], environ: dict[str, str]) -> float:
    """CPU time of a process and its children; RuntimeError if it fails."""
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, {**os.environ, **environ}, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(command)}: exit code {code}")
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    over = []
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as pod:
        pod.write(POD)
        pod.flush()
        start = str(ROOT / "netinit" / "__main__.py")
        floor: list[float] = []
        found: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(rounds):
            floor.append(cpu_seconds([sys.executable, "-I", "-S", "-c", "pass"], {}))
            for name, (arguments, _, environ) in COMMANDS.items():
                words = [pod.name if word == "POD" else word for word in arguments]
                isolated = (
                    ["-I"] if name in QUESTIONS else ["-I", "-S"]
                )  # as the image starts; questions import packages
                found[name].append(cpu_seconds([sys.executable, *isolated, start, *words], environ))
    base = statistics.median(floor)
    print(f"commands: interpreter {base * 1000:.1f} ms CPU; medians of {rounds} rounds")
    for name, times in found.items():
        cpu, budget = statistics.median(times), COMMANDS[name][1]
        verdict = "within" if cpu <= budget * base else "OVER"
        if verdict == "OVER":
            over.append(name)
        print(f"  {name:12} {cpu * 1000:6.1f} ms  {cpu / base:5.1f} x, {verdict} the budget of {budget:.1f}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
