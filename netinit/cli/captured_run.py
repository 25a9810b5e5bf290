"""Runs a command in this process with its input given and its output captured: for children, which end with the answer."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netinit.base.sanitize import shorten
from netinit.cli import start

MAX_BYTES = 1 << 20  # of an answer, and of its notes


class CapturedRun(NamedTuple):
    """A command's exit code, what it printed, and its notes."""

    code: int
    output: str
    errors: str


def run_captured(words: Sequence[str], environ: Mapping[str, str], stdin: str = "") -> CapturedRun:
    """Run `netinit WORDS` with these variables alone."""
    own, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = start.run(["netinit", *words], environ)
    finally:
        sys.stdin = own
    return CapturedRun(code, *[shorten(text.getvalue(), MAX_BYTES) for text in (out, err)])
