"""`netinit node install` and `netinit node uninstall`, for nodes where the agent does not do it."""

from __future__ import annotations

import click

from netinit.base.output import show
from netinit.base.sanitize import lines
from netinit.cli.flags import FlagCommand
from netinit.node.settings import InstallSettings


@click.command("install", cls=FlagCommand, settings=InstallSettings)
def install(options: InstallSettings) -> int:
    """Install the plugin's executable and its entry, once.

    The agent does this when it starts, and again whenever they are changed. Pods then wait until an agent answers.
    """
    from netinit.node.installer import Installer

    changed = Installer(options).install()
    show(lines(["the plugin is in place" if changed else "the plugin was in place already"]))
    return 0


@click.command("uninstall", cls=FlagCommand, settings=InstallSettings)
def uninstall(options: InstallSettings) -> int:
    """Remove the plugin's entry and its executable from this node.

    The agent does this itself when its DaemonSet is deleted; this is for nodes where it could not. Injected pods without an
    istio-init then start uncaptured.
    """
    from netinit.node.installer import Installer

    changed = Installer(options).uninstall()
    show(lines(["the plugin was removed" if changed else "there was nothing to remove"]))
    return 0


make_command = {"install": install, "uninstall": uninstall}.__getitem__
