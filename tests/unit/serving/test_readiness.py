"""Why a server is not ready is told in its log and by events: after some seconds, when it changes, and once a minute."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools

from netinit.serving.event_log import EventLog
from netinit.serving.readiness import Unreadiness, tell_unreadiness


class OverError(Exception):
    """The last of the seconds is over."""


def tell(reasons):
    """What is logged and sent, each with its second, if the reason is `reasons[second]`: the checks that fail, perhaps with causes."""
    now, lines, sent = 0, [], []

    async def send(reason):
        sent.append((now, reason))

    async def sleep(seconds):
        nonlocal now
        now += int(seconds)
        if now >= len(reasons):
            raise OverError

    def ask():
        found = reasons[now]
        return found if found is None else Unreadiness(*([found] if isinstance(found, str) else found))

    class Stream(io.StringIO):
        def write(self, text):
            lines.extend((now, line.split("\t")[1], line.split("\t")[-1]) for line in text.splitlines() if line)
            return len(text)

    log = EventLog("info", stream=Stream())
    with contextlib.suppress(OverError):
        asyncio.run(tell_unreadiness(ask, log, send, clock=lambda: now, sleep=sleep))
    return lines, sent


def test_a_ready_server_and_an_ordinary_start_say_nothing():
    assert tell([""] * 300) == ([], [])
    assert tell(["there is no configuration yet"] * 4 + [""] * 300) == ([], [])


def test_a_reason_that_lasts_is_logged_once_a_minute_and_sent_once():
    lines, sent = tell(["pods: the API cannot be reached"] * 200)
    assert [(second, level) for second, level, _ in lines] == [(5, "warn"), (65, "warn"), (125, "warn"), (185, "warn")]
    assert {text for *_, text in lines} == {"not ready: pods: the API cannot be reached"}
    assert sent == [(5, "pods: the API cannot be reached")]


def test_checks_that_change_are_logged_at_once_and_sent_after_a_minute_and_the_end_is_logged():
    lines, sent = tell(["a"] * 20 + ["b"] * 70 + [""] * 20)
    assert [(second, text) for second, _, text in lines] == [(5, "not ready: a"), (20, "not ready: b"), (80, "not ready: b"), (90, "ready again")]
    assert sent == [(5, "a"), (65, "b")]


def test_causes_that_are_worded_anew_at_each_look_are_logged_once_a_minute_and_sent_once():
    lines, sent = tell([("plugin: gone", f"sweep: ended {second} s ago") for second in range(600)])
    assert [second for second, *_ in lines] == [*range(5, 600, 60)]
    assert lines[1][2] == "not ready: plugin: gone; sweep: ended 65 s ago"
    assert sent == [(5, "plugin: gone; sweep: ended 5 s ago")]


def test_a_server_that_is_ready_now_and_then_writes_one_event_a_minute():
    _, sent = tell(([("plugin: gone", "x")] * 7 + [""] * 3) * 60)
    assert 9 <= len(sent) <= 11
    assert all(after - before >= 60 for (before, _), (after, _) in itertools.pairwise(sent))


def test_a_server_that_stops_is_not_called_ready():
    lines, _ = tell(["a"] * 20 + [None] * 20)
    assert [text for *_, text in lines] == ["not ready: a"]


def test_a_reason_that_never_stays_the_same_fills_no_log():
    lines, sent = tell([f"{second} s ago" for second in range(600)])
    assert len(lines) <= 600 / 5
    assert len(sent) <= 600 / 60
