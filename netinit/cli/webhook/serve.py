"""`netinit webhook serve`: the admission server."""

from __future__ import annotations

import click

from netinit.base.errors import NetinitError
from netinit.cli.flags import FlagCommand
from netinit.webhook.settings import REMOVED, ServeSettings


@click.command("serve", cls=FlagCommand, settings=ServeSettings, hides=tuple(REMOVED))
def command(options: ServeSettings) -> int:
    """Answer the API server's reviews: inject pods as they are created.

    Serves HTTPS at /inject, /livez and /readyz, and metrics at a port of their own. The configuration and the certificate
    are watched; a change is tried first and then taken whole, and an invalid one leaves the one before in use.
    Ends on SIGTERM, when the reviews that were begun are done.
    """
    try:
        from netinit.webhook import server
    except ImportError as error:
        raise NetinitError(
            f"the server needs packages that are not installed ({error.name}): "
            "pip install cryptography httptools httpx2 prometheus-client uvicorn"
        ) from error
    return server.run(options)
