"""The server's log: a line an event, as Istio's or as JSON, in which a review's facts have fields of their own."""

from __future__ import annotations

import json
import logging
import time
from typing import TextIO

from netinit.base.logs import SCOPE, Log, format_event, format_time
from netinit.base.shown import escape, shorten

__all__ = ["EventLog", "adopt_library_logs"]


class EventLog(Log):
    """A Log whose events may have fields: keys of JSON's object, `key=value` behind the message in the other form."""

    def __init__(self, level: str = "info", *, as_json: bool = False, stream: TextIO | None = None) -> None:
        super().__init__(level, as_json=as_json, stream=stream)
        self._json = as_json

    def event(self, level: str, message: str, **fields: str | float | bool) -> None:
        """One line; fields that are empty are left out."""
        if not self.wants(level):
            return
        now = time.time_ns()
        kept = {key: value for key, value in fields.items() if value not in {"", None}}
        if self._json:
            told = {"level": level, "time": format_time(now), "scope": SCOPE, "msg": shorten(message, 4000), **kept}
            self._emit(json.dumps(told))
        else:
            pairs = "".join(f"\t{key}={_word(value)}" for key, value in kept.items())
            self._emit(format_event(level, shorten(message, 4000), now) + pairs)


def _word(value: str | float) -> str:
    text = escape(shorten(str(value)))
    return json.dumps(text) if " " in text or '"' in text else text


class _Handler(logging.Handler):
    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """What a library says, as one line of ours; its debugging is nobody's business."""
        level = "error" if record.levelno >= logging.ERROR else "warn"
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._log.event(level, text, library=record.name)


def adopt_library_logs(log: EventLog) -> None:
    """From now on what libraries log by `logging` goes through this log; warnings about single requests do at debug."""
    root = logging.getLogger()
    root.handlers = [_Handler(log)]
    root.setLevel(logging.WARNING)
    if not log.wants("debug"):
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # "Invalid HTTP request received." for each such
