"""Reading the node's files in a thread of their own, which a file system that hangs may keep."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from netinit.base.errors import NetinitError
from netinit.node import file_thread
from netinit.node.file_thread import FileThread


def test_what_is_read_is_returned_and_an_error_is_raised_in_a_thread_that_keeps_no_process_alive():
    seen = []

    def fail():
        raise FileNotFoundError("gone")

    async def run():
        files = FileThread()
        assert await files.run(lambda: seen.append(threading.current_thread()) or "read") == "read"
        with pytest.raises(FileNotFoundError, match="gone"):
            await files.run(fail)
        assert await files.run(lambda: None) is None, "after an error too"

    asyncio.run(run())
    (thread,) = seen
    assert (thread.name, thread.daemon, thread is threading.main_thread()) == ("files", True, False)


def test_one_function_runs_at_a_time():
    running, most = [], []

    def work(number):
        running.append(number)
        most.append(len(running))
        running.remove(number)
        return number

    async def run():
        files = FileThread()
        return await asyncio.gather(*[files.run(lambda number=number: work(number)) for number in range(5)])

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]
    assert most == [1] * 5


def test_while_one_that_was_abandoned_hangs_no_other_is_begun_and_after_its_end_the_next_is(monkeypatch):
    now, begun, goes_on, threads = [100.0], threading.Event(), threading.Event(), []
    monkeypatch.setattr(file_thread, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def hang():
        threads.append(threading.current_thread())
        begun.set()
        goes_on.wait(60)

    async def run():
        files, other = FileThread(), []
        hanging = asyncio.create_task(files.run(hang))
        await asyncio.to_thread(begun.wait, 60)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        now[0] += 7.4
        with pytest.raises(NetinitError) as raised:
            await files.run(lambda: other.append("begun"))
        assert (str(raised.value), other) == ("files of the node cannot be read: an attempt from 7 s ago has not ended", [])
        goes_on.set()
        await asyncio.to_thread(threads[0].join, 60)
        await asyncio.sleep(0)
        return await files.run(lambda: "read")

    assert asyncio.run(run()) == "read"


def test_one_that_ends_after_the_event_loop_disturbs_nobody(monkeypatch):
    goes_on, errors = threading.Event(), []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    started = []

    def hang():
        started.append(threading.current_thread())
        goes_on.wait(60)

    async def run():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(FileThread().run(hang), 0.01)

    asyncio.run(run())
    goes_on.set()
    for thread in started:
        thread.join(60)
    assert errors == []
