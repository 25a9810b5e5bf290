"""The `netinit node` command group, which imports commands on demand."""

from __future__ import annotations

from netinit.cli.flags import HELP_NAMES
from netinit.cli.group import LazyGroup

COMMANDS = {  # name -> module under netinit.cli, what it does
    "agent": ("node.agent", "Answer the CNI plugin: program pods as the runtime creates them."),
    "status": ("node.status", "Show what is installed on this node, and the agent's state."),
    "run": ("node.inside", "Run a command for pods of this node, for kubectl netinit."),
    "install": ("node.installation", "Install the plugin, once."),
    "uninstall": ("node.installation", "Remove the plugin from this node."),
}

command = LazyGroup(
    name="node",
    commands_there=COMMANDS,
    context_settings=HELP_NAMES,
    help="""Program pods from the node, by a CNI plugin: no pod needs NET_ADMIN.

    `agent` is the DaemonSet's process, which also installs the plugin.
    """,
)
