"""Programs that are started before their input is known: fed whole, or killed; never left, never given half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memory_backend import MemoryBackend
from memory_machine import MemoryMachine
from netinit.base.errors import ApplyError, BackendUnavailableError
from netinit.kernel import run
from netinit.options import Options
from netinit.pods import apply as applying

CAT, SLEEP, SHELL = run.find("cat"), run.find("sleep"), run.find("sh")
MORE_THAN_A_PIPE = "x" * (1 << 20)


@pytest.fixture(autouse=True)
def _nothing_is_left():
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    yield
    assert run._at_work == set()
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


@pytest.mark.parametrize("text", ["", "one line\n", MORE_THAN_A_PIPE])
def test_a_prepared_program_reads_all_that_it_is_fed(text):
    finished = run.finish(run.feed(run.prepare(CAT), text))
    assert (finished.status, finished.output, finished.errors) == (0, text, "")


def test_it_waits_for_its_input_and_does_nothing_before():
    prepared = run.prepare(SHELL, ("-c", "cat; echo done"))
    assert os.pread(prepared.output, 100, 0) == b""
    assert run.finish(run.feed(prepared, "fed\n")).output == "fed\ndone\n"


def test_one_that_nobody_feeds_is_ended():
    run.kill(run.prepare(CAT))


def test_one_that_has_ended_already_has_its_own_status_and_errors():
    prepared = run.prepare(SHELL, ("-c", "echo broken >&2; exit 7"))
    os.waitid(os.P_PID, prepared.pid, os.WEXITED | os.WNOWAIT)
    finished = run.finish(run.feed(prepared, MORE_THAN_A_PIPE))
    assert (finished.status, finished.errors) == (7, "broken")


def test_one_that_does_not_read_is_killed_and_never_takes_the_beginning_for_the_whole(monkeypatch):
    monkeypatch.setattr(run, "SECONDS", 0.05)
    monkeypatch.setattr(run, "INPUT_PER_SECOND", 1 << 30)
    assert run.finish(run.feed(run.prepare(SLEEP, ("60",)), MORE_THAN_A_PIPE)).status == -9


def test_an_interrupted_feeding_kills_it(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    prepared = run.prepare(CAT)
    with monkeypatch.context() as patched:
        patched.setattr(run.posix, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run.feed(prepared, "half of it")
    with pytest.raises(ProcessLookupError):
        os.kill(prepared.pid, 0)


def test_one_that_cannot_be_started_is_an_error_that_names_it():
    with pytest.raises(BackendUnavailableError, match="/nowhere/nft cannot be started: No such file or directory"):
        run.prepare("/nowhere/nft")


@pytest.fixture
def asked(monkeypatch):
    """What a run asks of its backend, in order."""
    calls = []
    for name in ("prepare", "release"):
        monkeypatch.setattr(MemoryBackend, name, lambda _, name=name: calls.append(name))
    commit = MemoryBackend.commit
    monkeypatch.setattr(MemoryBackend, "commit", lambda self, change: (calls.append("commit"), commit(self, change))[1])
    return calls


SIDECAR = ("-p", "15001", "-i", "*", "-b", "*", "--ipv6", "on", "--backend", "nftables")


def test_a_first_run_prepares_its_backend_before_it_commits_and_a_second_does_not(asked):
    machine = MemoryMachine()
    applying.apply(Options.from_argv(SIDECAR), machine=machine)
    assert asked == ["prepare", "commit", "release"]
    asked.clear()
    applying.apply(Options.from_argv(SIDECAR), machine=machine)
    assert asked == ["release"]


def test_a_run_that_fails_before_it_commits_releases_what_it_has_prepared(asked, monkeypatch):
    def fail(_):
        raise ApplyError("no plan")

    monkeypatch.setattr(applying, "plan_for", fail)
    with pytest.raises(ApplyError, match="no plan"):
        applying.apply(Options.from_argv(SIDECAR), machine=MemoryMachine())
    assert asked == ["prepare", "release"]


def test_a_backend_that_cannot_be_prepared_says_why_when_it_commits(asked, monkeypatch):
    def fail(_):
        raise BackendUnavailableError("not yet")

    monkeypatch.setattr(MemoryBackend, "prepare", fail)
    assert applying.apply(Options.from_argv(SIDECAR), machine=MemoryMachine()).changed
    assert asked == ["release", "commit", "release"]
