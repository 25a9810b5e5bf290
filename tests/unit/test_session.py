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
    begun = subprocess.Popen(["sleep", "60"])
    begun.send_signal(number)
    assert begun.wait(30) == -number
"""


def test_a_session_behind_an_ampersand_interrupts_what_it_starts(tmp_path):
    """A shell without job control has such a session ignore SIGINT and SIGQUIT, and its children inherit that."""
    (tmp_path / "test_interrupted.py").write_text(INTERRUPTED)
    line = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, tmp_path]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh", *map(str, line)], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
