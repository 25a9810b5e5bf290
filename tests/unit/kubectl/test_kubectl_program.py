"""Programs whose output is read as it comes: they get the end of their input, end by themselves, or are killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netinit.base.errors import BackendUnavailableError
from netinit.kernel import run
from netinit.kubectl import program as kubectl_program
from netinit.kubectl.program import StreamingProgram

SLEEP, SHELL = run.find("sleep"), run.find("sh")


@pytest.fixture(autouse=True)
def _nothing_is_left():
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    yield
    assert run._running == set()
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


def test_lines_are_read_as_they_come_and_its_input_ends_it():
    with StreamingProgram(SHELL, ("-c", "echo first; read word; echo last"), {}) as program:
        lines = program.lines()
        assert next(lines) == "first"
        program.request_end()
        assert list(lines) == ["last"]
    assert (program.status, program.errors) == (0, "")


def test_one_that_has_ended_already_has_its_own_status_and_errors():
    with StreamingProgram(SHELL, ("-c", "echo broken >&2; exit 7"), {}) as program:
        assert list(program.lines()) == []
    assert (program.status, program.errors) == (7, "broken")


def test_one_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(kubectl_program, "_ENDING", 0.05)
    with StreamingProgram(SLEEP, ("60",), {}) as program:
        pid = program._program._running.pid
    assert program.status == -9
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_cannot_be_started_is_an_error_that_names_it():
    with pytest.raises(BackendUnavailableError, match="/nowhere/nft cannot be started: No such file or directory"):
        StreamingProgram("/nowhere/nft", (), {})
