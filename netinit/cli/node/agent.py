"""`netinit node agent`, the CNI plugin's agent; `status`, `install` and `uninstall`, for what it installs and reports."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from netinit.base.output import show
from netinit.base.sanitize import Lines, lines
from netinit.base.tree import mapping, sequence, string
from netinit.cli.console import answer_either
from netinit.cli.flags import FlagCommand, json_option, optional_packages
from netinit.node.conflist import TYPE
from netinit.node.installer import Installer
from netinit.node.settings import STATUS_FILE, AgentSettings, InstallSettings

_STALE = 15.0  # seconds since the agent's last update
FOLDERS = {  # plugins and networks of a node by node.platform, as the chart mounts them (netinit.node.bin, netinit.node.conf)
    "": ("/opt/cni/bin", "/etc/cni/net.d"),
    "k3s": ("/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/agent/etc/cni/net.d"),
    "openshift": ("/var/lib/cni/bin", "/etc/cni/multus/net.d"),
    "gke": ("/home/kubernetes/bin", "/etc/cni/net.d"),
    "microk8s": ("/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/current/args/cni-network"),
}


@click.command("agent", cls=FlagCommand, settings=AgentSettings)
def agent(options: AgentSettings) -> int:
    """Answer the CNI plugin: program pods as the runtime creates them.

    Installs the plugin and keeps it installed, watches the node's pods, and programs the namespace of each injected one before
    a container starts. Serves metrics, /livez and /readyz. On SIGTERM it ends when running requests are done.
    """
    with optional_packages("the agent needs packages that are", "pip install httptools httpx2 prometheus-client uvicorn"):
        from netinit.node import supervisor
    return supervisor.run(options)


@click.command("install", cls=FlagCommand, settings=InstallSettings)
def install(options: InstallSettings) -> int:
    """Install the plugin's executable and its entry, once.

    The agent does this when it starts, and again whenever they are changed. Pods then wait until an agent answers.
    """
    installer = Installer(find_folders(options))
    changed = installer.install()
    found = ["the plugin is in place" if changed else "the plugin was in place already"]
    show(lines([*found, *(f"warning: {text}" for text in installer.warnings().values())]))
    return 0


@click.command("uninstall", cls=FlagCommand, settings=InstallSettings)
def uninstall(options: InstallSettings) -> int:
    """Remove the plugin's entry and its executable from this node.

    The agent does this itself when its DaemonSet is deleted; this is for nodes where it could not. Injected pods without an
    istio-init then start uncaptured.
    """
    changed = Installer(find_folders(options)).uninstall()
    show(lines(["the plugin was removed" if changed else "there was nothing to remove"]))
    return 0


@click.command("status", cls=FlagCommand, settings=InstallSettings)
@json_option("node-status")
def status(options: InstallSettings, as_json: bool) -> int:
    """Show what is installed on this node, the agent's state, and its last errors.

    Only files are read: run it on the node, or in the agent's container. On a node it looks into the node's own folders, those of
    the platform that has the plugin. Exit codes: 0 pods are captured, 1 something is wrong.
    """
    found = gather(find_folders(options), time.time())
    answer_either(found, render(found), as_json=as_json)
    return 1 if found["executable"] or found["entry"] or found["agent"] else 0


def find_folders(options: InstallSettings, root: Path = Path("/")) -> InstallSettings:
    """Return the options with the folders of this node, where those of an agent's container are not there and no others are given."""
    container = InstallSettings()
    default = container.bin_folder, container.conf_folder
    if (options.bin_folder, options.conf_folder) != default or any((root / one.lstrip("/")).is_dir() for one in default):
        return options
    own = [(root / plugins.lstrip("/"), root / networks.lstrip("/")) for plugins, networks in FOLDERS.values()]
    with_plugin = [pair for pair in own if (pair[0] / TYPE).exists() or (pair[0] / TYPE).with_suffix(".settings").exists()]
    with_network = [pair for pair in own if all(folder.is_dir() for folder in pair)]
    plugins, networks = next(iter((*with_plugin, *with_network, *own)))
    return options.replace(bin_folder=str(plugins), conf_folder=str(networks))


def gather(options: InstallSettings, now: float) -> dict[str, Any]:
    """The problem of each part (empty if none), and the agent's own status."""
    try:
        status = mapping(json.loads((Path(options.socket).parent / STATUS_FILE).read_bytes()))
    except (OSError, ValueError):
        status = {}
    silence = now - float(status.get("time", 0))
    if not status:
        wrong = "it has not run on this node since the last start"
    elif silence > _STALE:
        wrong = f"it has not reported for {silence:.0f} s"
    else:
        wrong = "; ".join([f"{name}: {text}" for name, check in mapping(status.get("checks")).items() if (text := string(check))])
    installer = Installer(options)
    return {
        **installer.state(), "agent": wrong, "pods": status.get("pods", 0),
        "problems": [f"{name}: {string(problem)}" for name, problem in mapping(status.get("problems")).items()],
        "warnings": list(installer.warnings().values()),
        "lastErrors": [string(one) for one in sequence(status.get("lastErrors"))],
    }  # fmt: skip


def render(found: dict[str, Any]) -> Lines:
    """Format a line per part, and the recent errors."""
    printed = [f"{'✘' if found[part] else '✔'} {part}: {found[part] or 'in place'}" for part in ("executable", "entry")]
    printed.append(f"✘ agent: {found['agent']}" if found["agent"] else f"✔ agent: it answers for {found['pods']} pods")
    printed += [f"! {problem}" for problem in (*found["problems"], *found["warnings"])]
    printed += [f"error: {error}" for error in found["lastErrors"]]
    return lines(printed)


make_command = {"agent": agent, "install": install, "uninstall": uninstall, "status": status}.__getitem__
