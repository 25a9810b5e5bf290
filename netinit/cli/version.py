"""`netinit version`."""

from __future__ import annotations

import click

from netinit import __version__
from netinit.cli.flags import HELP_NAMES
from netinit.output import show
from netinit.shown import lines


@click.command("version", context_settings=HELP_NAMES)
def command() -> None:
    """Print the version."""
    show(lines([f"netinit {__version__}"]))
