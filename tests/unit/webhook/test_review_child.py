"""Heavy reviews in a child process: bounded by the deadline, processor time and memory, while the loop goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from netinit.webhook import server
from netinit.webhook.review import Fault, Interruption, ReviewAnswer, refuse
from netinit.webhook.server import run_in_child

ANSWER = refuse(Fault(418, "teapot", "an answer"))


def compute_for_ever():
    while True:
        with contextlib.suppress(Exception):
            sum(range(1000))


async def run(work, seconds=60.0):
    return await run_in_child(work, asyncio.get_running_loop().time() + seconds)


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = children(), len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert (children(), len(list(Path("/proc/self/fd").iterdir()))) == before


def test_the_answer_comes_back_and_a_bug_is_an_error():
    assert asyncio.run(run(lambda: ANSWER)) == ANSWER

    def fail():
        raise ValueError("no")

    with pytest.raises(Exception, match="ValueError: no"):
        asyncio.run(run(fail))


def test_a_large_answer_arrives_whole():
    large = ReviewAnswer(status=200, body=bytes(range(256)) * 20_000, outcome="", reason="")
    assert asyncio.run(run(lambda: large)) == large


def test_the_deadline_ends_it():
    with pytest.raises(Interruption):
        asyncio.run(run(compute_for_ever, 0.1))


def test_its_budget_of_processor_time_ends_it_long_before_its_deadline(monkeypatch):
    monkeypatch.setattr(server, "_CHILD_CPU_SECONDS", 1)
    with pytest.raises(Interruption):
        asyncio.run(run(compute_for_ever, 3600.0))


def test_more_memory_than_it_may_have_ends_it():
    with pytest.raises(Interruption):
        asyncio.run(run(lambda: bytearray(1 << 30) and ANSWER))


def test_it_has_a_lower_priority():
    ours = os.nice(0)

    def answer_when_nice():
        assert os.nice(0) == min(ours + server._CHILD_NICE, 19)
        return ANSWER

    assert asyncio.run(run(answer_when_nice)) == ANSWER


def test_the_loop_goes_on_meanwhile():
    async def both():
        heavy = asyncio.create_task(run(compute_for_ever, 0.5))
        turns = 0
        while not heavy.done():
            await asyncio.sleep(0.005)
            turns += 1
        with pytest.raises(Interruption):
            await heavy
        return turns

    assert asyncio.run(both()) > 5


def test_it_ends_when_nobody_wants_it_any_more():
    async def cancel():
        heavy = asyncio.create_task(run(compute_for_ever, 3600.0))
        await asyncio.sleep(0.05)
        heavy.cancel()
        begun = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await heavy
        assert time.monotonic() - begun < 30

    asyncio.run(cancel())
