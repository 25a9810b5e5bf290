"""`netinit remove`: the namespace as it was before."""

from __future__ import annotations

import click

from netinit.cli.flags import FlagCommand
from netinit.cli.start import do
from netinit.options import Options


@click.command("remove", cls=FlagCommand)
def command(options: Options) -> int:
    """Remove all rules, chains, routes and the address that netinit or istio-iptables made.

    The options that made them need not be given. Foreign rules stay as they are.
    """
    return do(options.replace(cleanup_only=True))
