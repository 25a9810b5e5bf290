"""`netinit node uninstall`: removes the plugin from a node whose agent no longer can."""

from __future__ import annotations

import click

from netinit.base.output import show
from netinit.base.sanitize import lines
from netinit.cli.flags import FlagCommand
from netinit.node.settings import InstallSettings


@click.command("uninstall", cls=FlagCommand, settings=InstallSettings)
def command(options: InstallSettings) -> int:
    """Remove the plugin's entry and its executable from this node.

    The agent does this itself when its DaemonSet is deleted; this is for nodes where it could not. Injected pods without an
    istio-init then start uncaptured.
    """
    from netinit.node.installation import make_installer

    changed = make_installer(options).uninstall()
    show(lines(["the plugin was removed" if changed else "there was nothing to remove"]))
    return 0
