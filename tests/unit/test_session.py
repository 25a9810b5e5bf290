"""A test session is the same however it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INTERRUPTED = """
import signal, subprocess, sys
import pytest

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_what_is_interrupted_ends(number):
    begun = subprocess.Popen(["sleep", "infinity"])
    begun.send_signal(number)
    assert begun.wait(30) == -number
"""

AROUND = """
import pytest

@pytest.fixture(params=["fails before", "skips before", "fails after", "works"])
def around(request):
    assert request.param != "fails before", "no set-up"
    if request.param == "skips before":
        pytest.skip("nothing to test")
    yield
    assert request.param != "fails after", "no clean-up"

def test_nothing(around):
    pass
"""


def run_session(folder, text, *options, through=()):
    """A session of its own, with the conftest of all tests."""
    (folder / "test_written.py").write_text(text)
    line = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, *options, folder]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*through, *map(str, line)], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
        env={**environment, "PYTHONPATH": str(ROOT / "tests")},
    )  # fmt: skip


def test_a_session_behind_an_ampersand_interrupts_what_it_starts(tmp_path):
    """A shell without job control has such a session ignore SIGINT and SIGQUIT, and its children inherit that."""
    done = run_session(tmp_path, INTERRUPTED, through=["sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_of_what_fails_around_a_test_in_a_worker_the_session_tells(tmp_path):
    done = run_session(tmp_path, AROUND, "--numprocesses", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 passed, 1 skipped, 2 errors" in done.stdout
    assert "AssertionError: no set-up" in done.stdout
    assert "AssertionError: no clean-up" in done.stdout
    assert "1 skipped: nothing to test" in done.stdout
