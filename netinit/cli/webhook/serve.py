"""`netinit webhook serve`, the admission server, and `probe`, an exec probe that checks the age of its health file."""

from __future__ import annotations

import time
from pathlib import Path

import click

from netinit.base.errors import NetinitError
from netinit.base.sanitize import quote
from netinit.cli.flags import FlagCommand, optional_packages
from netinit.cli.values import takes
from netinit.webhook.settings import DURATION, SECOND, ServeSettings

_SLACK = 0.01  # seconds, as in Istio's probe


@click.command("serve", cls=FlagCommand, settings=ServeSettings)
def serve(options: ServeSettings) -> int:
    """Answer the API server's reviews: inject pods as they are created.

    Serves HTTPS at /inject, /livez and /readyz, and metrics on a port of their own. Configuration and certificates are
    watched; a change is tried before it becomes active, and an invalid one leaves the previous one active. On SIGTERM it ends
    when running reviews are done.
    """
    remedy = "pip install cryptography httptools httpx2 prometheus-client uvicorn"
    with optional_packages("the server needs packages that are", remedy):
        from netinit.webhook import server
    return server.run(options)


@click.command("probe")
@click.option("--probe-path", "path", required=True, **takes("FILE"), help="The file of --healthCheckFile.")
@click.option("--interval", default="4s", **takes(DURATION), help="How old it may be. [default: 4s]")
def probe(path: str, interval: int) -> int:
    """Find out whether the server is healthy, by the file that it writes.

    Exit codes: 0 it is, 1 the file is older than the interval, or does not exist.
    """
    allowed = interval / SECOND + _SLACK
    try:
        age = time.time() - Path(path).stat().st_mtime
    except OSError as error:
        raise NetinitError(f"--probe-path: {quote(path)} cannot be read: {error.strerror}") from error
    if age > allowed:
        raise NetinitError(f"the server is not healthy: it wrote {quote(path)} {age:.2f} s ago, {allowed:.2f} s are allowed")
    return 0


make_command = {"serve": serve, "probe": probe}.__getitem__
