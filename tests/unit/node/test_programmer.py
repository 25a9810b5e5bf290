"""How long what a check of a pod has decided counts for the next one."""

from __future__ import annotations

import socket

import pytest

from netinit.kernel import children
from netinit.node import programmer
from netinit.node.jobs import VERIFY, Job
from netinit.node.programmer import Programmer, _AcceptedJob

JOB = Job(kind=VERIFY, environ={}, seconds=30.0, path="/run/netns/cni-1")
HOUR = 3600.0


@pytest.fixture
def clock(monkeypatch):
    """The programmer's clock, as a list with the time."""
    now = [1000.0]
    monkeypatch.setattr(programmer.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def given(monkeypatch):
    """A programmer, and what a job's child gets of the last check."""
    got = []
    monkeypatch.setattr(children, "start", lambda action, **_: action(None))
    monkeypatch.setattr(programmer, "_work", lambda _job, _namespace, known: got.append(known))
    own, other = socket.socketpair()
    made = Programmer(own, 1)

    def look(judgement):
        made._fork(_AcceptedJob(b"1", JOB, -1, 0.0), 1.0)
        made._remember(JOB, judgement)
        return got[-1]

    yield look
    own.close()
    other.close()


def test_a_judgement_counts_for_less_than_an_hour_however_often_it_is_used(given, clock):
    """It names a generation of 32 bits, which may come again after 2^32 commits."""
    assert given("judged") == ""
    seen = []
    for _ in range(6):
        clock[0] += HOUR / 6 - 1
        seen.append(given("judged"))
    assert "" in seen
    assert seen.count("judged") > len(seen) / 2


def test_another_judgement_is_new(given, clock):
    given("one")
    clock[0] += HOUR / 3
    given("other")
    clock[0] += HOUR / 3
    assert given("other") == "other"
