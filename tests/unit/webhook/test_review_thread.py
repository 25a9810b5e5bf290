"""Reviews that take long, in a thread: interrupted by their deadline and their processor time, while the loop goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest

from netinit.webhook import review_thread
from netinit.webhook.review import Interruption
from netinit.webhook.review_thread import run_in_thread


def compute_for_ever():
    while True:
        sum(range(1000))


async def run(work, seconds=60.0):
    return await run_in_thread(work, asyncio.get_running_loop().time() + seconds)


def test_what_the_work_returns_or_raises_comes_back():
    assert asyncio.run(run(lambda: "answer")) == "answer"

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(run(fail))


def test_the_deadline_ends_it_and_its_thread():
    with pytest.raises(Interruption):
        asyncio.run(run(compute_for_ever, 0.1))
    assert not [thread for thread in threading.enumerate() if thread.name == "review"]


def test_its_budget_of_processor_time_ends_it_long_before_its_deadline(monkeypatch):
    monkeypatch.setattr(review_thread, "CPU_SECONDS", 0.05)
    with pytest.raises(Interruption):
        asyncio.run(run(compute_for_ever, 3600.0))


def test_time_that_it_waits_does_not_count_as_processor_time(monkeypatch):
    monkeypatch.setattr(review_thread, "CPU_SECONDS", 0.05)
    assert asyncio.run(run(lambda: time.sleep(0.3) or "slept")) == "slept"


def test_work_that_swallows_errors_is_interrupted_nevertheless():
    def stubborn():
        while True:
            with contextlib.suppress(Exception):
                compute_for_ever()

    with pytest.raises(Interruption):
        asyncio.run(run(stubborn, 0.1))


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
        with pytest.raises(asyncio.CancelledError):
            await heavy

    asyncio.run(cancel())
    end = time.monotonic() + 30
    while any(thread.name == "review" for thread in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "review"]
