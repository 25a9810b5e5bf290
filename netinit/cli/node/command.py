"""The `netinit node` command group, which imports commands on demand."""

from __future__ import annotations

from netinit.cli.flags import HELP_NAMES
from netinit.cli.group import LazyGroup

__all__ = ["command"]

COMMANDS = {  # name -> (module under netinit.cli, summary)
    "agent": ("node.agent", "Answer the CNI plugin: program pods as the runtime makes them."),
    "status": ("node.status", "Show what is installed on this node, and how the agent is."),
    "run": ("node.inside", "Run a reading command for a pod of this node, by its addresses."),
    "install": ("node.install", "Put the plugin in place, once."),
    "uninstall": ("node.uninstall", "Remove the plugin from this node."),
}

command = LazyGroup(
    name="node",
    commands_there=COMMANDS,
    context_settings=HELP_NAMES,
    help="""Program pods from the node, by a CNI plugin: no pod needs NET_ADMIN.

    `agent` is a DaemonSet's process, which also installs the plugin.
    """,
)
