"""The server's log under pressure: so many lines a minute, and how many were left out."""

from __future__ import annotations

import io
import logging

import pytest

from netinit.serving.event_log import EventLog, LineLimit, adopt_library_logs


def test_lines_beyond_the_limit_are_counted_and_reported_in_the_next_minute():
    now = [0.0]
    limit = LineLimit(2, clock=lambda: now[0])
    assert [limit.admit() for _ in range(4)] == [(True, 0), (True, 0), (False, 0), (False, 0)]
    now[0] = 61.0
    assert limit.admit() == (True, 2)
    assert limit.admit() == (True, 0)


@pytest.mark.parametrize("second", [1, 7, 59])
def test_no_minute_has_more_lines_than_the_limit_and_one_report(second):
    now, written = [0.0], []
    limit = LineLimit(60, clock=lambda: now[0])
    for _ in range(10_000):  # a line every 31 ms, from some second of the minute on
        now[0] += 0.031 if now[0] else float(second)
        admitted, left_out = limit.admit()
        written += [now[0]] * (admitted + bool(left_out))
    busiest = max(sum(begin <= one < begin + 60 for one in written) for begin in written)
    assert 60 <= busiest <= 61
    assert len(written) > 5 * 60


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = before
    root.setLevel(level)


def test_libraries_cannot_fill_the_log(root_logger):
    stream = io.StringIO()
    adopt_library_logs(EventLog(stream=stream))
    for _ in range(1000):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert 0 < len(stream.getvalue().splitlines()) <= 20
