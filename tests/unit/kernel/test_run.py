"""Programs that are started: where they are found, what they get, and how they end."""

from __future__ import annotations

import os
import posix
import signal
import sys
import time
from pathlib import Path

import pytest

from netinit.base.errors import BackendUnavailableError
from netinit.kernel import run

if sys.platform != "linux":
    pytest.skip("needs Linux", allow_module_level=True)

ENV, SH = run.find("env"), run.find("sh")


def program(folder: Path, *, mode=0o755) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "netinit-test-program"
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


def test_a_program_is_found_in_path_first_and_then_in_the_usual_folders(tmp_path, monkeypatch):
    first, second = program(tmp_path / "é1"), program(tmp_path / "2")
    program(tmp_path / "not", mode=0o644)
    for folders, found in ((("not", "é1", "2"), first), (("2", "é1"), second), ((), ""), (("nowhere",), "")):
        monkeypatch.setitem(posix.environ, b"PATH", ":".join(["", *[str(tmp_path / one) for one in folders]]).encode())
        assert run.find("netinit-test-program") == found
        assert run.find("sh") in {f"{folder}/sh" for folder in run.USUAL_FOLDERS}
    monkeypatch.setitem(posix.environ, b"PATH", f"{tmp_path}/".encode() + b"\xff")
    (tmp_path / "\udcff").mkdir()  # a name that is not UTF-8
    (tmp_path / "\udcff" / "netinit-test-program").symlink_to(first)
    assert run.find("netinit-test-program") == f"{tmp_path}/\udcff/netinit-test-program"
    monkeypatch.delitem(posix.environ, b"PATH")
    assert run.find("netinit-test-program") == ""
    assert run.find("sh") == SH


def list_open():
    return sorted(Path("/proc/self/fd").iterdir())


def finish(path, *arguments, **more):
    return run.finish(run.start(path, arguments, **more))


def test_a_program_inherits_the_variables_that_are_passed_on_and_gets_others(monkeypatch):
    monkeypatch.setitem(posix.environ, b"PATH", b"/usr/bin:/bin")
    monkeypatch.setitem(posix.environ, b"XTABLES_LOCKFILE", b"/tmp/x")
    monkeypatch.setitem(posix.environ, b"LD_DEBUG", b"help")
    found = finish(ENV, environment={"A": "é", "PATH": "/bin"})
    assert (found.program, found.status, found.errors) == ("env", 0, "")
    assert sorted(found.output.splitlines()) == ["A=é", "LC_ALL=C", "PATH=/bin", "XTABLES_LOCKFILE=/tmp/x"]
    monkeypatch.delitem(posix.environ, b"XTABLES_LOCKFILE")
    assert sorted(finish(ENV).output.splitlines()) == ["LC_ALL=C", "PATH=/usr/bin:/bin"]


@pytest.mark.parametrize(("script", "status", "output", "errors"), [
    ("cat; echo x >&2; exit 3", 3, "in é", "x"), ("echo $0 $1; printf '  a \\n b \\n\\n' >&2", 0, "sh one\n", "a \n b"), ("kill -TERM $$", -15, "", ""),
    (r"printf '\377\n'; printf '\377' >&2", 0, "\udcff\n", "\ufffd"),
])  # fmt: skip
def test_a_program_ends_with_its_status_its_output_and_its_errors(script, status, output, errors):
    found = finish(SH, "-c", script, "sh", "one", stdin="in é")
    assert (found.program, found.status, found.output, found.errors) == ("sh", status, output, errors)


def test_long_input_and_output_come_whole():
    text = "".join([f"{number}\n" for number in range(100_000)])
    assert finish(run.find("cat"), stdin=text).output == text


def test_a_program_has_time_for_its_input_and_for_the_locks_that_it_waits_for():
    for text, waits, seconds in (("", 0, run.SECONDS), ("x" * 200_000, 0, run.SECONDS + 2), ("", 5 * 10**9, run.SECONDS + 5)):
        before = time.monotonic_ns()
        started = run.start(run.find("cat"), stdin=text, waits=waits)
        after = time.monotonic_ns()
        assert started.seconds == seconds
        assert before <= started.deadline - int(seconds * 10**9) <= after
        assert started.pid in run._running
        run.finish(started)
        assert started.pid not in run._running


def test_a_program_that_does_not_end_in_time_is_killed_and_that_is_said():
    started = run.start(SH, ("-c", "echo begun; echo working >&2; exec sleep 1000"))
    while not os.pread(started.errors, 9, 0):
        time.sleep(0.01)
    found = run.finish(started.replace(deadline=time.monotonic_ns(), seconds=7.4))
    assert (found.status, found.output) == (-signal.SIGKILL, "begun\n")
    assert found.errors == f"working did not end within 7 s and {run.KILLED_LATE}"


def test_a_program_is_awaited_until_its_deadline():
    started = run.start(SH, ("-c", "exec sleep 1000"))
    begun = time.monotonic_ns()
    assert run.wait(started.pid, begun + 10**8) is None
    assert time.monotonic_ns() >= begun + 10**8
    run.end_all()
    assert run.finish(started).status == -signal.SIGKILL


@pytest.mark.parametrize(("path", "reason"), [("/nowhere/x", "No such file or directory"), ("/etc/passwd", "Permission denied")])
def test_a_program_that_cannot_be_started_is_named_with_the_reason(path, reason):
    before = len(list_open())
    with pytest.raises(BackendUnavailableError, match=f"^{path} cannot be started: {reason}$"):
        run.start(path)
    assert len(list_open()) == before, "nothing stays open"


def test_where_a_process_has_closed_itself_no_program_is_started(monkeypatch):
    monkeypatch.setattr(run, "_sealed", True)
    with pytest.raises(BackendUnavailableError, match=r"^/bin/sh cannot be started in the user namespace of a pod$"):
        run.start("/bin/sh")


def test_no_descriptor_stays_open_behind_a_program_that_has_ended():
    before = list_open()
    finish(SH, "-c", "exit 0")
    assert list_open() == before


def test_a_signal_that_is_deferred_is_taken_once_and_kills_what_runs_unless_one_is_patient():
    signals = run.Signals()
    handler = signal.getsignal(signal.SIGTERM)
    signals.listen()
    try:
        assert signals.take() == 0
        started = run.start(SH, ("-c", "exec sleep 1000"))
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.finish(started).status == -signal.SIGKILL
        assert (signals.take(), signals.take()) == (signal.SIGTERM, 0)
        signals.patient = True
        started = run.start(SH, ("-c", "sleep 0.1; exit 4"))
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.finish(started).status == 4
        assert signals.take() == signal.SIGTERM
    finally:
        signals.stop()
    assert signal.getsignal(signal.SIGTERM) == handler
