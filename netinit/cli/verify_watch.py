"""`netinit verify --watch`: repeats the comparison on every change and prints changed results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from netinit.base.errors import BackendUnavailableError, DriftError
from netinit.base.output import show_artefact, with_version
from netinit.base.sanitize import Lines
from netinit.cli.console import answer, warn
from netinit.cli.watch import MAX_FAILURES
from netinit.options import Options
from netinit.pods.changes import Changes
from netinit.pods.verify import Report


def _say(
    report: Report, before: Report | None, *, render: Callable[[Report], Lines], to_plain: Callable[[Report], dict[str, Any]] | None,
    seconds: float,
) -> None:  # fmt: skip
    warn([text for text in report.warnings if before is None or text not in before.warnings])
    if before is not None and (before.backend, before.differences) == (report.backend, report.differences):
        return
    if to_plain:
        show_artefact(json.dumps(with_version({"seconds": round(seconds, 3), **to_plain(report)})) + "\n", now=True)
    else:
        answer(render(report), now=True)


def watch(
    options: Options, look: Callable[[], Report], *, render: Callable[[Report], Lines],
    to_plain: Callable[[Report], dict[str, Any]] | None, connections: bool = False,
) -> int:  # fmt: skip
    """Compare until Ctrl-C and print each report that differs from the one before, as JSON lines with `to_plain`.

    Returns the last report's exit code. Raises NamespaceError if the pod goes away.
    """
    begun = time.monotonic()
    last: Report | None = None
    failures = 0
    try:
        with Changes(options, connections=connections) as changes:
            while True:
                changes.begin_look()
                try:
                    report = look()
                except BackendUnavailableError:
                    failures += 1
                    if last is None or failures > MAX_FAILURES:
                        raise
                else:
                    failures = 0
                    before, last = last, report  # from here on Ctrl-C ends with this report's code
                    _say(report, before, render=render, to_plain=to_plain, seconds=time.monotonic() - begun)
                    changes.wait()
    except KeyboardInterrupt:
        if last is None:
            raise
        return DriftError.exit_code if last.differences else 0
