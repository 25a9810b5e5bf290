"""--retries: which errors are worth another run, how many, and for how long."""

from __future__ import annotations

import signal

import pytest

from memory_machine import MemoryMachine
from netinit.backends import routes
from netinit.backends.failure_causes import explain_iptables, explain_nft
from netinit.backends.libiptc import explain_number
from netinit.base.errors import ApplyError, BusyError, LockedError, OptionError
from netinit.base.logs import Log
from netinit.kernel.netlink import LocalRoute
from netinit.kernel.run import Signals
from netinit.options import Options
from netinit.pods import init_run as retrying
from netinit.pods.apply import apply
from netinit.pods.init_run import retry

QUICK = {"retry_delay": "1ms", "lock_timeout": "10s"}


class Clock:
    def __init__(self):
        self.now = 0

    def monotonic_ns(self):
        return self.now

    def sleep(self, seconds):
        self.now += round(seconds * 10**9)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(retrying, "time", made)
    return made


def failing(times, error):
    calls = []

    def act(options):
        calls.append(options.lock_timeout)
        if len(calls) <= times:
            raise error
        return len(calls)

    return act, calls


@pytest.mark.parametrize("error", [LockedError("held"), BusyError("busy")])
def test_a_run_is_begun_anew_as_often_as_was_asked(error, clock, capsys):
    act, calls = failing(2, error)
    assert retry(act, Options(retries=2, **QUICK), Log("info"), Signals()) == 3
    assert capsys.readouterr().err.count("retrying in 0.001 s") == 2

    act, calls = failing(3, error)
    with pytest.raises(type(error)):
        retry(act, Options(retries=2, **QUICK), Log("none"), Signals())
    assert len(calls) == 3


@pytest.mark.parametrize("error", [ApplyError("refused"), OptionError("bad")])
def test_what_would_fail_again_is_not_tried_again(error, clock):
    act, calls = failing(1, error)
    with pytest.raises(type(error)):
        retry(act, Options(retries=5, **QUICK), Log("none"), Signals())
    assert len(calls) == 1


def test_all_runs_together_take_no_longer_than_the_lock_s_timeout(clock):
    act, calls = failing(99, BusyError("busy"))
    with pytest.raises(BusyError):
        retry(act, Options(retries=99, retry_delay="3s", lock_timeout="10s"), Log("none"), Signals())
    assert len(calls) == 4
    assert clock.now == 9 * 10**9


def test_a_run_waits_for_locks_no_longer_than_what_is_left_of_the_time(clock):
    act, calls = failing(2, LockedError("held"))
    retry(act, Options(retries=9, retry_delay="3s", lock_timeout="10s"), Log("none"), Signals())
    assert calls == [10 * 10**9, 7 * 10**9, 4 * 10**9]


def test_a_run_that_was_told_to_end_is_not_begun_anew(clock):
    act, calls = failing(99, BusyError("busy"))
    told = Signals()
    told.pending = signal.SIGTERM
    with pytest.raises(BusyError):
        retry(act, Options(retries=9, **QUICK), Log("none"), told)
    assert len(calls) == 1


@pytest.mark.parametrize("said", ["iptables-restore: line 4 failed: Resource temporarily unavailable", "Device or resource busy"])
def test_a_busy_kernel_is_known_by_what_programs_and_numbers_say(said):
    assert isinstance(explain_iptables(said, said, "nft", privileged=True), BusyError)
    for number in (11, 16):
        assert isinstance(explain_nft(number, "x", "", ""), BusyError)
        assert isinstance(explain_number(number, "x", opening=False, modules=""), BusyError)


@pytest.mark.parametrize(("number", "kind"), [(11, BusyError), (16, BusyError), (22, ApplyError)])
def test_a_route_that_the_kernel_has_no_time_for_is_no_refusal(number, kind):
    class ProgrammerClient:
        def change_local_route(self, route, *, add):
            raise OSError(number, "x")

    with pytest.raises(ApplyError) as caught:
        routes.make_one(routes.RouteChange(target=LocalRoute(family=2, table=133, protocol=137), add=True), ProgrammerClient())
    assert type(caught.value) is kind


def test_rules_are_programmed_by_the_run_that_the_kernel_has_time_for(clock, monkeypatch):
    machine = MemoryMachine()
    options = Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "on", "--backend", "iptables-nft", "--retries", "3"])
    left = [BusyError("busy"), BusyError("busy")]
    kind = type(machine.load("iptables-nft", options, ()))
    commit = kind.commit

    def busy_at_first(backend, change):
        if left:
            raise left.pop()
        commit(backend, change)

    monkeypatch.setattr(kind, "commit", busy_at_first)
    outcome = retry(lambda meant: apply(meant, machine=machine), options, Log("none"), Signals())
    assert outcome.changed
    assert left == []
