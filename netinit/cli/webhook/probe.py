"""`netinit webhook probe`: an exec probe that checks the age of the health file."""

from __future__ import annotations

import time
from pathlib import Path

import click

from netinit.base.errors import NetinitError
from netinit.base.sanitize import quote
from netinit.cli.flags import HELP_NAMES, read_value
from netinit.webhook.settings import SECOND, read_duration

_SLACK = 0.01  # seconds, as in Istio's probe


@click.command("probe", context_settings=HELP_NAMES)
@click.option("--probe-path", "path", required=True, metavar="FILE", help="The file of --healthCheckFile.")
@click.option("--interval", default="4s", metavar="DURATION", help="How old it may be. [default: 4s]")
def command(path: str, interval: str) -> int:
    """Find out whether the server is healthy, by the file that it writes.

    Exit codes: 0 it is, 1 the file is older than the interval, or does not exist.
    """
    allowed = read_value(interval, read_duration, "--interval") / SECOND + _SLACK
    try:
        age = time.time() - Path(path).stat().st_mtime
    except OSError as error:
        raise NetinitError(f"--probe-path: {quote(path)} cannot be read: {error.strerror}") from error
    if age > allowed:
        raise NetinitError(f"the server is not healthy: it wrote {quote(path)} {age:.2f} s ago, {allowed:.2f} s are allowed")
    return 0
