"""What runs on the kernel, or in the root, that is looked at: the chosen tests, the doctor, and apply with every backend.

    python3 tests/kernels/inside.py ANSWER PARTS

writes one JSON object to ANSWER, a file or a disk, anew after each part and each test: who runs out of time keeps what there
is. PARTS is `all`, `short` (see chosen.py), or `errors` for the doctor and apply alone. Imported by nothing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import chosen

ROOT = Path(__file__).parents[2]
DEADLINE = 1200  # seconds for one command
# The doctor gives a check 20 seconds, which an emulated processor exceeds; here it has ten times as many.
PATIENT = "import runpy, netinit.pods.doctor.feature_checks as checks; checks.SECONDS = 200.0; runpy.run_module('netinit', run_name='__main__')"
PROGRAMS = {"iptables": ["iptables", "--version"], "nft": ["nft", "--version"], "ipset": ["ipset", "--version"]}


class Answer:
    """What is known so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.found: dict[str, object] = {"tests": []}

    def add(self, **parts: object) -> None:
        """Keeps it, and writes everything with a NUL behind it: a disk does not get shorter."""
        self.found.update(parts)
        with Path(self.path).open("r+b", buffering=0) as file:
            file.write(json.dumps(self.found).encode() + b"\0")
            os.fsync(file.fileno())


class Recorder:
    """A plugin of pytest that keeps how each test ended, as {"test", "outcome", "reason"}."""

    def __init__(self, answer: Answer):
        self.answer = answer
        self.kept = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            reason = report.longrepr[2] if report.skipped else report.longreprtext[-2000:]
            self.kept[report.nodeid] = {"test": report.nodeid, "outcome": report.outcome, "reason": reason}
            self.answer.add(tests=list(self.kept.values()))


def run_tests(parts: str, answer: Answer) -> None:
    import pytest

    recorder = Recorder(answer)
    code = pytest.main(["--rootdir", str(ROOT), "--timeout", "900", *chosen.tests(parts)], plugins=[recorder])
    if code not in (0, 1):
        raise SystemExit(f"pytest ended with {code}")


def run(command: list[str]) -> dict[str, object]:
    """How a command ended."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"code": None, "stdout": "", "stderr": str(error)}
    return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def isolated(*arguments: str) -> dict[str, object]:
    """Python in a network namespace of its own, whose loopback is up."""
    script = 'ip link set lo up; exec "$@"'
    return run(["unshare", "--net", "sh", "-c", script, "sh", sys.executable, *arguments])


def ask_doctor() -> object:
    done = isolated("-c", PATIENT, "doctor", "--json", *chosen.OPTIONS["REDIRECT"])
    return json.loads(done["stdout"]) if done["stdout"] else done


def try_apply() -> list[dict[str, object]]:
    """How apply ends with each backend and each choice of options."""
    ends = []
    for backend in chosen.BACKENDS:
        for name, options in chosen.OPTIONS.items():
            done = isolated("-m", "netinit", "apply", "--backend", backend, *options)
            ends.append({"backend": backend, "options": name, "code": done["code"], "said": done["stderr"][-2000:]})
    return ends


def main(answer: str, parts: str) -> None:
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    facts = {
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: (run(command)["stdout"].splitlines() or [""])[0] for name, command in PROGRAMS.items()},
    }
    told = Answer(answer)
    told.add(facts=facts, apply=try_apply())
    told.add(doctor=ask_doctor())
    if parts != "errors":
        run_tests(parts, told)


if __name__ == "__main__":
    main(*sys.argv[1:])
