"""Events: Istio's form, one line each, whatever they hold."""

from __future__ import annotations

import io
import json
import sys

import pytest

from netinit.base.logs import Log, format_time, level_of

MOMENT = 1_537_795_149_579_123_999  # nanoseconds
STAMP = "2018-09-24T13:19:09.579123Z"
FORGERY = "x\n2018-09-24T13:19:09.579123Z\tinfo\tall is well\r\x1b[2K\x00\u2028\x85\udcff"


@pytest.fixture
def logged():
    stream = io.StringIO()

    def make(level="info", **options):
        stream.seek(0)
        stream.truncate()
        return Log(level, stream=stream, clock=lambda: MOMENT, **options), stream

    return make


def test_an_event_is_a_line_of_time_level_and_message(logged):
    events, stream = logged()
    events.info("programmed")
    events.warn("mind this")
    events.error("failed")
    assert stream.getvalue() == f"{STAMP}\tinfo\tprogrammed\n{STAMP}\twarn\tmind this\n{STAMP}\terror\tfailed\n"


def test_an_event_can_be_a_json_object(logged):
    events, stream = logged(as_json=True)
    events.info(FORGERY)
    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue()) == {"level": "info", "time": STAMP, "scope": "default", "msg": FORGERY}


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("none", []),
        ("error", ["error"]),
        ("warn", ["error", "warn"]),
        ("info", ["error", "warn", "info"]),
        ("debug", ["error", "warn", "info"]),
    ],
)
def test_a_level_shows_itself_and_what_is_graver(level, written, logged):
    events, stream = logged(level)
    for one in ("error", "warn", "info"):
        getattr(events, one)("message")
        assert events.wants(one) is (one in written)
    events.info("title", "text")
    assert [line.split("\t")[1] for line in stream.getvalue().splitlines() if "\tmessage" in line] == written
    assert ("title" in stream.getvalue()) is events.wants("info")


@pytest.mark.parametrize("level", ["info", "warn"])
def test_no_value_can_forge_a_line(level, logged):
    events, stream = logged("debug")
    getattr(events, level)(FORGERY)
    (line,) = stream.getvalue().splitlines()
    assert line.count("\t") == 2
    assert line.endswith(r"x\n2018-09-24T13:19:09.579123Z\tinfo\tall is well\r\x1b[2K\x00\u2028\x85\xff")


def test_an_error_of_several_lines_is_several_events(logged):
    events, stream = logged()
    events.error("no backend works here:\n  one: missing\n  two: locked")
    assert [line.split("\t", 1)[1] for line in stream.getvalue().splitlines()] == [
        "error\tno backend works here:",
        "error\t  one: missing",
        "error\t  two: locked",
    ]


def test_a_text_stands_below_its_title_line_by_line(logged):
    events, stream = logged()
    events.info("Final state:", "*nat\n\t-A OUTPUT \x1b[31m\nCOMMIT\n")
    assert stream.getvalue() == f"{STAMP}\tinfo\tFinal state:\n*nat\n\t-A OUTPUT \\x1b[31m\nCOMMIT\n"
    events, stream = logged(as_json=True)
    events.info("Final state:", "*nat\nCOMMIT\n")
    assert json.loads(stream.getvalue())["msg"] == "Final state:\n*nat\nCOMMIT\n"


def test_a_line_of_a_text_cannot_pass_for_an_event(logged):
    events, stream = logged()
    events.info("Final state:", f'-A OUTPUT -m comment --comment "x\n{STAMP}\tinfo\tall is well\u2028{STAMP}\tinfo\tagain" -j RETURN\n')
    found = [line for line in stream.getvalue().splitlines() if line.startswith(f"{STAMP}\t")]
    assert found == [f"{STAMP}\tinfo\tFinal state:"]


def test_times_are_utc_with_microseconds():
    assert format_time(MOMENT) == STAMP
    assert format_time(0) == "1970-01-01T00:00:00.000000Z"
    assert format_time(999) == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("debug", "debug"), ("default:debug", "debug"), ("all:warn", "warn"), (":error", "error"), ("other:debug", "info"), ("", "info"),
        ("warn,other:debug", "warn"), ("warn,all:error", "error"), (" none\t, ", "none"), ("all:", "info"), ("loud", "loud"),
    ],
)  # fmt: skip
def test_the_last_level_of_our_scope_or_of_all_counts(text, level):
    assert level_of(text) == level


def test_without_a_stderr_nothing_is_logged(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    Log().error("x")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    Log(clock=lambda: MOMENT).info("x")
    Log("warn", clock=lambda: MOMENT).info("x", "y")
    assert stream.getvalue() == f"{STAMP}\tinfo\tx\n"
