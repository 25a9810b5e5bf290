"""What `make` leaves behind in a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from readable import NOBODY

ROOT = Path(__file__).parents[2]
OWNER = 65534
ENVIRONMENT = {"PATH": os.environ["PATH"], "SUDO_UID": str(OWNER), "SUDO_USER": "nobody"}
PROGRAM = """#!/bin/sh
mkdir -p netinit/__pycache__ netinit.egg-info && touch netinit/__pycache__/start.pyc netinit.egg-info/PKG-INFO .venv/log
ln -s /etc/passwd .venv/link
exit ${CODE:-0}
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout of a plain user's; its netinit only leaves what Python and pip leave."""
    folder = tmp_path / "my code"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "node-images").mkdir()
    (folder / "netinit").mkdir()
    (folder / "tests").mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / ".venv" / "bin" / "netinit").write_text(PROGRAM)
    (folder / ".venv" / "bin" / "netinit").chmod(0o755)
    (folder / ".venv" / ".installed-runtime").touch()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, OWNER, OWNER)
    (folder / ".venv" / "node-images" / "layer").touch()
    return folder


def run_make(folder, *words, prefix=(), **environ):
    """`make` with the programs of the system as they are: nothing is installed."""
    line = [*prefix, "make", *words, "USED=sh", f"PYTHON={sys.executable}"]
    return subprocess.run(line, cwd=folder, env=ENVIRONMENT | environ, capture_output=True, text=True, check=False)


def list_files_of_root(folder):
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.lstat().st_uid == 0]


@pytest.mark.parametrize("code", [0, 3])
def test_the_demo_as_root_leaves_nothing_of_roots_in_a_users_checkout(code, checkout):
    done = run_make(checkout, "demo", CODE=str(code))
    assert (done.returncode == 0) == (code == 0), done
    assert (checkout / "netinit.egg-info" / "PKG-INFO").exists(), done
    assert list_files_of_root(checkout) == [".venv/node-images/layer"]
    assert Path("/etc/passwd").stat().st_uid == 0
    (checkout / ".venv" / "node-images" / "layer").unlink()
    cleaned = run_make(checkout, "clean", prefix=NOBODY)
    assert (cleaned.returncode, (checkout / ".venv").exists()) == (0, False), cleaned


def test_the_demo_wants_no_root(checkout):
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    done = run_make(checkout, "demo", prefix=NOBODY)
    assert done.returncode == 0, done
    assert "needs root" not in done.stdout + done.stderr


def test_several_goals_run_in_order_and_in_a_checkout_of_roots_nothing_is_given_away(checkout):
    done = run_make(checkout, "demo", "help")
    assert (done.returncode, "make demo" in done.stdout, list_files_of_root(checkout)) == (0, True, [".venv/node-images/layer"]), done
    os.chown(checkout, 0, 0)
    (checkout / ".venv" / "link").unlink()
    (checkout / "netinit.egg-info" / "PKG-INFO").unlink()
    assert run_make(checkout, "demo").returncode == 0
    assert "netinit.egg-info/PKG-INFO" in list_files_of_root(checkout)
