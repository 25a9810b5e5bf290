"""`netinit webhook serve`: the admission server."""

from __future__ import annotations

import click

from netinit.base.errors import NetinitError
from netinit.cli.flags import FlagCommand
from netinit.webhook.settings import ServeSettings


@click.command("serve", cls=FlagCommand, settings=ServeSettings)
def command(options: ServeSettings) -> int:
    """Answer the API server's reviews: inject pods as they are created.

    Serves HTTPS at /inject, /livez and /readyz, and metrics on a port of their own. Configuration and certificates are
    watched; a change is tried before it becomes active, and an invalid one leaves the previous one active. On SIGTERM it ends
    when running reviews are done.
    """
    try:
        from netinit.webhook import server
    except ImportError as error:
        raise NetinitError(
            f"the server needs packages that are not installed ({error.name}): "
            "pip install cryptography httptools httpx2 prometheus-client uvicorn"
        ) from error
    return server.run(options)
