"""The event log on stderr, in Istio's line format or as JSON objects, and the container's termination message.

Control characters are escaped, so that no value can forge a line. The modules logging and json would add 33 ms to each
pod's start.
"""

from __future__ import annotations

import sys
import time

from netinit.base.sanitize import escape, split_message
from netinit.base.system import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

LEVELS = ("none", "error", "warn", "info", "debug")
SCOPE = "default"
TERMINATION_LOG = "/dev/termination-log"
STDERR = 2


class Log:
    """Writes events of a level and above: error, warn, info, debug; `none` writes nothing."""

    def __init__(
        self, level: str = "info", *, as_json: bool = False, stream: TextIO | None = None, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._rank = LEVELS.index(level)
        self._as_json = as_json
        self._stream = stream
        self._clock = clock

    def error(self, message: str) -> None:
        """Log why something failed. Each line of a message becomes an event."""
        for line in split_message(message):
            self._write("error", line)

    def warn(self, message: str) -> None:
        """Log what may surprise the user."""
        self._write("warn", message)

    def info(self, message: str, text: str = "") -> None:
        """Log what was done; a `text` of several lines may follow the message."""
        if self._as_json or not text:
            self._write("info", f"{message}\n{text}" if text else message)
        elif self.wants("info"):
            lines = [_indented(line) for line in split_message(text)]
            self._emit("\n".join([format_event("info", message, self._clock()), *lines]))

    def wants(self, level: str) -> bool:
        """Whether events of this level are written."""
        return LEVELS.index(level) <= self._rank

    def _write(self, level: str, message: str) -> None:
        if self.wants(level):
            self._emit((format_json_event if self._as_json else format_event)(level, message, self._clock()))

    def _emit(self, line: str) -> None:
        stream = self._stream or sys.stderr
        if stream is not None:  # None if stderr was closed at the start
            stream.write(line + "\n")
            stream.flush()


def level_of(text: str) -> str:
    """Return the level in `--log_output_level` (debug, default:debug, all:warn): the last one, else info. Not checked."""
    found = "info"
    for item in text.split(","):
        scope, _, level = item.strip(" \t").rpartition(":")
        if level and scope in ("", "all", SCOPE):
            found = level
    return found


def let_pass_all_signs() -> None:
    """Let no sign that stdout or stderr lacks (cp1252) stop a command: `?` stands for it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a text stream of the interpreter's


def flush() -> None:
    """Flush stdout and stderr. Raises OSError if that fails."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None if it was closed at the start
            stream.flush()


def discard_stderr() -> None:
    """Redirect stderr to /dev/null: buffered data would fail again when the process exits."""
    null = posix.open("/dev/null", posix.O_WRONLY | posix.O_CLOEXEC)
    posix.dup2(null, STDERR)
    posix.close(null)


def _indented(line: str) -> str:
    """Escape a line except its leading tabs; other tabs could make a comment look like an event."""
    rest = line.lstrip("\t")
    return line[: len(line) - len(rest)] + escape(rest)


def format_event(level: str, message: str, nanoseconds: int) -> str:
    """Format one line: RFC 3339 time in UTC, tab, level, tab, message."""
    return f"{format_time(nanoseconds)}\t{level}\t{escape(message)}"


def format_json_event(level: str, message: str, nanoseconds: int) -> str:
    """Format one line: a JSON object with the keys of Istio's zap encoder."""
    try:
        from _json import encode_basestring_ascii  # the C part of json, without the rest of it
    except ImportError:  # the executable has the other part
        from json.encoder import py_encode_basestring_ascii as encode_basestring_ascii

    pairs = (("level", level), ("time", format_time(nanoseconds)), ("scope", SCOPE), ("msg", message))
    return "{" + ",".join([f'"{key}":{encode_basestring_ascii(value)}' for key, value in pairs]) + "}"


def format_time(nanoseconds: int) -> str:
    """Format a time as RFC 3339 with microseconds, in UTC."""
    year, month, day, hour, minute, second = time.gmtime(nanoseconds // 10**9)[:6]
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds % 10**9 // 1000:06}Z"
