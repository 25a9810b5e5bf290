"""The servers' event log: one line per event, in Istio's format or as JSON."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable

from netinit.base.logs import SCOPE, Log, format_event, format_time
from netinit.base.sanitize import escape, shorten

_WINDOW_SECONDS = 60.0
_LIBRARY_LINES = 20  # per window: clients can cause them


class EventLog(Log):
    """A Log whose events may have fields: JSON keys, or `key=value` after the message."""

    def event(self, level: str, message: str, **fields: str | float | bool) -> None:
        """Write one event; empty fields are omitted."""
        if not self.wants(level):
            return
        now = self._clock()
        shown = {key: value for key, value in fields.items() if value not in {"", None}}
        if self._as_json:
            fields = {"level": level, "time": format_time(now), "scope": SCOPE, "msg": shorten(message, 4000), **shown}
            self._emit(json.dumps(fields))
        else:
            pairs = "".join(f"\t{key}={_word(value)}" for key, value in shown.items())
            self._emit(format_event(level, shorten(message, 4000), now) + pairs)


def _word(value: str | float) -> str:
    text = escape(shorten(str(value)))
    return json.dumps(text) if " " in text or '"' in text else text


class LineLimit:
    """Allows `max_lines` lines in any 60 seconds and counts the rest."""

    def __init__(self, max_lines: int, clock: Callable[[], float] = time.monotonic, *, what: str = "") -> None:
        self._max_lines = max_lines
        self._what = what
        self._clock = clock
        self._times: deque[float] = deque(maxlen=max_lines)
        self._left_out, self._since = 0, 0.0

    def admit(self) -> tuple[bool, int]:
        """Return whether a line may be written, and how many were omitted (reported at most once a minute)."""
        now, report = self._clock(), 0
        if self._left_out and now - self._since >= _WINDOW_SECONDS:
            report, self._left_out = self._left_out, 0
        if len(self._times) == self._max_lines and now - self._times[0] < _WINDOW_SECONDS:
            self._since = self._since if self._left_out else now
            self._left_out += 1
            return False, report
        self._times.append(now)
        return True, report

    def write(self, log: EventLog, level: str, message: str, **fields: str | float | bool) -> None:
        """Write an event to `log` within the limit, and before it how many lines were omitted."""
        admitted, left_out = self.admit()
        if left_out:
            log.event("warn", f"{left_out} lines {self._what} were left out: more than {self._max_lines} in a minute")
        if admitted:
            log.event(level, message, **fields)


class _Handler(logging.Handler):
    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log
        self._limit = LineLimit(_LIBRARY_LINES, what="of libraries")

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warn"
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._limit.write(self._log, level, text, library=record.name)


def forward_library_logs(log: EventLog) -> None:
    """Send the log records of libraries to `log`; uvicorn's warnings about single requests only at level debug."""
    root = logging.getLogger()
    root.handlers = [_Handler(log)]
    root.setLevel(logging.WARNING)
    if not log.wants("debug"):
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # "Invalid HTTP request received." for each one
