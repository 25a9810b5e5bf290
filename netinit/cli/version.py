"""`netinit version`."""

from __future__ import annotations

import click

from netinit.base.output import show
from netinit.base.sanitize import lines
from netinit.base.version import __version__


@click.command("version")
def command() -> None:
    """Print the version."""
    show(lines([f"netinit {__version__}"]))
