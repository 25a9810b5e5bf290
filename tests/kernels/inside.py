"""What runs on the kernel, or in the root, that is checked: apply with every backend, the doctor, and the chosen tests.

    python3 tests/kernels/inside.py ANSWER PARTS

appends one line of JSON to ANSWER, a file or a terminal, after each part and each test, and {"ended": true} as the last: who
runs out of time keeps what there is. PARTS is `all`, `errors` for apply and the doctor alone, `arm64` for apply and the tests of that
machine, or the name of tests that are run alone: see chosen.tests. Imported by nothing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import chosen

ROOT = Path(__file__).parents[2]
HARMLESS = "ignore:It looks like `register_random`"  # what Hypothesis says of its own generator with Python 3.14, once
DEADLINE = 600  # seconds for one command, by the machine's own clock
PROGRAMS = {"iptables": ["iptables", "--version"], "nft": ["nft", "--version"], "ipset": ["ipset", "--version"]}


class Answer:
    """The lines that were told so far."""

    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, **parts: object) -> None:
        with Path(self.path).open("ab", buffering=0) as file:
            file.write(json.dumps(parts).encode() + b"\n")


class Recorder:
    """A plugin of pytest that tells how each test ended, as {"test", "outcome", "reason"} and what the test recorded of itself."""

    def __init__(self, answer: Answer):
        self.answer = answer

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            reason = report.longrepr[2] if report.skipped else report.longreprtext[-2000:]
            self.answer.add(test={"test": report.nodeid, "outcome": report.outcome, "reason": reason, **dict(report.user_properties)})


def run_tests(answer: Answer, parts: str) -> None:
    os.environ["NETINIT_SWEEPS"] = "all"  # each chosen test, on whichever backend
    if parts in ("arm64", "goldens"):
        os.environ["NETINIT_GOLDENS"] = "few"
    os.environ["NETINIT_CONNECTIONS"] = str(chosen.CONNECTIONS)
    import pytest

    words = ["--rootdir", str(ROOT), "--timeout", str(DEADLINE), "--require-netns", "-p", "no:cacheprovider", "-W", HARMLESS]
    code = pytest.main([*words, *chosen.tests(parts)], plugins=[Recorder(answer)])
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
    """netinit in a network namespace of its own, whose loopback is up."""
    script = 'ip link set lo up; exec "$@"'
    return run(["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-m", "netinit", *arguments])


def ask_doctor() -> object:
    done = isolated("doctor", "--json", *chosen.OPTIONS["REDIRECT"])
    return json.loads(done["stdout"]) if done["stdout"] else done


def try_apply() -> list[dict[str, object]]:
    """How apply ends with each backend, and without one, and each choice of options."""
    ends = []
    for backend in (*chosen.BACKENDS, chosen.CHOSEN_BY_NETINIT):
        words = ("--backend", backend) if backend in chosen.BACKENDS else ()
        for name, options in chosen.OPTIONS.items():
            done = isolated("apply", *words, *options)
            ends.append({"backend": backend, "options": name, "code": done["code"], "said": done["stderr"][-4000:]})
    return ends


def main(path: str, parts: str) -> None:
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    versions = {name: (run(command)["stdout"].splitlines() or [""])[0] for name, command in PROGRAMS.items()}
    answer, spent = Answer(path), {}
    answer.add(facts={"kernel": platform.release(), "python": platform.python_version(), **versions})
    works = {"apply": lambda: answer.add(apply=try_apply())} if parts.removesuffix(chosen.WHOLE) in ("all", "errors", "arm64") else {}
    if parts in ("all", "errors"):
        works["doctor"] = lambda: answer.add(doctor=ask_doctor())
    if parts != "errors":
        works["tests"] = lambda: run_tests(answer, parts)
    for name, work in works.items():
        began = time.monotonic()
        work()
        spent[name] = round(time.monotonic() - began, 1)
    answer.add(spent=spent, ended=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
