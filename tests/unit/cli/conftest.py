"""Command lines run in this process: their exit code, both outputs, and what went to the termination log."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netinit.cli import start


@pytest.fixture
def run(capsys, monkeypatch):
    """`run("render -b 80", {"PROXY_UID": "1"})`; the words may also be a list. The first is the program's name."""
    told = []
    monkeypatch.setattr("netinit.cli.errors.write_termination_log", told.append)

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
    monkeypatch.setattr("netinit.pods.apply.main", lambda given, log: options.append(given) or 0)
    return options
