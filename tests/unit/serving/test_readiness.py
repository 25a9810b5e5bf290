"""Why a server is not ready is told in its log and by events: at once, when it changes, and once a minute."""

from __future__ import annotations

import asyncio
import contextlib
import io

from netinit.serving.event_log import EventLog
from netinit.serving.readiness import tell_unreadiness


class OverError(Exception):
    """The last of the seconds is over."""


def tell(reasons):
    """What is logged and sent, each with its second, if the reason is `reasons[second]`."""
    now, lines, sent = 0, [], []

    async def send(reason):
        sent.append((now, reason))

    async def sleep(seconds):
        nonlocal now
        now += int(seconds)
        if now >= len(reasons):
            raise OverError

    def ask():
        return reasons[now]

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


def test_a_reason_that_changes_is_told_at_once_and_so_is_the_end():
    lines, sent = tell(["a"] * 20 + ["b"] * 20 + [""] * 20)
    assert [(second, text) for second, _, text in lines] == [(5, "not ready: a"), (20, "not ready: b"), (40, "ready again")]
    assert [reason for _, reason in sent] == ["a", "b"]


def test_a_server_that_stops_is_not_called_ready():
    lines, _ = tell(["a"] * 20 + [None] * 20)
    assert [text for *_, text in lines] == ["not ready: a"]


def test_a_reason_that_never_stays_the_same_fills_no_log():
    lines, sent = tell([f"{second} s ago" for second in range(600)])
    assert len(lines) == len(sent) <= 600 / 5
