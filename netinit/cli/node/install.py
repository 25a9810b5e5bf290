"""`netinit node install`: installs the plugin once; the agent does the same and keeps it installed."""

from __future__ import annotations

import click

from netinit.base.output import show
from netinit.base.sanitize import lines
from netinit.cli.flags import FlagCommand
from netinit.node.settings import InstallSettings


@click.command("install", cls=FlagCommand, settings=InstallSettings)
def command(options: InstallSettings) -> int:
    """Install the plugin's executable and its entry, once.

    The agent does this when it starts, and again whenever they are changed. Pods then wait until an agent answers.
    """
    from netinit.node.installation import make_installer

    changed = make_installer(options).install()
    show(lines(["the plugin is in place" if changed else "the plugin was in place already"]))
    return 0
