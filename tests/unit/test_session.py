"""A test session is the same however it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sharing

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


FORKED = """
import os, sys
from pathlib import Path
import pytest

IMPORTED_BY = os.getpid()

@pytest.mark.parametrize("number", range(4))
def test_a_worker_is_a_fork_of_what_has_imported_this(number, request, tmp_path, capfd):
    assert os.getpid() != IMPORTED_BY == os.getppid()
    assert os.environ["PYTEST_XDIST_WORKER"] == request.config.workerinput["workerid"]
    assert f"popen-{os.environ['PYTEST_XDIST_WORKER']}" in str(tmp_path)
    assert sys.argv[0] == "-c"
    os.write(1, b"heard")
    assert capfd.readouterr().out == "heard"

def test_a_failure_is_told():
    assert Path(sys.executable) == 0
"""


def test_several_workers_are_forks_of_one_process_and_tell_what_fails(tmp_path):
    done = run_session(tmp_path, FORKED, "--numprocesses", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 4 passed" in done.stdout
    assert "AssertionError: assert PosixPath(" in done.stdout


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("import no_such_module\n", 1, "No module named 'no_such_module'"),
        ("import pytest\npytest.importorskip('no_such_module', reason='it is not here')\n", 5, "1 skipped: it is not here"),
    ],
    ids=["fails", "is skipped"],
)
def test_a_file_that_is_not_imported_to_its_end_is_told_where_workers_are_forks(tmp_path, text, code, told):
    done = run_session(tmp_path, text, "--numprocesses", "2")
    assert (done.returncode, told in done.stdout) == (code, True), done.stdout + done.stderr


def test_whole_files_are_given_out_before_single_tests():
    """Else the last file is run by one worker while all others have ended."""
    single = sharing.rank("tests/netns/test_traffic.py::test_a_connection")
    for whole in ("tests/unit/test_release.py", "tests/netns/test_verify.py", "tests/golden/test_golden.py"):
        assert sharing.unit(f"{whole}::test_one") == sharing.unit(f"{whole}::test_another[1]")
        assert sharing.rank(f"{whole}::test_one") < single
