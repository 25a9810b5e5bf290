"""The lock of iptables-legacy, as a run holds it: on a file of any name, until the last who entered has left."""

from __future__ import annotations

import fcntl
import os
import posix
from pathlib import Path

import pytest

from netinit.backends.lock import XtablesLock
from netinit.base.errors import BackendUnavailableError, LockedError
from netinit.kernel import processes

MOMENT = 10**7  # nanoseconds


@pytest.fixture(params=["xtables.lock", "not UTF-8: \udcff"])
def path(request, tmp_path, monkeypatch):
    found = tmp_path / request.param
    monkeypatch.setitem(posix.environ, b"XTABLES_LOCKFILE", os.fsencode(found))
    return found


def is_free(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_it_is_held_until_the_last_who_entered_has_left(path):
    lock = XtablesLock("iptables-legacy", MOMENT, own_files=True)
    with lock:
        with lock:
            assert not is_free(path)
        assert not is_free(path)
    assert is_free(path)


def test_whoever_does_not_get_it_in_time_learns_who_has_it(path):
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockedError) as caught, XtablesLock("iptables-legacy", MOMENT, own_files=True):
            pass
    comm = Path("/proc/self/comm").read_text().strip()
    named = os.fsencode(path).decode("utf-8", "surrogateescape")
    assert str(caught.value) == f"iptables-legacy: {named} is held by process {os.getpid()} ({comm}): wait for it, or raise --lock-timeout"


def test_a_file_that_another_process_creates_at_the_same_moment_is_the_lock_too(path, monkeypatch):
    def open_late(*given, real=posix.open):
        if given[1] & os.O_CREAT:
            path.touch()
        return real(*given)

    monkeypatch.setattr(posix, "open", open_late)
    with XtablesLock("iptables-legacy", MOMENT, own_files=True):
        assert not is_free(path)
    assert is_free(path)


def test_what_is_no_file_is_refused_with_the_variable_s_name(path):
    path.mkdir()
    with pytest.raises(BackendUnavailableError) as caught, XtablesLock("iptables-legacy", MOMENT, own_files=True):
        pass
    assert str(caught.value) == (
        f"iptables-legacy: XTABLES_LOCKFILE: {str(path)!r} cannot be opened: it is a folder, not a regular file;"
        " name a regular file in a writable folder with XTABLES_LOCKFILE"
    )


@pytest.mark.parametrize(("taken", "found"), [(True, "a process of another container"), (False, "another process")])
def test_a_holder_that_proc_does_not_show_is_described(taken, found, tmp_path, monkeypatch):
    with (tmp_path / "lock").open("w") as file:
        status = os.fstat(file.fileno())
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        locks = f"1: POSIX  ADVISORY  WRITE 1 {place} 0 EOF\n2: FLOCK  ADVISORY  WRITE 0 {place if taken else 'fe:00:1'} 0 EOF\n"
        monkeypatch.setattr(processes, "read_text", lambda path: locks if path == "/proc/locks" else "")
        assert processes.describe_holders(file.fileno()) == found


def test_the_lock_of_the_host_s_files_is_left_alone_and_so_is_a_file_that_disables_locking(monkeypatch):
    monkeypatch.delitem(posix.environ, b"XTABLES_LOCKFILE", raising=False)
    monkeypatch.setattr("netinit.backends.lock.open_lock_file", None)
    before = [*Path("/proc/self/fd").iterdir()]
    with XtablesLock("iptables-legacy", MOMENT, own_files=False):
        pass
    monkeypatch.undo()
    monkeypatch.setitem(posix.environ, b"XTABLES_LOCKFILE", b"/dev/null")
    monkeypatch.setattr("netinit.backends.lock.take_or_refuse", None)
    with XtablesLock("iptables-legacy", MOMENT, own_files=False):
        pass
    assert [*Path("/proc/self/fd").iterdir()] == before
