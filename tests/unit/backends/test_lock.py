"""The lock of iptables-legacy, as a run holds it: on a file of any name, until the last who entered has left."""

from __future__ import annotations

import fcntl
import os
import posix

import pytest

from netinit.backends.lock import XtablesLock
from netinit.base.errors import BackendUnavailableError, LockedError

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
        with pytest.raises(LockedError, match=f"is held by process {os.getpid()}"), XtablesLock("iptables-legacy", MOMENT, own_files=True):
            pass


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
    with pytest.raises(BackendUnavailableError, match=r"^iptables-legacy: XTABLES_LOCKFILE: "), XtablesLock("iptables-legacy", MOMENT, own_files=True):
        pass
