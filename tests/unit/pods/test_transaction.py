"""Runs as lists of steps with inverses: failures, signals and locks, in this process and without privileges."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from netinit.backends import Lock
from netinit.base.errors import ApplyError, BackendUnavailableError, LockedError
from netinit.kernel import run as programs
from netinit.kernel.run import Signals
from netinit.pods.transaction import Transaction

REQUESTS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class World:
    """What steps change: a list. `story` has what was done and undone, in order."""

    def __init__(self):
        self.things = []
        self.story = []

    def make(self, run, name, fails=None, stays=False):
        def step():
            if fails:
                raise fails
            self.things.append(name)
            self.story.append(f"do {name}")
            return name.upper()

        def inverse(done):
            assert done == name.upper(), "the inverse gets what the step returned"
            if stays:
                raise stays
            self.things.remove(name)
            self.story.append(f"undo {name}")

        return run.do(name, step, inverse)


class NamedLock(Lock):
    def __init__(self, world, name, held_by=""):
        self.world, self.name, self.held_by = world, name, held_by

    def __enter__(self):
        if self.held_by:
            raise LockedError(f"{self.name} is held by {self.held_by}")
        self.world.story.append(f"lock {self.name}")

    def __exit__(self, kind, error, trace):
        self.world.story.append(f"unlock {self.name}")


def fails(kind, steps, *signals):
    """What a transaction of these steps raises."""

    def attempt():
        with Transaction(*signals) as run:
            steps(run)

    with pytest.raises(kind) as raised:
        attempt()
    return raised.value


@pytest.fixture
def world():
    return World()


@pytest.fixture(autouse=True)
def same_handlers():
    """Whoever listened before listens again, and no request is left."""
    usual = (signal.SIG_DFL, signal.SIG_DFL, signal.default_int_handler)  # whatever these tests were started by ignores
    before = [signal.signal(number, handler) for number, handler in zip(REQUESTS, usual, strict=True)]
    yield
    after = [signal.signal(number, handler) for number, handler in zip(REQUESTS, before, strict=True)]
    assert after == list(usual)


def send(number):
    os.kill(os.getpid(), number)


def test_steps_are_made_in_order_and_return_what_they_made(world):
    with Transaction() as run:
        assert [world.make(run, name) for name in "abc"] == ["A", "B", "C"]
    assert world.things == ["a", "b", "c"]


@pytest.mark.parametrize("error", [ApplyError("no"), BackendUnavailableError("no"), OSError(5, "no"), KeyboardInterrupt(), MemoryError()])
def test_an_error_undoes_all_steps_the_last_first_and_stays_what_it_is(world, error):
    def steps(run):
        world.make(run, "a")
        world.make(run, "b")
        world.make(run, "c", fails=error)

    raised = fails(type(error), steps)
    assert raised is error
    assert (world.things, world.story) == ([], ["do a", "do b", "undo b", "undo a"])


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (BackendUnavailableError("no program"), BackendUnavailableError, "no program; b: the rollback failed too: it is stuck"),
        (MemoryError(), ApplyError, "MemoryError; b: the rollback failed too: it is stuck"),
    ],
)
def test_what_cannot_be_undone_is_named_and_the_rest_is_undone(world, error, kind, text):
    def steps(run):
        world.make(run, "a")
        world.make(run, "b", stays=ApplyError("it is stuck"))
        world.make(run, "c", fails=error)

    raised = fails(kind, steps)
    assert (type(raised), str(raised), raised.__cause__) == (kind, text, error)
    assert world.things == ["b"]


def test_all_that_cannot_be_undone_is_named_a_lack_of_descriptors_too(world):
    def steps(run):
        world.make(run, "a", stays=OSError(24, "Too many open files"))
        world.make(run, "b", stays=ApplyError("it is stuck"))
        raise ApplyError("no")

    raised = fails(ApplyError, steps)
    failed = "the rollback failed too"
    assert str(raised) == f"no; b: {failed}: it is stuck; a: {failed}: [Errno 24] Too many open files"


def test_an_inverse_that_fails_in_an_unforeseen_way_does_not_keep_the_others(world):
    def steps(run):
        world.make(run, "a")
        world.make(run, "b", stays=ValueError("embedded null byte"))
        world.make(run, "c", stays=MemoryError())
        raise ApplyError("no")

    raised = fails(ApplyError, steps)
    failed = "the rollback failed too"
    assert str(raised) == f"no; c: {failed}: MemoryError; b: {failed}: embedded null byte"
    assert world.story == ["do a", "do b", "do c", "undo a"]


def test_a_step_of_which_a_part_is_made_is_undone_where_it_fails_and_where_a_later_one_does(world):
    def half():
        world.things.append("half")
        raise ApplyError("the other half is refused")

    def steps(run):
        run.do_in_parts("a", lambda: world.things.append("whole"), lambda: world.things.remove("whole"))
        run.do_in_parts("b", half, lambda: world.things.remove("half"))

    raised = fails(ApplyError, steps)
    assert (str(raised), world.things) == ("the other half is refused", [])


def test_a_signal_kills_no_program_that_undoes_the_step_that_fails(world, monkeypatch):
    killed = []
    monkeypatch.setattr(programs, "end_all", lambda: killed.append("all programs"))

    def half():
        raise ApplyError("the other half is refused")

    def steps(run):
        run.do_in_parts("a", half, lambda: send(signal.SIGTERM))

    raised = fails(ApplyError, steps)
    assert (str(raised), killed) == ("ended by SIGTERM; everything is as it was before", [])


def test_no_step_begins_after_a_signal(world):
    def steps(run):
        world.make(run, "a")
        send(signal.SIGTERM)
        run.do_in_parts("b", lambda: world.things.append("b"), world.things.clear)

    fails(ApplyError, steps)
    assert world.story == ["do a", "undo a"]


def test_locks_are_held_until_all_is_undone_and_let_go_in_the_opposite_order(world):
    def steps(run):
        run.hold(NamedLock(world, "one"))
        run.hold(NamedLock(world, "two"))
        world.make(run, "a")
        raise ApplyError("no")

    fails(ApplyError, steps)
    assert world.story == ["lock one", "lock two", "do a", "undo a", "unlock two", "unlock one"]


def test_a_lock_that_is_not_had_is_not_let_go(world):
    def steps(run):
        run.hold(NamedLock(world, "one"))
        run.hold(NamedLock(world, "two", held_by="somebody"))

    raised = fails(LockedError, steps)
    assert "two is held by somebody" in str(raised)
    assert world.story == ["lock one", "unlock one"]


@pytest.mark.parametrize("number", REQUESTS)
def test_a_signal_in_a_step_goes_back_before_the_next_and_says_so(world, number):
    kind = KeyboardInterrupt if number == signal.SIGINT else ApplyError
    def steps(run):
        world.make(run, "a")
        send(number)
        world.make(run, "b")

    raised = fails(kind, steps)
    assert str(raised) == f"ended by {number.name}; everything is as it was before"
    assert world.story == ["do a", "undo a"]


def test_a_step_that_fails_since_a_signal_killed_its_program_says_what_ended_it(world, monkeypatch):
    killed = []
    monkeypatch.setattr(programs, "end_all", lambda: killed.append("all programs"))

    def step():
        send(signal.SIGTERM)
        raise BackendUnavailableError("a program was killed by signal 9")

    def steps(run):
        world.make(run, "a")
        run.do("b", step, lambda _: None)

    raised = fails(ApplyError, steps)
    assert str(raised) == "ended by SIGTERM; everything is as it was before"
    assert (world.things, killed) == ([], ["all programs"])


@pytest.mark.parametrize("number", REQUESTS)
def test_what_a_signal_leaves_behind_is_named_whatever_signal_it_is(world, number):
    def steps(run):
        world.make(run, "a", stays=ApplyError("it is stuck"))
        send(number)
        world.make(run, "b")

    raised = fails(ApplyError, steps)
    assert str(raised) == f"ended by {number.name}; a: the rollback failed too: it is stuck"


def test_undoing_is_patient_with_programs_and_says_which_signal_came_meanwhile(world, monkeypatch):
    killed = []
    monkeypatch.setattr(programs, "end_all", lambda: killed.append("all programs"))

    def inverse(_):
        send(signal.SIGHUP)
        world.things.clear()

    def steps(run):
        run.do("a", lambda: world.things.append("a"), inverse)
        raise ApplyError("no")

    raised = fails(ApplyError, steps)
    assert "ended by SIGHUP; everything is as it was before" in str(raised)
    assert (world.things, killed) == ([], [])


@pytest.fixture
def heard():
    """The signals that somebody who listened before hears."""
    found = []
    before = signal.signal(signal.SIGTERM, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGTERM, before)


def test_a_signal_in_the_last_step_is_heard_by_who_listened_before_once_all_is_done(world, heard):
    with Transaction() as run:
        world.make(run, "a")
        send(signal.SIGTERM)
        assert heard == []
    assert (world.things, heard) == (["a"], [signal.SIGTERM])


def test_the_callers_signals_stay_kept_back_after_a_success(world, heard):
    signals = Signals()
    with Transaction(signals) as run:
        world.make(run, "a")
        send(signal.SIGTERM)
    send(signal.SIGTERM)
    assert (world.things, heard, signals.pending) == (["a"], [], signal.SIGTERM)
    assert signals.patient is False, "programs that are started later are killed by a signal again"
    signals.stop()
    assert (signals.take(), signals.take(), heard) == (signal.SIGTERM, 0, [])


def test_a_failure_lets_the_callers_signals_go(world, heard):
    def steps(run):
        world.make(run, "a", fails=ApplyError("no"))

    fails(ApplyError, steps, Signals())
    send(signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_lasting_signals_are_never_let_go(world, heard):
    signals = Signals(lasting=True)
    def steps(run):
        world.make(run, "a", fails=ApplyError("no"))

    fails(ApplyError, steps, signals)
    send(signal.SIGTERM)
    assert (heard, signals.pending) == ([], signal.SIGTERM)
    signals._lasting = False
    signals.stop()


def test_what_came_before_the_first_step_is_not_held_back(world, heard):
    with Transaction() as run:
        send(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        world.make(run, "a")
    assert world.things == ["a"]


def test_a_signal_that_is_ignored_stays_ignored(world):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Transaction() as run:
            world.make(run, "a")
            send(signal.SIGHUP)
            world.make(run, "b")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert world.things == ["a", "b"]


def test_a_thread_has_its_transactions_as_well_and_hears_no_signals(world):
    def work():
        with Transaction() as run:
            world.make(run, "a")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert world.things == ["a"]
