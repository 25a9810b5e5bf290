"""`netinit completion` in the shells themselves: what they print makes them complete commands and options."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 30  # seconds for a shell's next words
ENVIRON = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
SHELLS = {  # the interactive shell without anybody's settings, and its lines for ~/.bashrc, ~/.zshrc
    "bash": (["bash", "--norc", "--noprofile", "-i"], ['eval "$(netinit completion bash)"']),
    "zsh": (["zsh", "-f", "-i"], ["autoload -Uz compinit", "compinit -u -D", 'eval "$(netinit completion zsh)"']),
}


def needs(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")


def read_until(terminal, wanted):
    """What the shell writes up to the text, or up to its end, or until it is silent for too long."""
    seen = ""
    while wanted not in seen and select.select([terminal], [], [], PATIENCE)[0]:
        try:
            seen += os.read(terminal, 4096).decode(errors="replace")
        except OSError:  # the shell is gone
            break
    return seen


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("typed", "completed"), [("netinit exp", "netinit explain"), ("netinit explain --to-p", "--to-port")])
def test_the_tabulator_completes(shell, typed, completed, tmp_path):
    needs(shell)
    argv, lines = SHELLS[shell]
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env={**ENVIRON, "HOME": str(tmp_path)}, start_new_session=True) as process:
        os.close(theirs)
        try:
            os.write(ours, "".join(f"{line}\n" for line in [*lines, "echo REA''DY"]).encode())
            assert "READY" in read_until(ours, "READY")
            os.write(ours, f"{typed}\t".encode())
            seen = read_until(ours, completed)
        finally:
            process.kill()
            os.close(ours)
    assert completed in seen


@pytest.mark.parametrize(("typed", "completed"), [("netinit exp", "explain"), ("netinit explain --to-p", "--to-port")])
def test_fish_completes(typed, completed, tmp_path):
    needs("fish")
    script = f"netinit completion fish | source; complete -C '{typed}'"
    environ = {**ENVIRON, "HOME": str(tmp_path)}
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=False, env=environ)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [completed], done


def test_a_shell_that_it_does_not_know_is_refused_with_those_that_it_does(run):
    done = run("netinit completion tcsh")
    assert done.code == 2
    assert "'tcsh'" in done.err
    assert all(shell in done.err for shell in ("bash", "zsh", "fish"))


def test_the_help_says_how_to_install_it(run):
    told = run("netinit completion --help").out
    assert "Put the first example into ~/.bashrc" in told
    assert "  source <(netinit completion bash)\n" in told
    assert "netinit completion fish >~/.config/fish/completions/netinit.fish" in told
