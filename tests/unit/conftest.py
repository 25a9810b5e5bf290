"""Command lines run in this process: their exit code, both outputs, and what went to the termination log."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kubectl_calls import FAKE, read_calls, write_calls
from netinit.cli import start


@pytest.fixture
def run(capsys, monkeypatch):
    """`run("render -b 80", {"PROXY_UID": "1"})`; the words may also be a list. The first is the program's name."""
    told = []
    monkeypatch.setattr("netinit.cli.fatal_errors.write_termination_log", told.append)

    def run_line(line, environ=None):
        argv = line.split() if isinstance(line, str) else line
        told.clear()
        capsys.readouterr()
        try:
            code = start.run(argv, environ or {})
        except SystemExit as ended:  # click's completion ends the process itself
            code = ended.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err, told=list(told), errors=[line.split("\t")[-1] for line in err.splitlines()])

    return run_line


@pytest.fixture
def applied(monkeypatch):
    """The options that reach the kernel's side, which is left out."""
    options = []
    monkeypatch.setattr("netinit.pods.init_run.main", lambda given, log: options.append(given) or 0)
    return options


@pytest.fixture
def kubectl(run, tmp_path):
    """`kubectl(line, *answers)`: what the command printed; `kubectl.calls` are the words that the fake got."""

    def prepare(*answers, files=None):
        folder = tmp_path / "answers"
        shutil.copytree(FAKE / "shop", folder, dirs_exist_ok=True)
        for name, tree in (files or {}).items():
            (folder / name).write_text(json.dumps(tree))
        write_calls(folder, answers)
        log = tmp_path / "log"
        log.write_text("")
        return {"PATH": f"{FAKE}:{Path(sys.executable).parent}:{os.environ['PATH']}", "FAKE_KUBECTL": str(folder), "FAKE_KUBECTL_LOG": str(log)}

    def ask(line, *answers, files=None):
        done = run(["netinit", "kubectl", *line.split()], prepare(*answers, files=files))
        ask.calls = list(read_calls(tmp_path / "log"))
        ask.questions = [json.loads(words[1]) for words in ask.calls if words[0] == "asked"]
        return done

    ask.calls = []
    ask.prepare = prepare
    return ask
