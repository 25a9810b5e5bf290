"""`netinit webhook serve`: the admission server."""

from __future__ import annotations

import click

from netinit.cli.flags import FlagCommand, optional_packages
from netinit.webhook.settings import ServeSettings


@click.command("serve", cls=FlagCommand, settings=ServeSettings)
def command(options: ServeSettings) -> int:
    """Answer the API server's reviews: inject pods as they are created.

    Serves HTTPS at /inject, /livez and /readyz, and metrics on a port of their own. Configuration and certificates are
    watched; a change is tried before it becomes active, and an invalid one leaves the previous one active. On SIGTERM it ends
    when running reviews are done.
    """
    remedy = "pip install cryptography httptools httpx2 prometheus-client uvicorn"
    with optional_packages("the server needs packages that are", remedy):
        from netinit.webhook import server
    return server.run(options)
