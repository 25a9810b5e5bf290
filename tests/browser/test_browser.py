"""The commands that ask no kernel answer in a browser's Python as on Linux: `make browser-test`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from offline_commands import COMMANDS

ROOT = Path(__file__).parents[2]
PYODIDE = os.environ.get("NETINIT_PYODIDE", "")
ON_LINUX = ("apply -b 80", "verify", "explain --live --to 10.1.1.1:80")

pytestmark = pytest.mark.skipif(not PYODIDE, reason="NETINIT_PYODIDE names no folder with pyodide.mjs: make browser-test")


def ask(*line):
    given = json.dumps([shlex.split(words) for words in (*COMMANDS, *ON_LINUX)])
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=ROOT, env=environ, input=given, capture_output=True, check=True, timeout=300, text=True)
    return dict(zip((*COMMANDS, *ON_LINUX), map(tuple, json.loads(done.stdout)), strict=True))


@pytest.fixture(scope="module")
def answers():
    """What each command answers in a browser, and on Linux."""
    packages = str(Path(click.__file__).parents[1])
    return ask("node", str(Path(__file__).with_name("run.mjs")), PYODIDE, str(ROOT), packages), ask(
        sys.executable, str(ROOT / "tests" / "another_system.py"), "linux"
    )


def without_clock(answer):
    code, out, err = answer
    return code, re.sub(r"\d\d:\d\d(:\d\d)?", "", out), err


@pytest.mark.parametrize("line", COMMANDS)
def test_it_answers_as_on_linux(answers, line):
    browser, linux = answers
    assert without_clock(browser[line]) == without_clock(linux[line])


@pytest.mark.parametrize("line", ON_LINUX)
def test_what_needs_a_kernel_says_where_to_run_it(answers, line):
    code, out, err = answers[0][line]
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "needs Linux, and this is a browser: run it on the node" in err
