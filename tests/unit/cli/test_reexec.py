"""netinit started again: its words, variables, input, and where it finds its modules."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import netinit
from netinit.cli import reexec
from netinit.kernel import run

PACKAGES = str(Path(netinit.__file__).parent.parent)
LINE = ("-X", "utf8", "-c", reexec.START)


def test_another_netinit_reads_the_variables_that_are_given():
    done = reexec.run_netinit(["render"], environ={"NETINIT_LAYOUT": "nonsense"})
    assert (done.status, done.output) == (2, "")
    assert "environment variable NETINIT_LAYOUT: 'nonsense'" in done.errors


def test_it_starts_with_the_variables_and_input_alone(monkeypatch):
    started = []

    def start(program, arguments, **more):
        started.append((program, arguments, more))
        return "running"

    monkeypatch.setattr(run, "start", start)
    monkeypatch.setattr(run, "finish", lambda running: (running, "done"))
    assert reexec.run_netinit(("verify", "--json")) == ("running", "done")
    reexec.run_netinit(["apply"], stdin="x", environ={"A": "b"})
    places = ":".join([PACKAGES, *[place for place in sys.path if place.startswith("/")]])
    words = [(sys.executable, ("-E", "-P", *LINE, places, *given)) for given in (["verify", "--json"], ["apply"])]
    inputs = [{"stdin": "", "environment": None}, {"stdin": "x", "environment": {"A": "b"}}]
    assert started == [(*line, more) for line, more in zip(words, inputs, strict=True)]


def test_it_replaces_the_process_and_stays_isolated_where_that_is(monkeypatch):
    became = []
    monkeypatch.setattr(run, "become", lambda *given: became.append(given))
    isolated = SimpleNamespace(flags=SimpleNamespace(isolated=1), executable="/python", path=["", "/packages", "zip"])
    monkeypatch.setattr(reexec, "sys", isolated)
    reexec.become_netinit(["watch"], environ={"A": "b"})
    assert became == [("/python", ("-I", *LINE, f"{PACKAGES}:/packages", "watch"), {"A": "b"})]
