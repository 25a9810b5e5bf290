"""`netinit verify --watch`: the comparison again whenever something changes, printed where it comes to something else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from netinit.base.errors import BackendUnavailableError, DriftError
from netinit.base.output import show_artefact, with_version
from netinit.base.sanitize import Lines
from netinit.cli.console import answer, warn
from netinit.options import Options
from netinit.pods.changes import Changes
from netinit.pods.verify import Report

MOST_FAILURES = 5  # looks one after the other that fail: rules that change meanwhile cannot always be read


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
    """Looks until Ctrl-C, and prints each report that differs from the one before, as an object a line with `to_plain`.

    The exit code is the last report's: 0 as planned, 3 where rules differ. NamespaceError where the pod goes.
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
                    if last is None or failures > MOST_FAILURES:
                        raise
                else:
                    failures = 0
                    before, last = last, report  # Ctrl-C from here on ends with this report's code
                    _say(report, before, render=render, to_plain=to_plain, seconds=time.monotonic() - begun)
                    changes.wait()
    except KeyboardInterrupt:
        if last is None:
            raise
        return DriftError.exit_code if last.differences else 0
