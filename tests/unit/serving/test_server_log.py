"""The server's log under pressure: so many lines a minute, and how many were left out."""

from __future__ import annotations

import functools
import io
import json
import logging

import pytest

from netinit.base.logs import SCOPE
from netinit.serving import event_log
from netinit.serving.event_log import EventLog, LineLimit, forward_library_logs


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
    forward_library_logs(EventLog(stream=stream))
    for _ in range(1000):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert 0 < len(stream.getvalue().splitlines()) <= 20


def test_how_many_lines_of_libraries_were_left_out_is_said_later(root_logger, monkeypatch):
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(event_log, "LineLimit", functools.partial(LineLimit, clock=lambda: now[0]))
    forward_library_logs(EventLog(stream=stream))
    for _ in range(100):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    written = len(stream.getvalue().splitlines())
    now[0] = 61.0
    logging.getLogger("asyncio").error("again")
    assert f"\t{100 - written} lines of libraries were left out: more than {written} in a minute\n" in stream.getvalue()


def test_an_event_has_its_fields_in_both_forms_but_for_empty_ones():
    def write(*, as_json, level="warn"):
        stream = io.StringIO()
        EventLog("warn", as_json=as_json, stream=stream, clock=lambda: 0).event(level, "said", pod="a b", empty="", number=3)
        return stream.getvalue()

    assert json.loads(write(as_json=True)) == {"level": "warn", "time": "1970-01-01T00:00:00.000000Z", "scope": SCOPE, "msg": "said", "pod": "a b", "number": 3}
    assert write(as_json=False).endswith('\tsaid\tpod="a b"\tnumber=3\n')
    assert write(as_json=True, level="info") == ""
