"""The installed program is root's as well: what its environment names must not run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

START = Path(__file__).parents[3] / "netinit" / "bin" / "netinit"
EVIL = "import os\nos.write(2, b'EVIL')\n"


@pytest.fixture
def folder(tmp_path):
    """The start as pip installs it: beside the interpreter of its environment."""
    made = tmp_path / "bin"
    made.mkdir()
    shutil.copy(START, made / "netinit")
    (made / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (made / "python3").chmod(0o755)
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("sitecustomize", "usercustomize", "posix", "fcntl", "netinit"):
        (evil / f"{name}.py").write_text(EVIL)
    return made


def run(*words, **more):
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **more.pop("env", {})}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=30, **more)


def test_neither_the_environment_nor_the_working_folder_decides_what_code_runs(folder):
    evil = str(folder.parent / "evil")
    started = run(folder / "netinit", "-n", "-b", "80", "--ipv6", "off", env={"PYTHONPATH": evil, "PYTHONHOME": "", "HOME": evil}, cwd=evil)
    assert started.returncode == 0, started.stderr
    assert "-A ISTIO_INBOUND -p tcp -m tcp --dport 80" in started.stdout
    assert "EVIL" not in started.stderr

    trapped = run(sys.executable, "-c", "pass", env={"PYTHONPATH": evil}, cwd=evil)
    assert "EVIL" in trapped.stderr, "the trap catches nobody"


def test_a_link_to_the_program_starts_it_under_its_own_name(folder):
    link = folder.parent / "istio-iptables"
    link.symlink_to(folder / "netinit")
    failed = run(link, "-p", "0")
    assert failed.returncode == 1, "Istio's exit code for wrong options"
    assert run(folder / "netinit", "-p", "0").returncode == 2


def test_words_with_blanks_and_stars_come_through_as_they_are(folder):
    failed = run(folder / "netinit", "-x", "* $(touch x) '\"", "-n", cwd=folder)
    assert "'* $(touch x)" in failed.stderr
    assert not (folder / "x").exists()


@pytest.mark.parametrize("name", ["netinit", "kubectl-netinit", "kubectl_complete-netinit"])
def test_each_start_has_one_for_windows_that_is_isolated_too(name):
    text = (START.parent / f"{name}.cmd").read_bytes().decode("ascii")
    assert text.count("\r\n") == text.count("\n"), "cmd.exe finds no label in a file with other line ends"
    starts = [line for line in text.splitlines() if "%*" in line]
    if name == "netinit":
        assert starts == ['"%python%" -I -m netinit %*', "py -E -P -m netinit %*"]
    else:
        (elsewhere,) = [line for line in (START.parent / name).read_text().splitlines() if line.startswith("exec")]
        words = elsewhere.partition('/netinit" ')[2].removesuffix('"$@"')
        assert starts == [f'@"%~dp0netinit.cmd" {words}%*']
