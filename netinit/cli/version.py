"""`netinit version`."""

from __future__ import annotations

import sys

import click

from netinit import __version__
from netinit.cli.flags import HELP_NAMES


@click.command("version", context_settings=HELP_NAMES)
def command() -> None:
    """Print the version."""
    sys.stdout.write(f"netinit {__version__}\n")
