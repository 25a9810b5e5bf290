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
    now = [100.0]
    limit = LineLimit(2, clock=lambda: now[0])
    assert [limit.admit() for _ in range(3)] == [(True, 0), (True, 0), (False, 0)]
    now[0] = 110.0
    assert limit.admit() == (False, 0)
    now[0] = 159.9
    assert limit.admit() == (False, 0)
    now[0] = 160.0  # a minute after the first that was left out
    assert limit.admit() == (True, 3)
    assert [limit.admit() for _ in range(3)] == [(True, 0), (False, 0), (False, 0)]
    now[0] = 219.9
    assert limit.admit() == (False, 0)
    now[0] = 220.0
    assert [limit.admit() for _ in range(3)] == [(True, 3), (True, 0), (False, 0)]


def test_how_many_lines_were_left_out_stands_before_the_next_line():
    now, stream = [0.0], io.StringIO()
    log, limit = EventLog(stream=stream, as_json=True), LineLimit(1, clock=lambda: now[0], what="about cats")
    for pod in ("a", "b", "c"):
        limit.write(log, "error", "meow", pod=pod)
    now[0] = 60.0
    limit.write(log, "info", "purr", number=1)
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["level"], one["msg"], one.get("pod"), one.get("number")) for one in written] == [
        ("error", "meow", "a", None),
        ("warn", "2 lines about cats were left out: more than 1 in a minute", None, None),
        ("info", "purr", None, 1),
    ]


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
    before, level, uvicorn = root.handlers[:], root.level, logging.getLogger("uvicorn.error")
    uvicorn_level = uvicorn.level
    uvicorn.setLevel(logging.NOTSET)
    yield root
    uvicorn.setLevel(uvicorn_level)
    root.handlers[:] = before
    root.setLevel(level)


def test_libraries_cannot_fill_the_log(root_logger):
    stream = io.StringIO()
    forward_library_logs(EventLog(stream=stream))
    for _ in range(1000):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert len(stream.getvalue().splitlines()) == 20


def test_records_of_libraries_have_their_level_their_error_and_the_librarys_name(root_logger):
    stream = io.StringIO()
    forward_library_logs(EventLog(stream=stream, as_json=True))
    assert (len(root_logger.handlers), root_logger.level) == (1, logging.WARNING)
    logging.getLogger("lib").info("not of interest")
    logging.getLogger("lib").warning("odd %s", "thing")
    logging.getLogger("lib").error("failed", exc_info=ValueError("bad"))
    logging.getLogger("lib").critical("broken", exc_info=(None, None, None))
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["level"], one["msg"], one["library"]) for one in written] == [
        ("warn", "odd thing", "lib"), ("error", "failed: ValueError: bad", "lib"), ("error", "broken", "lib"),
    ]  # fmt: skip


@pytest.mark.parametrize(("level", "shown"), [("info", ["error"]), ("debug", ["warn", "error"])])
def test_warnings_about_single_requests_are_shown_at_level_debug_alone(root_logger, level, shown):
    stream, uvicorn = io.StringIO(), logging.getLogger("uvicorn.error")
    forward_library_logs(EventLog(level, stream=stream, as_json=True))
    uvicorn.warning("Invalid HTTP request received.")
    uvicorn.error("broken")
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == shown


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
    def write(*, as_json, level="warn", message="said", **fields):
        stream = io.StringIO()
        EventLog("warn", as_json=as_json, stream=stream, clock=lambda: 0).event(level, message, **fields)
        return stream.getvalue()

    fields = {"pod": "a b", "empty": "", "none": None, "quoted": 'a"b', "odd": "a\nb", "number": 3, "zero": 0}
    kept = {name: value for name, value in fields.items() if value not in ("", None)}
    start = {"level": "warn", "time": "1970-01-01T00:00:00.000000Z", "scope": SCOPE, "msg": "said"}
    assert json.loads(write(as_json=True, **fields)) == {**start, **kept}
    assert write(as_json=False, **fields) == (
        "1970-01-01T00:00:00.000000Z\twarn\tsaid"
        '\tpod="a b"\tquoted="a\\"b"\todd=a\\nb\tnumber=3\tzero=0\n'
    )
    assert write(as_json=True, level="info") == ""
    assert json.loads(write(as_json=True, message="m" * 4001))["msg"] == "m" * 4000 + "…"
    assert write(as_json=False, message="m" * 4001).endswith("\t" + "m" * 4000 + "…\n")
