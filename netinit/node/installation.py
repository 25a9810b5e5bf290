"""Create the installer for given settings, for the agent and for commands on a node."""

from __future__ import annotations

from pathlib import Path

from netinit.node import conflist
from netinit.node.installer import Installer
from netinit.node.settings import OUTSIDE_FILE, SECOND, START, InstallSettings

__all__ = ["make_installer"]


def make_installer(settings: InstallSettings) -> Installer:
    """Return the installer for these settings."""
    seconds = max(1, settings.timeout // SECOND)
    run_folder = Path(settings.socket).parent
    text = conflist.settings_of(
        socket=settings.socket, namespace=settings.namespace, daemon_set=settings.daemon_set, seconds=seconds,
        excluded=settings.exclude_namespaces, outside=str(run_folder / OUTSIDE_FILE) if settings.outside_namespaces == START else "",
    )  # fmt: skip
    return Installer(
        plugin=Path(settings.plugin), bin_folder=Path(settings.bin_folder), conf_folder=Path(settings.conf_folder),
        conf_name=settings.conf_name, run_folder=run_folder, settings=text,
        standalone=settings.standalone,
    )  # fmt: skip
